"""Requests on their way: a connection a thread, over REST with binary tensors or over gRPC, and patience."""

from __future__ import annotations

import http.client
import random
import socket
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from app.cli.model import Model
from app.cli.service import Service, reason
from app.envelope import read_json
from app.errors import InferenceError, InvalidInput
from app.types import InferenceRequest, InferenceResponse, RequestOutput

# What goes away by itself: too many requests, a gateway without a service, a service that starts, stops or is full.
PASSING = {429, 502, 503}
PASSING_CODES = {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
SMALLER = "; a smaller --batch-size helps"
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0


class Busy(Exception):
    """No answer now; perhaps `after` so many seconds. `is_gone`: not even a refusal came."""

    def __init__(self, text: str, after: float = 0, is_gone: bool = False):
        super().__init__(text)
        self.after, self.is_gone = after, is_gone


class Sender(Protocol):
    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """The answer; raises Busy where asking again may help, InferenceError where it does not."""

    def stop(self) -> None:
        """Ends what is under way, from another thread."""

    def close(self) -> None: ...


class RestSender:
    def __init__(self, service: Service, model: Model, timeout: float):
        self.connection = service.connect(timeout)
        self.path = f"{service.prefix}{service.model_path(model.name)}/infer"
        # a text that is missing has a form in JSON alone
        has_text = any(each.content_type == "str" for each in model.outputs)
        outputs = [RequestOutput(each.name, {"binary_data": each.content_type != "str"}) for each in model.outputs]
        self.outputs = outputs if has_text else []
        self.headers = service.headers

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        request = replace(request, outputs=self.outputs)
        body, headers = request.to_http({each.name for each in request.inputs if has_binary_form(each.data)})
        try:
            self.connection.request("POST", self.path, body, {**self.headers, **headers})
            response = self.connection.getresponse()
            answer = response.read()
        except TimeoutError:
            self.connection.close()
            raise InferenceError("no answer in time; a smaller --batch-size, or a longer --timeout") from None
        except (OSError, http.client.HTTPException) as error:
            self.connection.close()
            raise Busy(f"no answer: {reason(error)}", is_gone=True) from None
        if response.status == 200:
            return InferenceResponse.from_http(answer, dict(response.headers))
        text = f"{response.status}: {words(answer)}"
        if response.status in PASSING:
            after = response.headers.get("Retry-After", "")
            raise Busy(text, float(after) if after.isascii() and after.isdigit() else 0)
        raise InferenceError(text + (SMALLER if response.status == 413 and rows_of(request) > 1 else ""))

    def stop(self) -> None:
        if self.connection.sock:
            self.connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.connection.close()


class GrpcSender:
    def __init__(self, service: Service, model: Model, timeout: float):
        # a connection of its own: channels of one process share theirs, and so the worker behind it
        self.channel = service.channel(("grpc.use_local_subchannel_pool", 1))
        self.model, self.timeout, self.metadata = model.name, timeout, [*service.headers.items()]

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        import grpc

        from grpc_service import client

        try:
            return client.infer(self.channel, self.model, request, timeout=self.timeout, metadata=self.metadata)
        except ValueError as error:
            raise Busy(f"no answer: {error}", is_gone=True) from None
        except grpc.RpcError as error:
            code, text = error.code().name, f"{error.code().name}: {error.details()}"
            if code in PASSING_CODES and "larger than" not in text:
                raise Busy(text, is_gone=code == "UNAVAILABLE") from None
            if code in PASSING_CODES and rows_of(request) > 1:
                text += SMALLER
            raise InferenceError(text) from None

    def stop(self) -> None:
        self.channel.close()

    close = stop


class Senders:
    """A sender for each thread that asks."""

    def __init__(self, service: Service, model: Model, timeout: float, retries: int):
        self.arguments, self.retries = (service, model, timeout), retries
        self.make: Any = GrpcSender if service.grpc else RestSender
        self.local, self.stopped = threading.local(), threading.Event()
        self.all: list[Sender] = []

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """The answer, asked for as often as it takes; raises as a Sender does."""
        if not hasattr(self.local, "sender"):
            self.local.sender = self.make(*self.arguments)
            self.all.append(self.local.sender)
        wait = FIRST_WAIT
        for left in range(self.retries, -1, -1):
            try:
                return self.local.sender.infer(request)
            except Busy as busy:
                if not left or self.stopped.wait(max(busy.after, wait * random.uniform(0.5, 1))):  # noqa: S311 # nosec B311
                    raise
                wait = min(2 * wait, LONGEST_WAIT)
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """Ends what is under way, with Busy."""
        self.stopped.set()
        for each in self.all:
            with suppress(OSError):
                each.stop()

    def close(self) -> None:
        for each in self.all:
            each.close()


def has_binary_form(array: Any) -> bool:
    return array.dtype.kind != "O" or None not in array.ravel().tolist()


def rows_of(request: InferenceRequest) -> int:
    return len(request.inputs[0].data)


def words(answer: bytes) -> str:
    """The service's own, or how another's answer begins."""
    try:
        return str(read_json(answer)["error"])
    except (InvalidInput, LookupError, TypeError):
        return " ".join(answer[:200].decode(errors="replace").split()) or "no words"
