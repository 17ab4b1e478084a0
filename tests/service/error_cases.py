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

SECRET, NUMBER = "correct-horse", 8675309
KEY = "0123456789abcdef-valid"
LIMIT = 2**20
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
        with socket.create_connection(("127.0.0.1", self.service.http_port), SECONDS) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            head, _, answer = sock.makefile("rb").read().partition(b"\r\n\r\n")
            self.add_message(answer)
            return head.split()[1].decode()

    def rpc(
        self, body: bytes, method: str = "ModelInfer", metadata: Any = (("x-api-key", KEY),)
    ) -> str:
        """Return the name of the status."""
        call = self.channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        try:
            call(body, timeout=SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            if any(
                key == "x-request-id" for key, _ in error.trailing_metadata()
            ):  # otherwise it is grpcio's own
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
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Case(
        f"rest {name}", str(status), lambda client: client.rest(sent, path, headers, method)
    )


def raw(name: str, status: int, head: bytes, body: bytes) -> Case:
    lines = f"POST {INFER} HTTP/1.1\r\nHost: test\r\nx-api-key: {KEY}\r\n".encode()
    return Case(
        f"rest {name}", str(status), lambda client: client.bytes(lines + head + b"\r\n" + body)
    )


def rpc(name: str, status: str, message: Any, method: str = "ModelInfer", **options: Any) -> Case:
    sent = message if isinstance(message, bytes) else message.SerializeToString()
    return Case(f"grpc {name}", status, lambda client: client.rpc(sent, method, **options))


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
    return {
        "name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}, **members
    }  # fmt: skip


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
    made = ModelInferRequest(
        **{"model_name": "test", "id": SECRET, **fields}, raw_input_contents=raws
    )
    for name, datatype, shape, contents in inputs:
        made.inputs.add(name=name, datatype=datatype, shape=shape, contents=contents)
    for name in outputs:
        made.outputs.add(name=name)
    made.parameters["key"].string_param = SECRET
    return made


MUST_RPC = ("must", "FP32", [1], {"fp32_contents": [1]})


def action_message(action: str, **fields: Any) -> Any:
    texts = [("action", "BYTES", [1], {"bytes_contents": [action.encode()]})]
    return message(
        MUST_RPC, *texts, ("text", "BYTES", [1], {"bytes_contents": [SECRET.encode()]}), **fields
    )


def nested_json(levels: int) -> bytes:
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
    rest("deep JSON", BAD, nested_json(100)),
    rest("not an object", BAD, [SECRET]),
    rest("no inputs", BAD, {SECRET: SECRET}),
    rest("null inputs", BAD, {"inputs": None, SECRET: SECRET}),
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
    rest(
        "output requested twice",
        BAD,
        infer(outputs=[{"name": "y"}, {"name": "y", "parameters": {"a": SECRET}}]),
    ),
    rest("timeout", BAD, infer(parameters={"timeout": SECRET})),
    rest("deadline exceeded", 504, infer(id=SECRET, parameters={"timeout": 1})),
    rest("content type", BAD, infer(tensor("text", [SECRET], content_type=SECRET))),
    rest(
        "content type of numbers",
        BAD,
        infer(tensor("double", [NUMBER], "FP64", content_type="str")),
    ),
    rest(
        "content type of an output",
        BAD,
        infer(outputs=[{"name": "y", "parameters": {"content_type": SECRET}}]),
    ),
    rest("codec of the project", BAD, infer(tensor("text", [SECRET], content_type="picky"))),
    rest("null", BAD, infer(tensor("octets", [None, SECRET]))),
    rest("base64", BAD, infer(tensor("images", [SECRET]))),
    rest("datetime", BAD, infer(tensor("moments", [SECRET]))),
    rest("no datetime", BAD, infer(tensor("moments", [None]))),
    rest("nanoseconds", BAD, infer(tensor("moments", [f"2026-01-01T00:00:00.{NUMBER}Z"]))),
    rest("pd_json", BAD, infer(tensor("text", [SECRET], content_type="pd_json"))),
    rest(
        "other values", BAD, infer(tensor("moments", [f'"{SECRET}"', "1"], content_type="pd_json"))
    ),
    rest(
        "both forms",
        BAD,
        **binary_request(infer(sized("text", "BYTES", 4, data=[SECRET])), b"1234"),
    ),
    rest(
        "short body", BAD, **binary_request(infer(sized("text", "BYTES", NUMBER)), SECRET.encode())
    ),
    rest("long body", BAD, **binary_request(infer(), SECRET.encode())),
    rest("header length", BAD, **binary_request(infer(), b"", SECRET)),
    rest(
        "bytes of numbers",
        BAD,
        **binary_request(infer(sized("big", "INT64", 9)), SECRET[:9].encode()),
    ),
    rest(
        "byte of BOOL",
        BAD,
        **binary_request(infer(sized("flag", "BOOL", 13, (13,))), SECRET.encode()),
    ),
    rest(
        "length of an element",
        BAD,
        **binary_request(infer(sized("text", "BYTES", 13)), SECRET.encode()),
    ),
    rest("coding", 415, infer(), headers={"Content-Encoding": SECRET}),
    rest("not gzip", BAD, SECRET.encode(), headers={"Content-Encoding": "gzip"}),
    rest(
        "short gzip", BAD, gzip.compress(SECRET.encode())[:-1], headers={"Content-Encoding": "gzip"}
    ),
    rest("members", BAD, gzip.compress(b"") * 10_001, headers={"Content-Encoding": "gzip"}),
    rest(
        "gzip over the limit",
        413,
        gzip.compress(SECRET.encode() * LIMIT),
        headers={"Content-Encoding": "gzip"},
    ),
    rest("over the limit", 413, SECRET.encode() * (LIMIT // 10)),
    raw(
        "many chunks",
        400,
        b"Transfer-Encoding: chunked\r\n",
        b"a\r\n0123456789\r\n" * 80_000 + b"0\r\n\r\n",
    ),
    raw("malformed chunk", BAD, b"Transfer-Encoding: chunked\r\n", SECRET.encode() + b"\r\n"),
    raw("cut short", BAD, b"Content-Length: 1000\r\n", SECRET.encode()),
    rest("JSON without UTF-8", BAD, action_request("not UTF-8")),
    rest("output that is not a datetime", BAD, action_request("not UTF-8", outputs=[AS_DATETIME])),
    rest("infinity", BAD, action_request("infinity")),
    rest("null in binary", BAD, action_request("null", parameters={"binary_data_output": True})),
]
RESULTS_REST = [
    rest(f"predict(): {action}", 500, action_request(action))
    for action in (
        "none", "undeclared", "missing", "one value", "dicts", "twice", "columns", "index", "parameter", "wrong kind",
        "wrong shape", "out of range", "integers", "ragged", "masked", "object", "gaps", "half a pair", "model's own",
        "codec",
    )
]  # fmt: skip
MODEL_RAISES = [
    rest("predict() raises", 500, action_request("raise")),
    rpc("predict() raises", "INTERNAL", action_message("raise")),
]

INVALID = "INVALID_ARGUMENT"
GRPC = [
    rpc("unknown model", "NOT_FOUND", message(MUST_RPC, model_name=SECRET)),
    rpc("unknown version", "NOT_FOUND", message(MUST_RPC, model_version=SECRET)),
    rpc("unknown call", "UNIMPLEMENTED", SECRET.encode(), SECRET),
    rpc("no key", "UNAUTHENTICATED", message(MUST_RPC), metadata=(("x-other", SECRET),)),
    rpc(
        "wrong key",
        "UNAUTHENTICATED",
        message(MUST_RPC),
        metadata=(("authorization", f"Bearer {SECRET}"),),
    ),
    rpc(
        "wrong key of an unknown call",
        "UNAUTHENTICATED",
        b"",
        SECRET,
        metadata=(("x-api-key", SECRET),),
    ),
    rpc("malformed", INVALID, SECRET.encode()),
    rpc("malformed name", INVALID, b"\x0a\x0e\xff" + SECRET.encode(), "ModelReady"),
    rpc("too many inputs", INVALID, b"\x0a\x04test" + b"\x2a\x00" * 70_000),
    rpc("too many fields", INVALID, b"\x0a\x04test" + b"\x3a\x00" * 300_000),
    rpc("over the limit", "RESOURCE_EXHAUSTED", SECRET.encode() * (LIMIT // 10)),
    rpc("raw entries", INVALID, message(MUST_RPC, raws=[SECRET.encode()] * 2)),
    rpc("raw and contents", INVALID, message(MUST_RPC, raws=[SECRET.encode()])),
    rpc("no contents", INVALID, message(("half", "FP16", [1], {"fp32_contents": [NUMBER]}))),
    rpc("other contents", INVALID, message(("text", "BYTES", [1], {"int_contents": [NUMBER]}))),
    rpc(
        "count",
        INVALID,
        message(("text", "BYTES", [NUMBER], {"bytes_contents": [SECRET.encode()]})),
    ),
    rpc(
        "unknown datatype",
        INVALID,
        message(("text", SECRET, [1], {"bytes_contents": [SECRET.encode()]})),
    ),
    rpc("dimension", INVALID, message((SECRET, "BYTES", [-NUMBER], {}))),
    rpc(
        "out of range",
        INVALID,
        message(MUST_RPC, ("small", "INT8", [1], {"int_contents": [NUMBER]})),
    ),
    rpc("unknown input", INVALID, message(MUST_RPC, (SECRET, "INT8", [1], {"int_contents": [1]}))),
    rpc("unknown output", INVALID, message(MUST_RPC, outputs=[SECRET])),
    rpc("bytes of numbers", INVALID, message(("big", "INT64", [1], None), raws=[SECRET.encode()])),
    rpc(
        "length of an element",
        INVALID,
        message(("text", "BYTES", [1], None), raws=[SECRET.encode()]),
    ),
    rpc(
        "not UTF-8",
        INVALID,
        message(
            MUST_RPC, ("text", "BYTES", [1], {"bytes_contents": [b"%s\xff" % SECRET.encode()]})
        ),
    ),
    rpc("null in contents", INVALID, action_message("null")),
    rpc("an infinite value is valid", "OK", action_message("infinity")),
    rpc("predict(): wrong kind", "INTERNAL", action_message("wrong kind")),
    rpc("predict(): undeclared", "INTERNAL", action_message("undeclared")),
]
