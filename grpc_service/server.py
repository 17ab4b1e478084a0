"""Threaded gRPC server with inference, health and reflection services on one port (G7)."""

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection, reflection_pb2

from app.config.api_keys import read_keys
from app.config.resources import raise_file_limit
from app.config.settings import Settings
from app.inference.data_plane import DataPlane, import_owner_file
from app.observability.statistics import Statistics
from app.protocol.errors import ConfigurationError
from app.server.sockets import drop_new_handshakes
from grpc_service import messages
from grpc_service.authentication import ApiKeyInterceptor
from grpc_service.pool import create_pool
from grpc_service.servicer import InferenceServicer, make_handlers

# Times are in milliseconds, sizes in bytes.
LIMITS = [
    ("grpc.server_handshake_timeout_ms", 30_000),
    # Metadata of a call. grpcio rejects calls at random between the two limits, so they are equal.
    ("grpc.max_metadata_size", 2**14),
    ("grpc.absolute_max_metadata_size", 2**14),
    ("grpc.max_concurrent_streams", 1000),
    # Calls that wait for a thread. By default, grpcio cancels calls at random from 1,000 on.
    ("grpc.server.max_pending_requests", 2**14),
    ("grpc.server.max_pending_requests_hard_limit", 2**14),
    # Pings detect clients that disappeared without closing the connection. Clients can send pings without a call.
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
CLOSE_STEP_SECONDS = 0.02
# The directory of file descriptors of this process, on Linux and on macOS.
DESCRIPTORS = next(filter(os.path.isdir, ("/proc/self/fd", "/dev/fd")), "")

SERVING, NOT_SERVING = (
    health_pb2.HealthCheckResponse.SERVING,
    health_pb2.HealthCheckResponse.NOT_SERVING,
)
HEALTH_NAMES = ("", messages.SERVICE_NAME)  # services with a health status


class Health(health.HealthServicer):
    """grpcio's health service. Each Watch call uses a separate thread until the client cancels it."""

    def __init__(self) -> None:
        super().__init__(experimental_non_blocking=False)

    def Watch(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        """Send the current status, and the new status after each change."""
        if request.service not in HEALTH_NAMES:
            request.service = "unknown"  # grpcio stores each name permanently
        responses = super().Watch(request, context)
        # If the call has already ended, grpcio would wait for its end forever.
        return responses if context.is_active() else iter(())


class Server:
    """A gRPC server for `plane` on HOST:GRPC_PORT. With `reuse_port`, several processes can listen on the port.

    `port` is the actual port, even if GRPC_PORT is 0. Create the server after forking, because grpcio does not support
    forks. Raise ConfigurationError if the port is not available.
    """

    def __init__(
        self, plane: DataPlane, settings: Settings, statistics: Statistics, reuse_port: bool = False
    ):
        options = [
            ("grpc.so_reuseport", int(reuse_port)),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_allowed_incoming_connections", raise_file_limit()),
            *LIMITS,
        ]
        if settings.grpc_max_connection_age_seconds:
            options.append(
                (
                    "grpc.max_connection_age_ms",
                    max(1, int(1000 * settings.grpc_max_connection_age_seconds)),
                )
            )
        self._servicer = InferenceServicer(
            plane, statistics, "raw_tensors" not in settings.disable_optimizations
        )
        interceptors: list[grpc.ServerInterceptor] = []
        if settings.api_keys_file:
            interceptors.append(
                ApiKeyInterceptor(read_keys(settings.api_keys_file), plane.observer_queue)
            )
        self._server = grpc.server(
            create_pool(settings.threads, "grpc_pool" not in settings.disable_optimizations),
            handlers=[make_handlers(self._servicer)],
            interceptors=[*interceptors, *import_owner_file("custom").grpc_interceptors()],
            options=options,
        )
        self._health = Health()
        add_HealthServicer_to_server(self._health, self._server)
        self.report_ready(plane.is_ready)
        enable_reflection(self._server)
        address = settings.address(settings.grpc_port)
        try:
            if settings.tls_cert_file:
                self.port = self._server.add_secure_port(address, credentials(settings))
            else:
                self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            problem = f"cannot listen on {address}: {error}"
            raise ConfigurationError(f"GRPC_PORT={settings.grpc_port}: {problem}.") from None

    def report_ready(self, ready: bool) -> None:
        for name in HEALTH_NAMES:
            self._health.set(name, SERVING if ready else NOT_SERVING)

    def start(self) -> None:
        """Start grpcio's threads with SCHED_BATCH on Linux, so that a waking thread does not preempt a running one."""
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
        """Reject new calls with UNAVAILABLE, which clients retry. Running calls have `seconds` to complete."""
        self._servicer.is_stopping = True
        end, idle = time.monotonic() + seconds, set[int]()
        while time.monotonic() < end and self._servicer.running:
            time.sleep(CLOSE_STEP_SECONDS)
            idle = self._close_idle(idle)
        for listener in sockets_of(
            self.port, listening=True
        ):  # before stop(), which cancels calls in transit
            drop_new_handshakes(listener)
        for _ in range(2):  # again for connections accepted in the meantime
            time.sleep(CLOSE_STEP_SECONDS)
            for connection in sockets_of(self.port):
                with suppress(OSError):  # the client has disconnected
                    connection.shutdown(socket.SHUT_RDWR)
        self._server.stop(0).wait()

    def _close_idle(self, before: set[int]) -> set[int]:
        """Close connections that are idle and were idle `before`. Return the client ports of idle connections."""
        busy = {int(context.peer().rpartition(":")[2]) for context in list(self._servicer.running)}
        idle = set()
        for connection in sockets_of(self.port):
            with suppress(OSError):  # the client has disconnected
                client = connection.getpeername()[1]
                if client not in busy:
                    idle.add(client)
                    if client in before:
                        connection.shutdown(socket.SHUT_RDWR)
        return idle


def sockets_of(port: int, listening: bool = False) -> Iterator[socket.socket]:
    """Yield the connections to `port`, or its listening sockets. grpcio does not provide access to them."""
    try:
        descriptors = os.listdir(DESCRIPTORS)
    except OSError:  # no such directory, or too many open files
        return
    for descriptor in descriptors:
        with suppress(
            OSError
        ):  # closed by another thread. dup() keeps the socket open during the yield
            if stat.S_ISSOCK(os.stat(int(descriptor)).st_mode):
                with socket.socket(fileno=os.dup(int(descriptor))) as each:
                    found = bool(each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                    if found == listening and each.getsockname()[1:2] == (port,):
                        yield each


def credentials(settings: Settings) -> grpc.ServerCredentials:
    """Return TLS credentials from the files in the settings. grpcio requires TLS 1.2 or later."""
    paths = settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file
    cert, key, authorities = (path and path.read_bytes() for path in paths)
    return grpc.ssl_server_credentials(
        [(key, cert)], authorities, require_client_auth=authorities is not None
    )


def enable_reflection(server: grpc.Server) -> None:
    """Enable reflection for the protocol's descriptor pool. Add grpcio's health and reflection services to the pool."""
    names = [messages.SERVICE_NAME]
    for module in (health_pb2, reflection_pb2):
        messages.POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        names += [service.full_name for service in module.DESCRIPTOR.services_by_name.values()]
    reflection.enable_server_reflection(names, server, pool=messages.POOL)
