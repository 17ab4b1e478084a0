"""Plugin for pytest that the cases need.

It provides the server under test in its four forms, skips cases of unsupported features, names the
cases after their data, and describes failed comparisons in one line.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextvars import ContextVar
from email.message import Message
from enum import Enum
from typing import Any

import pytest

from oip_conformance.client import Http
from oip_conformance.features import GRPC_FEATURES
from oip_conformance.skips import require_feature, require_grpc, skip_not_run
from oip_conformance.target import TARGET, Rest, Target
from oip_conformance.texts import shorten
from oip_conformance.wires import FORMS, Grpc


def pytest_configure(config: pytest.Config) -> None:
    description = "optional features. If the server lacks one, the case is not supported"
    config.addinivalue_line("markers", f"needs(*features): {description}")


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config) -> Target:
    """Return the server under test."""
    return pytestconfig.stash[TARGET]


@pytest.fixture(autouse=True)
def prepare_case(request: pytest.FixtureRequest, target: Target) -> None:
    """Skip a case whose features the server does not support. Forget the requests before the case.

    The features are the arguments of the markers `needs`, and BF16 for a parameter `datatype` with
    this value. The report of a case that fails before its first request must not show the last
    request of another case, or of the detection of a feature.
    """
    for feature in needed_features(request.node):
        if feature in GRPC_FEATURES:
            require_grpc(target)
        require_feature(target, feature)

    target.last_exchange.request = ""
    target.last_exchange.response = ""


def needed_features(item: pytest.Item) -> list[str]:
    """Return the features without which the case cannot run."""
    features = []
    # Only a parametrized case has a callspec.
    if hasattr(item, "callspec") and item.callspec.params.get("datatype") == "BF16":
        features.append("bf16")
    for mark in item.iter_markers("needs"):
        features += mark.args
    return features


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
    require_grpc(target)
    return target.forms["grpc typed"]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, target: Target) -> str:
    """Return each of the four forms for target.infer()."""
    form: str = request.param
    if form.startswith("grpc"):
        require_grpc(target)
    if form == "rest binary":
        require_feature(target, "binary")
    return form


@pytest.fixture
def limit(target: Target) -> int:
    """Return the maximum size of a request in bytes."""
    if target.limit is None:
        skip_not_run("no --limit BYTES was given")
    return target.limit


MAX_VALUE_LENGTH = 200
MAX_ID_LENGTH = 60
SHORTENED_ID_LENGTH = 50

# A conftest.py can import the hooks of this plugin for the cases in its directory. pytest calls
# pytest_make_parametrize_id of a conftest.py for all tests of a run, though, and must not rename
# those. It calls pytest_generate_tests only for the tests in the directory. The latter hook
# therefore sets this variable while the former names the parameters of a case.
is_naming_case = ContextVar("is_naming_case", default=False)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests() -> Generator[None, None, None]:
    """Set is_naming_case while pytest generates the cases of a test, which includes their names."""
    token = is_naming_case.set(True)
    try:
        yield
    finally:
        is_naming_case.reset(token)


def pytest_make_parametrize_id(config: pytest.Config, val: Any, argname: str) -> str | None:
    """Return the truncated value as an id, so that the name of a case shows its data.

    The id of an enum's member, a function or a class is its name. For a test outside the suite,
    return None, so that pytest chooses the id.
    """
    if not is_naming_case.get():
        return None
    if isinstance(val, Enum):
        return val.name
    if callable(val):
        return val.__name__

    is_plain = isinstance(val, str) and val.isprintable()
    text = val if is_plain else repr(val)
    if len(text) <= MAX_ID_LENGTH:
        return text
    return f"{text[:SHORTENED_ID_LENGTH]}… ({len(text)} characters)"


# Descriptions of comparison operators.
OPERATOR_DESCRIPTIONS = {
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
        return [f"expected {short_repr(left)} {op} {short_repr(right)}"]
    if op in OPERATOR_DESCRIPTIONS:
        return [f"expected {OPERATOR_DESCRIPTIONS[op]}{short_repr(right)}, got {short_repr(left)}"]
    return None


def short_repr(value: Any) -> str:
    """Return the value as truncated text. Headers are dicts, and sets are sorted."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Message):
        value = dict(value.items())
    if isinstance(value, set):
        value = sorted(value, key=repr)
    return shorten(repr(value), MAX_VALUE_LENGTH)


@pytest.fixture
def infer_path(target: Target) -> str:
    """Return the path of inference requests."""
    return f"{target.path}/infer"
