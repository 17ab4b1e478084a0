"""Threaded gRPC server with inference, health and reflection services on one port (G7)."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection, reflection_pb2

from app.config.api_keys import read_keys
from app.config.resources import raise_file_limit
from app.config.settings import Settings
from app.inference.owner_files import import_owner_file
from app.protocol.errors import ConfigurationError
from app.server.sockets import drop_new_handshakes
from grpc_service import messages
from grpc_service.authentication import ApiKeyInterceptor
from grpc_service.compression import DecompressingServer
from grpc_service.grpc_call import RETRY_AFTER
from grpc_service.handlers import CallTracker, make_handlers
from grpc_service.pool import MAX_STREAMS, create_pool
from grpc_service.servicer import InferenceServicer

if TYPE_CHECKING:
    from app.service import Service

# Further calls wait in the client. It learns the limit only after it has connected, so with a low
# one, the first calls of a client with many threads would fail.
MAX_CALLS_PER_CONNECTION = 1000
MAX_PENDING_CALLS = 2**11
# Times are in milliseconds, sizes in bytes.
LIMITS = [
    ("grpc.server_handshake_timeout_ms", 30_000),
    # Metadata of a call. grpcio rejects calls at random between the two limits, so they are equal.
    ("grpc.max_metadata_size", 2**14),
    ("grpc.absolute_max_metadata_size", 2**14),
    ("grpc.max_concurrent_streams", MAX_CALLS_PER_CONNECTION),
    # Calls that the event thread has not seen. By default, grpcio cancels some beyond 1,000.
    ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
    ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
    # Clients can send 64 KiB of a message before it is requested. The probe would increase this
    # number for fast clients, and so the memory of calls that will be rejected.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.per_message_decompression", 0),  # see compression.py
    # Pings detect clients that disappeared without closing the connection. Clients can send pings
    # without a call.
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
# Calls of Watch. They need no API key, and must not take all streaming calls.
MAX_WATCHES = MAX_STREAMS // 2
CLOSE_STEP_SECONDS = 0.02
# The directory of file descriptors of this process, on Linux and on macOS.
DESCRIPTORS = next(filter(os.path.isdir, ("/proc/self/fd", "/dev/fd")), "")

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
HEALTH_NAMES = ("", messages.SERVICE_NAME)  # services with a health status
TOO_MANY_WATCHES = f"Server overloaded: {MAX_WATCHES} calls of Watch. Retry later."


class Health(health.HealthServicer):
    """grpcio's health service.

    Each Watch call uses a separate thread until the client cancels it.
    """

    def __init__(self) -> None:
        super().__init__(experimental_non_blocking=False)
        self._free_watches = threading.Semaphore(MAX_WATCHES)

    def Watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        """Send the current status, and the new status after each change."""
        if not self._free_watches.acquire(blocking=False):
            context.set_trailing_metadata((RETRY_AFTER,))
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, TOO_MANY_WATCHES)
        is_running = context.add_callback(self._free_watches.release)
        if not is_running:  # it has ended, and grpcio calls no callback
            self._free_watches.release()
            return iter(())

        if request.service not in HEALTH_NAMES:
            request.service = "unknown"  # grpcio stores each name permanently
        responses = super().Watch(request, context)
        # If the call has already ended, grpcio would wait for its end forever.
        return responses if context.is_active() else iter(())


class Server:
    """The gRPC server of a service, on HOST:GRPC_PORT.

    With `reuse_port`, several processes can listen on the port. `port` is the actual port, even if
    GRPC_PORT is 0. Create the server after forking, because grpcio does not support forks. Raise
    ConfigurationError if the port is not available.
    """

    def __init__(self, service: Service, *, reuse_port: bool = False):
        settings = service.settings
        self._tracker = CallTracker()
        budget = service.pipeline.memory
        handlers = make_handlers(
            InferenceServicer(service), self._tracker, service.observer_queue, budget
        )
        self._server = grpc.server(
            create_pool(settings.threads, budget, settings.is_enabled("grpc_pool")),
            handlers=[handlers],
            interceptors=_interceptors(service),
            options=_options(settings, reuse_port=reuse_port),
        )
        self._health = Health()
        decompressing_server = DecompressingServer(self._server)
        add_HealthServicer_to_server(self._health, decompressing_server)
        self.report_ready(service.is_ready)
        enable_reflection(decompressing_server)
        self.port = self._add_port(settings)

    def _add_port(self, settings: Settings) -> int:
        address = settings.address(settings.grpc_port)
        try:
            if settings.tls_cert_file:
                port: int = self._server.add_secure_port(address, credentials(settings))
            else:
                port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            problem = f"cannot listen on {address}: {error}"
            raise ConfigurationError(f"GRPC_PORT={settings.grpc_port}: {problem}.") from None
        return port

    def report_ready(self, ready: bool) -> None:
        for name in HEALTH_NAMES:
            self._health.set(name, SERVING if ready else NOT_SERVING)

    def start(self) -> None:
        """Start the server.

        On Linux, grpcio's threads have the scheduling policy SCHED_BATCH, so that a waking thread
        does not preempt a running one.
        """
        is_changed = False
        with suppress(AttributeError, OSError):  # not Linux, or forbidden by a sandbox
            if os.sched_getscheduler(0) == os.SCHED_OTHER:
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
                is_changed = True
        self._server.start()
        if is_changed:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    def report_stopping(self) -> None:
        """Report NOT_SERVING. Calls are still accepted."""
        self._health.enter_graceful_shutdown()

    def close(self, seconds: float) -> None:
        """Reject new calls with UNAVAILABLE, which clients retry.

        Running calls have `seconds` to complete.
        """
        self._tracker.reject_calls()
        end = time.monotonic() + seconds
        idle_ports = set[int]()
        while time.monotonic() < end and self._tracker.contexts:
            time.sleep(CLOSE_STEP_SECONDS)
            idle_ports = self._close_idle(idle_ports)

        # stop() cancels calls in transit, so the clients' connections end first.
        for listener in sockets_of(self.port, listening=True):
            drop_new_handshakes(listener)
        for _ in range(2):  # again for connections accepted in the meantime
            time.sleep(CLOSE_STEP_SECONDS)
            for connection in sockets_of(self.port):
                _shut_down(connection)
        self._server.stop(0).wait()

    def _close_idle(self, idle_before: set[int]) -> set[int]:
        """Close connections that have no call and had none before.

        Connections are named by their client's port. Return the idle ones.
        """
        busy = {_client_port(context) for context in self._tracker.contexts}
        idle = set()
        for connection in sockets_of(self.port):
            with suppress(OSError):  # the client has disconnected
                client = connection.getpeername()[1]
                if client not in busy:
                    idle.add(client)
                    if client in idle_before:
                        _shut_down(connection)
        return idle


def _client_port(context: grpc.ServicerContext) -> int:
    return int(context.peer().rpartition(":")[2])


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):  # the client has disconnected
        connection.shutdown(socket.SHUT_RDWR)


def _interceptors(service: Service) -> list[grpc.ServerInterceptor]:
    """Return the check of API keys, and then the owner's interceptors."""
    interceptors: list[grpc.ServerInterceptor] = []
    if service.settings.api_keys_file:
        keys = read_keys(service.settings.api_keys_file)
        interceptors.append(ApiKeyInterceptor(keys, service.observer_queue))
    interceptors += import_owner_file("custom").grpc_interceptors()
    return interceptors


def _options(settings: Settings, *, reuse_port: bool) -> list[tuple[str, int]]:
    options = [
        ("grpc.so_reuseport", int(reuse_port)),
        ("grpc.max_receive_message_length", settings.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", raise_file_limit()),
        *LIMITS,
    ]
    age_seconds = settings.grpc_max_connection_age_seconds
    if age_seconds:
        options.append(("grpc.max_connection_age_ms", max(1, int(1000 * age_seconds))))
    return options


def sockets_of(port: int, *, listening: bool = False) -> Iterator[socket.socket]:
    """Yield the connections to `port`, or its listening sockets.

    grpcio does not provide access to its sockets, so this looks through all of the process.
    """
    try:
        descriptors = os.listdir(DESCRIPTORS)
    except OSError:  # no such directory, or too many open files
        return
    for descriptor in descriptors:
        # Another thread may have closed it. dup() keeps the socket open during the yield.
        with suppress(OSError):
            if not stat.S_ISSOCK(os.stat(int(descriptor)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(descriptor))) as sock:
                is_listening = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                is_on_port = sock.getsockname()[1:2] == (port,)
                if is_listening == listening and is_on_port:
                    yield sock


def credentials(settings: Settings) -> grpc.ServerCredentials:
    """Return TLS credentials from the files in the settings. grpcio requires TLS 1.2 or later."""
    paths = settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file
    cert, key, authorities = (path and path.read_bytes() for path in paths)
    return grpc.ssl_server_credentials(
        [(key, cert)], authorities, require_client_auth=authorities is not None
    )


def enable_reflection(server: DecompressingServer) -> None:
    """Enable reflection for the protocol's descriptor pool.

    Add grpcio's health and reflection services to the pool.
    """
    names = [messages.SERVICE_NAME]
    for module in (health_pb2, reflection_pb2):
        messages.POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        names += [service.full_name for service in module.DESCRIPTOR.services_by_name.values()]
    reflection.enable_server_reflection(names, server, pool=messages.POOL)
