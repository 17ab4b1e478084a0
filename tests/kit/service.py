"""A service of any small model in this process, with a client for each form of a request.

The forms are "rest json", "rest binary", "grpc typed" and "grpc raw".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import grpc
from flask import Flask

from app import create_app
from app.config.settings import Settings
from app.inference.model_runner import ModelState
from app.service import Service as CoreService
from grpc_service.server import Server
from oip_conformance.wires import Grpc, Rest


class Service:
    """One model over both protocols. The gRPC server starts on first use.

    core: the service of app/service.py
    client: Flask's client, for REST requests without a socket
    forms: the client for each form of a request, by its name
    """

    def __init__(self, module: Any, settings: Settings):
        self.settings = settings
        self.app: Flask = create_app(settings, module)
        self.core: CoreService = self.app.extensions["service"]
        self.client = self.app.test_client()
        self.forms = Forms(self)
        self.starting = Lock()  # several threads of a test may need the server first
        self._server: Server | None = None
        self._channel: grpc.Channel | None = None

    @property
    def server(self) -> Server:
        with self.starting:
            if self._server is None:
                self._server = self.core.make_grpc_server(reuse_port=False)
                self._server.start()
            return self._server

    @property
    def channel(self) -> grpc.Channel:
        server = self.server
        with self.starting:
            if self._channel is None:
                address = f"{self.settings.host}:{server.port}"
                unlimited = [
                    ("grpc.max_receive_message_length", -1),
                    ("grpc.max_send_message_length", -1),
                ]
                self._channel = grpc.insecure_channel(address, unlimited)
            return self._channel

    @property
    def rest(self) -> Rest:
        return self.forms["rest json"]

    @property
    def grpc(self) -> Grpc:
        return self.forms["grpc typed"]

    @contextmanager
    def model_state(self, state: ModelState) -> Iterator[None]:
        """Put the model into another state until the end of the `with` block."""
        model = self.core.model
        previous_state = model._state
        model._state = state
        try:
            yield
        finally:
            model._state = previous_state

    def close(self) -> None:
        if self._channel:
            self._channel.close()
        if self._server:
            self._server.close(self.settings.shutdown_timeout_seconds)


class Forms(dict[str, Any]):
    """The clients of a service by the name of their form, created on first use."""

    def __init__(self, service: "Service"):
        super().__init__()
        self.service = service

    def __missing__(self, form: str) -> Any:
        protocol, tensor_format = form.split()
        client: Rest | Grpc
        if protocol == "rest":
            client = Rest(self.service.client, binary=tensor_format == "binary")
        else:
            client = Grpc(self.service.channel, raw=tensor_format == "raw")
        self[form] = client
        return client
