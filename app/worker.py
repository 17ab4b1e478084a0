"""gunicorn's worker of threads without its hand-over, which costs a small request a quarter of its time.

In gunicorn's own worker one thread waits for all connections and passes each request to a pool, which passes the
connection back through a pipe. Here the thread that has the turn waits for the connections itself, and answers what
comes. No thread waits for a client: a connection goes back to epoll until its request is whole, and until its answer
is sent.
"""

from __future__ import annotations

import errno
import math
import os
import select
import selectors
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gunicorn.http.errors import UnsupportedTransferCoding
from gunicorn.http.message import Message
from gunicorn.sock import ssl_context
from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, ThreadWorker

from app.call import serving
from app.connection import Connection
from app.crew import READABLE, WAIT_SECONDS, WRITABLE, Crew
from app.economy import Page, refusal, settle
from app.server.interfaces import Lifecycle
from app.transport import Plain, Tls, ignore_newcomers, tolerant

DRAIN_WAIT_SECONDS = 0.1
# A client has so long to finish a handshake that it has begun.
HANDSHAKE_SECONDS = 0.3
NO_DESCRIPTORS = {errno.EMFILE, errno.ENFILE}


class Worker(ThreadWorker):
    """All connections are in `open`. Those that no thread has are in `keepalived_conns`, by their file descriptor.

    New connections are accepted after accept_connections(), while the lifecycle needs this worker. On SIGTERM they are
    accepted for its `drain_seconds`, and what runs then gets `finish_seconds`.
    """

    lifecycle: Lifecycle
    is_accepting = False

    def make_lifecycle(self) -> Lifecycle:
        """Create the lifecycle after the application was loaded. Subclasses implement this."""
        raise NotImplementedError

    def load_wsgi(self) -> None:
        super().load_wsgi()
        self.lifecycle = self.make_lifecycle()

    def init_process(self) -> None:
        self.keepalived_conns: dict[int, Connection] = {}  # in the order in which they were left
        self.open: set[Connection] = set()
        self.max_keepalived = math.inf
        self.cfg.set("sendfile", False)  # past our own way to send
        self.tls = tolerant(ssl_context(self.cfg)) if self.cfg.is_ssl else None
        self.epoll = select.epoll()
        self.crew = Crew(self.epoll, self.cfg.threads, self.attend)
        self.swept = 0.0
        super().init_process()

    def run(self) -> None:
        settle(self.cfg, self.lifecycle.server_name)
        os.register_at_fork(after_in_child=self.close_copies)
        self.poller.register(self.method_queue.fileno(), selectors.EVENT_READ, self.method_queue.run_callbacks)
        self.crew.add_thread()
        while self.alive and self.is_parent_alive():
            self.take_connections()
            self.look_after(WAIT_SECONDS)
        self.drain()
        self.crew.serving = False
        for listener in self.sockets:
            listener.close()

    def close_copies(self) -> None:
        """In a process of the model's own: clients would else wait for it where the worker is killed.

        Without the epoll, one that comes out of predict() takes none of the worker's requests.
        """
        self.epoll.close()
        for conn in self.open:
            conn.transport.client.close()

    def accept_connections(self) -> None:
        self.is_accepting = True
        self.wake()

    def wake(self) -> None:
        """Has the worker's own thread look around at once."""
        self.method_queue.defer(lambda: None)

    def take_connections(self) -> None:
        self.set_accept_enabled(self.is_accepting and self.lifecycle.is_needed())

    def drain(self) -> None:
        """Serve on for `drain_seconds`, then answer what runs, and what a client is already sending."""
        lifecycle = self.lifecycle
        lifecycle.on_stop()
        if lifecycle.drain_seconds:
            self.log.info("Stopping. Requests are still accepted for %g s", lifecycle.drain_seconds)
        end = time.monotonic() + lifecycle.drain_seconds
        while time.monotonic() < end:
            self.take_connections()
            self.look_after(DRAIN_WAIT_SECONDS)
        lifecycle.on_close()
        if lifecycle.is_last():
            self.let_in_the_last()
        self.set_accept_enabled(False)
        now = time.monotonic()
        for conn in list(self.keepalived_conns.values()):
            if conn.begun is None:
                conn.timeout = min(conn.timeout, now + STOP_KEEPALIVE_LINGER)
        while (self.open or lifecycle.is_closing()) and time.monotonic() < now + lifecycle.finish_seconds:
            self.look_after(DRAIN_WAIT_SECONDS)

    def let_in_the_last(self) -> None:
        """Who is at the door already; nobody else comes in."""
        for listener in self.sockets:
            ignore_newcomers(listener)
        end = time.monotonic() + HANDSHAKE_SECONDS
        while time.monotonic() < end:
            self.look_after(DRAIN_WAIT_SECONDS)

    def look_after(self, seconds: float) -> None:
        """Tells gunicorn that the worker lives, takes new connections, and gives up those that take too long."""
        self.notify()
        self.wait_for_and_dispatch_events(seconds)
        now = time.monotonic()
        if now - self.swept < seconds / 2:
            return
        self.swept = now
        busy = []
        for conn in list(self.keepalived_conns.values()):
            if conn.timeout <= now:
                self.give_up(conn)
            elif conn.begun is not None and not conn.is_leaving:
                busy.append(conn)
        self.make_room(busy, now)

    def make_room(self, busy: list[Connection], now: float) -> None:
        """Gives up the slowest where more is kept than as many requests as there are threads may have."""
        held = sum(conn.held for conn in busy) - self.lifecycle.max_body_bytes * self.cfg.threads
        for conn in sorted(busy, key=lambda conn: conn.speed(now)) if held > 0 else ():
            if held > 0:
                held -= conn.held
                self.give_up(conn)

    def give_up(self, conn: Connection) -> None:
        if self.keepalived_conns.pop(conn.descriptor, None) is None:  # a thread has it
            return
        if conn.begun is None:
            self.sure(conn, self.let_go)
        elif conn.is_leaving or conn.sock.left or not conn.inbox.size:
            self.drop(conn)
        else:
            self.sure(conn, self.turn_away)

    def let_go(self, conn: Connection) -> int:
        """Ends an idle connection, unless its client has begun to send just now; a thread answers what is whole."""
        conn.has_next = conn.receive()
        if conn.has_next:
            return WRITABLE
        conn.invite()
        return READABLE if conn.inbox.size else 0

    def turn_away(self, conn: Connection) -> int:
        conn.sock.push(refusal("408 Request Timeout", "the request did not come in time"))
        return 0

    def accept(self, listener: socket.socket) -> None:
        if not self.lifecycle.is_needed():  # since connections were accepted
            self.take_connections()
            return
        try:
            client, address = listener.accept()
        except OSError as error:  # the client has left, or another worker was quicker
            if error.errno in NO_DESCRIPTORS:
                self.evict()
            return
        try:
            transport = Tls(client, self.crew, self.tls) if self.tls else Plain(client, self.crew)
            conn = Connection(transport, address, listener.getsockname(), self.lifecycle.max_body_bytes)
            self.epoll.register(conn.descriptor, 0)
        except OSError:  # it has ended, or the system watches as many as it will
            client.close()
            return
        if len(self.open) >= self.worker_connections:
            self.evict()
        self.open.add(conn)
        self.keep(conn, READABLE)

    def evict(self) -> None:
        """Ends the connection from which nothing has come for longest, for a new one."""
        with suppress(StopIteration, RuntimeError, KeyError):  # a thread was quicker
            self.drop(self.keepalived_conns.pop(next(iter(self.keepalived_conns))))

    def keep(self, conn: Connection, events: int) -> None:
        """Leaves the connection until its client sends, or reads, or has taken too long for it."""
        now = time.monotonic()
        conn.timeout = conn.patience_ends(now, self.cfg.keepalive)
        if not self.alive and conn.begun is None:
            conn.timeout = min(conn.timeout, now + max(self.lifecycle.drain_seconds, STOP_KEEPALIVE_LINGER))
        self.keepalived_conns[conn.descriptor] = conn
        try:
            self.epoll.modify(conn.transport.client, events)
        except (OSError, ValueError):  # it has ended
            self.drop(conn)

    def attend(self, descriptor: int) -> None:
        conn = self.keepalived_conns.pop(descriptor, None)
        if conn is not None:
            self.sure(conn, self.discard if conn.is_leaving else self.advance)

    def sure(self, conn: Connection, step: Callable[[Connection], int]) -> None:
        """Takes the step, after which the connection waits for the events that it returns, or leaves."""
        try:
            if events := step(conn):
                self.keep(conn, events)
            else:
                self.leave(conn)
        except OSError:  # it has ended
            self.drop(conn)
        except BaseException:
            self.log.exception("a request ended its thread's work")
            self.drop(conn)

    def advance(self, conn: Connection) -> int:
        """Sends, reads and answers what can be; says which events are waited for, or 0 where it is over."""
        if conn.sock.left:
            if not conn.sock.flush():
                return WRITABLE
            conn.begun = None
        if conn.is_last:
            return 0
        whole = conn.has_next or conn.receive()
        while whole:
            if conn.parser is None:
                conn.make_parser(self.cfg)
            conn.begun = None
            conn.is_last = not self.handle(conn)
            whole = conn.next_request()
            if not conn.sock.flush():
                return WRITABLE
            if conn.is_last:
                return 0
        if conn.inbox.ended:
            return 0
        conn.invite()
        return READABLE

    def handle_request(self, req: Message, conn: Connection) -> bool:
        req._expected_100_continue = False  # the client has had its sign
        req.version = min(req.version, (1, 1))  # gunicorn would answer as the later one that it was asked by
        if conn.inbox.refusal or conn.inbox.is_last:  # gunicorn knows "close" alone, not among other options
            if isinstance(conn.inbox.refusal, UnsupportedTransferCoding):  # which gunicorn lets pass
                raise conn.inbox.refusal
            req.force_close()
        kept = super().handle_request(req, conn) and req.body.skip()
        conn.parser.mesg = None  # gunicorn need not look, twice, for more of the body
        return kept

    def handle_error(self, req: Message | None, client: Any, addr: Any, exc: BaseException) -> None:
        if req is None:  # what has come is no request, and the one before it has been answered
            serving.set(())
        super().handle_error(req, Page(client, exc), addr, exc)

    def leave(self, conn: Connection) -> None:
        """Closes the connection once its client has: before, the client might lose the last answer (RFC 9112, 9.6)."""
        if conn.is_leaving:
            self.drop(conn)
            return
        conn.is_leaving, conn.begun = True, time.monotonic()
        conn.inbox.clear()
        conn.transport.finish()
        self.keep(conn, READABLE)

    def discard(self, conn: Connection) -> int:
        return READABLE if conn.transport.discard() else 0

    def drop(self, conn: Connection) -> None:
        self.open.discard(conn)
        conn.close()
        if not self.alive:
            self.wake()
