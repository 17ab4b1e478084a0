"""gunicorn's worker of threads without its hand-over, which costs a small request a quarter of its time.

In gunicorn's own worker one thread waits for all connections and passes each request to a pool, which passes the
connection back through a pipe. Here the threads wait for the connections themselves. While requests are quick they take
turns: several threads would only contend for Python's lock. Who holds the turn for long is stepped past.
"""

from __future__ import annotations

import select
import selectors
import socket
import threading
import time
from contextlib import suppress

from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, TConn, ThreadWorker

READABLE = select.EPOLLIN | select.EPOLLONESHOT
WAIT_SECONDS = 1.0
DRAIN_WAIT_SECONDS = 0.1
# Requests that take longer on average are worth running side by side.
QUICK_SECONDS = 0.002
STEP_PAST_SECONDS = 0.05
# A connection that is closed gets so long to read the last answer.
LEAVE_SECONDS = 2.0
BLOCK = 2**16


class Worker(ThreadWorker):
    """All connections are in `open`; those that no thread has, in `keepalived_conns` by their file descriptor."""

    def init_process(self) -> None:
        self.keepalived_conns: dict[int, TConn] = {}
        self.open: set[TConn] = set()
        self.epoll = select.epoll()
        self.turn = threading.Lock()
        self.seconds = 0.0  # what a request takes, on average
        self.answered = 0
        self.serving = True
        super().init_process()

    def run(self) -> None:
        self.poller.register(self.method_queue.fileno(), selectors.EVENT_READ, self.method_queue.run_callbacks)
        for index in range(self.cfg.threads):
            threading.Thread(target=self.serve, name=f"rest-{index}", daemon=True).start()
        while self.alive and self.is_parent_alive():
            self.set_accept_enabled(len(self.open) < self.worker_connections)
            self.look_after(WAIT_SECONDS)
        self.set_accept_enabled(False)
        self.drain()
        self.serving = False
        for listener in self.sockets:
            listener.close()

    def drain(self) -> None:
        """Lets what runs finish, and what a client is already sending on a kept-alive connection be answered."""
        now = time.monotonic()
        for conn in list(self.keepalived_conns.values()):
            conn.timeout = min(conn.timeout, now + STOP_KEEPALIVE_LINGER)
        while self.open and time.monotonic() < now + self.cfg.graceful_timeout:
            self.look_after(DRAIN_WAIT_SECONDS)

    def look_after(self, seconds: float) -> None:
        """Tells gunicorn that the worker lives, takes new connections, and ends those that were idle too long."""
        self.notify()
        self.wait_for_and_dispatch_events(seconds)
        now = time.monotonic()
        for conn in list(self.keepalived_conns.values()):
            if conn.timeout <= now:
                with suppress(OSError):  # it has ended already
                    conn.sock.shutdown(socket.SHUT_RDWR)  # a thread reads the end, and closes

    def accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
        except OSError:  # the client has left, or another worker was quicker
            return
        conn = TConn(self.cfg, client, address, listener.getsockname())
        conn.data_ready = True  # by the time a thread has it
        conn.leaving = False
        self.open.add(conn)
        self.epoll.register(client, 0)
        self.keep(conn, self.cfg.keepalive)

    def keep(self, conn: TConn, seconds: float) -> None:
        """Leaves the connection until its client sends, or `seconds` are over."""
        if not self.alive:
            seconds = min(seconds, STOP_KEEPALIVE_LINGER)
        conn.timeout = time.monotonic() + seconds
        self.keepalived_conns[conn.sock.fileno()] = conn
        try:
            self.epoll.modify(conn.sock, READABLE)
        except (OSError, ValueError):  # it has ended
            self.drop(conn)

    def serve(self) -> None:
        """What each thread does: one request after another, of whichever connection is ready."""
        while self.serving:
            has_turn = self.take_turn()
            try:
                events = self.epoll.poll(WAIT_SECONDS, 1)
                conn = self.keepalived_conns.pop(events[0][0], None) if events else None
                if conn is not None and not conn.leaving and self.answer(conn):
                    self.keep(conn, self.cfg.keepalive)
                elif conn is not None:
                    self.leave(conn)
            finally:
                if has_turn:
                    self.turn.release()

    def take_turn(self) -> bool:
        """Waits for the turn while requests are quick and one after another is answered; says whether it came."""
        while self.seconds < QUICK_SECONDS:
            answered = self.answered
            if self.turn.acquire(timeout=STEP_PAST_SECONDS):
                return True
            if self.answered == answered:  # who has the turn is busy with one request, or waits for any
                return False
        return False

    def answer(self, conn: TConn) -> bool:
        """Answers the request, and those that came with it; says whether the connection may have another."""
        begun = time.monotonic()
        try:
            kept = self.handle(conn)
            while kept and conn.parser.unreader.buf.getvalue():
                kept = self.handle(conn)
        except BaseException:
            self.log.exception("a request ended its thread's work")
            kept = False
        self.seconds += (time.monotonic() - begun - self.seconds) / 10
        self.answered += 1
        return bool(kept)

    def leave(self, conn: TConn) -> None:
        """Closes the connection once its client has: before, the client might lose the last answer (RFC 9112, 9.6)."""
        try:
            if not conn.leaving:
                conn.leaving = True
                conn.sock.shutdown(socket.SHUT_WR)
                self.keep(conn, LEAVE_SECONDS)
                return
            conn.sock.setblocking(False)
            if conn.sock.recv(BLOCK):
                self.keep(conn, conn.timeout - time.monotonic())
                return
        except OSError:  # it has ended
            pass
        self.drop(conn)

    def drop(self, conn: TConn) -> None:
        self.open.discard(conn)
        conn.close()
        if not self.alive:
            self.method_queue.defer(lambda: None)  # wakes drain()
