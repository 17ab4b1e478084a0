"""gunicorn worker. The main thread accepts connections and handles timeouts. A thread pool handles requests."""

import errno
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Any

from gunicorn.config import Config
from gunicorn.http.wsgi import base_environ
from gunicorn.sock import close_sockets, ssl_context
from gunicorn.workers.base import Worker as BaseWorker

from app.server.arbiter import accept_signals
from app.server.connection import MAX_SLOW_STREAMS, READABLE, WRITABLE, Connection, State
from app.server.interfaces import Lifecycle
from app.server.request_parser import HttpError, Request, RequestParser, Rules
from app.server.response import Response
from app.server.sockets import PlainSocket, TlsSocket, drop_new_handshakes
from app.server.threads import POLL_SECONDS, LeaderFollowersPool

STOP_POLL_SECONDS = 0.1  # interval of the main loop during a shutdown
NO_FILE_SECONDS = 0.01  # between attempts to accept if the process has too many open files
HANDSHAKE_SECONDS = 0.3  # for clients to complete TCP handshakes that have begun
IDLE_LINGER_SECONDS = (
    0.5  # for idle connections during a shutdown. A request may already be on its way
)
IDLE_STATES = State.IDLE, State.LINGERING  # the client does not wait for a response
# gunicorn's settings that this worker does not support.
IGNORED_SETTINGS = """
accesslog casefold_http_method do_handshake_on_connect header_map http2_cleartext http_parser http_protocols
permit_obsolete_folding permit_unconventional_http_method permit_unconventional_http_version protocol proxy_protocol
root_path sendfile strip_header_spaces suppress_ragged_eofs
""".split()  # noqa: SIM905 - a list would fill a screen


class Worker(BaseWorker):
    """Accepts connections after accept_connections(), while lifecycle.should_accept() returns True.

    lifecycle: set by a subclass in load_wsgi()
    connections: all open connections
    waiting: connections that no thread owns, by file descriptor, in the order in which they began to wait
    """

    lifecycle: Lifecycle

    def init_process(self) -> None:
        cfg = self.cfg
        self.connections: set[Connection] = set()
        self.waiting: dict[int, Connection] = {}
        self.epoll = select.epoll()
        self.pool = LeaderFollowersPool(self.epoll, cfg.threads + MAX_SLOW_STREAMS, self._run_step)
        self.idle_seconds, self.max_connections = cfg.keepalive, cfg.worker_connections
        self.pre_request, self.post_request = cfg.pre_request, cfg.post_request
        self.tls = ssl_context(cfg) if cfg.is_ssl else None
        self._is_accepting, self._checked_at = False, 0.0
        os.register_at_fork(after_in_child=self._close_sockets_after_fork)
        super().init_process()

    def init_signals(self) -> None:
        super().init_signals()
        accept_signals()

    def run(self) -> None:
        self._read_settings()
        self.pool.add_thread()
        while self.alive and self.ppid == os.getppid():
            self._run_once(POLL_SECONDS)
        self._stop()
        self.pool.is_running = False
        close_sockets(self.sockets, unlink=False)

    def accept_connections(self) -> None:
        """Start to accept connections. Any thread can call this method."""
        self._is_accepting = True
        with suppress(BlockingIOError):
            os.write(self.PIPE[1], b".")  # wakes the main thread

    def _read_settings(self) -> None:
        cfg = self.cfg
        options = self.lifecycle.options
        self.proxies, self.trusts_all = (
            cfg.forwarded_allow_networks(),
            "*" in cfg.forwarded_allow_ips,
        )
        self.server_name = options.server_name
        base = base_environ(cfg) | {
            "wsgi.url_scheme": "https" if self.tls else "http",
            "wsgi.multithread": True,
        }
        base["SCRIPT_NAME"] = os.environ.get("SCRIPT_NAME", "")
        head_limits = cfg.limit_request_line, cfg.limit_request_fields, cfg.limit_request_field_size
        limits = *head_limits, options.max_body_bytes, options.max_body_setting
        schemes = {
            f"HTTP_{name.replace('-', '_')}": value
            for name, value in cfg.secure_scheme_headers.items()
        }
        self.rules = Rules(*limits, base, frozenset(), {})
        self.proxy_rules = Rules(*limits, base, frozenset(cfg.forwarder_headers), schemes)
        defaults = Config()
        if ignored := [
            name for name in IGNORED_SETTINGS if getattr(cfg, name) != getattr(defaults, name)
        ]:
            self.log.warning("Ignored settings of gunicorn: %s", ", ".join(ignored))

    def _close_sockets_after_fork(self) -> None:
        """Close all sockets in a forked process, so that clients of a killed worker see their connections close."""
        self.epoll.close()
        for each in (*self.sockets, *(connection.socket.client for connection in self.connections)):
            each.close()

    # The main thread

    def _run_once(self, seconds: float) -> None:
        """Run one iteration of the main loop: notify gunicorn, accept connections, and close those that time out."""
        self.notify()
        is_listening = self._is_accepting and self.lifecycle.should_accept()
        for ready in select.select(
            [self.PIPE[0], *(self.sockets if is_listening else ())], [], [], seconds
        )[0]:
            if ready == self.PIPE[0]:
                os.read(ready, 4096)
            elif self.lifecycle.should_accept():
                self._accept(ready)
        now = time.monotonic()
        if now - self._checked_at >= seconds / 2:
            self._checked_at = now
            is_overdue = partial(Connection.is_overdue, now=now, idle_seconds=self.idle_seconds)
            overdue = [each for each in list(self.waiting.values()) if is_overdue(each)]
            for connection in overdue:  # checked again, because a thread may have handled it
                self._run_step(
                    connection.descriptor,
                    lambda each: each.time_out() if is_overdue(each) else each.state,
                )
            self._limit_memory()

    def _accept(self, listener: socket.socket) -> None:
        try:
            client, address = listener.accept()
            connection = self._make_connection(client, address, listener.getsockname())
            self.epoll.register(connection.descriptor, 0)
        except OSError as error:  # the client has disconnected, or another worker has accepted it
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._close_oldest()
                time.sleep(NO_FILE_SECONDS)
            return
        if len(self.connections) >= self.max_connections:
            self._close_oldest()
        self.connections.add(connection)
        self._enter(connection, State.IDLE)

    def _make_connection(self, client: socket.socket, address: Any, server: Any) -> Connection:
        is_unix = not isinstance(address, tuple)
        name, server_port, host, port = (
            ("localhost", 80, "", "") if is_unix else (*server[:2], *address[:2])
        )
        peer = {
            "SERVER_NAME": name,
            "SERVER_PORT": str(server_port),
            "REMOTE_ADDR": host,
            "REMOTE_PORT": str(port),
        }
        is_trusted = (
            is_unix or self.trusts_all or any(ip_address(host) in each for each in self.proxies)
        )
        wrapped = TlsSocket(client, self.tls) if self.tls else PlainSocket(client)
        parser = RequestParser(self.proxy_rules if is_trusted else self.rules, peer)
        return Connection(wrapped, parser, self._handle, self.pool.release_leadership)

    def _close_oldest(self) -> None:
        """Close the connection that has waited for longest. Prefer idle connections."""
        if waiting := list(self.waiting.values()):
            oldest = min(waiting, key=lambda each: each.state not in IDLE_STATES)
            self._run_step(oldest.descriptor, lambda _: State.CLOSED)

    def _limit_memory(self) -> None:
        """Close the slowest connections if the buffered data exceeds one message of the largest size per thread."""
        busy = [each for each in list(self.waiting.values()) if each.state not in IDLE_STATES]
        held = [each.parser.received + len(each.unsent or b"") for each in busy]
        excess = sum(held) - max([self.rules.max_body_bytes, *held]) * self.cfg.threads
        if excess > 0:
            self.log.info(
                "Requests and responses exceed the memory limit by %d bytes. Closing slow clients",
                excess,
            )
        for connection, size in zip(
            busy, held, strict=True
        ):  # those that have waited for longest come first
            if excess > 0:
                excess -= size
                self._run_step(
                    connection.descriptor,
                    lambda each: each.time_out("Server overloaded. Retry later."),
                )

    def _stop(self) -> None:
        """Serve during the drain, then finish the requests that are running or being received. See Lifecycle."""
        self.alive = False
        lifecycle = self.lifecycle

        drain_seconds = lifecycle.on_stop()
        if drain_seconds:
            self.log.info("Stopping. Accepting requests for %g s", drain_seconds)
        self._run_for(drain_seconds)

        lifecycle.on_drain_end()
        if lifecycle.is_service_stopping():  # accept only connections whose handshake has begun
            for listener in self.sockets:
                drop_new_handshakes(listener)
            self._run_for(HANDSHAKE_SECONDS)
        self._is_accepting = False
        self.idle_seconds, now = IDLE_LINGER_SECONDS, time.monotonic()
        for connection in list(self.waiting.values()):
            connection.since = now
        while (
            self.connections or lifecycle.is_closing()
        ) and time.monotonic() < now + lifecycle.options.finish_seconds:
            self._run_once(STOP_POLL_SECONDS)

    def _run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._run_once(STOP_POLL_SECONDS)

    # Any thread

    def _run_step(
        self, descriptor: int, step: Callable[[Connection], State] = Connection.run
    ) -> None:
        """Run a step of a connection, unless another thread owns it. Then let the connection wait, or close it."""
        connection = self.waiting.pop(descriptor, None)
        if connection is None:
            return
        state = State.CLOSED
        try:
            state = step(connection)
        except OSError:
            pass  # the client has disconnected
        except BaseException:
            self.log.exception("Unhandled exception in a thread of the server")
        self._enter(connection, state)

    def _enter(self, connection: Connection, state: State) -> None:
        """Let the connection wait for its client in this state, or close it."""
        if state is State.CLOSED:
            self.connections.discard(connection)
            connection.close()
            return
        connection.set_state(state)
        self.waiting[connection.descriptor] = connection
        with suppress(OSError, ValueError):  # another thread has closed it
            self.epoll.modify(connection, WRITABLE if state is State.SENDING else READABLE)

    def _handle(self, connection: Connection, request: Request | HttpError) -> bool:
        """Call the application. Return True if the connection stays open."""
        if isinstance(request, HttpError):
            self.log.info("Rejected a request: %d. %s", request.status, request)
            connection.send(request.to_bytes())
            return False
        request.environ["gunicorn.socket"] = connection
        response = Response(request, self.server_name, connection.send)
        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            self.log.info("Autorestarting worker after current request.")
            self.alive = False
        if not (self.alive and self.idle_seconds):
            response.keep_alive = False
        try:
            self.pre_request(self, request)
            body = self.wsgi(request.environ, response.start)
            try:
                response.respond(body)
            finally:
                if hasattr(body, "close"):
                    body.close()
        except Exception as error:
            if connection.is_broken:
                raise
            self.log.exception("Error handling request")
            response.keep_alive = False
            if not response.has_sent_head:
                body = HttpError(500, f"Internal error: {type(error).__name__}.").body
                fields = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
                response.start(
                    "500 Internal Server Error", fields, (type(error), error, error.__traceback__)
                )
                response.respond([body])
        finally:
            self.post_request(self, request, request.environ, response)
        return response.keep_alive and not connection.is_broken
