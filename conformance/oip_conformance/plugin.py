"""Plugin for pytest that the cases need: the server under test in its four forms, and skips for unsupported features."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextvars import ContextVar
from email.message import Message
from enum import Enum
from typing import Any

import pytest

from oip_conformance.client import Http
from oip_conformance.target import TARGET, Rest, Target
from oip_conformance.wires import FORMS, Grpc


def pytest_configure(config: pytest.Config) -> None:
    description = "what a server may do without; where it does, the case is not supported"
    config.addinivalue_line("markers", f"needs(*features): {description}")


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    """Return the server under test."""
    return pytestconfig.stash[TARGET]


@pytest.fixture(autouse=True)
def supported(request: pytest.FixtureRequest, target: Target) -> None:
    """Skip a case if the server does not support a required feature."""
    datatype = (
        request.node.callspec.params.get("datatype") if hasattr(request.node, "callspec") else ""
    )
    needed = ["bf16"] if datatype == "BF16" else []
    for mark in request.node.iter_markers("needs"):
        needed += mark.args
    for feature in needed:
        if feature in ("health", "reflection") or feature.startswith("rpc "):
            request.getfixturevalue("rpc")
        if reason := target.missing_feature(feature):
            pytest.skip(f"not supported: {reason}")
    target.last.request = target.last.response = ""


@pytest.fixture
def http(target: Target) -> Iterator[Http]:
    """Open a connection for a case."""
    connection = target.connect()
    yield connection
    connection.close()


@pytest.fixture
def rest(target: Target, http: Http) -> Rest:
    """Return a client for REST with JSON, which uses the connection `http`."""
    return Rest(http, model=target.rest.model)


@pytest.fixture
def rpc(target: Target) -> Grpc:
    """Return a client for gRPC with typed contents."""
    if target.channel is None:
        pytest.skip("not run: no --grpc ADDRESS was given")
    return target.forms["grpc typed"]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, target: Target) -> str:
    """Return each of the four forms for target.infer()."""
    form: str = request.param
    if form.startswith("grpc"):
        request.getfixturevalue("rpc")
    elif form == "rest binary" and (reason := target.missing_feature("binary")):
        pytest.skip(f"not supported: {reason}")
    return form


@pytest.fixture
def limit(target: Target) -> int:
    """Return the maximum size of a request in bytes."""
    if target.limit is None:
        pytest.skip("not run: no --limit BYTES was given")
    return target.limit


# True while pytest names the parameters of a case. It calls pytest_make_parametrize_id for all tests of a run, also if
# the hook belongs to a directory.
is_naming_case = ContextVar("is_naming_case", default=False)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests() -> Generator[None, None, None]:
    token = is_naming_case.set(True)
    try:
        yield
    finally:
        is_naming_case.reset(token)


def pytest_make_parametrize_id(config: pytest.Config, val: Any, argname: str) -> str | None:
    """Return the truncated value as an id, so that the name of a case shows its data."""
    if not is_naming_case.get():
        return None
    if isinstance(val, Enum) or callable(val):
        return val.name if isinstance(val, Enum) else val.__name__
    text = val if isinstance(val, str) and val.isprintable() else repr(val)
    return text if len(text) <= 60 else f"{text[:50]}… ({len(text)} characters)"


# Descriptions of comparison operators.
EXPECTED = {
    "==": "",
    "!=": "other than ",
    "<=": "at most ",
    "<": "less than ",
    ">=": "at least ",
    ">": "more than ",
}


def pytest_assertrepr_compare(op: str, left: Any, right: Any) -> list[str] | None:
    """Describe a failed comparison in one line, with the expected and the actual value."""
    if op in ("in", "not in"):
        return [f"expected {short(left)} {op} {short(right)}"]
    return [f"expected {EXPECTED[op]}{short(right)}, got {short(left)}"] if op in EXPECTED else None


def short(value: Any) -> str:
    """Return the value as truncated text. Headers are dicts, and sets are sorted."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Message):
        value = dict(value.items())
    text = repr(sorted(value, key=repr) if isinstance(value, set) else value)
    return text if len(text) <= 200 else f"{text[:200]}..."


@pytest.fixture
def infer_path(target: Target) -> str:
    """Return the path of inference requests."""
    return f"{target.path}/infer"
