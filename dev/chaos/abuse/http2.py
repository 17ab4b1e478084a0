"""gRPC calls of an attacker: frames of HTTP/2 (RFC 9113) with header blocks that are built once.

The first call of a connection stores its header fields in the HPACK table of the service
(RFC 7541). Each further one refers to them, and so needs about 16 bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field

from dev.chaos.abuse.swarm import Peer
from oip_conformance.frames import ACK, END_HEADERS, END_STREAM, FRAME_HEAD_LENGTH, PREFACE, Frame

SERVICE = "/inference.GRPCInferenceService/"
HEALTH = "/grpc.health.v1.Health/"

# The service permits this number of calls at the same time on a connection.
CALLS_PER_CONNECTION = 1000
INITIAL_WINDOW = 2**16 - 1
MAX_FRAME_BYTES = 2**14
# Output that is built at once.
MAX_OUTPUT_BYTES = 2**18

WINDOW_UPDATE = 8
CONTINUATION = 9
# Ids of settings (RFC 9113, 6.5.2).
INITIAL_WINDOW_SETTING = 4
# HPACK: POST and http in the static table, and the first index of the dynamic table.
POST_AND_HTTP = b"\x83\x86"
FIRST_DYNAMIC_INDEX = 62
COMPRESSED = 1


def frame(frame_type: int, flags: int, stream: int, payload: bytes) -> bytes:
    length = struct.pack(">I", len(payload))[1:]
    return length + struct.pack(">BBI", frame_type, flags, stream) + payload


def settings(initial_window: int = INITIAL_WINDOW) -> bytes:
    payload = struct.pack(">HI", INITIAL_WINDOW_SETTING, initial_window)
    return frame(Frame.SETTINGS, 0, 0, payload)


def message(body: bytes, *, announced: int | None = None, is_gzip: bool = False) -> bytes:
    """Return a gRPC message. `announced` is the length in its prefix, by default that of `body`."""
    length = len(body) if announced is None else announced
    compression = COMPRESSED if is_gzip else 0
    return struct.pack(">BI", compression, length) + body


def hpack_integer(value: int, prefix_bits: int, first: int = 0) -> bytes:
    """Return an integer with a prefix of some bits (RFC 7541, 5.1). `first` has the other bits."""
    limit = 2**prefix_bits - 1
    if value < limit:
        return bytes([first | value])
    encoded = bytearray([first | limit])
    value -= limit
    while value >= 128:
        encoded.append(value % 128 + 128)
        value //= 128
    encoded.append(value)
    return bytes(encoded)


def hpack_field(name: bytes, value: bytes, *, is_stored: bool) -> bytes:
    """Return a literal header field, which the service stores in its table or not."""
    first = b"\x40" if is_stored else b"\0"
    return first + hpack_integer(len(name), 7) + name + hpack_integer(len(value), 7) + value


class HeaderBlocks:
    """The header blocks of the first call and of all further calls of a connection."""

    def __init__(self, path: str, *fields: tuple[bytes, bytes]):
        all_fields = [
            (b":path", path.encode()),
            (b":authority", b"x"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            *fields,
        ]
        first = bytearray(POST_AND_HTTP)
        further = bytearray(POST_AND_HTTP)
        for position, (name, value) in enumerate(all_fields):
            first += hpack_field(name, value, is_stored=True)
            # The field that was stored last has the lowest index.
            age = len(all_fields) - 1 - position
            further += hpack_integer(FIRST_DYNAMIC_INDEX + age, 7, 0x80)
        self.first = bytes(first)
        self.further = bytes(further)


@dataclass
class Budget:
    """The calls that the connections of an attack may still start, and those that have ended."""

    calls: int
    ended: int = 0


@dataclass
class _Call:
    stream: int
    data: memoryview
    window: int


@dataclass
class CallPlan:
    """The calls of an attack.

    blocks: the header blocks
    data: the data of each call, complete or not
    ends: whether the client's side of the call ends after the data
    is_reset: whether the client cancels each call immediately
    is_reading: False if the client never reads, so that it cannot send more than a window
    initial_window: bytes that the service may send for a call
    """

    blocks: HeaderBlocks
    data: bytes = b""
    ends: bool = False
    is_reset: bool = False
    is_reading: bool = True
    initial_window: int = INITIAL_WINDOW
    opening: bytes = field(init=False)

    def __post_init__(self) -> None:
        self.opening = PREFACE + settings(self.initial_window)


class Caller(Peer):
    """A connection that keeps CALLS_PER_CONNECTION calls open, as long as the budget has calls.

    It obeys the flow control of the service, because the service closes connections that do not.
    """

    def __init__(self, plan: CallPlan, budget: Budget):
        super().__init__(plan.opening, is_reading=plan.is_reading)
        self._plan = plan
        self._budget = budget
        self._received = b""
        self._next_stream = 1
        self._open_calls: dict[int, _Call] = {}
        self._sending: deque[_Call] = deque()
        self._connection_window = INITIAL_WINDOW
        self._call_window = INITIAL_WINDOW
        self._has_settings = not plan.is_reading

    def handle_sent(self) -> None:
        if self._has_settings:
            self._extend_output(b"")

    def handle_data(self, data: bytes) -> None:
        received = self._received + data
        replies = bytearray()
        start = 0
        while len(received) - start >= FRAME_HEAD_LENGTH:
            payload_start = start + FRAME_HEAD_LENGTH
            end = payload_start + int.from_bytes(received[start : start + 3], "big")
            if len(received) < end:
                break
            frame_type, flags, stream = struct.unpack(">BBI", received[start + 3 : payload_start])
            payload = received[payload_start:end]
            replies += self._handle_frame(frame_type, flags, stream=stream, payload=payload)
            start = end
        self._received = received[start:]
        self._extend_output(bytes(replies))

    def _handle_frame(self, frame_type: int, flags: int, *, stream: int, payload: bytes) -> bytes:
        """Handle a frame and return the reply, or b"" for none."""
        if frame_type == Frame.SETTINGS and not flags & ACK:
            self._handle_settings(payload)
            return frame(Frame.SETTINGS, ACK, 0, b"")
        if frame_type == Frame.PING and not flags & ACK:
            return frame(Frame.PING, ACK, 0, payload)
        if frame_type == WINDOW_UPDATE:
            self._handle_window(stream, int.from_bytes(payload, "big"))
        is_end = frame_type in (Frame.DATA, Frame.HEADERS) and flags & END_STREAM
        if is_end or frame_type == Frame.RST_STREAM:
            self._handle_end(stream)
        if frame_type == Frame.DATA and payload:
            return frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload)))
        return b""

    def _handle_settings(self, payload: bytes) -> None:
        self._has_settings = True
        for start in range(0, len(payload), 6):
            setting, value = struct.unpack(">HI", payload[start : start + 6])
            if setting == INITIAL_WINDOW_SETTING:
                for call in self._open_calls.values():
                    call.window += value - self._call_window
                self._call_window = value

    def _handle_window(self, stream: int, size: int) -> None:
        if stream == 0:
            self._connection_window += size
            return
        call = self._open_calls.get(stream)
        if call is None:
            return
        was_blocked = call.window <= 0
        call.window += size
        if was_blocked and call.window > 0 and call.data:
            self._sending.append(call)

    def _handle_end(self, stream: int) -> None:
        call = self._open_calls.pop(stream, None)
        if call is not None:
            call.data = memoryview(b"")
            self._budget.ended += 1

    def _extend_output(self, replies: bytes) -> None:
        """Add replies, new calls and data of open calls to the output."""
        parts = [replies]
        size = len(self.output) + len(replies)
        while self._has_settings and size < MAX_OUTPUT_BYTES:
            part = self._next_call() or self._next_data()
            if not part:
                break
            parts.append(part)
            size += len(part)
        addition = b"".join(parts)
        if addition:
            self.output = memoryview(bytes(self.output) + addition)

    def _next_call(self) -> bytes:
        """Return the frames that start a call, or b"" if no further call may start."""
        if self._budget.calls <= 0 or len(self._open_calls) >= CALLS_PER_CONNECTION:
            return b""
        self._budget.calls -= 1
        stream = self._next_stream
        self._next_stream += 2
        block = self._plan.blocks.first if stream == 1 else self._plan.blocks.further
        start = frame(Frame.HEADERS, END_HEADERS, stream, block)
        if self._plan.is_reset:
            self._budget.ended += 1
            return start + frame(Frame.RST_STREAM, 0, stream, struct.pack(">I", 8))

        call = _Call(stream, memoryview(self._plan.data), self._call_window)
        self._open_calls[stream] = call
        if call.data:
            self._sending.append(call)
        return start

    def _next_data(self) -> bytes:
        """Return a frame with data of a call, or b"" if the flow control permits none.

        The calls take turns.
        """
        while self._sending and self._connection_window > 0:
            call = self._sending.popleft()
            size = min(len(call.data), call.window, self._connection_window, MAX_FRAME_BYTES)
            if size <= 0:
                continue  # an ended call, or one that waits for its window
            piece = bytes(call.data[:size])
            call.data = call.data[size:]
            call.window -= size
            self._connection_window -= size
            flags = 0
            if not call.data and self._plan.ends:
                flags = END_STREAM
            if call.data and call.window > 0:
                self._sending.append(call)
            return frame(Frame.DATA, flags, call.stream, piece)
        return b""
