"""A connection of a client, as a state machine.

It never blocks, except while it streams a response to a slow client. The states differ in what the
connection waits for. It raises InvalidTransition for a transition that the table does not contain:

| State | Waits for | Next states |
|---|---|---|
| IDLE | the start of a request or handshake | RECEIVING, SENDING, SENDING_LAST, LINGERING, CLOSED |
| RECEIVING | the rest of a request or handshake | IDLE, SENDING, SENDING_LAST, LINGERING, CLOSED |
| SENDING | a client that reads a response | IDLE, RECEIVING, SENDING_LAST, LINGERING, CLOSED |
| SENDING_LAST | a client that reads the last response | LINGERING, CLOSED |
| LINGERING | a client that closes the connection | CLOSED |
| CLOSED | nothing | |

The states leave out what happens between two waits: run() reads, parses, calls the application and
sends, until it has to wait again. A connection can also continue to wait in the same state. After
each request, it waits for its turn, even if the next request has already arrived (pipelining): a
client with many requests must not delay others.

Example: a client sends a request in two pieces, reads the response slowly, and leaves:

    IDLE -> RECEIVING -> SENDING -> IDLE -> LINGERING -> CLOSED
"""

import select
import threading
import time
from collections.abc import Callable
from enum import Enum
from socket import MSG_PEEK

from app.server.http_error import HttpError
from app.server.request_parser import Request, RequestParser
from app.server.sockets import READ_BYTES, PlainSocket
from app.server.transitions import InvalidTransition

MAX_READ_BYTES = 2**18  # maximum size of one read of a large body
# Time limit for a pause in a transfer. The whole transfer has one second more for every MIN_RATE
# bytes. While a stream blocks in Output.send(), only its pauses are limited.
TRANSFER_SECONDS = 30.0
MIN_RATE = 2**10
# A client with longer pauses does not count as reading its response, if there is not enough memory.
READING_SECONDS = 1.0
# Time limit for a pause after the last response, while the server waits for the client to close the
# connection.
LINGER_SECONDS = 2.0
# A streamed response to a slow client occupies a thread. Beyond this number, the connection is
# closed.
MAX_SLOW_STREAMS = 64
slow_streams = threading.BoundedSemaphore(MAX_SLOW_STREAMS)

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
REQUEST_TIMEOUT = HttpError(408, "Request timeout: the request did not arrive in time.")
OVERLOADED = HttpError(503, "Server overloaded: not enough memory for the request. Retry later.")

# epoll reports a descriptor once, and only one thread then handles it. Systems without epoll also
# import this module.
ONCE = getattr(select, "EPOLLONESHOT", 0)
READABLE = select.POLLIN | ONCE
WRITABLE = select.POLLOUT | ONCE


class State(Enum):
    """State of a connection. The table is in the docstring of this module."""

    IDLE = 0
    RECEIVING = 1
    SENDING = 2
    SENDING_LAST = 3
    LINGERING = 4
    CLOSED = 5


# As globals, because Python 3.11 takes 0.1 us for each access to a member of an Enum.
IDLE, RECEIVING, SENDING, SENDING_LAST, LINGERING, CLOSED = State
# A part of a response is not sent yet.
SENDING_STATES = (SENDING, SENDING_LAST)
# A request or a response is incomplete.
BUSY_STATES = (RECEIVING, SENDING, SENDING_LAST)

NEXT_STATES = {
    IDLE: (RECEIVING, SENDING, SENDING_LAST, LINGERING, CLOSED),
    RECEIVING: (IDLE, SENDING, SENDING_LAST, LINGERING, CLOSED),
    SENDING: (IDLE, RECEIVING, SENDING_LAST, LINGERING, CLOSED),
    SENDING_LAST: (LINGERING, CLOSED),
    LINGERING: (CLOSED,),
    CLOSED: (),
}

Handler = Callable[["Connection", Request | HttpError], bool]


class Progress:
    """Times and bytes, from which the time limit of a state follows.

    Times are those of time.monotonic().

    begun: when the state began, or the latest request in it
    wait_began: when the latest wait for the client began
    moved_bytes: bytes received and sent since `begun`
    """

    def __init__(self) -> None:
        self.begun = 0.0
        self.wait_began = 0.0
        self.moved_bytes = 0

    def restart(self) -> None:
        """Measure anew from now on: the connection enters a state, or begins another request."""
        self.begun = time.monotonic()
        self.wait_began = self.begun
        self.moved_bytes = 0

    def begin_wait(self) -> None:
        """Begin another wait in the same state."""
        self.wait_began = time.monotonic()

    def add_bytes(self, count: int) -> None:
        self.moved_bytes += count


class Output:
    """The sending side of a connection. Only the thread that owns the connection uses it.

    unsent: the part of the last response that the socket has not accepted yet
    has_failed: True if a response is incomplete. Nothing can be sent after it, because the client
        would mistake it for the rest of this response.
    """

    def __init__(self, socket: PlainSocket, progress: Progress, release_thread: Callable[[], None]):
        self.socket = socket
        self.progress = progress
        self.release_thread = release_thread
        self.unsent: memoryview | None = None
        self._response_bytes = 0
        self.has_failed = False

    def send(self, data: bytes) -> None:
        """Send data, and buffer what the socket does not accept.

        If the buffer is not empty, block until it is. Raise OSError.
        """
        if self.has_failed:
            raise BrokenPipeError("an earlier send failed")

        try:
            if self.unsent:
                self._wait_for_client()
            size = self.socket.write(data)
        except BaseException:
            self.has_failed = True
            raise
        if size < len(data):
            self.unsent = memoryview(data)[size:]
            self._response_bytes = len(data)

    def flush(self) -> None:
        """Send buffered data without blocking. Raise OSError."""
        if not self.unsent:
            return
        size = self.socket.write(self.unsent)
        self.progress.add_bytes(size)
        # An empty slice would keep the memory of the response.
        self.unsent = self.unsent[size:] or None

    @property
    def memory_bytes(self) -> int:
        """Return the size of a response that is not sent completely. A part of it needs as much."""
        return self._response_bytes if self.unsent else 0

    def discard(self) -> None:
        """Discard buffered data that the client will not receive."""
        self.unsent = None

    def _wait_for_client(self) -> None:
        """Block until all buffered data is sent.

        At most MAX_SLOW_STREAMS threads of the worker wait here.
        """
        self.release_thread()
        if not slow_streams.acquire(blocking=False):
            raise BrokenPipeError("too many clients read slowly")
        try:
            poll = select.poll()
            poll.register(self.socket.client, select.POLLOUT)
            self.flush()
            while self.unsent:
                if not poll.poll(TRANSFER_SECONDS * 1000):
                    raise BrokenPipeError("the client does not read")
                self.flush()
        finally:
            slow_streams.release()


class Connection:
    """Connection of a client.

    Either one thread or the worker's table of waiting connections owns it.

    The application receives it as `environ["gunicorn.socket"]`, and can call fileno() and
    release_thread().

    handle: calls the application and sends the response. Returns True if the connection stays open.
    count_memory: called when the connection buffers more data. Returns False if there is not enough
        memory.
    release_thread: called before the application blocks or runs for long. Another thread then waits
        for events.
    descriptor: the file descriptor, also after the socket is closed
    """

    def __init__(
        self,
        socket: PlainSocket,
        parser: RequestParser,
        *,
        handle: Handler,
        count_memory: Callable[["Connection"], bool],
        release_thread: Callable[[], None],
    ):
        self.socket = socket
        self.parser = parser
        self.handle = handle
        self.count_memory = count_memory
        self.release_thread = release_thread
        self.descriptor = socket.client.fileno()
        self.progress = Progress()
        self.output = Output(socket, self.progress, release_thread)
        self.state = IDLE
        self._counted_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Return the size of an incomplete request and of an unsent response."""
        return self.parser.memory_bytes + self.output.memory_bytes

    @property
    def has_requests(self) -> bool:
        """Return True if requests have arrived that are not handled yet."""
        return bool(self.parser.requests)

    @property
    def has_counted_memory(self) -> bool:
        """Return True if the connection buffered data at the last call of buffer_growth()."""
        return self._counted_bytes > 0

    def buffer_growth(self) -> int:
        """Return by how many bytes the buffered data has grown since the last call."""
        size = self.buffered_bytes
        growth = size - self._counted_bytes
        self._counted_bytes = size
        return growth

    def fileno(self) -> int:
        """Return the file descriptor, which an application can poll for the end of the client."""
        return self.socket.client.fileno()

    def enter(self, state: State) -> None:
        """Begin to wait for the client in this state, or close the connection if it is CLOSED.

        Entering the same state again only begins another wait.
        """
        if state is self.state:
            self.progress.begin_wait()
            return

        if state not in NEXT_STATES[self.state]:
            raise InvalidTransition(self.state, state)
        self.state = state
        if state is CLOSED:
            self.socket.client.close()
            self.parser.stop()
            self.output.discard()
        else:
            self.progress.restart()

    # These methods return the next state. Only the thread that owns the connection calls them.

    def run(self) -> State:
        """Send, receive and handle requests until the connection has to wait."""
        if self.state is LINGERING:
            is_closed_by_client = self.socket.read_raw() == b""
            return CLOSED if is_closed_by_client else LINGERING

        self.output.flush()
        if self.output.unsent:
            return self.state
        if self.state is SENDING_LAST:
            return self.shut_down_sending()

        self.parser.feed()  # pipelined requests that have arrived before
        if not self.parser.requests:
            has_memory = self._receive()
            if not has_memory:
                return self.end_early(OVERLOADED)
        stays_open = True
        if self.parser.requests:
            stays_open = self._handle_request()
        return self._next_state(stays_open)

    def _handle_request(self) -> bool:
        """Handle a parsed request. Return True if the connection stays open.

        It may be the HttpError of a rejected request.
        """
        request = self.parser.requests.popleft()
        if self.has_counted_memory:
            self.count_memory(self)  # from now on, the application is responsible for the body
        stays_open = self.handle(self, request)
        # The time of the application does not count for the next request, of which a part may have
        # arrived.
        self.progress.restart()
        return stays_open

    def _next_state(self, stays_open: bool) -> State:
        """Return what to wait for after a request, if there was one.

        A request that has already arrived has to wait, because other connections also need the
        thread.
        """
        parser = self.parser
        output = self.output
        if output.has_failed:
            return CLOSED
        if not stays_open:
            return SENDING_LAST if output.unsent else self.shut_down_sending()
        if output.unsent:
            return SENDING

        parser.feed()
        if parser.requests:
            return RECEIVING
        if parser.has_ended:
            return self.shut_down_sending()
        if parser.must_send_continue:
            output.send(CONTINUE)
            parser.confirm_continue()
        if output.unsent:
            return SENDING
        if parser.has_begun or self.socket.needs_handshake:
            return RECEIVING
        return IDLE

    def end_early(self, error: HttpError = REQUEST_TIMEOUT) -> State:
        """End the current state early. The client of an incomplete request receives the error."""
        if self.output.unsent:
            return CLOSED
        if self.parser.has_begun:
            self.output.send(error.to_bytes())
            return self.shut_down_sending()
        if self.state is IDLE:
            return self.shut_down_sending()
        return CLOSED

    def shut_down_sending(self) -> State:
        """Close the sending side.

        Closing both sides could lose the last response (RFC 9112, 9.6).
        """
        self.parser.stop()
        # Data that the socket has not accepted cannot follow. It must not count as memory.
        self.output.discard()
        self.socket.shutdown_write()
        return LINGERING

    def _receive(self) -> bool:
        """Read and parse the available data, at most to the end of a large body.

        Return False if there is not enough memory for more.
        """
        parser = self.parser
        while True:
            size = max(READ_BYTES, min(parser.missing_bytes, MAX_READ_BYTES))
            try:
                data = self.socket.read(size)
            except BlockingIOError:
                return True
            if not data:
                parser.end()
                return True

            self.progress.add_bytes(len(data))
            parser.feed(data)
            if parser.has_begun and not self.count_memory(self):
                return False
            if not parser.missing_bytes:
                return True
            # A short read of a plain socket means that it is empty. With TLS, each read returns one
            # record, and more may follow.
            if len(data) < size and type(self.socket) is PlainSocket:
                return True

    # Any thread

    def is_overdue(self, now: float, idle_seconds: float) -> bool:
        """Return True if the time limit of the current state has passed at the time `now`.

        Another thread may run the connection meanwhile, so only its owner can rely on the answer.
        """
        if now < self._deadline(idle_seconds):
            return False
        if self.state is IDLE or self.state is RECEIVING:
            # Data that the client has sent waits for a thread of the server.
            unread_data = self.socket.read_raw(MSG_PEEK)  # None without data, b"" at EOF
            return not unread_data
        return True

    def is_reading(self, now: float) -> bool:
        """Return True if the client has recently read a part of its response, or got its first."""
        waits_for_client = self.state in SENDING_STATES
        return waits_for_client and now - self.progress.wait_began < READING_SECONDS

    def _deadline(self, idle_seconds: float) -> float:
        """Return the time at which the current state is overdue.

        An idle connection waits for `idle_seconds`. In other states, the client must not pause for
        too long, and must transfer at least MIN_RATE bytes per second on average, after the first
        TRANSFER_SECONDS.
        """
        progress = self.progress
        if self.state is IDLE:
            if not idle_seconds:  # without keepalive, only a new connection is idle
                idle_seconds = TRANSFER_SECONDS
            return progress.wait_began + idle_seconds

        longest_pause = LINGER_SECONDS if self.state is LINGERING else TRANSFER_SECONDS
        end_of_pause = progress.wait_began + longest_pause
        seconds_at_min_rate = progress.moved_bytes / MIN_RATE
        end_of_transfer = progress.begun + TRANSFER_SECONDS + seconds_at_min_rate
        return min(end_of_pause, end_of_transfer)
