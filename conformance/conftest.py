"""Fixtures of the cases: the server under test in each of the four forms, and what is left out for a server."""

from __future__ import annotations

from collections.abc import Iterator
from email.message import Message
from enum import Enum
from typing import Any

import pytest

from conformance.client import Http
from conformance.target import FORMS, TARGET, Rest, Target
from tests.service.wires import Grpc


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    """The server under test."""
    return pytestconfig.stash[TARGET]


@pytest.fixture(autouse=True)
def supported(request: pytest.FixtureRequest, target: Target) -> None:
    """Skips a case that needs what the server does without."""
    for mark in request.node.iter_markers("needs"):
        for feature in mark.args:
            if feature in ("health", "reflection") or feature.startswith("rpc "):
                request.getfixturevalue("rpc")
            if reason := target.lacks(feature):
                pytest.skip(f"not supported: {reason}")
    target.last.sent = target.last.got = ""


@pytest.fixture
def http(target: Target) -> Iterator[Http]:
    """A connection of the case's own."""
    connection = target.connect()
    yield connection
    connection.close()


@pytest.fixture
def rest(target: Target, http: Http) -> Rest:
    """JSON over REST, on the connection `http`."""
    return Rest(http, model=target.rest.model)


@pytest.fixture
def rpc(target: Target) -> Grpc:
    """Typed gRPC."""
    if target.channel is None:
        pytest.skip("not run: no --grpc ADDRESS was given")
    return target.forms["grpc typed"]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, target: Target) -> str:
    """Each of the four forms in turn, for target.infer()."""
    form: str = request.param
    if form.startswith("grpc"):
        request.getfixturevalue("rpc")
    elif form == "rest binary" and (reason := target.lacks("binary")):
        pytest.skip(f"not supported: {reason}")
    return form


@pytest.fixture
def limit(target: Target) -> int:
    """The largest request that the server takes, in bytes."""
    if target.limit is None:
        pytest.skip("not run: no --limit BYTES was given")
    return target.limit


def pytest_make_parametrize_id(config: pytest.Config, val: Any, argname: str) -> str | None:
    """Values as they are written, cut where they are long: a case is known by what it sends."""
    if isinstance(val, Enum) or callable(val):
        return val.name if isinstance(val, Enum) else val.__name__
    text = val if isinstance(val, str) and val.isprintable() else repr(val)
    return text if len(text) <= 60 else f"{text[:50]}… ({len(text)} characters)"


# What an operator expects of what stands left of it.
EXPECTED = {"==": "", "!=": "other than ", "<=": "at most ", "<": "less than ", ">=": "at least ", ">": "more than "}


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """What was expected and what came, in a line."""
    if op in ("in", "not in"):
        return [f"expected {short(left)} {op} {short(right)}"]
    return [f"expected {EXPECTED[op]}{short(right)}, got {short(left)}"] if op in EXPECTED else None


def short(value: Any) -> str:
    """The value as it is written, cut; headers by name, and sets in order."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Message):
        value = dict(value.items())
    text = repr(sorted(value, key=repr) if isinstance(value, set) else value)
    return text if len(text) <= 200 else f"{text[:200]}..."
