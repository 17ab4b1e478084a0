"""The threaded gRPC server: our service, health and reflection on one port (G7)."""

from __future__ import annotations

import socket
import time
from contextlib import suppress

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server
from grpc_reflection.v1alpha import reflection, reflection_pb2

from app.config import Settings
from app.dataplane import DataPlane
from app.doors import ignore_newcomers
from app.errors import SetupError
from app.keys import read_keys
from app.machine import allow_connections
from grpc_service import messages
from grpc_service.connections import client_of, sockets_of
from grpc_service.guard import Guard
from grpc_service.health import Health
from grpc_service.pool import create_pool
from grpc_service.servicer import InferenceServicer, handlers

# Times are in milliseconds, sizes in bytes.
LIMITS = [
    # from a connection to its first frame, in which clients take their time
    ("grpc.server_handshake_timeout_ms", 30_000),
    # of a call; beyond it RESOURCE_EXHAUSTED, where grpcio's own two limits would refuse by chance between them
    ("grpc.max_metadata_size", 2**14),
    ("grpc.absolute_max_metadata_size", 2**14),
    ("grpc.max_concurrent_streams", 1000),
    # calls that have come and are not taken up; beyond 1,000, unless told, grpcio ends anyone's by chance, as CANCELLED
    ("grpc.server.max_pending_requests", 2**14),
    ("grpc.server.max_pending_requests_hard_limit", 2**14),
    # a client whose machine is gone is found by the first, and one that asks after us may do so without a call
    ("grpc.keepalive_time_ms", 120_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
]
CLOSE_STEP_SECONDS = 0.02


class Server:
    """A gRPC server of `plane`, listening on HOST:GRPC_PORT when made; `shared` lets other processes listen there too.
    `port` is where: one that the system chose, where GRPC_PORT is 0.

    Make it after any fork; grpcio does not survive one. Raises SetupError where the port cannot be had.
    """

    def __init__(self, plane: DataPlane, settings: Settings, shared: bool = False):
        options = [
            ("grpc.so_reuseport", int(shared)),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_allowed_incoming_connections", allow_connections()),
            *LIMITS,
        ]
        if settings.grpc_max_connection_age:
            options.append(("grpc.max_connection_age_ms", max(1, int(1000 * settings.grpc_max_connection_age))))
        self._servicer = InferenceServicer(plane, "raw_tensors" not in settings.disable_optimizations)
        self._server = grpc.server(
            create_pool(settings.threads, "grpc_pool" not in settings.disable_optimizations),
            handlers=[handlers(self._servicer)],
            interceptors=[Guard(read_keys(settings.api_keys_file), plane.journal)] if settings.api_keys_file else (),
            options=options,
        )
        self._health = Health("", messages.SERVICE_NAME)
        add_HealthServicer_to_server(self._health, self._server)
        self.show_ready(plane.ready)
        enable_reflection(self._server)
        address = settings.address(settings.grpc_port)
        try:
            if settings.tls_cert:
                self.port = self._server.add_secure_port(address, credentials(settings))
            else:
                self.port = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise SetupError(f"GRPC_PORT={settings.grpc_port}: cannot listen on {address}: {error}") from None

    def show_ready(self, ready: bool) -> None:
        self._health.show(ready)

    def start(self) -> None:
        self._server.start()

    def leave(self) -> None:
        """Is not ready any more, for good, and still answers."""
        self._health.leave()

    def close(self, seconds: float) -> None:
        """Refuse new calls with UNAVAILABLE, which clients retry, and let running calls finish within `seconds`.

        An idle connection is closed at once, so that its client connects to another worker. The others are closed
        before grpcio stops: it would end calls that it has not accepted yet with CANCELLED, which clients do not retry.
        """
        self._servicer.is_stopping = True
        end, idle = time.monotonic() + seconds, set[str]()
        while time.monotonic() < end and self._servicer.running:
            time.sleep(CLOSE_STEP_SECONDS)
            idle = self._end_idle(idle)
        for listener in sockets_of(self.port, listening=True):
            ignore_newcomers(listener)
        for _ in range(2):  # the second for whoever was let in meanwhile
            time.sleep(CLOSE_STEP_SECONDS)
            for connection in sockets_of(self.port):
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        self._server.stop(0).wait()

    def _end_idle(self, idle: set[str]) -> set[str]:
        """Close the connections of clients that were idle before and still are. Return those that are idle now."""
        busy = {context.peer() for context in list(self._servicer.running)}
        found = set()
        for connection in sockets_of(self.port):
            with suppress(OSError):
                client = client_of(connection)
                if client not in busy:
                    found.add(client)
                    if client in idle:
                        connection.shutdown(socket.SHUT_RDWR)
        return found


def credentials(settings: Settings) -> grpc.ServerCredentials:
    """TLS by the files that the settings name, TLS 1.2 or later as grpcio has it."""
    cert, key, authorities = (
        path and path.read_bytes() for path in (settings.tls_cert, settings.tls_key, settings.tls_client_ca)
    )
    return grpc.ssl_server_credentials([(key, cert)], authorities, require_client_auth=authorities is not None)


def enable_reflection(server: grpc.Server) -> None:
    """Reflection of our own pool, which learns of the two services that come with grpcio."""
    names = [messages.SERVICE_NAME]
    for module in (health_pb2, reflection_pb2):
        messages.POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        names += [service.full_name for service in module.DESCRIPTOR.services_by_name.values()]
    reflection.enable_server_reflection(names, server, pool=messages.POOL)
