"""Slow, silent and very many gRPC calls, which must not delay other clients."""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack, closing
from queue import SimpleQueue

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from grpc_service.messages import ModelInferRequest
from grpc_service.pool import MAX_STREAMS
from grpc_service.server import MAX_WATCHES
from tests.kit.processes import Running, gunicorn, wait_for
from tests.kit.scrapes import scrape
from tests.service.runtime.raw_client import PATIENCE, ROOT, Client, is_served

SERVING = health_pb2.HealthCheckResponse.SERVING


def http2(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, 4.1)."""
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a literal header field in HPACK (RFC 7541, 6.2.2)."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = http2(4, 0, 0, b"")


def calls(path: bytes, count: int) -> bytes:
    """Return the frames that start `count` calls on a connection, without their messages."""
    names = [
        (b":path", path),
        (b":authority", b"x"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]
    head = b"\x83\x86" + b"".join(literal(*header) for header in names)  # POST, http
    return b"".join(http2(1, 4, 2 * index + 1, head) for index in range(count))


INFER, WATCH = b"/inference.GRPCInferenceService/ModelInfer", b"/grpc.health.v1.Health/Watch"
# An initial window of 0 bytes (RFC 9113, 6.5.2), so that the server cannot send a message.
NO_WINDOW = http2(4, 0, 0, struct.pack("!HI", 4, 0)) + http2(4, 1, 0, b"")
# The bytes that each gRPC client sends before it stops, and the number of clients.
SILENT = {
    "nothing": (b"", 40),
    "half a preface": (PREFACE[:9], 40),
    "a preface": (PREFACE, 40),
    "settings": (PREFACE + SETTINGS, 40),
    "half a frame": (PREFACE + SETTINGS + calls(INFER, 1)[:-9], 40),
    "calls without a message": (PREFACE + SETTINGS + calls(INFER, 20), 4),
    "many calls without a message": (PREFACE + SETTINGS + calls(INFER, 800), 3),
    "watches without a message": (PREFACE + SETTINGS + calls(WATCH, 20), 4),
    "reflections": (
        PREFACE
        + SETTINGS
        + calls(b"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", 20),
        4,
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_silent_grpc_clients_delay_no_others(running: Running, stack: ExitStack, name: str) -> None:
    """gRPC connections and calls without further data do not delay the calls and health checks of other clients."""
    sent, count = SILENT[name]
    for _ in range(count):
        Client(running.grpc_port, stack).send(sent)
    assert is_served(running)
    for _ in range(4):
        with running.own_channel() as channel:
            health = health_pb2_grpc.HealthStub(channel)
            assert health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status == SERVING
            watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE / 2)
            assert next(watch).status == SERVING
            watch.cancel()


def message(body: bytes, call: int = 1) -> bytes:
    """Return the frames of the only message of a call. The last one ends the client's side of the stream."""
    body = struct.pack("!BI", 0, len(body)) + body
    pieces = [body[place : place + 2**14] for place in range(0, len(body), 2**14)]
    return b"".join(http2(0, 0, call, piece) for piece in pieces) + http2(0, 1, call, b"")


def echo_message(size: int) -> bytes:
    """Return the message of a request to echo `size` bytes. The initial window has space for 16,000."""
    request = ModelInferRequest(model_name="test")
    request.inputs.add(name="x", datatype="BYTES", shape=[1]).contents.bytes_contents.append(
        bytes(size)
    )
    return message(request.SerializeToString())


def send_without_reading(port: int, stack: ExitStack, size: int = 15_000) -> Client:
    """Return a client that has requested an echo, and does not accept the response."""
    client = Client(port, stack)
    client.send(PREFACE + NO_WINDOW + calls(INFER, 1) + echo_message(size))
    return client


def test_shutdown_waits_for_slow_grpc_reader(stack: ExitStack) -> None:
    """During shutdown, a client has as long to read its response as running requests have to complete."""
    service = stack.enter_context(
        gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1, SHUTDOWN_DELAY_SECONDS=0)
    )
    client = send_without_reading(service.grpc_port, stack)
    wait_for(
        lambda: (
            scrape(service)(
                "inference_requests_total", operation="infer", protocol="grpc", code="OK"
            )
            == 1
        )
    )
    service.process.terminate()
    ended = False
    for _ in range(25):  # a thousand bytes each time
        client.send(
            http2(8, 0, 0, struct.pack("!I", 1000)) + http2(8, 0, 1, struct.pack("!I", 1000))
        )
        ended = client.has_data_within(PATIENCE) and b"grpc-status\x010" in client.sock.recv(2**16)
        if ended:
            break
        time.sleep(0.05)  # a slow client
    assert ended
    assert service.process.wait(PATIENCE) == 0


def test_unread_watch_delays_no_others(short_timeouts: Running, stack: ExitStack) -> None:
    """G7: a client that does not read the messages of Watch does not delay other clients."""
    Client(short_timeouts.grpc_port, stack).send(
        PREFACE
        + NO_WINDOW
        + calls(WATCH, 100)
        + b"".join(message(b"", 2 * index + 1) for index in range(100))
    )
    channel = stack.enter_context(short_timeouts.own_channel())
    watch = health_pb2_grpc.HealthStub(channel).Watch(
        health_pb2.HealthCheckRequest(), timeout=PATIENCE / 2
    )
    assert next(watch).status == SERVING


def test_very_many_concurrent_grpc_calls(running: Running, stack: ExitStack) -> None:
    """Calls beyond the number of messages that gRPC receives at the same time also get responses."""
    path, calls = INFER.decode().replace("ModelInfer", "ServerLive"), []
    for _ in range(3):  # each with fewer calls than the limit of a connection
        channel = stack.enter_context(running.own_channel())
        calls += [channel.unary_unary(path).future(b"", timeout=PATIENCE) for _ in range(600)]
    assert {call.result() for call in calls} == {b"\x08\x01"}


class Reflection:
    """A stream that stays open."""

    def __init__(self, channel: grpc.Channel):
        self._asks: SimpleQueue[reflection_pb2.ServerReflectionRequest] = SimpleQueue()
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        self._answers = stub.ServerReflectionInfo(iter(self._asks.get, None), timeout=PATIENCE)

    def lists(self) -> bool:
        self._asks.put(reflection_pb2.ServerReflectionRequest(list_services=""))
        return bool(next(self._answers).list_services_response.service)

    def close(self) -> None:
        self._answers.cancel()
        self._asks.put(None)


def test_cancels_streams_beyond_limit(running: Running, stack: ExitStack) -> None:
    """A worker cancels streams beyond MAX_STREAMS, because each needs a thread. The others continue."""
    channel = stack.enter_context(running.own_channel())
    first = stack.enter_context(closing(Reflection(channel)))
    assert first.lists()
    others = [stack.enter_context(closing(Reflection(channel))) for _ in range(MAX_STREAMS)]
    with pytest.raises(grpc.RpcError) as caught:
        [reflection.lists() for reflection in others]
    assert caught.value.code() == grpc.StatusCode.CANCELLED
    assert first.lists()
    assert is_served(running)


def first_status(call: grpc.Call) -> int | grpc.StatusCode:
    """Return the first message of Watch, or the status of a call that has failed."""
    try:
        return next(call).status
    except grpc.RpcError as error:
        return error.code()


def test_watches_leave_streams_to_others(stack: ExitStack) -> None:
    """G7: Watch needs no API key, so it takes at most half of the streaming calls. Further clients can retry."""
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:echoing()", WORKERS=1))
    channel = stack.enter_context(service.own_channel())
    watch = health_pb2_grpc.HealthStub(channel).Watch
    request = health_pb2.HealthCheckRequest()

    watches = [watch(request) for _ in range(MAX_WATCHES + 20)]
    statuses = [first_status(call) for call in watches]
    assert statuses.count(SERVING) == MAX_WATCHES
    assert statuses.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 20
    rejected = watches[statuses.index(grpc.StatusCode.RESOURCE_EXHAUSTED)]
    assert ("retry-after", "1") in rejected.trailing_metadata()
    for _ in range(100):
        assert stack.enter_context(closing(Reflection(channel))).lists()

    for call in watches:
        call.cancel()
    wait_for(lambda: first_status(watch(request)) == SERVING)


@pytest.mark.parametrize("size", [1, 15_000, 20_000, 1_000_000])
def test_size_limit_of_metadata(running: Running, size: int) -> None:
    """Metadata of more than 16 KiB results in RESOURCE_EXHAUSTED, and the connection stays open."""
    with running.own_channel() as channel:
        call = channel.unary_unary(INFER.decode().replace("ModelInfer", "ServerLive"))
        for _ in range(4):
            if size < 2**14:
                assert call(b"", metadata=[("x", "y" * size)], timeout=PATIENCE)
                continue
            with pytest.raises(grpc.RpcError) as caught:
                call(b"", metadata=[("x", "y" * size)], timeout=PATIENCE)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert call(b"", timeout=PATIENCE)
