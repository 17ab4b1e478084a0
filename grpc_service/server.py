"""The threaded gRPC server: our service, health and reflection on one port (G7)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from app.config import Settings
from app.dataplane import DataPlane
from app.errors import SetupError
from grpc_service import messages
from grpc_service.servicer import InferenceServicer, handlers


class Server:
    """A gRPC server of `plane`, listening on HOST:GRPC_PORT when made; `shared` lets other processes listen there too.

    Make it after any fork; grpcio does not survive one. Raises SetupError where the port cannot be had.
    """

    def __init__(self, plane: DataPlane, settings: Settings, shared: bool = False):
        options = [
            ("grpc.so_reuseport", int(shared)),
            ("grpc.max_receive_message_length", settings.max_request_bytes),
            ("grpc.max_send_message_length", -1),
        ]
        self._grace = settings.graceful_timeout
        self._server = grpc.server(
            ThreadPoolExecutor(settings.grpc_threads, thread_name_prefix="grpc"),
            handlers=[handlers(InferenceServicer(plane))],
            options=options,
        )
        self._health = health.HealthServicer(
            experimental_non_blocking=True,
            experimental_thread_pool=ThreadPoolExecutor(1, thread_name_prefix="health"),
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.show_ready(plane.ready)
        enable_reflection(self._server)
        address = settings.address(settings.grpc_port)
        try:
            self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise SetupError(f"GRPC_PORT={settings.grpc_port}: cannot listen on {address}: {error}") from None

    def show_ready(self, ready: bool) -> None:
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", messages.SERVICE_NAME):
            self._health.set(name, status)

    def start(self) -> None:
        self._server.start()

    def stop(self) -> threading.Event:
        """Refuses new calls and lets those that run finish within GRACEFUL_TIMEOUT; the event says when all have."""
        self._health.enter_graceful_shutdown()
        return self._server.stop(self._grace)


def enable_reflection(server: grpc.Server) -> None:
    """Reflection of our own pool, which learns of the two services that come with grpcio."""
    names = [messages.SERVICE_NAME]
    for module in (health_pb2, reflection_pb2):
        messages.POOL.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
        names += [service.full_name for service in module.DESCRIPTOR.services_by_name.values()]
    reflection.enable_server_reflection(names, server, pool=messages.POOL)
