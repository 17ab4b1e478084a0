"""The log of an error contains no data that a client sent.

Each case sends a secret, in text or in numbers, and fails. The cases cover every place that makes an InferenceError.
"""

from __future__ import annotations

import ast
import gzip
import http.client
import io
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pandas as pd
import pytest

from app.codecs.arrays import NumpyCodec, NumpyRequestCodec
from app.codecs.datetimes import DatetimeCodec
from app.codecs.frames import PandasCodec, PandasJsonCodec
from app.codecs.strings import Base64Codec
from app.inference.adapter import ModelAdapter
from app.protocol import errors
from app.protocol.errors import ConfigurationError, InferenceError, PayloadTooLarge
from app.protocol.types import InferenceRequest, InferenceResponse, MetadataTensor, RequestInput
from app.rest.body import read_body
from grpc_service import converters
from grpc_service.messages import SERVICE_NAME, ModelInferRequest
from tests.service import models
from tests.service.error_app import SITES, Site, record_sites
from tests.service.processes import Running, gunicorn, wait_for

ROOT = Path(__file__).parents[2]
SECRET, NUMBER = "correct-horse", 8675309
KEY = "0123456789abcdef-valid"
LIMIT = 2**20
MODEL = "/v2/models/test"
INFER = f"{MODEL}/infer"
# Modules that only clients and tests use. Their errors never reach the service's log.
CLIENT_ONLY = ("app/testing.py", "app/cli/", "grpc_service/client.py", "app/protocol/errors.py")
SECONDS = 60


@dataclass
class Case:
    """A call that fails, and the status that the client must receive."""

    name: str
    status: str
    send: Callable[[Client], str]


class Client:
    """A client of both protocols."""

    def __init__(self, service: Running):
        self.service = service
        self.channel = service.own_channel()

    def rest(self, body: bytes, path: str = INFER, headers: Any = (), method: str = "POST") -> str:
        """Return the status. `headers` are added to the API key."""
        connection = http.client.HTTPConnection("127.0.0.1", self.service.http_port, timeout=SECONDS)
        try:
            connection.request(method, path, body, {"x-api-key": KEY, **dict(headers)})
            return str(connection.getresponse().status)
        finally:
            connection.close()

    def bytes(self, sent: bytes) -> str:
        """Send bytes, end the sending side, and return the status."""
        with socket.create_connection(("127.0.0.1", self.service.http_port), SECONDS) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            return sock.makefile("rb").readline().split()[1].decode()

    def rpc(self, body: bytes, method: str = "ModelInfer", metadata: Any = (("x-api-key", KEY),)) -> str:
        """Return the name of the status."""
        call = self.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        try:
            call(body, timeout=SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"


def rest(name: str, status: int, body: Any = b"", path: str = INFER, headers: Any = (), method: str = "POST") -> Case:
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(f"rest {name}", str(status), lambda client: client.rest(sent, path, headers, method))


def raw(name: str, status: int, head: bytes, body: bytes) -> Case:
    lines = f"POST {INFER} HTTP/1.1\r\nHost: test\r\nx-api-key: {KEY}\r\n".encode()
    return Case(f"rest {name}", str(status), lambda client: client.bytes(lines + head + b"\r\n" + body))


def rpc(name: str, status: str, message: Any, method: str = "ModelInfer", **options: Any) -> Case:
    sent = message if isinstance(message, bytes) else message.SerializeToString()
    return Case(f"grpc {name}", status, lambda client: client.rpc(sent, method, **options))


MUST = {"name": "must", "shape": [1], "datatype": "FP32", "data": [1]}


def tensor(name: str, data: Any, datatype: str = "BYTES", shape: Any = None, **parameters: Any) -> dict[str, Any]:
    shape = [len(data)] if shape is None else shape
    return {"name": name, "shape": shape, "datatype": datatype, "data": data, "parameters": parameters}


def sized(name: str, datatype: str, size: Any, shape: Any = (1,), **members: Any) -> dict[str, Any]:
    return {
        "name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}, **members
    }  # fmt: skip


def infer(*inputs: Any, **members: Any) -> dict[str, Any]:
    return {"inputs": [MUST, *inputs], "parameters": {"key": SECRET}, **members}


def acting(action: str, text: str = SECRET, **members: Any) -> dict[str, Any]:
    return infer(tensor("action", [action]), tensor("text", [text]), **members)


def mixed(envelope: dict[str, Any], blob: bytes, length: str | None = None) -> dict[str, Any]:
    """Return the body and the headers of a request with binary data."""
    head = json.dumps(envelope).encode()
    return {
        "body": head + blob,
        "headers": {"Inference-Header-Content-Length": str(len(head)) if length is None else length},
    }


def message(*inputs: Any, outputs: Any = (), raws: Any = (), **fields: Any) -> Any:
    """Return a message whose inputs are (name, datatype, shape, contents)."""
    made = ModelInferRequest(**{"model_name": "test", "id": SECRET, **fields}, raw_input_contents=raws)
    for name, datatype, shape, contents in inputs:
        made.inputs.add(name=name, datatype=datatype, shape=shape, contents=contents)
    for name in outputs:
        made.outputs.add(name=name)
    made.parameters["key"].string_param = SECRET
    return made


MUST_RPC = ("must", "FP32", [1], {"fp32_contents": [1]})


def acting_rpc(action: str, **fields: Any) -> Any:
    texts = [("action", "BYTES", [1], {"bytes_contents": [action.encode()]})]
    return message(MUST_RPC, *texts, ("text", "BYTES", [1], {"bytes_contents": [SECRET.encode()]}), **fields)


def odd_parameter() -> Any:
    made = message(MUST_RPC)
    made.parameters[SECRET].SetInParent()
    return made


def deep(levels: int) -> bytes:
    return b'{"%s": ' % SECRET.encode() + b"[" * levels + b"]" * levels + b"}"


BAD = 400
REST = [
    rest("unknown model", 404, infer(), f"/v2/models/{SECRET}/infer"),
    rest("unknown version", 404, infer(), f"{MODEL}/versions/{SECRET}/infer"),
    rest("unknown path", 404, path=f"/v2/{SECRET}?{SECRET}", method="GET"),
    rest("unknown path outside", 404, path=f"/{SECRET}", method="GET"),
    rest("method", 405, path=f"{INFER}?{SECRET}", method="GET"),
    rest("unknown method", 400, method=f"X{SECRET.upper()}"),
    rest("no key", 401, path=f"/{SECRET}", headers={"x-api-key": ""}),
    rest("wrong key", 401, headers={"x-api-key": SECRET, "Authorization": f"Bearer {SECRET}"}),
    Case(
        "rest no key at all",
        "401",
        lambda client: client.bytes(f"GET /{SECRET} HTTP/1.1\r\nHost: {SECRET}\r\n\r\n".encode()),
    ),
    rest("empty body", BAD),
    rest("not JSON", BAD, SECRET.encode()),
    rest("not UTF-8", BAD, b'{"%s": "\xff"}' % SECRET.encode()),
    rest("deep JSON", BAD, deep(100)),
    rest("not an object", BAD, [SECRET]),
    rest("no inputs", BAD, {SECRET: SECRET}),
    rest("inputs of another type", BAD, {"inputs": SECRET}),
    rest("an input of another type", BAD, {"inputs": [SECRET, NUMBER]}),
    rest("too many inputs", BAD, {"inputs": [{}] * 70_000}),
    rest("id", BAD, infer(id=[SECRET])),
    rest("name", BAD, infer({**MUST, "name": [SECRET]})),
    rest("parameters", BAD, infer(parameters=SECRET)),
    rest("a parameter", BAD, infer(parameters={SECRET: [SECRET]})),
    rest("binary_data", BAD, infer(parameters={"binary_data": SECRET})),
    rest("binary_data_size", BAD, infer(sized(SECRET, "FP32", SECRET))),
    rest("repository index", BAD, {"ready": SECRET}, "/v2/repository/index"),
    rest("unknown datatype", BAD, infer(tensor("text", [SECRET], SECRET))),
    rest("shape", BAD, infer(tensor("text", [SECRET], shape=SECRET))),
    rest("dimension", BAD, infer(tensor(SECRET, [SECRET], shape=[SECRET]))),
    rest("rank", BAD, infer(tensor("text", [SECRET], shape=[1] * 65))),
    rest("count", BAD, infer(tensor("text", [SECRET, SECRET], shape=[NUMBER]))),
    rest("huge shape", BAD, infer(tensor("text", [], shape=[0, 2**62, NUMBER]))),
    rest("element", BAD, infer(tensor("small", [SECRET], "INT8"))),
    rest("ragged", BAD, infer(tensor("text", [[SECRET], [SECRET, SECRET]], shape=[3]))),
    rest("boolean", BAD, infer(tensor("flag", [NUMBER], "BOOL"))),
    rest("fraction", BAD, infer(tensor("big", [NUMBER + 0.5], "INT64"))),
    rest("integer out of range", BAD, infer(tensor("small", [NUMBER], "INT8"))),
    rest("float out of range", BAD, infer(tensor("half", [NUMBER], "FP16"))),
    rest("unknown input", BAD, infer(tensor(SECRET, [SECRET]))),
    rest("input sent twice", BAD, infer(MUST, parameters={SECRET: SECRET})),
    rest("input missing", BAD, {"inputs": [tensor("text", [SECRET])]}),
    rest("other datatype", BAD, infer(tensor("text", [NUMBER], "INT64"))),
    rest("other shape", BAD, infer(tensor("text", [[SECRET]], shape=[1, 1, 1]))),
    rest("unknown output", BAD, infer(outputs=[{"name": SECRET}])),
    rest("output requested twice", BAD, infer(outputs=[{"name": "y"}, {"name": "y", "parameters": {"a": SECRET}}])),
    rest("timeout", BAD, infer(parameters={"timeout": SECRET})),
    rest("deadline exceeded", 504, infer(id=SECRET, parameters={"timeout": 1})),
    rest("content type", BAD, infer(tensor("text", [SECRET], content_type=SECRET))),
    rest("content type of numbers", BAD, infer(tensor("double", [NUMBER], "FP64", content_type="str"))),
    rest("codec of the project", BAD, infer(tensor("text", [SECRET], content_type="picky"))),
    rest("null", BAD, infer(tensor("octets", [None, SECRET]))),
    rest("base64", BAD, infer(tensor("images", [SECRET]))),
    rest("datetime", BAD, infer(tensor("moments", [SECRET]))),
    rest("no datetime", BAD, infer(tensor("moments", [None]))),
    rest("nanoseconds", BAD, infer(tensor("moments", [f"2026-01-01T00:00:00.{NUMBER}Z"]))),
    rest("pd_json", BAD, infer(tensor("text", [SECRET], content_type="pd_json"))),
    rest("other values", BAD, infer(tensor("moments", [f'"{SECRET}"', "1"], content_type="pd_json"))),
    rest("both forms", BAD, **mixed(infer(sized("text", "BYTES", 4, data=[SECRET])), b"1234")),
    rest("short body", BAD, **mixed(infer(sized("text", "BYTES", NUMBER)), SECRET.encode())),
    rest("long body", BAD, **mixed(infer(), SECRET.encode())),
    rest("header length", BAD, **mixed(infer(), b"", SECRET)),
    rest("bytes of numbers", BAD, **mixed(infer(sized("big", "INT64", 9)), SECRET[:9].encode())),
    rest("byte of BOOL", BAD, **mixed(infer(sized("flag", "BOOL", 13, (13,))), SECRET.encode())),
    rest("length of an element", BAD, **mixed(infer(sized("text", "BYTES", 13)), SECRET.encode())),
    rest("coding", 415, infer(), headers={"Content-Encoding": SECRET}),
    rest("not gzip", BAD, SECRET.encode(), headers={"Content-Encoding": "gzip"}),
    rest("short gzip", BAD, gzip.compress(SECRET.encode())[:-1], headers={"Content-Encoding": "gzip"}),
    rest("members", BAD, gzip.compress(b"") * 10_001, headers={"Content-Encoding": "gzip"}),
    rest("gzip over the limit", 413, gzip.compress(SECRET.encode() * LIMIT), headers={"Content-Encoding": "gzip"}),
    rest("over the limit", 413, SECRET.encode() * (LIMIT // 10)),
    raw("many chunks", 400, b"Transfer-Encoding: chunked\r\n", b"a\r\n0123456789\r\n" * 80_000 + b"0\r\n\r\n"),
    raw("malformed chunk", BAD, b"Transfer-Encoding: chunked\r\n", SECRET.encode() + b"\r\n"),
    raw("cut short", BAD, b"Content-Length: 1000\r\n", SECRET.encode()),
    rest("JSON without UTF-8", BAD, acting("not UTF-8")),
    rest("infinity", BAD, acting("infinity")),
    rest("null in binary", BAD, acting("null", parameters={"binary_data_output": True})),
]
RESULTS_REST = [
    rest(f"predict(): {action}", 500, acting(action))
    for action in (
        "none", "undeclared", "missing", "one value", "dicts", "twice", "columns", "index", "parameter", "wrong kind",
        "wrong shape", "out of range", "integers", "ragged", "masked", "object", "gaps", "half a pair", "model's own",
        "codec",
    )
]  # fmt: skip
MODEL_RAISES = [
    rest("predict() raises", 500, acting("raise")),
    rpc("predict() raises", "INTERNAL", acting_rpc("raise")),
]

INVALID = "INVALID_ARGUMENT"
GRPC = [
    rpc("unknown model", "NOT_FOUND", message(MUST_RPC, model_name=SECRET)),
    rpc("unknown version", "NOT_FOUND", message(MUST_RPC, model_version=SECRET)),
    rpc("unknown call", "UNIMPLEMENTED", SECRET.encode(), SECRET),
    rpc("no key", "UNAUTHENTICATED", message(MUST_RPC), metadata=(("x-other", SECRET),)),
    rpc("wrong key", "UNAUTHENTICATED", message(MUST_RPC), metadata=(("authorization", f"Bearer {SECRET}"),)),
    rpc("wrong key of an unknown call", "UNAUTHENTICATED", b"", SECRET, metadata=(("x-api-key", SECRET),)),
    rpc("malformed", INVALID, SECRET.encode()),
    rpc("malformed name", INVALID, b"\x0a\x0e\xff" + SECRET.encode(), "ModelReady"),
    rpc("too many inputs", INVALID, b"\x0a\x04test" + b"\x2a\x00" * 70_000),
    rpc("too many fields", INVALID, b"\x0a\x04test" + b"\x3a\x00" * 300_000),
    rpc("over the limit", "RESOURCE_EXHAUSTED", SECRET.encode() * (LIMIT // 10)),
    rpc("raw entries", INVALID, message(MUST_RPC, raws=[SECRET.encode()] * 2)),
    rpc("raw and contents", INVALID, message(MUST_RPC, raws=[SECRET.encode()])),
    rpc("no contents", INVALID, message(("half", "FP16", [1], {"fp32_contents": [NUMBER]}))),
    rpc("other contents", INVALID, message(("text", "BYTES", [1], {"int_contents": [NUMBER]}))),
    rpc("count", INVALID, message(("text", "BYTES", [NUMBER], {"bytes_contents": [SECRET.encode()]}))),
    rpc("parameter", INVALID, odd_parameter()),
    rpc("unknown datatype", INVALID, message(("text", SECRET, [1], {"bytes_contents": [SECRET.encode()]}))),
    rpc("dimension", INVALID, message((SECRET, "BYTES", [-NUMBER], {}))),
    rpc("out of range", INVALID, message(MUST_RPC, ("small", "INT8", [1], {"int_contents": [NUMBER]}))),
    rpc("unknown input", INVALID, message(MUST_RPC, (SECRET, "INT8", [1], {"int_contents": [1]}))),
    rpc("unknown output", INVALID, message(MUST_RPC, outputs=[SECRET])),
    rpc("bytes of numbers", INVALID, message(("big", "INT64", [1], None), raws=[SECRET.encode()])),
    rpc("length of an element", INVALID, message(("text", "BYTES", [1], None), raws=[SECRET.encode()])),
    rpc(
        "not UTF-8",
        INVALID,
        message(MUST_RPC, ("text", "BYTES", [1], {"bytes_contents": [b"%s\xff" % SECRET.encode()]})),
    ),
    rpc("null in contents", INVALID, acting_rpc("null")),
    rpc("infinity is no error", "OK", acting_rpc("infinity")),
    rpc("predict(): wrong kind", "INTERNAL", acting_rpc("wrong kind")),
    rpc("predict(): undeclared", "INTERNAL", acting_rpc("undeclared")),
]


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


def predictor(content_type: str | None = None, example: Any = None) -> ModelAdapter:
    metadata = MetadataTensor("x", "FP32", [-1], content_type)
    module = models.model([metadata], [metadata], lambda _, x: x)
    module.EXAMPLE = example
    return ModelAdapter(module)


def recursive() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def output(**members: Any) -> dict[str, Any]:
    return {"outputs": [{"name": SECRET, "datatype": "BYTES", "shape": [1], "data": [SECRET], **members}]}


def environ_of(body: bytes | None, length: int) -> dict[str, Any]:
    """Return the environ of a server that does not wait for the whole body, as gunicorn's own workers."""
    return {"CONTENT_LENGTH": str(length), "wsgi.input": body if body is None else io.BytesIO(body)}


DIRECT = [
    Direct("array without a datatype", lambda: NumpyCodec.encode_input(SECRET, np.array([NUMBER * 1j]))),
    Direct("first tensor", lambda: NumpyRequestCodec.decode_request(InferenceRequest([]))),
    Direct("None in base64", lambda: Base64Codec.encode_input(SECRET, [SECRET, None])),
    Direct("object in datetime", lambda: DatetimeCodec.encode_input(SECRET, [NUMBER])),
    Direct("object in pd_json", lambda: PandasJsonCodec.encode_input(SECRET, [{NUMBER: SECRET}])),
    Direct("recursion in pd_json", lambda: PandasJsonCodec.encode_input(SECRET, [recursive()])),
    Direct("scalar column", lambda: frame_of(RequestInput(SECRET, "FP32", [], NUMBER))),
    Direct("null in a column of datetimes", lambda: frame_of(moments(None))),
    Direct("datetimes with and without an offset", lambda: frame_of(moments("2026-01-01", "2026-01-01T00:00Z"))),
    Direct(
        "columns of two lengths", lambda: frame_of(moments("2026-01-01"), RequestInput(SECRET, "FP32", data=[1, 2]))
    ),
    Direct("column without a text as name", lambda: PandasCodec.encode_request(pd.DataFrame({NUMBER: [1]}))),
    Direct(
        "two columns of one name",
        lambda: PandasCodec.encode_request(pd.DataFrame([[1, 2]], columns=[SECRET, SECRET])),
    ),
    Direct("JSON of an object", lambda: InferenceRequest([], parameters={SECRET: {NUMBER}}).to_json()),
    Direct("error of a server", lambda: InferenceResponse.from_dict({"error": ""})),
    Direct("no response", lambda: InferenceResponse.from_dict([SECRET])),
    Direct("response without a name", lambda: InferenceResponse.from_dict({"outputs": [SECRET]})),
    Direct("response with odd parameters", lambda: InferenceResponse.from_dict(output(parameters=SECRET))),
    Direct("message with half a pair", lambda: converters.write_request(InferenceRequest([], id=f"{SECRET}\ud800"))),
    Direct("message with an object", lambda: converters.write_request(InferenceRequest([], parameters={SECRET: None}))),
    Direct("body that ends early", lambda: read_body(environ_of(SECRET.encode(), len(SECRET) + 1), 100)),
    Direct("body that cannot be read", lambda: read_body(environ_of(None, 1), 100)),
    Direct("body over the limit", lambda: read_body(environ_of(SECRET.encode(), 101), 100), PayloadTooLarge),
    Direct("metadata with text in FP32", lambda: predictor("str"), ConfigurationError),
    Direct("EXAMPLE of another type", lambda: predictor(example=SECRET), ConfigurationError),
    Direct("EXAMPLE with an unknown input", lambda: predictor(example={SECRET: [1]}), ConfigurationError),
]


@dataclass
class Outcome:
    """The statuses by case, the places that created errors, and the log of a service."""

    statuses: dict[str, str] = field(default_factory=dict)
    sites: set[Site] = field(default_factory=set)
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
        statuses["rows"] = client.rest(json.dumps({"inputs": [tensor("must", [NUMBER, NUMBER], "FP32")]}).encode())
        busy(client, statuses, folder)
        stopping(client, statuses, folder)
    result.log = service.log()
    for line in (folder / "sites").read_text().splitlines():
        name, file, number = line.split("\t")
        result.sites.add((name, file, int(number)))
    return result


def waiting(number: int) -> bytes:
    """Return the message of a call that ends when there is the file FOLDER/`number`."""
    inputs = ("action", "BYTES", [1], {"bytes_contents": [b"wait"]}), ("must", "FP32", [1], {"fp32_contents": [number]})
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
    leaks = [line for line in outcome.log.splitlines() if SECRET in line.lower() or str(NUMBER) in line]
    assert not leaks


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
        name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, InferenceError)
    }


def places() -> dict[tuple[str, int, int], str]:
    """Return every place in the service that creates an InferenceError: file, first and last line, and the class."""
    found, names = {}, classes()
    for path in (*ROOT.glob("app/**/*.py"), *ROOT.glob("grpc_service/**/*.py")):
        if str(path.relative_to(ROOT)).startswith(CLIENT_ONLY):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            made = node.func if isinstance(node, ast.Call) else node.exc if isinstance(node, ast.Raise) else None
            name = getattr(made, "attr", getattr(made, "id", None))  # errors.Unavailable, or Unavailable
            if name in names:
                found[str(path), node.lineno, node.end_lineno or node.lineno] = name
    return found


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
