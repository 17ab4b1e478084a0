"""The context of a request, for predict()."""

from collections.abc import Mapping, MutableMapping, Sequence
from math import inf
from time import monotonic
from typing import Any

import numpy as np

from app.inference.call import Call
from app.protocol.messages import InferenceRequest


class RequestContext:
    """What predict() can read of a request, and add to its response, until it returns.

    id: the request id of the client, or a new one.
    protocol: `rest` or `grpc`.
    client_address: IP address of the client, or of the last proxy.
    headers: HTTP headers or gRPC metadata. Names are case-insensitive.
    parameters: parameters of the inference request.
    rows: number of rows of the request.
    trace_id: trace id of the header `traceparent`, or "".
    response_headers: HTTP headers or gRPC trailing metadata that predict() adds.
    response_parameters: parameters of the response that predict() adds.
    """

    def __init__(self, call: Call, parameters: Mapping[str, Any], rows: int):
        self._call = call
        self.parameters = parameters
        self.rows = rows
        call.reset_additions()
        self.response_headers: MutableMapping[str, str] = call.additions.headers
        self.response_parameters: MutableMapping[str, Any] = call.additions.parameters

    @property
    def id(self) -> str:
        return self._call.id

    @property
    def protocol(self) -> str:
        return self._call.protocol

    @property
    def client_address(self) -> str:
        return self._call.client_address

    @property
    def headers(self) -> Mapping[str, str]:
        return self._call.headers

    @property
    def trace_id(self) -> str:
        return self._call.trace.trace_id

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline of the request, or None if it has none."""
        if self._call.deadline == inf:
            return None
        return self._call.deadline - monotonic()


def create_contexts(request: InferenceRequest, calls: Sequence[Call]) -> list[RequestContext]:
    """Return the contexts of the calls. With several calls, `request` joins their requests."""
    contexts = []
    for call in calls:
        rows = _count_rows(request) if call.share is None else call.share.rows
        contexts.append(RequestContext(call, request.parameters, rows))
    return contexts


def _count_rows(request: InferenceRequest) -> int:
    """Return the first dimension of the first input. A scalar is one row."""
    if not request.inputs:
        return 0
    return len(np.atleast_1d(request.inputs[0].data))
