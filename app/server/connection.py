"""Client connection: a state machine that does not block on the client, except to stream a response."""

import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from socket import MSG_PEEK

from app.server.request_parser import CONTINUE, HttpError, Request, RequestParser
from app.server.sockets import READ_BYTES, PlainSocket

MAX_READ_BYTES = 2**18  # maximum size of one read of a large body
# Time limit for a pause in a transfer. The whole transfer has one second more for every MIN_RATE bytes.
TRANSFER_SECONDS = 30.0
MIN_RATE = 2**10
# A streamed response to a slow client occupies a thread. Beyond this number, the connection is closed.
MAX_SLOW_STREAMS = 64
slow_streams = threading.BoundedSemaphore(MAX_SLOW_STREAMS)
LINGER_SECONDS = 2.0  # time limit for a pause after the last response, while the server waits for the client to close


class State(Enum):
    """State of a connection. The value is the event that it waits for."""

    IDLE = "the first byte of a request, or of a TLS handshake"
    RECEIVING = "the rest of it"
    SENDING = "a client that reads the response"
    LINGERING = "a client that closes, after the last response"
    CLOSED = "nothing"


ONCE = getattr(select, "EPOLLONESHOT", 0)  # systems without epoll also import this module
READABLE, WRITABLE = select.POLLIN | ONCE, select.POLLOUT | ONCE

Handler = Callable[["Connection", Request | HttpError], bool]


class Connection:
    """Connection of a client. Either a thread or the worker's dict of waiting connections owns it.

    release_thread: called before the application blocks or runs for long. Another thread then waits for events.
    begun: time.monotonic() at the start of the state.
    moved: bytes received and sent in this state.
    since: time.monotonic() when the connection began to wait for the client.
    """

    def __init__(
        self,
        socket: PlainSocket,
        parser: RequestParser,
        handle: Handler,
        release_thread: Callable[[], None],
    ):
        self.socket, self.parser, self.handle, self.release_thread = (
            socket,
            parser,
            handle,
            release_thread,
        )
        self.descriptor = socket.client.fileno()
        self.state, self.begun, self.moved, self.since = State.IDLE, 0.0, 0, 0.0
        self.must_close = self.is_broken = False
        self.unsent: memoryview | None = None

    def fileno(self) -> int:
        """Return the file descriptor, so that an application can poll `environ["gunicorn.socket"]`."""
        return self.socket.client.fileno()

    def run(self) -> State:
        """Send, receive and handle requests until the connection has to wait. Return the next state."""
        if self.state is State.LINGERING:
            return State.CLOSED if self.socket.read_raw() == b"" else State.LINGERING
        if not self._flush():
            return State.SENDING
        parser = self.parser
        parser.feed()  # pipelined requests
        if not (parser.requests or self.must_close):
            self._receive()
        while parser.requests and not self.must_close:
            self.must_close = not self.handle(self, parser.requests.popleft())
            if self.is_broken:
                return State.CLOSED
            if self.unsent:
                return State.SENDING
            parser.feed()
        if self.must_close or parser.has_ended:
            return self.shut_down_sending()
        if parser.expects_continue:
            parser.expects_continue = False
            self.send(CONTINUE)
        if self.unsent:
            return State.SENDING
        return State.RECEIVING if parser.has_begun or self.socket.needs_handshake else State.IDLE

    def _receive(self) -> None:
        """Read and parse the available data, at most to the end of a large body."""
        parser = self.parser
        with suppress(BlockingIOError):
            while data := self.socket.read(
                size := max(READ_BYTES, min(parser.missing_bytes, MAX_READ_BYTES))
            ):
                self.moved += len(data)
                parser.feed(data)
                if not parser.missing_bytes or (
                    len(data) < size and type(self.socket) is PlainSocket
                ):
                    return  # a TLS read returns one record, so there may be more
            parser.end()

    def time_out(
        self, message: str = "Request timeout: the request did not arrive in time."
    ) -> State:
        """Time out the state. The client of an incomplete request receives `message`. Return the next state."""
        if self.state is State.RECEIVING and not self.socket.needs_handshake:
            self.send(HttpError(408, message).to_bytes())
        elif self.state is not State.IDLE:
            return State.CLOSED
        return self.shut_down_sending()

    def shut_down_sending(self) -> State:
        """Close the sending side. Closing both sides could lose the last response (RFC 9112, 9.6)."""
        self.parser.stop()
        self.socket.shutdown_write()
        return State.LINGERING

    def send(self, data: bytes) -> None:
        """Send data and buffer the rest. If the buffer is not empty, wait for the client first, or raise OSError."""
        if self.is_broken:  # the client would mistake this data for the rest of the failed response
            raise BrokenPipeError("an earlier send failed")
        self.is_broken = True
        if self.unsent:
            self._wait_for_client()
        sent = self.socket.write(data)
        self.unsent = memoryview(data)[sent:] if sent < len(data) else None
        self.is_broken = False

    def _wait_for_client(self) -> None:
        """Block until all buffered data is sent. At most MAX_SLOW_STREAMS threads of the worker wait here."""
        self.release_thread()
        if not slow_streams.acquire(blocking=False):
            raise BrokenPipeError("too many clients read slowly")
        try:
            poll = select.poll()
            poll.register(self.socket.client, select.POLLOUT)
            while not self._flush():
                if not poll.poll(TRANSFER_SECONDS * 1000):
                    raise BrokenPipeError("the client does not read")
        finally:
            slow_streams.release()

    def _flush(self) -> bool:
        """Send buffered data without blocking. Return True if the buffer is empty."""
        if self.unsent:
            sent = self.socket.write(self.unsent)
            self.moved += sent
            self.unsent = self.unsent[sent:] if sent < len(self.unsent) else None
        return not self.unsent

    def set_state(self, state: State) -> None:
        """Enter a state in which the connection waits for the client."""
        self.since = time.monotonic()
        if state is not self.state:
            self.state, self.begun, self.moved = state, self.since, 0

    def is_overdue(self, now: float, idle_seconds: float) -> bool:
        """Return True if the time limit of the current state has passed."""
        if self.state is State.IDLE:
            deadline = self.since + (
                idle_seconds or TRANSFER_SECONDS
            )  # without keepalive, for the first request
        else:
            pause = LINGER_SECONDS if self.state is State.LINGERING else TRANSFER_SECONDS
            deadline = min(
                self.since + pause, self.begun + TRANSFER_SECONDS + self.moved / MIN_RATE
            )
        is_unread = self.state in (
            State.IDLE,
            State.RECEIVING,
        )  # unread data waits for a thread, not for the client
        return now >= deadline and not (is_unread and self.socket.read_raw(MSG_PEEK))

    def close(self) -> None:
        self.socket.client.close()
        self.parser.stop()
