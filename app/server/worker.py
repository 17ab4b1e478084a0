"""gunicorn worker, which connects the other modules of this package.

The main thread accepts connections and handles timeouts. A thread pool handles requests:

    main thread: _accept() -> ConnectionTable.add()
                 _run_once() -> ConnectionTable.time_out_overdue()
    other threads: ConnectionTable.run_step() -> Connection.run() -> RequestParser.feed()
                   -> Worker._handle() -> Gateway.respond() -> application
"""

import errno
import math
import os
import select
import socket
import time
from contextlib import suppress

from gunicorn.config import Config
from gunicorn.sock import close_sockets, ssl_context
from gunicorn.workers.base import Worker as BaseWorker

from app.server.arbiter import accept_signals
from app.server.connection import MAX_SLOW_STREAMS, Connection
from app.server.connections import ConnectionTable
from app.server.gateway import Gateway
from app.server.http_error import HttpError
from app.server.interfaces import Lifecycle
from app.server.peers import Peers
from app.server.request_parser import Request, RequestParser
from app.server.sockets import PlainSocket, TlsSocket, accept_packets, drop_new_handshakes
from app.server.threads import POLL_SECONDS, LeaderFollowersPool

STOP_POLL_SECONDS = 0.1  # interval of the main loop during a shutdown
NO_FILE_SECONDS = 0.01  # between attempts to accept if the process has too many open files
HANDSHAKE_SECONDS = 0.3  # for clients to complete TCP handshakes that have begun
# For idle connections during a shutdown. A request may already be on its way.
IDLE_LINGER_SECONDS = 0.5
# gunicorn's settings that this worker does not support.
IGNORED_SETTINGS = """
accesslog casefold_http_method do_handshake_on_connect header_map http2_cleartext http_parser
http_protocols permit_obsolete_folding permit_unconventional_http_method
permit_unconventional_http_version protocol proxy_protocol root_path sendfile
strip_header_spaces suppress_ragged_eofs
""".split()  # noqa: SIM905 - a list would fill a screen


class Worker(BaseWorker):
    """Accepts connections after accept_connections(), while lifecycle.should_accept() returns True.

    lifecycle: set by a subclass in load_wsgi()
    idle_seconds: time limit for idle connections. With 0, each connection is closed after one
        response.
    """

    lifecycle: Lifecycle

    def init_process(self) -> None:
        """Create the parts that load_wsgi() may use in other threads, and run the worker."""
        self.connections = ConnectionTable(self.log)
        self.pool = LeaderFollowersPool(
            self.connections.epoll,
            size=self.cfg.threads + MAX_SLOW_STREAMS,
            handle=self.connections.run_step,
        )
        self.tls = ssl_context(self.cfg) if self.cfg.is_ssl else None
        self.idle_seconds: float = self.cfg.keepalive
        self._is_accepting = False
        self._checked_at = 0.0
        os.register_at_fork(after_in_child=self._close_sockets_after_fork)
        super().init_process()

    def init_signals(self) -> None:
        super().init_signals()
        accept_signals()

    def run(self) -> None:
        options = self.lifecycle.options
        self.peers = Peers(self.cfg, options, self.lifecycle.accepts_head)
        self.gateway = Gateway(self, self.wsgi, server_name=options.server_name)
        self._limit_buffers()
        self._warn_of_ignored_settings()
        self.pool.add_thread()
        while self.alive and self.ppid == os.getppid():
            self._run_once(POLL_SECONDS)
        self._stop()
        self.pool.stop()
        close_sockets(self.sockets, unlink=False)

    def accept_connections(self) -> None:
        """Start to accept connections. Any thread can call this method."""
        self._is_accepting = True
        with suppress(BlockingIOError):
            os.write(self.PIPE[1], b".")  # wakes the main thread

    def _limit_buffers(self) -> None:
        """Limit the memory of incomplete requests and unsent responses."""
        limit = self.lifecycle.transfer_bytes
        if limit < math.inf:
            self.connections.limit_memory(message_bytes=int(limit), messages=1)
        else:
            self.connections.limit_memory(
                message_bytes=self.lifecycle.options.max_body_bytes, messages=self.cfg.threads
            )

    def _warn_of_ignored_settings(self) -> None:
        defaults = Config()
        ignored = [
            name for name in IGNORED_SETTINGS if getattr(self.cfg, name) != getattr(defaults, name)
        ]
        if ignored:
            self.log.warning("Ignored settings of gunicorn: %s", ", ".join(ignored))

    def _close_sockets_after_fork(self) -> None:
        """Close all sockets in a forked process.

        Otherwise, the clients of a killed worker would not see that their connections are closed.
        """
        self.connections.close_after_fork()
        for listener in self.sockets:
            listener.close()

    # The main thread

    def _run_once(self, seconds: float) -> None:
        """Run one iteration of the main loop, which waits for at most `seconds`."""
        self.notify()
        readable = [self.PIPE[0]]
        if self._is_accepting and self.lifecycle.should_accept():
            readable += self.sockets
        for ready in select.select(readable, [], [], seconds)[0]:
            if ready == self.PIPE[0]:
                os.read(ready, 4096)
            elif self.lifecycle.should_accept():
                self._accept(ready)

        now = time.monotonic()
        if now - self._checked_at >= seconds / 2:
            self._checked_at = now
            self._limit_buffers()
            self.connections.time_out_overdue(now, idle_seconds=self.idle_seconds)

    def _accept(self, listener: socket.socket) -> None:
        """Accept a connection. At the limit of connections or open files, close the oldest one."""
        try:
            client, address = listener.accept()
            accept_packets(client)
            connection = Connection(
                TlsSocket(client, self.tls) if self.tls else PlainSocket(client),
                RequestParser(self.peers.make_rules(address, listener.getsockname())),
                handle=self._handle,
                count_memory=self.connections.count_memory,
                release_thread=self.pool.release_leadership,
            )
            if len(self.connections) >= self.cfg.worker_connections:
                self.connections.close_oldest()
            self.connections.add(connection)
        except OSError as error:  # the client has disconnected, or another worker has accepted it
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self.connections.close_oldest()
                time.sleep(NO_FILE_SECONDS)

    def _stop(self) -> None:
        """Serve during the drain, then finish the requests that are running or being received."""
        self.alive = False  # from now on, each response ends its connection
        lifecycle = self.lifecycle

        # 1. The drain: clients still connect, because they do not know yet that the service stops.
        drain_seconds = lifecycle.on_stop()
        if drain_seconds:
            self.log.info("Stopping. Accepting requests for %g s", drain_seconds)
        self._run_for(drain_seconds)
        lifecycle.on_drain_end()

        # 2. If the whole service stops, accept the connections whose handshake has begun.
        if lifecycle.is_service_stopping():
            for listener in self.sockets:
                drop_new_handshakes(listener)
            self._run_for(HANDSHAKE_SECONDS)
        self._is_accepting = False

        # 3. Finish the requests. Idle connections are closed soon: their time begins now.
        self.idle_seconds = IDLE_LINGER_SECONDS
        self.connections.restart_waits()
        end = time.monotonic() + lifecycle.options.finish_seconds
        while time.monotonic() < end and (self.connections or lifecycle.is_closing()):
            self._run_once(STOP_POLL_SECONDS)

    def _run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._run_once(STOP_POLL_SECONDS)

    # Any thread

    def _handle(self, connection: Connection, request: Request | HttpError) -> bool:
        """Send the response. Return True if the connection stays open."""
        if isinstance(request, HttpError):
            self.gateway.reject(connection, request)
            return False

        self.nr += 1
        if self.nr >= self.max_requests and self.alive:
            self.log.info("Autorestarting worker after current request.")
            self.alive = False
        can_continue = self.alive and self.idle_seconds > 0
        return self.gateway.respond(
            connection, request, keep_alive=request.keep_alive and can_continue
        )
