"""Attacks over gRPC by clients without an API key."""

from __future__ import annotations

import gzip
from itertools import cycle

from dev.chaos.abuse.attacks.base import Target, without_key
from dev.chaos.abuse.http2 import (
    CALLS_PER_CONNECTION,
    CONTINUATION,
    HEALTH,
    POST_AND_HTTP,
    SERVICE,
    Budget,
    Caller,
    CallPlan,
    HeaderBlocks,
    frame,
    hpack_field,
    message,
    settings,
)
from dev.chaos.abuse.swarm import Peer, Swarm
from grpc_service.pool import MAX_OPEN_MESSAGES
from oip_conformance.frames import PREFACE, Frame

CALLS = 50_000
CONNECTIONS = CALLS // CALLS_PER_CONNECTION
# Below MAX_REQUEST_BYTES, which is 64 MiB.
LARGE_MESSAGE_BYTES = 63 * 2**20
SENT_OF_LARGE_MESSAGE = bytes(60 * 2**20)
BOMB_BYTES = 60 * 2**20
INVALID_UTF_8 = b"\xff\xfe" * 40
METADATA_CONNECTIONS = 200
METADATA_BYTES = 2**22
METADATA_FRAME_BYTES = 2**14

INFER = SERVICE + "ModelInfer"
LIVE = SERVICE + "ServerLive"
MODEL_READY = SERVICE + "ModelReady"
CHECK = HEALTH + "Check"
WATCH = HEALTH + "Watch"


def call(target: Target, *plans: CallPlan, calls: int = CALLS) -> None:
    """Make calls as these plans, which the connections take in turn, and keep them open."""
    budget = Budget(calls)
    next_plan = cycle(plans).__next__
    with Swarm(
        target.service.grpc_port,
        CONNECTIONS,
        lambda: Caller(next_plan(), budget),
        reconnects=True,
    ) as swarm:
        target.run(swarm)
    target.figures["calls"] = f"{calls - budget.calls:,}"
    target.figures["calls that ended"] = f"{budget.ended:,}"


@without_key("gRPC: incomplete messages, methods without a key")
def incomplete_open_messages(target: Target) -> None:
    """Send parts of messages of 63 MiB to methods that need no key."""
    data = message(SENT_OF_LARGE_MESSAGE, announced=LARGE_MESSAGE_BYTES)
    paths = [LIVE, MODEL_READY, CHECK, WATCH]
    call(target, *[CallPlan(HeaderBlocks(path), data) for path in paths])


@without_key("gRPC: few incomplete messages, methods without a key")
def few_open_messages(target: Target) -> None:
    """Send 60 of 63 MiB of the few messages that methods without a key receive at the same time."""
    data = message(SENT_OF_LARGE_MESSAGE, announced=LARGE_MESSAGE_BYTES)
    call(target, CallPlan(HeaderBlocks(LIVE), data), calls=MAX_OPEN_MESSAGES)


@without_key("gRPC: incomplete messages, methods with a key")
def incomplete_protected_messages(target: Target) -> None:
    """Send parts of messages of 63 MiB to ModelInfer without a key."""
    data = message(SENT_OF_LARGE_MESSAGE, announced=LARGE_MESSAGE_BYTES)
    call(target, CallPlan(HeaderBlocks(INFER), data))


@without_key("gRPC: calls without a message")
def silent_calls(target: Target) -> None:
    """Start calls of 16 bytes to a method that needs no key, and send no message."""
    call(target, CallPlan(HeaderBlocks(LIVE)))


@without_key("gRPC: calls without a message, methods with a key")
def silent_protected_calls(target: Target) -> None:
    """Start calls of 16 bytes to ModelInfer without a key, and send no message."""
    call(target, CallPlan(HeaderBlocks(INFER)))


@without_key("gRPC: complete calls without a key")
def rejected_calls(target: Target) -> None:
    """Make complete calls of ModelInfer without a key."""
    call(target, CallPlan(HeaderBlocks(INFER), message(b""), ends=True))


@without_key("gRPC: flood of health checks")
def grpc_health_flood(target: Target) -> None:
    """Make complete calls of methods that need no key."""
    paths = [LIVE, CHECK]
    plans = [CallPlan(HeaderBlocks(path), message(b""), ends=True) for path in paths]
    call(target, *plans)


@without_key("gRPC: canceled calls")
def canceled_calls(target: Target) -> None:
    """Cancel each call immediately after its start."""
    call(target, CallPlan(HeaderBlocks(LIVE), is_reset=True))


@without_key("gRPC: gzip messages, methods without a key")
def gzip_messages(target: Target) -> None:
    """Send messages of 60 KiB that decompress to 60 MiB to methods that need no key."""
    data = message(gzip.compress(bytes(BOMB_BYTES)), is_gzip=True)
    encoding = (b"grpc-encoding", b"gzip")
    paths = [LIVE, MODEL_READY, CHECK, WATCH]
    call(target, *[CallPlan(HeaderBlocks(path, encoding), data, ends=True) for path in paths])


@without_key("gRPC: invalid metadata")
def invalid_metadata(target: Target) -> None:
    """Send header fields that are not UTF-8, each of which grpcio would log with a traceback."""
    fields = [(b"x", INVALID_UTF_8), (b"authorization", b"Bearer " + INVALID_UTF_8)]
    blocks = HeaderBlocks(INFER, *fields)
    open_blocks = HeaderBlocks(LIVE, *fields)
    call(
        target,
        CallPlan(blocks, message(b""), ends=True),
        CallPlan(open_blocks, message(b""), ends=True),
    )


@without_key("gRPC: streams of health")
def watches(target: Target) -> None:
    """Start Watch calls of the health service, and keep them open."""
    call(target, CallPlan(HeaderBlocks(WATCH), message(b""), ends=True))


@without_key("gRPC: unread responses")
def unread_responses(target: Target) -> None:
    """Make complete calls of methods that need no key, and accept no byte of a response."""
    plans = []
    for path in [LIVE, CHECK, WATCH]:
        blocks = HeaderBlocks(path)
        plan = CallPlan(blocks, message(b""), ends=True, is_reading=False, initial_window=0)
        plans.append(plan)
    call(target, *plans)


@without_key("gRPC: large metadata without an end")
def large_metadata(target: Target) -> None:
    """Send metadata of 4 MiB without an end, before the limit for metadata is acknowledged."""
    value = b"x" * (METADATA_FRAME_BYTES - 16)
    field = hpack_field(b"x", value, is_stored=False)
    parts = [PREFACE, settings()]
    start = POST_AND_HTTP + hpack_field(b":path", LIVE.encode(), is_stored=False)
    parts.append(frame(Frame.HEADERS, 0, 1, start))
    for _ in range(METADATA_BYTES // len(field)):
        parts.append(frame(CONTINUATION, 0, 1, field))
    data = b"".join(parts)
    with Swarm(
        target.service.grpc_port, METADATA_CONNECTIONS, lambda: Peer(data, is_reading=False)
    ) as swarm:
        target.run(swarm)
