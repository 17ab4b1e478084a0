"""Requests of a client with an API key that need much memory for their size.

Each body has BODY_BYTES after decompression. The client sends it some times, plain and compressed,
one request at a time.
"""

from __future__ import annotations

import gzip
import http.client
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import grpc
import numpy as np

from dev.chaos.abuse.attacks.base import KEY, Target, with_key
from dev.chaos.abuse.limits import FACTORS, SLACK_MIB
from dev.chaos.service import MIB
from grpc_service import messages

BODY_BYTES = 16 * 2**20
REPETITIONS = 3
REQUESTS_AT_ONCE = 30
SMALL_BODY_BYTES = 2**20
NESTED_DEPTH = 30
PATH = "/v2/models/test/infer"
METHOD = f"/{messages.SERVICE_NAME}/ModelInfer"
# ModelInferRequest in protobuf: an empty element of `inputs`, the name of the model, and the start
# and the end of an unknown group.
EMPTY_INPUT = b"\x2a\x00"
MODEL_NAME = b"\x0a\x04test"
EMPTY_GROUP = b"\x7b\x7c"


@dataclass(frozen=True)
class Body:
    """A body, and the header fields that describe it.

    content_type: for REST, or "" for gRPC
    binary_header: the length of the JSON part of a REST request with binary tensors, or 0
    """

    data: bytes
    content_type: str = "application/json"
    binary_header: int = 0


@dataclass(frozen=True)
class Response:
    """The status of a response, or the name of an error, and the time until it arrived."""

    status: str
    seconds: float


class Client:
    """Sends a body, plain or compressed. A response must arrive before the end of the attack."""

    def __init__(self, target: Target, body: Body, *, is_gzip: bool):
        self._target = target
        self._body = body
        self._is_gzip = is_gzip

    def send(self) -> Response:
        if self._target.is_stopped:
            return Response("not sent", 0)
        timeout = max(0.1, self._target.last_end - time.monotonic())
        start = time.monotonic()
        send = self._send_rest if self._body.content_type else self._send_grpc
        status = send(timeout)
        return Response(status, time.monotonic() - start)

    def _send_rest(self, timeout: float) -> str:
        body = self._body
        data = body.data
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": body.content_type}
        if body.binary_header:
            headers["Inference-Header-Content-Length"] = str(body.binary_header)
        if self._is_gzip:
            headers["Content-Encoding"] = "gzip"
            data = gzip.compress(data, 6)

        port = self._target.service.http_port
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)) as connection:
            try:
                connection.request("POST", PATH, data, headers)
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException) as error:
                return type(error).__name__
        return str(response.status)

    def _send_grpc(self, timeout: float) -> str:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        compression = grpc.Compression.Gzip if self._is_gzip else grpc.Compression.NoCompression
        metadata = [("authorization", f"Bearer {KEY}")]
        with grpc.insecure_channel(self._target.service.grpc_address, options) as channel:
            infer = channel.unary_unary(METHOD)
            try:
                infer(self._body.data, timeout=timeout, metadata=metadata, compression=compression)
            except grpc.RpcError as error:
                return str(error.code().name)
        return "OK"


def report(target: Target, responses: Sequence[Response]) -> None:
    counts = Counter(response.status for response in responses)
    statuses = [f"{count} of {status}" for status, count in sorted(counts.items())]
    target.figures["responses"] = ", ".join(statuses)
    slowest = max(response.seconds for response in responses)
    target.figures["slowest response, s"] = f"{slowest:.1f}"


def with_body(
    title: str, factor: float
) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
    """Return a decorator for an attack with bodies of BODY_BYTES, which need a multiple of this."""
    limit_mib = factor * BODY_BYTES / MIB + SLACK_MIB
    return with_key(f"{title}, {BODY_BYTES // MIB} MiB", limit_mib=limit_mib)


def send(target: Target, body: Body) -> None:
    """Send the body several times, plain and compressed, one request at a time."""
    responses = []
    for is_gzip in [False, True]:
        client = Client(target, body, is_gzip=is_gzip)
        for _ in range(REPETITIONS):
            responses.append(client.send())
    report(target, responses)


def json_body(element: bytes, *, name: bytes, datatype: bytes, columns: int = 1) -> Body:
    """Return a request whose tensor has this element as often as BODY_BYTES permit.

    Its shape is [count], or [count, columns] if an element is a row.
    """
    count = BODY_BYTES // (len(element) + 1)
    shape = b"%d" % count
    if columns > 1:
        shape += b",%d" % columns
    start = b'{"inputs":[{"name":"%b","datatype":"%b","shape":[%b],"data":[' % (
        name,
        datatype,
        shape,
    )
    return Body(start + b",".join([element] * count) + b"]}]}")


@with_body("JSON: one digit per number", FACTORS["JSON, short numbers"])
def one_digit_numbers(target: Target) -> None:
    """Send a valid tensor whose numbers have one digit each."""
    send(target, json_body(b"1", name=b"integers", datatype=b"INT64"))


@with_body("JSON: long numbers", FACTORS["JSON, long numbers"])
def long_numbers(target: Target) -> None:
    """Send a valid tensor whose numbers have all their digits."""
    send(target, json_body(b"0.12345678901234567", name=b"numbers", datatype=b"FP64"))


@with_body("JSON: rows of one-digit numbers", FACTORS["JSON, short numbers"])
def rows_of_numbers(target: Target) -> None:
    """Send a valid tensor as nested lists of four numbers."""
    send(target, json_body(b"[1,2,3,4]", name=b"rows", datatype=b"FP64", columns=4))


@with_body("JSON: short texts", FACTORS["JSON, short texts"])
def short_texts(target: Target) -> None:
    """Send a valid tensor whose texts have one character each."""
    send(target, json_body(b'"a"', name=b"texts", datatype=b"BYTES"))


@with_body("JSON: empty objects", FACTORS["JSON, any request"])
def empty_objects(target: Target) -> None:
    """Send a tensor whose elements are empty objects."""
    send(target, json_body(b"{}", name=b"texts", datatype=b"BYTES"))


@with_body("JSON: small objects", FACTORS["JSON, any request"])
def small_objects(target: Target) -> None:
    """Send a tensor whose elements are objects with one member, which need the most memory."""
    send(target, json_body(b'{"":1}', name=b"numbers", datatype=b"FP64"))


@with_body("JSON: empty lists", FACTORS["JSON, any request"])
def empty_lists(target: Target) -> None:
    """Send a tensor whose elements are empty lists."""
    send(target, json_body(b"[]", name=b"numbers", datatype=b"FP64"))


@with_body("JSON: nested lists", FACTORS["JSON, any request"])
def nested_lists(target: Target) -> None:
    """Send a tensor whose elements are lists in lists."""
    element = b"[" * NESTED_DEPTH + b"]" * NESTED_DEPTH
    send(target, json_body(element, name=b"numbers", datatype=b"FP64"))


@with_body("JSON: nested objects", FACTORS["JSON, any request"])
def nested_objects(target: Target) -> None:
    """Send a tensor whose elements are objects in objects."""
    element = b'{"":' * NESTED_DEPTH + b"1" + b"}" * NESTED_DEPTH
    send(target, json_body(element, name=b"numbers", datatype=b"FP64"))


@with_body("JSON: empty inputs", FACTORS["JSON, any request"])
def empty_json_inputs(target: Target) -> None:
    """Send a request with as many inputs as possible."""
    count = BODY_BYTES // len(b"{},")
    send(target, Body(b'{"inputs":[' + b",".join([b"{}"] * count) + b"]}"))


@with_body("JSON: members with different names", FACTORS["JSON, any request"])
def many_members(target: Target) -> None:
    """Send an object with as many members as possible, each with a name of its own."""
    members = [b'"%x":1' % number for number in range(BODY_BYTES // 10)]
    send(target, Body(b'{"inputs":[],"parameters":{' + b",".join(members) + b"}}"))


def binary_body(name: bytes, datatype: bytes, count: int, data: bytes) -> Body:
    """Return a request whose tensor follows the JSON part in binary form."""
    header = (
        b'{"inputs":[{"name":"%b","datatype":"%b","shape":[%d],'
        b'"parameters":{"binary_data_size":%d}}]}'
    ) % (name, datatype, count, len(data))
    return Body(header + data, "application/octet-stream", len(header))


@with_body("Binary tensor: numbers", FACTORS["binary, numbers"])
def binary_numbers(target: Target) -> None:
    """Send a valid binary tensor of numbers."""
    numbers = bytes(BODY_BYTES)
    send(target, binary_body(b"numbers", b"FP64", BODY_BYTES // 8, numbers))


@with_body("Binary tensor: short texts", FACTORS["binary, short texts"])
def binary_texts(target: Target) -> None:
    """Send a valid binary tensor of texts with one character each."""
    count = BODY_BYTES // 5
    send(target, binary_body(b"texts", b"BYTES", count, b"\x01\0\0\0a" * count))


def grpc_body(name: str, datatype: str, count: int) -> messages.ModelInferRequest:
    request = messages.ModelInferRequest(model_name="test")
    request.inputs.add(name=name, datatype=datatype, shape=[count])
    return request


@with_body("gRPC: raw contents", FACTORS["raw, numbers"])
def raw_contents(target: Target) -> None:
    """Send a valid tensor of numbers in raw contents."""
    request = grpc_body("numbers", "FP64", BODY_BYTES // 8)
    request.raw_input_contents.append(bytes(BODY_BYTES))
    send(target, Body(request.SerializeToString(), content_type=""))


@with_body("gRPC: short texts in raw contents", FACTORS["raw, short texts"])
def raw_texts(target: Target) -> None:
    """Send a valid tensor of texts with one character each in raw contents."""
    count = BODY_BYTES // 5
    request = grpc_body("texts", "BYTES", count)
    request.raw_input_contents.append(b"\x01\0\0\0a" * count)
    send(target, Body(request.SerializeToString(), content_type=""))


@with_body("gRPC: small integers in typed contents", FACTORS["typed, small integers"])
def typed_integers(target: Target) -> None:
    """Send a valid tensor of integers below 128 in typed contents, which need one byte each."""
    request = grpc_body("integers", "INT64", BODY_BYTES)
    ones = np.ones(BODY_BYTES, np.int64)
    request.inputs[0].contents.int64_contents.extend(ones)
    send(target, Body(request.SerializeToString(), content_type=""))


@with_body("gRPC: short texts in typed contents", FACTORS["typed, short texts"])
def typed_texts(target: Target) -> None:
    """Send a valid tensor of texts with one character each in typed contents."""
    count = BODY_BYTES // 3
    request = grpc_body("texts", "BYTES", count)
    request.inputs[0].contents.bytes_contents.extend([b"a"] * count)
    send(target, Body(request.SerializeToString(), content_type=""))


@with_body("gRPC: empty inputs", FACTORS["gRPC, any request"])
def empty_grpc_inputs(target: Target) -> None:
    """Send a message with as many empty inputs as possible."""
    send(target, Body(MODEL_NAME + EMPTY_INPUT * (BODY_BYTES // 2), content_type=""))


@with_body("gRPC: empty inputs after a group", FACTORS["gRPC, any request"])
def inputs_after_group(target: Target) -> None:
    """Send a message with an unknown group before as many empty inputs as possible."""
    send(target, Body(MODEL_NAME + EMPTY_GROUP + EMPTY_INPUT * (BODY_BYTES // 2), content_type=""))


@with_body("gRPC: empty groups", FACTORS["gRPC, any request"])
def empty_groups(target: Target) -> None:
    """Send a message with as many unknown groups as possible."""
    send(target, Body(MODEL_NAME + EMPTY_GROUP * (BODY_BYTES // 2), content_type=""))


@with_key(
    f"JSON: {REQUESTS_AT_ONCE} bodies of nested lists at once, 1 MiB each",
    limit_mib=FACTORS["JSON, any request"] * REQUESTS_AT_ONCE * SMALL_BODY_BYTES / MIB + SLACK_MIB,
)
def nested_lists_at_once(target: Target) -> None:
    """Send many compressed bodies of nested lists at the same time."""
    element = b"[" * NESTED_DEPTH + b"]" * NESTED_DEPTH + b","
    data = element * (SMALL_BODY_BYTES // len(element))
    body = Body(b'{"inputs":[' + data + b"0]}")
    client = Client(target, body, is_gzip=True)
    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        requests = [threads.submit(client.send) for _ in range(REQUESTS_AT_ONCE * REPETITIONS)]
    report(target, [request.result() for request in requests])
