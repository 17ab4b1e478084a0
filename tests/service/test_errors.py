"""The log of an error contains no data that a client sent.

Each case sends a secret, in text or in numbers, and fails. The cases cover every place that makes an InferenceError.
"""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.codecs.arrays import NumpyCodec, NumpyRequestCodec
from app.codecs.datetimes import DatetimeCodec
from app.codecs.frames import PandasCodec, PandasJsonCodec
from app.codecs.strings import Base64Codec
from app.inference.memory_budget import MemoryBudget, RequestMemory
from app.inference.predict_adapter import ModelAdapter
from app.inference.time_limit import TimeLimit
from app.protocol import errors
from app.protocol.errors import (
    ConfigurationError,
    InferenceError,
    PayloadTooLarge,
    PredictTimeout,
)
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import RequestInput
from app.rest.request_reader import read_body, read_raw
from app.rest.schemas import validate_request
from grpc_service import converters
from tests.kit import models
from tests.kit.processes import gunicorn, wait_for
from tests.kit.reviewed_messages import check_messages
from tests.service.error_app import SITES, Site, record_sites
from tests.service.error_cases import (
    GRPC,
    INFER,
    KEY,
    LIMIT,
    MODEL,
    MODEL_RAISES,
    MUST_RPC,
    NUMBER,
    REST,
    RESULTS_REST,
    SECONDS,
    SECRET,
    Client,
    infer,
    message,
    tensor,
)

ROOT = Path(__file__).parents[2]

# Modules that only clients and tests use. Their errors never reach the service's log.
CLIENT_ONLY = ("app/testing.py", "app/cli/", "grpc_service/client.py", "app/protocol/errors.py")


@dataclass
class Outcome:
    """The statuses by case, the places that created errors, the error messages, and the log of a service."""

    statuses: dict[str, str] = field(default_factory=dict)
    sites: set[Site] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    log: str = ""


SETTINGS: dict[str, dict[str, Any]] = {
    "text": {"LOG_FORMAT": "text"},
    "json": {"LOG_FORMAT": "json", "MAX_BATCH_SIZE": 2},
}


@pytest.fixture(scope="module", params=SETTINGS)
def outcome(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Send all cases to a service with one log format. The second service has batching."""
    return outcome_of(request.param, tmp_path_factory)


OUTCOMES: dict[str, Outcome] = {}


def outcome_of(name: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    if name not in OUTCOMES:
        OUTCOMES[name] = send_all(SETTINGS[name], tmp_path_factory.mktemp(name))
    return OUTCOMES[name]


def send_all(settings: dict[str, Any], folder: Path) -> Outcome:
    result = Outcome()
    (folder / "keys").write_text(KEY)
    limits = {"MAX_REQUEST_BYTES": LIMIT, "MAX_CONCURRENCY": 1, "MAX_QUEUE_SIZE": 2, "WORKERS": 1}
    files = {"API_KEYS_FILE": folder / "keys", "FOLDER": folder, SITES: folder / "sites"}
    with gunicorn(
        ROOT,
        "tests.service.error_app:create()",
        is_ready=lambda running: running.get("/v2/health/live") is not None,
        LOG_LEVEL="DEBUG",
        **limits,
        **files,
        **settings,
    ) as service:
        client = Client(service)
        statuses = result.statuses
        statuses["rest not ready"] = client.rest(json.dumps(infer(id=SECRET)).encode())
        statuses["grpc not ready"] = client.rpc(message(MUST_RPC).SerializeToString())
        (folder / "loaded").touch()
        wait_for(service.ready)
        for case in (*REST, *RESULTS_REST, *GRPC, *MODEL_RAISES):
            statuses[case.name] = case.send(client)
        statuses["rows"] = client.rest(
            json.dumps({"inputs": [tensor("must", [NUMBER, NUMBER], "FP32")]}).encode()
        )
        busy(client, statuses, folder)
        read_statistics(client, statuses)
        stopping(client, statuses, folder)
    result.log, result.messages = service.log(), client.messages
    for line in (folder / "sites").read_text().splitlines():
        name, file, number = line.split("\t")
        result.sites.add((name, file, int(number)))
    return result


def waiting(number: int) -> bytes:
    """Return the message of a call that ends when there is the file FOLDER/`number`."""
    inputs = (
        ("action", "BYTES", [1], {"bytes_contents": [b"wait"]}),
        ("must", "FP32", [1], {"fp32_contents": [number]}),
    )
    return message(*inputs).SerializeToString()


@contextmanager
def running_call(client: Client, number: int, folder: Path) -> Iterator[None]:
    """Run a call of the model until the end of the block."""
    thread = threading.Thread(target=client.rpc, args=(waiting(number),))
    thread.start()
    try:
        yield
    finally:
        (folder / str(number)).touch()
        thread.join()


def wait_for_requests(client: Client, count: int) -> None:
    """Wait until `count` requests run or are queued."""
    line = b"\ninference_requests_in_flight %d.0\n" % count
    wait_for(lambda: line in (client.service.get("/metrics") or b""))


def busy(client: Client, statuses: dict[str, str], folder: Path) -> None:
    """Let requests wait for the model until their deadline passes, their client leaves, or the queue is full."""
    body = json.dumps(infer(id=SECRET)).encode()
    brief = json.dumps(infer(id=SECRET, parameters={"timeout": 100_000})).encode()
    queued = threading.Thread(target=client.rest, args=(body,))
    with running_call(client, 1, folder):
        wait_for_requests(client, 1)
        statuses["rest queued too long"] = client.rest(brief)
        queued.start()
        wait_for_requests(client, 2)
        with socket.create_connection(("127.0.0.1", client.service.http_port), SECONDS) as leaving:
            head = f"POST {INFER} HTTP/1.1\r\nHost: a\r\nx-api-key: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
            leaving.sendall(head.encode() + body)
            wait_for_requests(client, 3)
            statuses["rest overloaded"] = client.rest(brief)
            statuses["grpc overloaded"] = client.rpc(message(MUST_RPC).SerializeToString())
    queued.join()
    wait_for_requests(client, 0)


def read_statistics(client: Client, statuses: dict[str, str]) -> None:
    """Ask for the statistics in many threads, until there are too many for the service."""
    with ThreadPoolExecutor(20) as pool:

        def is_rejected() -> bool:
            futures = [
                pool.submit(client.rest, b"", f"{MODEL}/stats", method="GET") for _ in range(20)
            ]
            return "503" in [future.result() for future in futures]

        wait_for(is_rejected)
    statuses["rest too many readers"] = "503"


def stopping(client: Client, statuses: dict[str, str], folder: Path) -> None:
    """Send calls to a worker that waits for another call before it stops."""
    with running_call(client, 2, folder):
        wait_for_requests(client, 1)
        os.kill(client.service.process.pid, signal.SIGTERM)
        wait_for(lambda: client.rpc(b"", "ServerLive") == "UNAVAILABLE")
        statuses["grpc stopping"] = client.rpc(message(MUST_RPC).SerializeToString())


SCENARIOS = {
    "rest not ready": "503",
    "grpc not ready": "UNAVAILABLE",
    "rest queued too long": "504",
    "rest overloaded": "503",
    "grpc overloaded": "RESOURCE_EXHAUSTED",
    "rest too many readers": "503",
    "grpc stopping": "UNAVAILABLE",
}


def test_each_case_has_its_status(outcome: Outcome, request: pytest.FixtureRequest) -> None:
    """R19, G1: each case fails with the status of its error."""
    cases = (*REST, *RESULTS_REST, *GRPC, *MODEL_RAISES)
    expected = {case.name: case.status for case in cases} | SCENARIOS
    expected["rows"] = "500" if "json" in request.node.name else "200"
    assert len(expected) == len(cases) + len(SCENARIOS) + 1
    assert outcome.statuses == expected


def test_log_has_no_client_data(outcome: Outcome) -> None:
    """No line of the log, in either format and even at level DEBUG, contains data that a client sent."""
    assert "INVALID_ARGUMENT" in outcome.log
    leaks = [
        line for line in outcome.log.splitlines() if SECRET in line.lower() or str(NUMBER) in line
    ]
    assert not leaks


@dataclass
class Direct:
    """A call of a function, for errors that occur only in a client or at the start of the service."""

    name: str
    call: Callable[[], Any]
    error: type[Exception] = InferenceError


def frame_of(*tensors: RequestInput) -> Any:
    return PandasCodec.decode_request(InferenceRequest(list(tensors)))


def moments(*texts: Any) -> RequestInput:
    return RequestInput("x", "BYTES", data=list(texts), parameters={"content_type": "datetime"})


def predictor(
    content_type: str | None = None,
    example: Any = None,
    missing: str | None = None,
    optional: Any = False,
) -> ModelAdapter:
    metadata = MetadataTensor("x", "FP32", [-1], content_type, missing, optional)
    module = models.model([metadata], [metadata], lambda _, x: x)
    module.EXAMPLE = example
    return ModelAdapter(module)


class Unconvertible:
    """A value of another library that NumPy cannot convert, such as a torch tensor that requires gradients."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError(SECRET)


def recursive() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def reserve(body_size: int, *, limit: int, reserved: int = 0) -> None:
    """Reserve memory for a request whose body has this number of bytes."""
    budget = MemoryBudget()
    budget.set_total(2 * limit)
    budget.reserve(reserved)
    RequestMemory(budget).count_body(bytes(body_size), json_size=None)


def output(**members: Any) -> dict[str, Any]:
    return {
        "outputs": [
            {"name": SECRET, "datatype": "BYTES", "shape": [1], "data": [SECRET], **members}
        ]
    }


def environ_of(body: bytes | None, length: int) -> dict[str, Any]:
    """Return the environ of a server that does not wait for the whole body, as gunicorn's own workers."""
    return {"CONTENT_LENGTH": str(length), "wsgi.input": body if body is None else io.BytesIO(body)}


MATRIX = models.echo("FP32", [-1, -1])
DIRECT = [
    Direct(
        "array without a datatype", lambda: NumpyCodec.encode_input(SECRET, np.array([NUMBER * 1j]))
    ),
    Direct("first tensor", lambda: NumpyRequestCodec.decode_request(InferenceRequest([]))),
    Direct("None in base64", lambda: Base64Codec.encode_input(SECRET, [SECRET, None])),
    Direct("object in datetime", lambda: DatetimeCodec.encode_input(SECRET, [NUMBER])),
    Direct("object in pd_json", lambda: PandasJsonCodec.encode_input(SECRET, [{NUMBER: SECRET}])),
    Direct("recursion in pd_json", lambda: PandasJsonCodec.encode_input(SECRET, [recursive()])),
    Direct("scalar column", lambda: frame_of(RequestInput(SECRET, "FP32", [], NUMBER))),
    Direct("null in a column of datetimes", lambda: frame_of(moments(None))),
    Direct(
        "datetimes with and without an offset",
        lambda: frame_of(moments("2026-01-01", "2026-01-01T00:00Z")),
    ),
    Direct(
        "columns of two lengths",
        lambda: frame_of(moments("2026-01-01"), RequestInput(SECRET, "FP32", data=[1, 2])),
    ),
    Direct(
        "column without a text as name",
        lambda: PandasCodec.encode_request(pd.DataFrame({NUMBER: [1]})),
    ),
    Direct(
        "two columns of one name",
        lambda: PandasCodec.encode_request(pd.DataFrame([[1, 2]], columns=[SECRET, SECRET])),
    ),
    Direct(
        "JSON of an object", lambda: InferenceRequest([], parameters={SECRET: {NUMBER}}).to_json()
    ),
    Direct("tensor without data", lambda: RequestInput(SECRET, "FP32", [1])),
    Direct("error of a server", lambda: InferenceResponse.from_dict({"error": ""})),
    Direct("error of a server, as an argument", lambda: InferenceResponse(error="")),
    Direct(
        "client's request with null inputs", lambda: InferenceRequest.from_dict({"inputs": None})
    ),
    Direct("client's request without inputs", lambda: InferenceRequest.from_dict({SECRET: NUMBER})),
    Direct(
        "client's request with other inputs", lambda: InferenceRequest.from_dict({"inputs": SECRET})
    ),
    Direct("more memory than there is", lambda: reserve(2**20, limit=2**19)),
    Direct("more memory than is free", lambda: reserve(2**17, limit=2**20, reserved=2**20)),
    Direct("no response", lambda: InferenceResponse.from_dict([SECRET])),
    Direct("response without a name", lambda: InferenceResponse.from_dict({"outputs": [SECRET]})),
    Direct(
        "response with odd parameters",
        lambda: InferenceResponse.from_dict(output(parameters=SECRET)),
    ),
    Direct(
        "message with half a pair",
        lambda: converters.write_request(InferenceRequest([], id=f"{SECRET}\ud800")),
    ),
    Direct(
        "message with an object",
        lambda: converters.write_request(InferenceRequest([], parameters={SECRET: []})),
    ),
    Direct(
        "predict() that does not return in time",
        lambda: TimeLimit(0.01).run(Event().wait, 0.5),
        PredictTimeout,
    ),
    Direct(
        "body that ends early", lambda: read_body(environ_of(SECRET.encode(), len(SECRET) + 1), 100)
    ),
    Direct("body that cannot be read", lambda: read_body(environ_of(None, 1), 100)),
    Direct(
        "body over the limit",
        lambda: read_body(environ_of(SECRET.encode(), 101), 100),
        PayloadTooLarge,
    ),
    Direct(
        "raw data for two inputs",
        lambda: read_raw(SECRET.encode(), models.two_by_two().METADATA),
    ),
    Direct("raw data without a byte", lambda: read_raw(b"", models.echo("FP32", [-1]).METADATA)),
    Direct(
        "raw data in two variable dimensions",
        lambda: read_raw(SECRET.encode(), MATRIX.METADATA),
    ),
    Direct("marshmallow without an object", lambda: validate_request(SECRET)),
    Direct("marshmallow without inputs", lambda: validate_request({SECRET: NUMBER})),
    Direct("value of another library", lambda: RequestInput("x", "FP32", data=Unconvertible())),
    Direct("metadata with text in FP32", lambda: predictor("str"), ConfigurationError),
    Direct(
        "metadata with a missing value in FP32",
        lambda: predictor(missing=SECRET),
        ConfigurationError,
    ),
    Direct(
        "metadata with a text as optional",
        lambda: predictor(optional=SECRET),
        ConfigurationError,
    ),
    Direct(
        "metadata with an optional output", lambda: predictor(optional=True), ConfigurationError
    ),
    Direct("EXAMPLE of another type", lambda: predictor(example=SECRET), ConfigurationError),
    Direct(
        "EXAMPLE with an unknown input",
        lambda: predictor(example={SECRET: [1]}),
        ConfigurationError,
    ),
]


@pytest.mark.parametrize("case", DIRECT, ids=lambda case: case.name)
def test_errors_of_functions(case: Direct) -> None:
    """The text for the log contains none of the arguments of a function."""
    with pytest.raises(case.error) as caught:
        case.call()
    if isinstance(caught.value, InferenceError):
        assert SECRET not in caught.value.log_text()
        assert str(NUMBER) not in caught.value.log_text()


def classes() -> set[str]:
    """Return the names of all subclasses of InferenceError in the service."""
    return {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, InferenceError)
    }


def places() -> dict[tuple[str, int, int], str]:
    """Return every place in the service that creates an InferenceError: file, first and last line, and the class."""
    sites, names = {}, classes()
    for path in (*ROOT.glob("app/**/*.py"), *ROOT.glob("grpc_service/**/*.py")):
        if str(path.relative_to(ROOT)).startswith(CLIENT_ONLY):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            raised = (
                node.func
                if isinstance(node, ast.Call)
                else node.exc
                if isinstance(node, ast.Raise)
                else None
            )
            name = getattr(
                raised, "attr", getattr(raised, "id", None)
            )  # errors.Unavailable, or Unavailable
            if name in names:
                sites[str(path), node.lineno, node.end_lineno or node.lineno] = name
    return sites


def test_each_error_has_a_case(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every subclass of InferenceError, and every place that creates one, has a case."""
    sites = set[Site]()
    end = record_sites(sites.add)
    try:
        for case in DIRECT:
            with suppress(case.error):
                case.call()
    finally:
        end()
    for name in SETTINGS:
        sites |= outcome_of(name, tmp_path_factory).sites
    assert {name for name, _, _ in sites} == classes()
    met = {(file, line) for _, file, line in sites}
    missing = [
        f"{file}:{first} {name}"
        for (file, first, last), name in sorted(places().items())
        if not any((file, line) in met for line in range(first, last + 1))
    ]
    assert not missing, "Errors without a case:\n" + "\n".join(missing)


def test_messages_are_reviewed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The file messages.txt contains the error messages of all cases."""
    messages = set[str]().union(*(outcome_of(name, tmp_path_factory).messages for name in SETTINGS))
    for case in DIRECT:
        with pytest.raises(case.error) as caught:
            case.call()
        messages.add(str(caught.value))
    check_messages("Cases of tests/service/test_errors.py", messages)
