"""Transports for inference requests, and a client with retries.

A transport is one connection: REST with JSON, REST with binary tensors, or gRPC. It sends an
encoded request, so that bench can send one many times without encoding it again.

Transports raise these errors:

    InferenceError       The request failed, and would fail again.
      Retryable          Overload or startup. The request can succeed later.
        Unreachable      The service does not respond. Other requests would fail, too.
"""

import http.client
import random
import socket
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
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

# Overload, startup, shutdown, or a gateway without a service.
RETRIED_STATUSES = {429, 502, 503}
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 5.0
# Characters of a response that is not JSON in an error message.
MAX_CONTENT_LENGTH = 200
SMALLER_BATCH = "use a smaller --batch-size"
LONGER_TIMEOUT = f"use a longer --timeout, or {SMALLER_BATCH}"
GRPC_REMEDIES = {
    "RESOURCE_EXHAUSTED": SMALLER_BATCH,
    "DEADLINE_EXCEEDED": LONGER_TIMEOUT,
    "UNIMPLEMENTED": "use --model NAME",  # other servers may not support the repository index
}

# Body and headers of a request or a response. gRPC has no headers.
Body = tuple[bytes, dict[str, str]]


class Retryable(InferenceError):
    """A failed request that can be retried. `seconds` is the time to wait that the service has
    requested, or 0.
    """

    def __init__(self, text: str, retry_after: str | None = None):
        super().__init__(text)
        self.seconds = 0.0
        if retry_after and retry_after.isdecimal():
            self.seconds = float(retry_after)


class Unreachable(Retryable):
    """The service does not respond, or is not ready, so other requests would fail, too."""


def to_failure(error: InferenceError, text: str = "") -> Failure:
    """Return the Failure for an error of a transport. `text` is put before its message."""
    status = NOT_READY if isinstance(error, Unreachable) else FAILED
    return Failure(f"{text}{error}", status)


# Metadata of the model


def read_model(service: ServiceClient) -> ModelMetadata:
    """Return the metadata of the model, without version and platform.

    Raise Failure if the service does not respond, or its response is invalid.
    """
    name = _find_model(service)
    metadata = _read_metadata(service, name)
    try:
        inputs = list(map(_read_tensor, metadata["inputs"]))
        outputs = list(map(_read_tensor, metadata.get("outputs", ())))
    except (KeyError, TypeError, AttributeError, ConfigurationError):
        raise Failure(f'Model "{name}": invalid metadata') from None

    # Other servers may not support the model configuration. All inputs are then required.
    with suppress(Failure, LookupError, TypeError):
        optional_names = set()
        for member in _read_config(service, name)["input"]:
            if member.get("optional"):
                optional_names.add(member["name"])
        for tensor in inputs:
            tensor.optional = tensor.name in optional_names
    return ModelMetadata(name, "", "", inputs, outputs)


def _find_model(service: ServiceClient) -> str:
    """Return --model, or the name of the only model."""
    if service.model or service.transport != "grpc":
        return service.model_name()
    index = _call(service, "RepositoryIndex")
    return service.model_name(index.get("models", []))


def _read_metadata(service: ServiceClient, model: str) -> Any:
    """Return the metadata in JSON form, which the caller validates."""
    if service.transport == "grpc":
        return _call(service, "ModelMetadata", name=model)
    return service.get(service.model_path(model))


def _read_config(service: ServiceClient, model: str) -> Any:
    """Return the model configuration in JSON form, which the caller validates."""
    if service.transport == "grpc":
        return _call(service, "ModelConfig", name=model)["config"]
    return service.get(f"{service.model_path(model)}/config")


def _read_tensor(member: dict[str, Any]) -> MetadataTensor:
    """Return the declaration of an input or output. Its JSON form comes from REST or gRPC."""
    parameters = {}
    for name, value in (member.get("parameters") or {}).items():
        # Over gRPC, each value is an InferParameter.
        parameters[name] = value.get("string_param") if isinstance(value, dict) else value
    shape = list(map(int, member["shape"]))  # over gRPC, int64 is text
    return MetadataTensor(
        member["name"],
        member["datatype"],
        shape,
        content_type=parameters.get("content_type"),
        missing=parameters.get("missing"),
    )


def _call(service: ServiceClient, method: str, **fields: str) -> dict[str, Any]:
    """Call a gRPC method other than ModelInfer, and return the response in JSON form.

    Raise Failure if it fails.
    """
    request = messages.message(f"{method}Request")(**fields)
    transport = GrpcTransport(service, "", RESPONSE_TIMEOUT_SECONDS, method=method)
    with closing(transport):
        try:
            body, _ = transport.send(request.SerializeToString(), {})
        except InferenceError as error:
            raise to_failure(error) from None
    response = messages.message(f"{method}Response").FromString(body)
    members = MessageToDict(response, preserving_proto_field_name=True)
    return cast(dict[str, Any], members)


# Transports


class RestTransport:
    """One REST connection."""

    def __init__(self, service: ServiceClient, model: str, timeout: float):
        self._connection = service.connect(timeout)
        self._path = f"{service.prefix}{service.model_path(model)}/infer"
        self._headers = service.headers
        self._is_binary = service.transport == "rest-binary"

    def encode(self, request: InferenceRequest) -> Body:
        return request.to_http(self._is_binary)

    def decode(self, body: bytes, headers: Mapping[str, str]) -> InferenceResponse:
        return InferenceResponse.from_http(body, headers)

    def send(self, body: bytes, headers: dict[str, str]) -> Body:
        """Send a request and return the response.

        Raise Retryable for temporary errors, otherwise InferenceError.
        """
        try:
            self._connection.request("POST", self._path, body, {**self._headers, **headers})
            with self._connection.getresponse() as response:
                content = response.read()
        except TimeoutError:
            self._connection.close()
            raise InferenceError("no response in time", remedy=LONGER_TIMEOUT) from None
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise Unreachable(f"No response: {os_error_text(error)}.") from None

        if response.status == 200:
            return content, dict(response.headers)
        text = f"{response.status}: {_error_text(content)}"
        if response.status in RETRIED_STATUSES:
            raise Retryable(text, response.headers.get("Retry-After"))
        if response.status == 413:
            raise InferenceError(text, remedy=SMALLER_BATCH)
        raise InferenceError(text)

    def close(self) -> None:
        """Disconnect. A request of another thread fails."""
        connected_socket = self._connection.sock
        if connected_socket:
            # The server has disconnected, or another thread has closed the socket.
            with suppress(OSError):
                connected_socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def _error_text(content: bytes) -> str:
    """Return the error message in a response, or the beginning of a response of a gateway."""
    try:
        return str(read_json(content)["error"])
    except (InvalidInput, LookupError, TypeError):
        text = content[:MAX_CONTENT_LENGTH].decode(errors="replace")
        return one_line(text)


class GrpcTransport:
    """One gRPC connection."""

    def __init__(
        self, service: ServiceClient, model: str, timeout: float, method: str = "ModelInfer"
    ):
        self._channel = _open_channel(service)
        self._call = self._channel.unary_unary(f"/{messages.SERVICE_NAME}/{method}")
        self._model = model
        self._timeout = timeout
        self._metadata = list(service.headers.items())

    def encode(self, request: InferenceRequest) -> Body:
        message = converters.write_request(replace(request, model_name=self._model))
        return message, {}

    def decode(self, body: bytes, headers: Mapping[str, str]) -> InferenceResponse:
        return converters.read_response(body)

    def send(self, body: bytes, headers: dict[str, str]) -> Body:
        """Send a request and return the response. Raise the same exceptions as RestTransport."""
        try:
            response = self._call(body, timeout=self._timeout, metadata=self._metadata)
        except ValueError:
            raise Unreachable("No response: the channel was closed.") from None
        except grpc.RpcError as error:
            raise _to_inference_error(error) from None
        return response, {}

    def close(self) -> None:
        self._channel.close()


def _to_inference_error(call: Any) -> InferenceError:
    """Return the error for a gRPC call that has failed. grpcio raises the call as an exception."""
    code = call.code().name
    text = f"{code}: {call.details()}"
    trailing_metadata = dict(call.trailing_metadata() or ())
    retry_after = trailing_metadata.get("retry-after")
    if code == "UNAVAILABLE":
        return Unreachable(text, retry_after)
    if retry_after:
        return Retryable(text, retry_after)
    return InferenceError(text, remedy=GRPC_REMEDIES.get(code, ""))


def _open_channel(service: ServiceClient) -> grpc.Channel:
    """Return a channel, with TLS for grpcs URLs."""
    address = urlsplit(service.url)
    options = [
        # By default, the channels of a process share a connection, and all its requests go to one
        # worker.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
    ]
    if address.scheme == "grpc":
        return grpc.insecure_channel(address.netloc, options)
    credentials = grpc.ssl_channel_credentials(
        root_certificates=_read_file(service.pinned or service.cacert),
        private_key=_read_file(service.cert_key or service.cert),
        certificate_chain=_read_file(service.cert),
    )
    return grpc.secure_channel(address.netloc, credentials, options)


def _read_file(path: Path | None) -> bytes | None:
    return path.read_bytes() if path else None


Transport = RestTransport | GrpcTransport


def open_transport(service: ServiceClient, model: str, timeout: float) -> Transport:
    """Return a new connection for requests to the model."""
    if service.transport == "grpc":
        return GrpcTransport(service, model, timeout)
    return RestTransport(service, model, timeout)


class Client:
    """Sends requests with retries. Each thread needs one of the `transports`."""

    def __init__(self, transports: Sequence[Transport], retries: int):
        self._transports = transports
        self._retries = retries
        self._is_closed = threading.Event()
        self._idle: SimpleQueue[Transport] = SimpleQueue()
        for transport in transports:
            self._idle.put(transport)

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Send the request with retries. Raise the same exceptions as a transport."""
        transport = self._idle.get()
        try:
            body, headers = transport.encode(request)
            response_body, response_headers = self._send(transport, body, headers)
            return transport.decode(response_body, response_headers)
        finally:
            self._idle.put(transport)

    def _send(self, transport: Transport, body: bytes, headers: dict[str, str]) -> Body:
        """Send a request. The waiting time before a retry doubles. It is longer if the service
        requests that.
        """
        wait = FIRST_WAIT_SECONDS
        for _ in range(self._retries):
            try:
                return transport.send(body, headers)
            except Retryable as error:
                # Random, so that clients of a service that was down do not retry together.
                random_wait = wait * random.uniform(0.5, 1)  # noqa: S311 # nosec B311
                pause = max(error.seconds, random_wait)
                if self._is_closed.wait(pause):
                    raise
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
        return transport.send(body, headers)

    def close(self) -> None:
        """Cancel all requests and disconnect."""
        self._is_closed.set()
        for transport in self._transports:
            transport.close()
