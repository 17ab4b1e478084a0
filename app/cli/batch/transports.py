"""Send inference requests: REST with JSON, REST with binary tensors, or gRPC. Overload is retried."""

from __future__ import annotations

import http.client
import random
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

from app.cli.common import Failure
from app.cli.service import PATIENCE_SECONDS, Service, read, reason, refused
from app.envelope import read_json
from app.errors import InferenceError, InvalidInput, SetupError
from app.types import InferenceRequest, InferenceResponse, MetadataTensor, RequestOutput

RETRIED_STATUSES = {429, 502, 503}  # overload, startup, shutdown, or a gateway without a service
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 0.1, 5.0
SMALLER_BATCH = "use a smaller --batch-size"

Body = tuple[bytes, dict[str, str]]  # a request or a response, and its headers


class Retryable(Exception):
    """The request failed, and may succeed later. `is_answered` is false if the service is not there or not ready."""

    def __init__(self, text: str, retry_after: str | None = None, *, is_answered: bool = True):
        super().__init__(text)
        self.seconds = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
        self.is_answered = is_answered


@dataclass(frozen=True)
class Model:
    name: str
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]
    optional: frozenset[str]


def read_model(service: Service) -> Model:
    """Return the service's model. Raise Failure if that is not possible. Over gRPC, metadata has no content types."""
    name = service.model_name()
    if service.grpc:
        found, config = _read_grpc(service, name)
    else:
        path = service.model_path(name)
        answer = service.ask("GET", f"{path}/config")  # lists optional inputs. Other servers may not have it
        found, config = service.get(path), read(answer) if answer.status == 200 else {}
    optional = frozenset(each["name"] for each in config.get("input", ()) if each.get("optional"))
    try:
        inputs, outputs = ([_read_tensor(each) for each in found[member]] for member in ("inputs", "outputs"))
    except (KeyError, TypeError, AttributeError, SetupError):
        raise Failure(f'Model "{name}": invalid metadata') from None
    if not inputs:
        raise Failure(f'Model "{name}": no inputs')
    return Model(name, inputs, outputs, optional)


def _read_tensor(head: dict[str, Any]) -> MetadataTensor:
    shape = [int(size) for size in head.get("shape", ())]
    return MetadataTensor(head["name"], head["datatype"], shape, (head.get("parameters") or {}).get("content_type"))


def _read_grpc(service: Service, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import grpc
    from google.protobuf.json_format import MessageToDict

    from grpc_service import messages

    def call(method: str, response: Any) -> dict[str, Any]:
        body = messages.ModelMetadataRequest(name=name).SerializeToString()
        send = channel.unary_unary(f"/{messages.SERVICE_NAME}/{method}")
        answer = send(body, timeout=PATIENCE_SECONDS, metadata=[*service.headers.items()])
        return MessageToDict(response.FromString(answer), preserving_proto_field_name=True)

    with service.channel() as channel:
        try:
            metadata = call("ModelMetadata", messages.ModelMetadataResponse)
        except grpc.RpcError as error:
            raise refused(error, service.grpc) from None
        try:
            config = call("ModelConfig", messages.ModelConfigResponse).get("config", {})
        except grpc.RpcError:
            config = {}
    return metadata, config


class RestTransport:
    """One connection to REST."""

    def __init__(self, service: Service, model: Model, timeout: float, is_binary: bool):
        self.connection = service.connect(timeout)
        self.path = f"{service.prefix}{service.model_path(model.name)}/infer"
        self.headers, self.is_binary = service.headers, is_binary
        # Only JSON has a form for missing text, so outputs that are text come back as JSON.
        has_text = any(each.content_type == "str" for each in model.outputs)
        outputs = [RequestOutput(each.name, {"binary_data": each.content_type != "str"}) for each in model.outputs]
        self.outputs = outputs if is_binary and has_text else []

    def encode(self, request: InferenceRequest) -> Body:
        binary = {each.name for each in request.inputs if self.is_binary and _has_binary_form(each.data)}
        return replace(request, outputs=request.outputs or self.outputs).to_http(binary)

    def send(self, body: bytes, headers: dict[str, str]) -> Body:
        """Return the response. Raise Retryable if a retry can help, otherwise InferenceError."""
        try:
            self.connection.request("POST", self.path, body, {**self.headers, **headers})
            response = self.connection.getresponse()
            answer = response.read()
        except TimeoutError:
            self.connection.close()
            raise InferenceError("no response in time", remedy=f"use a longer --timeout, or {SMALLER_BATCH}") from None
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Retryable(f"no response: {reason(error)}", is_answered=False) from None
        if response.status == 200:
            return answer, dict(response.headers)
        text = f"{response.status}: {_error_text(answer)}"
        if response.status in RETRIED_STATUSES:
            raise Retryable(text, response.headers.get("Retry-After"))
        raise InferenceError(text, remedy=SMALLER_BATCH if response.status == 413 else "")

    decode = staticmethod(InferenceResponse.from_http)

    def close(self) -> None:
        """Disconnect. A request that another thread is waiting for fails."""
        with suppress(OSError):
            if sock := self.connection.sock:
                sock.shutdown(socket.SHUT_RDWR)
        self.connection.close()


class GrpcTransport:
    """One connection to gRPC."""

    def __init__(self, service: Service, model: Model, timeout: float):
        from grpc_service import converters, messages

        # Channels of one process share connections by default, and each connection belongs to one worker.
        self.channel = service.channel(("grpc.use_local_subchannel_pool", 1))
        self.call = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
        self.model, self.timeout, self.metadata = model.name, timeout, [*service.headers.items()]
        self.converters = converters

    def encode(self, request: InferenceRequest) -> Body:
        return self.converters.write_request(replace(request, model_name=self.model)), {}

    def decode(self, body: bytes, headers: dict[str, str]) -> InferenceResponse:
        return self.converters.read_response(body)

    def send(self, body: bytes, headers: dict[str, str]) -> Body:
        """Return the response. `retry-after` distinguishes an overload from a message that is too large."""
        import grpc

        try:
            return self.call(body, timeout=self.timeout, metadata=self.metadata), {}
        except ValueError:
            raise Retryable("no response: the channel was closed", is_answered=False) from None
        except grpc.RpcError as error:
            call: Any = error
            code, text = call.code().name, f"{call.code().name}: {call.details()}"
            retry_after = dict(call.trailing_metadata() or ()).get("retry-after")
            if code == "UNAVAILABLE" or retry_after:
                raise Retryable(text, retry_after, is_answered=code != "UNAVAILABLE") from None
            raise InferenceError(text, remedy=SMALLER_BATCH if code == "RESOURCE_EXHAUSTED" else "") from None

    def close(self) -> None:
        self.channel.close()


def connect(service: Service, model: Model, timeout: float, form: str) -> RestTransport | GrpcTransport:
    """Return a transport for one thread."""
    return (
        GrpcTransport(service, model, timeout)
        if service.grpc
        else RestTransport(service, model, timeout, form == "binary")
    )


class Client:
    """Sends requests from several threads, over as many connections."""

    def __init__(self, transports: list[RestTransport | GrpcTransport], retries: int):
        self.transports, self.retries = transports, retries
        self.closed = threading.Event()
        self.idle: SimpleQueue[RestTransport | GrpcTransport] = SimpleQueue()
        for each in transports:
            self.idle.put(each)

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """Return the response, after up to `retries` retries. Raise as a transport does."""
        transport, wait = self.idle.get(), FIRST_WAIT_SECONDS
        try:
            body = transport.encode(request)
            for left in range(self.retries, -1, -1):
                try:
                    return transport.decode(*transport.send(*body))
                except Retryable as failure:
                    pause = max(failure.seconds, wait * random.uniform(0.5, 1))  # noqa: S311 # nosec B311
                    if not left or self.closed.wait(pause):
                        raise
                    wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            raise AssertionError("unreachable")
        finally:
            self.idle.put(transport)

    def close(self) -> None:
        """Cancel all requests and disconnect."""
        self.closed.set()
        for each in self.transports:
            each.close()


def _has_binary_form(array: Any) -> bool:
    return array.dtype.kind != "O" or None not in array.ravel().tolist()


def _error_text(answer: bytes) -> str:
    """Return the service's error message, or the first characters of another server's response."""
    try:
        return str(read_json(answer)["error"])
    except (InvalidInput, LookupError, TypeError):
        return " ".join(answer[:200].decode(errors="replace").split()) or "no text"
