"""A client's connection as the worker and gunicorn see it, and how long it may take."""

from __future__ import annotations

import math
import select
import time
from contextlib import suppress
from typing import Any

from gunicorn.config import Config
from gunicorn.http import get_parser

from app.economy import Request
from app.inbox import Inbox
from app.transport import BLOCK, Plain

# A client that sends as much at once is quick.
QUICK = 2**14
# A request, and an answer, pass at so many bytes a second at least, but for so long; and so long is the longest pause.
PASSAGE_SECONDS = 30.0
BYTES_A_SECOND = 2**10
# A connection that is closed gets so long to read the last answer, and so long in all while its client still sends.
LEAVE_SECONDS, LINGER_SECONDS = 2.0, 30.0
# For what gunicorn asks beyond a request, as the PROXY protocol has it.
PATIENCE_SECONDS = 2.0
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Outbox:
    """What gunicorn takes for the client's socket. The thread that answers a slow reader does not wait: what cannot be
    sent is kept in `left`.

    The head of an answer is sent with its body. Of an answer in pieces `waited` is how long its client was waited for.
    """

    def __init__(self, transport: Plain):
        self.transport = transport
        self.head = b""
        self.left: memoryview | None = None
        self.sent, self.waited = 0, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.transport.client, name)

    def release_thread(self) -> None:
        """Let another thread wait for connections: this one is about to wait, or to run for long."""
        self.transport.crew.step_aside()

    def gettimeout(self) -> float:
        return 0.0

    def settimeout(self, seconds: float | None) -> None:
        """The socket stays as it is."""

    def setblocking(self, flag: bool) -> None:
        """The socket stays as it is."""

    def sendall(self, data: bytes) -> None:
        if self.head:
            head, self.head = self.head, b""
            if len(data) > BLOCK:
                self.push(head)
            else:
                data = head + data
        elif data.startswith(b"HTTP/1.") and data.endswith(b"\r\n\r\n"):
            self.head, self.sent, self.waited = data, 0, 0.0
            return
        self.push(data)

    def push(self, data: bytes) -> None:
        """Sends, and keeps what cannot be sent; where something is kept, waits. Only streamed answers do."""
        if self.left:
            self.wait()
        sent = self.transport.write(data)
        if sent < len(data):
            left = memoryview(data)[sent:]
            self.left = left[self.transport.write_more(left) :] or None

    def wait(self) -> None:
        while not self.flush():
            begun = time.monotonic()
            came = self.transport.wait(select.POLLOUT, PASSAGE_SECONDS)
            self.waited += time.monotonic() - begun
            if not came or self.waited > PASSAGE_SECONDS + self.sent / BYTES_A_SECOND:
                raise BrokenPipeError("the client does not read")

    def flush(self) -> bool:
        """Sends what can be sent at once; says whether that was all."""
        if self.left:
            sent = self.transport.write(self.left)
            self.sent += sent
            self.left = self.left[sent:] if sent < len(self.left) else None
        elif self.head:
            head, self.head = self.head, b""
            self.push(head)
        return not self.left

    def shutdown(self, how: int) -> None:
        self.flush()
        self.transport.client.shutdown(how)


class Connection:
    """A client's connection. `timeout` is when it is given up, on the monotonic clock; `begun`, since when a request or
    an answer has been passing, None while it is idle.
    """

    # gunicorn's own connection would do these when a thread has it.
    initialized = data_ready = True
    is_http2 = False

    def __init__(self, transport: Plain, client: Any, server: Any, limit: int):
        self.transport, self.client, self.server = transport, client, server
        self.descriptor = transport.client.fileno()
        self.inbox = Inbox(limit, self.wait)
        self.sock = Outbox(transport)
        self.parser: Any = None
        self.timeout = math.inf
        self.begun: float | None = None
        self.patience = PATIENCE_SECONDS
        self.has_next = self.is_last = self.is_leaving = False

    def init(self) -> None:
        """For gunicorn; there is nothing left to do."""

    def make_parser(self, cfg: Config) -> None:
        self.parser = get_parser(cfg, (), self.client)
        self.parser.unreader, self.parser.mesg_class = self.inbox, Request

    def receive(self) -> bool:
        """Reads what is there; says whether a request can be handed over."""
        inbox, transport = self.inbox, self.transport
        try:
            data = transport.read()
            whole = inbox.add(data)
            if not whole and inbox.missing and len(data) >= QUICK:
                whole = inbox.add(transport.read_more(inbox.missing))
        except BlockingIOError:
            return False
        return whole

    def invite(self) -> None:
        """Gives a client that waits for it the sign to send the body."""
        if self.inbox.expects:
            self.inbox.expects = False
            self.sock.push(CONTINUE)

    def next_request(self) -> bool:
        """Begins with what came behind the last; says whether it is whole."""
        self.patience = PATIENCE_SECONDS
        self.has_next = self.inbox.begin()
        return self.has_next

    def wait(self) -> bytes:
        """More, where gunicorn asks for it; b"" where it takes too long."""
        begun = time.monotonic()
        came = self.transport.wait(select.POLLIN, self.patience)
        self.patience -= time.monotonic() - begun
        return self.transport.read() if came else b""

    @property
    def held(self) -> int:
        """The bytes that are kept of a request that is not whole, or an answer that is not sent."""
        return self.inbox.size + len(self.sock.left or b"")

    def speed(self, now: float) -> float:
        """Of what is kept, in bytes a second."""
        return self.held / max(now - (self.begun or 0), 1e-3)

    def patience_ends(self, now: float, keepalive: float) -> float:
        """When the client is given up if nothing comes."""
        if self.is_leaving and self.begun:
            return min(now + LEAVE_SECONDS, self.begun + LINGER_SECONDS)
        if not (self.inbox.size or self.sock.left or self.transport.is_new):
            self.begun = None
            return now + keepalive
        if self.begun is None:
            self.begun, self.sock.sent = now, 0
        return PASSAGE_SECONDS + min(now, self.begun + (self.inbox.size + self.sock.sent) / BYTES_A_SECOND)

    def close(self) -> None:
        with suppress(OSError):
            self.transport.client.close()
        # What is large is let go now, and not when the collector finds the circle.
        self.inbox.clear()
        self.inbox.wait, self.sock.left = bytes, None
