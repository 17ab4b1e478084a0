"""Calls over gRPC: what grpcio's context says about the call and its client."""

import math
import re
import threading
from functools import cached_property
from time import monotonic
from typing import Any
from urllib.parse import unquote

import grpc

from app.inference.call import INFER, Call, Headers
from grpc_service import messages

REQUEST_ID = "x-request-id"
# Trailing metadata in seconds, as the header of REST. An overload and a message that is too large
# are both RESOURCE_EXHAUSTED: only the overload has this.
RETRY_AFTER = ("retry-after", "1")


def _operations() -> dict[str, str]:
    """Return the operations by the names of the gRPC methods. ModelMetadata is `model_metadata`."""
    operations = {}
    for method in messages.SERVICE.methods:
        operations[method.name] = re.sub("(?<=.)(?=[A-Z])", "_", method.name).lower()
    operations["ModelInfer"] = INFER
    return operations


OPERATIONS = _operations()


class GrpcCall(Call):
    """A call over gRPC. The trailing metadata of the response contains its id."""

    protocol = "grpc"

    def __init__(self, method: str, context: grpc.ServicerContext):
        metadata = dict(context.invocation_metadata())
        super().__init__(
            OPERATIONS.get(method, method),
            request_id=metadata.get(REQUEST_ID),
            traceparent=metadata.get("traceparent", ""),
            tracestate=metadata.get("tracestate", ""),
            transport=context,
        )
        self.method = method
        self.set_trailing_metadata()

    @cached_property
    def headers(self) -> Headers:  # type: ignore[override]
        headers = Headers()
        headers.data.update(self._transport.invocation_metadata())
        return headers

    @cached_property
    def client_address(self) -> str:  # type: ignore[override]
        """The IP address in grpcio's `ipv4:127.0.0.1:8081` or `ipv6:%5B::1%5D:8081`."""
        return unquote(self._transport.peer()).partition(":")[2].rpartition(":")[0].strip("[]")

    def set_trailing_metadata(self, *more: tuple[str, str]) -> None:
        """Set the trailing metadata: the id, the headers of predict(), and `more`."""
        self._transport.set_trailing_metadata(
            ((REQUEST_ID, self.id), *self.additions.headers.items(), *more)
        )

    def span_name(self) -> str:
        return f"{messages.SERVICE_NAME}/{self.method}"

    def span_attributes(self) -> dict[str, Any]:
        return {
            "rpc.system.name": "grpc",
            "rpc.method": self.span_name(),
            "rpc.response.status_code": self.outcome.status,
        }

    def log_message(self) -> str:
        return f"gRPC {self.method} {self.outcome.status}"

    def log_fields(self) -> dict[str, Any]:
        return {"grpc_status": self.outcome.status}

    def client_deadline(self) -> float:
        seconds: float = self._transport.time_remaining()
        if seconds >= threading.TIMEOUT_MAX:  # grpcio's value for a call without a deadline
            return math.inf
        return monotonic() + seconds

    def is_active(self) -> bool:
        return bool(self._transport.is_active())
