"""Transports for inference requests (REST with JSON, REST with binary tensors, gRPC), and a client with retries."""

import http.client
import random
import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, cast
from urllib.parse import urlsplit

import grpc
from google.protobuf.json_format import MessageToDict

from app.cli.client import RESPONSE_TIMEOUT_SECONDS, ServiceClient, os_error_text
from app.cli.common import FAILED, NOT_READY, Failure, one_line
from app.protocol.errors import ConfigurationError, InferenceError, InvalidInput
from app.protocol.json_parser import read_json
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import MetadataTensor, ModelMetadata
from grpc_service import converters, messages

RETRIED_STATUSES = {429, 502, 503}  # overload, startup, shutdown, or a gateway without a service
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 5.0
SMALLER_BATCH = "use a smaller --batch-size"
LONGER_TIMEOUT = f"use a longer --timeout, or {SMALLER_BATCH}"
GRPC_REMEDIES = {
    "RESOURCE_EXHAUSTED": SMALLER_BATCH,
    "DEADLINE_EXCEEDED": LONGER_TIMEOUT,
    "UNIMPLEMENTED": "use --model NAME",  # other servers may not support the repository index
}

Body = tuple[bytes, dict[str, str]]  # body and headers of a request or a response


class Retryable(InferenceError):
    """A failed request that can be retried, after `seconds` if the service says so, or 0."""

    def __init__(self, text: str, retry_after: str | None = None):
        super().__init__(text)
        self.seconds = 0.0
        if retry_after and retry_after.isdecimal():
            self.seconds = float(retry_after)


class Unreachable(Retryable):
    """The service does not respond, or is not ready, so other requests would fail, too."""


def to_failure(error: InferenceError, text: str = "") -> Failure:
    """Return the Failure for an error of a transport."""
    status = NOT_READY if isinstance(error, Unreachable) else FAILED
    return Failure(f"{text}{error}", status)


def read_model(service: ServiceClient) -> ModelMetadata:
    """Return the metadata of the model. Raise Failure if this is not possible."""
    is_grpc = service.transport == "grpc"
    name = service.model or service.model_name(
        _call(service, "RepositoryIndex").get("models", []) if is_grpc else None
    )
    path = service.model_path(name)
    found = _call(service, "ModelMetadata", name=name) if is_grpc else service.get(path)
    try:
        inputs, outputs = (
            list(map(_read_tensor, each)) for each in (found["inputs"], found.get("outputs", ()))
        )
    except (KeyError, TypeError, AttributeError, ConfigurationError):
        raise Failure(f'Model "{name}": invalid metadata') from None
    with suppress(
        Failure, LookupError, TypeError
    ):  # other servers may not support the model configuration
        config = (
            _call(service, "ModelConfig", name=name)["config"]
            if is_grpc
            else service.get(f"{path}/config")
        )
        optional = {each["name"] for each in config["input"] if each.get("optional")}
        for tensor in inputs:
            tensor.optional = tensor.name in optional
    return ModelMetadata(name, "", "", inputs, outputs)


def _read_tensor(head: dict[str, Any]) -> MetadataTensor:
    parameters = (
        head.get("parameters") or {}
    ).items()  # over gRPC, each value is an InferParameter
    found = {
        name: each.get("string_param") if isinstance(each, dict) else each
        for name, each in parameters
    }
    shape = [int(size) for size in head["shape"]]
    return MetadataTensor(
        head["name"], head["datatype"], shape, found.get("content_type"), found.get("missing")
    )


def _call(service: ServiceClient, method: str, **fields: str) -> dict[str, Any]:
    """Call a gRPC method other than ModelInfer. Raise Failure if it fails."""
    message = messages.message(f"{method}Request")(**fields).SerializeToString()
    with closing(GrpcTransport(service, "", RESPONSE_TIMEOUT_SECONDS, method)) as transport:
        try:
            body, _ = transport.send(message, {})
        except InferenceError as error:
            raise to_failure(error) from None
    response = messages.message(f"{method}Response").FromString(body)
    return cast(dict[str, Any], MessageToDict(response, preserving_proto_field_name=True))


class RestTransport:
    """One REST connection."""

    def __init__(self, service: ServiceClient, model: str, timeout: float):
        self.connection = service.connect(timeout)
        self.path = f"{service.prefix}{service.model_path(model)}/infer"
        self.headers, self.is_binary = service.headers, service.transport == "rest-binary"

    def encode(self, request: InferenceRequest) -> Body:
        return request.to_http(self.is_binary)

    def send(self, body: bytes, headers: dict[str, str]) -> Body:
        """Send a request and return the response. Raise Retryable for temporary errors, otherwise InferenceError."""
        try:
            self.connection.request("POST", self.path, body, {**self.headers, **headers})
            with self.connection.getresponse() as response:
                content = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            if isinstance(error, TimeoutError):
                raise InferenceError("no response in time", remedy=LONGER_TIMEOUT) from None
            raise Unreachable(f"No response: {os_error_text(error)}.") from None
        if response.status == 200:
            return content, dict(response.headers)
        try:
            text = f"{response.status}: {read_json(content)['error']}"
        except (InvalidInput, LookupError, TypeError):  # the response of a gateway
            text = f"{response.status}: {one_line(content[:200].decode(errors='replace'))}"
        if response.status in RETRIED_STATUSES:
            raise Retryable(text, response.headers.get("Retry-After"))
        raise InferenceError(text, remedy=SMALLER_BATCH if response.status == 413 else "")

    decode = staticmethod(InferenceResponse.from_http)

    def close(self) -> None:
        """Disconnect. A request of another thread fails."""
        with suppress(
            OSError
        ):  # the server has disconnected, or another thread has closed the socket
            if sock := self.connection.sock:
                sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


class GrpcTransport:
    """One gRPC connection."""

    def __init__(
        self, service: ServiceClient, model: str, timeout: float, method: str = "ModelInfer"
    ):
        self.channel = open_channel(service)
        self.call = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/{method}")
        self.model, self.timeout, self.metadata = model, timeout, [*service.headers.items()]

    def encode(self, request: InferenceRequest) -> Body:
        return converters.write_request(replace(request, model_name=self.model)), {}

    def decode(self, body: bytes, headers: dict[str, str]) -> InferenceResponse:
        return converters.read_response(body)

    def send(self, body: bytes, headers: dict[str, str]) -> Body:
        """Send a request and return the response. Raise the same exceptions as RestTransport."""
        try:
            return self.call(body, timeout=self.timeout, metadata=self.metadata), {}
        except ValueError:
            raise Unreachable("No response: the channel was closed.") from None
        except grpc.RpcError as error:
            call: Any = error
            code, text = call.code().name, f"{call.code().name}: {call.details()}"
            retry_after = dict(call.trailing_metadata() or ()).get("retry-after")
            if code == "UNAVAILABLE" or retry_after:
                error_class = Unreachable if code == "UNAVAILABLE" else Retryable
                raise error_class(text, retry_after) from None
            raise InferenceError(text, remedy=GRPC_REMEDIES.get(code, "")) from None

    def close(self) -> None:
        self.channel.close()


def open_channel(service: ServiceClient) -> grpc.Channel:
    """Return a channel, with TLS for grpcs URLs."""
    address = urlsplit(service.url)
    # By default, the channels of a process share a connection, and all its requests go to one worker.
    options = [("grpc.use_local_subchannel_pool", 1)]
    options += [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    if address.scheme == "grpc":
        return grpc.insecure_channel(address.netloc, options)
    files = (service.pinned or service.cacert, service.cert_key or service.cert, service.cert)
    roots, key, cert = (path.read_bytes() if path else None for path in files)
    return grpc.secure_channel(
        address.netloc, grpc.ssl_channel_credentials(roots, key, cert), options
    )


Transport = RestTransport | GrpcTransport


def open_transport(service: ServiceClient, model: str, timeout: float) -> Transport:
    """Return a new connection for requests to the model."""
    return (GrpcTransport if service.transport == "grpc" else RestTransport)(
        service, model, timeout
    )


class Client:
    """Sends requests with retries. Each thread needs one of the `transports`."""

    def __init__(self, transports: Sequence[Transport], retries: int):
        self.transports, self.retries, self.closed = transports, retries, threading.Event()
        self.idle: SimpleQueue[Transport] = SimpleQueue()
        for each in transports:
            self.idle.put(each)

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Send the request with up to `retries` retries. Raise the same exceptions as a transport."""
        transport, wait = self.idle.get(), FIRST_WAIT_SECONDS
        try:
            body, headers = transport.encode(request)
            for _ in range(self.retries):
                try:
                    return transport.decode(*transport.send(body, headers))
                except Retryable as failure:
                    pause = max(failure.seconds, wait * random.uniform(0.5, 1))  # noqa: S311 # nosec B311
                    if self.closed.wait(pause):
                        raise
                    wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            return transport.decode(*transport.send(body, headers))
        finally:
            self.idle.put(transport)

    def close(self) -> None:
        """Cancel all requests and disconnect."""
        self.closed.set()
        for each in self.transports:
            each.close()
