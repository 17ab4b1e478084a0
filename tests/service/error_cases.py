"""Calls that send a secret and fail, with the status that the client must receive."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from grpc_service.messages import SERVICE_NAME, ModelInferRequest
from tests.kit.processes import Running

# Data of the client that no log and no metric may contain.
SECRET = "correct-horse"
NUMBER = 8675309
KEY = "0123456789abcdef-valid"
LIMIT = 2**21
MODEL = "/v2/models/test"
INFER = f"{MODEL}/infer"
SECONDS = 60


@dataclass
class Case:
    """A call that fails, and the status that the client must receive."""

    name: str
    status: str
    send: Callable[[Client], str]


class Client:
    """A client of both protocols. It collects the error messages of the service."""

    def __init__(self, service: Running):
        self.service = service
        self.channel = service.own_channel()
        self.messages: set[str] = set()

    def add_message(self, body: bytes) -> None:
        """Collect the error message in the body of an HTTP response."""
        if body.startswith(b'{"error"'):
            self.messages.add(json.loads(body)["error"])

    def rest(self, body: bytes, path: str = INFER, headers: Any = (), method: str = "POST") -> str:
        """Return the status. `headers` are added to the API key."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.service.http_port, timeout=SECONDS
        )
        try:
            connection.request(method, path, body, {"x-api-key": KEY, **dict(headers)})
            response = connection.getresponse()
            self.add_message(response.read())
            return str(response.status)
        finally:
            connection.close()

    def bytes(self, sent: bytes) -> str:
        """Send bytes, end the sending side, and return the status."""
        address = ("127.0.0.1", self.service.http_port)
        with socket.create_connection(address, SECONDS) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            response = sock.makefile("rb").read()

        head, _, body = response.partition(b"\r\n\r\n")
        self.add_message(body)
        _, status, *_ = head.split()
        return status.decode()

    def rpc(
        self, body: bytes, method: str = "ModelInfer", metadata: Any = (("x-api-key", KEY),)
    ) -> str:
        """Return the name of the status."""
        call = self.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        try:
            call(body, timeout=SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata())
            # An error without a request id is grpcio's own.
            if "x-request-id" in trailers:
                self.messages.add(error.details())
            return error.code().name
        return "OK"


def rest(
    name: str,
    status: int,
    body: Any = b"",
    path: str = INFER,
    headers: Any = (),
    method: str = "POST",
) -> Case:
    """Return a case of a REST request with bytes or a JSON value."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def send(client: Client) -> str:
        return client.rest(content, path, headers, method)

    return Case(f"rest {name}", str(status), send)


def raw(name: str, status: int, head: bytes, body: bytes) -> Case:
    """Return a case of a POST request with more header fields, which end with CRLF, and a body."""
    first_lines = f"POST {INFER} HTTP/1.1\r\nHost: test\r\nx-api-key: {KEY}\r\n".encode()

    def send(client: Client) -> str:
        return client.bytes(first_lines + head + b"\r\n" + body)

    return Case(f"rest {name}", str(status), send)


def rpc(name: str, status: str, message: Any, method: str = "ModelInfer", **options: Any) -> Case:
    """Return a case of a gRPC call with bytes or a message."""
    content = message if isinstance(message, bytes) else message.SerializeToString()

    def send(client: Client) -> str:
        return client.rpc(content, method, **options)

    return Case(f"grpc {name}", status, send)


MUST = {"name": "must", "shape": [1], "datatype": "FP32", "data": [1]}


def tensor(
    name: str, data: Any, datatype: str = "BYTES", shape: Any = None, **parameters: Any
) -> dict[str, Any]:
    shape = [len(data)] if shape is None else shape
    return {
        "name": name,
        "shape": shape,
        "datatype": datatype,
        "data": data,
        "parameters": parameters,
    }


def sized(name: str, datatype: str, size: Any, shape: Any = (1,), **members: Any) -> dict[str, Any]:
    """Return an input whose data is binary, and whose size may be wrong."""
    return {
        "name": name,
        "shape": shape,
        "datatype": datatype,
        "parameters": {"binary_data_size": size},
        **members,
    }


def infer(*inputs: Any, **members: Any) -> dict[str, Any]:
    return {"inputs": [MUST, *inputs], "parameters": {"key": SECRET}, **members}


AS_DATETIME = {"name": "y", "parameters": {"content_type": "datetime"}}


def action_request(action: str, text: str = SECRET, **members: Any) -> dict[str, Any]:
    return infer(tensor("action", [action]), tensor("text", [text]), **members)


def binary_request(
    envelope: dict[str, Any], blob: bytes, length: str | None = None
) -> dict[str, Any]:
    """Return the body and the headers of a request with binary data."""
    head = json.dumps(envelope).encode()
    return {
        "body": head + blob,
        "headers": {
            "Inference-Header-Content-Length": str(len(head)) if length is None else length
        },
    }


def message(*inputs: Any, outputs: Any = (), raws: Any = (), **fields: Any) -> Any:
    """Return a message whose inputs are (name, datatype, shape, contents)."""
    request = ModelInferRequest(
        **{"model_name": "test", "id": SECRET, **fields}, raw_input_contents=raws
    )
    for name, datatype, shape, contents in inputs:
        request.inputs.add(name=name, datatype=datatype, shape=shape, contents=contents)
    for name in outputs:
        request.outputs.add(name=name)
    request.parameters["key"].string_param = SECRET
    return request


MUST_RPC = ("must", "FP32", [1], {"fp32_contents": [1]})


def action_message(action: str, **fields: Any) -> Any:
    texts = [("action", "BYTES", [1], {"bytes_contents": [action.encode()]})]
    return message(
        MUST_RPC, *texts, ("text", "BYTES", [1], {"bytes_contents": [SECRET.encode()]}), **fields
    )


def nested_json(levels: int) -> bytes:
    return b'{"%s": ' % SECRET.encode() + b"[" * levels + b"]" * levels + b"}"


# Bodies that are rejected with 400.
BODIES: dict[str, Any] = {
    "empty body": b"",
    "not JSON": SECRET.encode(),
    "NaN": b'{"%s": NaN}' % SECRET.encode(),
    "not UTF-8": b'{"%s": "\xff"}' % SECRET.encode(),
    "deep JSON": nested_json(100),
    "many lists": b'{"%s": [%s]}' % (SECRET.encode(), b",".join([b"[]"] * 530_000)),
    "many objects": {SECRET: [{}] * 270_000},
    "not an object": [SECRET],
    "no inputs": {SECRET: SECRET},
    "null inputs": {"inputs": None, SECRET: SECRET},
    "inputs of another type": {"inputs": SECRET},
    "an input of another type": {"inputs": [SECRET, NUMBER]},
    "too many inputs": {"inputs": [{}] * 70_000},
    "id": infer(id=[SECRET]),
    "name": infer({**MUST, "name": [SECRET]}),
    "parameters": infer(parameters=SECRET),
    "a parameter": infer(parameters={SECRET: [SECRET]}),
    "binary_data_size": infer(sized(SECRET, "FP32", SECRET)),
    "unknown datatype": infer(tensor("text", [SECRET], SECRET)),
    "shape": infer(tensor("text", [SECRET], shape=SECRET)),
    "dimension": infer(tensor(SECRET, [SECRET], shape=[SECRET])),
    "rank": infer(tensor("text", [SECRET], shape=[1] * 65)),
    "count": infer(tensor("text", [SECRET, SECRET], shape=[NUMBER])),
    "huge shape": infer(tensor("text", [], shape=[0, 2**62, NUMBER])),
    "element": infer(tensor("small", [SECRET], "INT8")),
    "ragged": infer(tensor("text", [[SECRET], [SECRET, SECRET]], shape=[3])),
    "boolean": infer(tensor("flag", [NUMBER], "BOOL")),
    "fraction": infer(tensor("big", [NUMBER + 0.5], "INT64")),
    "integer out of range": infer(tensor("small", [NUMBER], "INT8")),
    "float out of range": infer(tensor("half", [NUMBER], "FP16")),
    "unknown input": infer(tensor(SECRET, [SECRET])),
    "input sent twice": infer(MUST, parameters={SECRET: SECRET}),
    "input missing": {"inputs": [tensor("text", [SECRET])]},
    "other datatype": infer(tensor("text", [NUMBER], "INT64")),
    "other shape": infer(tensor("text", [[SECRET]], shape=[1, 1, 1])),
    "unknown output": infer(outputs=[{"name": SECRET}]),
    "output requested twice": infer(outputs=[{"name": "y"}] * 2, parameters={"a": SECRET}),
    "timeout": infer(parameters={"timeout": SECRET}),
    "content type": infer(tensor("text", [SECRET], content_type=SECRET)),
    "content type of numbers": infer(tensor("double", [NUMBER], "FP64", content_type="str")),
    "codec of the project": infer(tensor("text", [SECRET], content_type="picky")),
    "null": infer(tensor("octets", [None, SECRET])),
    "base64": infer(tensor("images", [SECRET])),
    "datetime": infer(tensor("moments", [SECRET])),
    "no datetime": infer(tensor("moments", [None])),
    "nanoseconds": infer(tensor("moments", [f"2026-01-01T00:00:00.{NUMBER}Z"])),
    "pd_json": infer(tensor("text", [SECRET], content_type="pd_json")),
    "other values": infer(tensor("moments", [f'"{SECRET}"', "1"], content_type="pd_json")),
    "JSON without UTF-8": action_request("not UTF-8"),
    "output that is not a datetime": action_request("not UTF-8", outputs=[AS_DATETIME]),
    "infinity": action_request("infinity"),
    "null in binary": action_request("null", parameters={"binary_data_output": True}),
}
# Envelope, binary data, and the stated length of the JSON.
BINARY: dict[str, tuple[Any, ...]] = {
    "both forms": (infer(sized("text", "BYTES", 4, data=[SECRET])), b"1234"),
    "short body": (infer(sized("text", "BYTES", NUMBER)), SECRET.encode()),
    "long body": (infer(), SECRET.encode()),
    "header length": (infer(), b"", SECRET),
    "bytes of numbers": (infer(sized("big", "INT64", 9)), SECRET[:9].encode()),
    "byte of BOOL": (infer(sized("flag", "BOOL", 13, (13,))), SECRET.encode()),
    "length of an element": (infer(sized("text", "BYTES", 13)), SECRET.encode()),
}
GZIP = {"Content-Encoding": "gzip"}
CHUNKED = b"Transfer-Encoding: chunked\r\n"
REST = [
    *(rest(name, 400, body) for name, body in BODIES.items()),
    *(rest(name, 400, **binary_request(*request)) for name, request in BINARY.items()),
    rest("unknown model", 404, infer(), f"/v2/models/{SECRET}/infer"),
    rest("unknown version", 404, infer(), f"{MODEL}/versions/{SECRET}/infer"),
    rest("unknown path", 404, path=f"/v2/{SECRET}?{SECRET}", method="GET"),
    rest("unknown path outside", 404, path=f"/{SECRET}", method="GET"),
    rest("method", 405, path=f"{INFER}?{SECRET}", method="GET"),
    rest("unknown method", 400, method=f"X{SECRET.upper()}"),
    rest("no key", 401, path=f"/{SECRET}", headers={"x-api-key": ""}),
    rest("wrong key", 401, headers={"x-api-key": SECRET, "Authorization": f"Bearer {SECRET}"}),
    raw("repeated key", 401, f"x-api-key: {SECRET}\r\n".encode(), b""),
    Case(
        "rest no key at all",
        "401",
        lambda client: client.bytes(f"GET /{SECRET} HTTP/1.1\r\nHost: {SECRET}\r\n\r\n".encode()),
    ),
    rest("repository index", 400, {"ready": SECRET}, "/v2/repository/index"),
    rest("deadline exceeded", 504, infer(id=SECRET, parameters={"timeout": 1})),
    rest("coding", 415, infer(), headers={"Content-Encoding": SECRET}),
    rest("not gzip", 400, SECRET.encode(), headers=GZIP),
    rest("short gzip", 400, gzip.compress(SECRET.encode())[:-1], headers=GZIP),
    rest("members", 400, gzip.compress(b"") * 10_001, headers=GZIP),
    rest("gzip over the limit", 413, gzip.compress(SECRET.encode() * LIMIT), headers=GZIP),
    rest("over the limit", 413, SECRET.encode() * (LIMIT // 10)),
    raw("many chunks", 400, CHUNKED, b"a\r\n0123456789\r\n" * 80_000 + b"0\r\n\r\n"),
    raw("malformed chunk", 400, CHUNKED, SECRET.encode() + b"\r\n"),
    raw("cut short", 400, b"Content-Length: 1000\r\n", SECRET.encode()),
]
REST_ACTIONS = [
    "none", "undeclared", "missing", "one value", "twice", "parameter", "wrong kind",
    "wrong shape", "out of range", "integers", "ragged", "masked", "object", "gaps",
    "half a pair", "model's own", "codec",
]  # fmt: skip
RESULTS_REST = [
    rest(f"predict(): {action}", 500, action_request(action)) for action in REST_ACTIONS
]
MODEL_RAISES = [
    rest("predict() raises", 500, action_request("raise")),
    rpc("predict() raises", "INTERNAL", action_message("raise")),
]

# Messages that are rejected with INVALID_ARGUMENT.
MESSAGES: dict[str, Any] = {
    "malformed": SECRET.encode(),
    "too many inputs": b"\x0a\x04test" + b"\x2a\x00" * 70_000,
    "too many fields": b"\x0a\x04test" + b"\x3a\x00" * 300_000,
    "groups": b"\x0a\x04test" + b"\x7b\x7c" * 20_000,
    "raw entries": message(MUST_RPC, raws=[SECRET.encode()] * 2),
    "raw and contents": message(MUST_RPC, raws=[SECRET.encode()]),
    "no contents": message(("half", "FP16", [1], {"fp32_contents": [NUMBER]})),
    "other contents": message(("text", "BYTES", [1], {"int_contents": [NUMBER]})),
    "unknown datatype": message(("text", SECRET, [1], {"bytes_contents": [SECRET.encode()]})),
    "dimension": message((SECRET, "BYTES", [-NUMBER], {})),
    "unknown input": message(MUST_RPC, (SECRET, "INT8", [1], {"int_contents": [1]})),
    "bytes of numbers": message(("big", "INT64", [1], None), raws=[SECRET.encode()]),
    "not UTF-8": message(
        MUST_RPC, ("text", "BYTES", [1], {"bytes_contents": [b"%s\xff" % SECRET.encode()]})
    ),
    "null in contents": action_message("null"),
}
WRONG_KEY = (("x-api-key", SECRET), ("authorization", f"Bearer {SECRET}"))
REPEATED_KEY = (("x-api-key", KEY), ("x-api-key", SECRET))
GRPC = [
    *(rpc(name, "INVALID_ARGUMENT", body) for name, body in MESSAGES.items()),
    rpc("unknown model", "NOT_FOUND", message(MUST_RPC, model_name=SECRET)),
    rpc("unknown version", "NOT_FOUND", message(MUST_RPC, model_version=SECRET)),
    rpc("unknown call", "UNIMPLEMENTED", SECRET.encode(), SECRET),
    rpc("no key", "UNAUTHENTICATED", message(MUST_RPC), metadata=(("x-other", SECRET),)),
    rpc("wrong key", "UNAUTHENTICATED", message(MUST_RPC), metadata=WRONG_KEY),
    rpc("repeated key", "UNAUTHENTICATED", message(MUST_RPC), metadata=REPEATED_KEY),
    rpc("wrong key of an unknown call", "UNAUTHENTICATED", b"", SECRET, metadata=WRONG_KEY),
    rpc("malformed name", "INVALID_ARGUMENT", b"\x0a\x0e\xff" + SECRET.encode(), "ModelReady"),
    rpc("large message without a key", "RESOURCE_EXHAUSTED", SECRET.encode() * 500, "ModelReady"),
    rpc("over the limit", "RESOURCE_EXHAUSTED", SECRET.encode() * (LIMIT // 10)),
    rpc("an infinite value is valid", "OK", action_message("infinity")),
    rpc("predict(): wrong kind", "INTERNAL", action_message("wrong kind")),
]
