"""Context of one request: id, timings and outcome."""

import re
from collections import UserDict
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from itertools import pairwise
from random import getrandbits
from time import monotonic
from types import MappingProxyType
from typing import Any

INFER = "infer"
STAGES = ("decode", "queue", "predict", "encode")
# Valid request ids of clients. Other characters could break a log line or a header.
SAFE_ID = re.compile(r"[!-~]{1,128}")
# W3C Trace Context: version, trace id, parent id, flags.
TRACEPARENT = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)

# Headers that a response may have in both protocols. The service sets the excluded ones itself.
HEADER_NAME = re.compile(
    r"(?!(content|grpc|inference-header)-|(connection|date|server|transfer-encoding|x-request-id)$|.*-bin$)[a-z0-9_.-]+"
)
HEADER_VALUE = re.compile(r"[ -~]*")
EMPTY: Any = MappingProxyType({})

QUICK_RESPONSE_SECONDS = 0.005  # after a faster response, the connection is not checked


class Headers(UserDict[str, str]):
    """HTTP headers or gRPC metadata. Names are case-insensitive. Setting an invalid header raises ValueError."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self.data

    def __getitem__(self, name: str) -> str:
        return self.data[name.lower()]

    def __setitem__(self, name: str, value: str) -> None:
        if not (HEADER_NAME.fullmatch(name.lower()) and HEADER_VALUE.fullmatch(value)):
            raise ValueError(
                f"Invalid response header {name!r}. Expected a name that the service does not set, and ASCII."
            )
        self.data[name.lower()] = value


class RequestContext:
    """The context of a request. The transport creates it, and observers receive it after the request has ended.

    predict() can read `id`, `protocol` (rest or grpc), `client_address`, `headers`, `parameters`, `rows`, `trace_id`
    and time_remaining(), and can add items to `response_headers` and `response_parameters`, until it returns.

    operation, status: name of the operation in both protocols, such as model_metadata, and the protocol's status code.
    begun, decoded, started, predicted, ended: time.monotonic() or 0. predict() runs from `started` to `predicted`.
    timeout: time limit in seconds after `begun`, from REQUEST_TIMEOUT_SECONDS or the parameter `timeout`, or None.
    received, sent: uncompressed sizes of the bodies in bytes.
    rows: number of rows in the request. Without batching, it is only set if predict() reads the context.
    batch_rows: number of rows in the batch, or 0 without batching.
    headers, parameters: HTTP headers or gRPC metadata, and the parameters of the inference request.
    leads: True for the first request of a batch.
    error, failure: error message without data from the client, and class of the exception.
    request, response: those of a sampled request, for capture, or None.
    traceparent, tracestate: the client's headers, or empty. With tracing, `traceparent` refers to the span `traced`.
    """

    # Class attributes, because most requests never change them.
    protocol = status = traceparent = tracestate = ""
    traced: Any = None
    request: Any = None
    response: Any = None
    error: str | None = None
    timeout: float | None = None
    failure: type[BaseException] | None = None
    decoded = started = predicted = ended = 0.0
    received = sent = rows = batch_rows = 0
    leads = False
    client_address = ""
    headers: Mapping[str, str] = EMPTY
    parameters: Mapping[str, Any] = EMPTY
    response_headers: MutableMapping[str, str] = EMPTY
    response_parameters: MutableMapping[str, Any] = EMPTY

    def __init__(
        self,
        operation: str,
        request_id: str | None = None,
        traceparent: str = "",
        tracestate: str = "",
    ):
        self.begun = monotonic()
        self.operation = operation
        made = getrandbits(128).to_bytes(16, "big").hex()  # nosec B311 - an id is not a secret
        self.id = request_id if request_id and SAFE_ID.fullmatch(request_id) else made
        if traceparent and TRACEPARENT.fullmatch(traceparent):
            self.traceparent, self.tracestate = traceparent, tracestate

    @property
    def trace_id(self) -> str:
        """Return the trace id of `traceparent`, or an empty string without a trace."""
        return self.traceparent[3:35]

    @property
    def times(self) -> tuple[float, ...]:
        """Return the start of the request and the end of each stage, with 0 for stages that are not complete."""
        return (
            self.begun,
            self.decoded,
            self.started,
            self.predicted,
            0.0 if self.error else self.ended,
        )

    def stage_seconds(self) -> dict[str, float]:
        """Return the duration of each completed stage in seconds, by name."""
        pairs = zip(STAGES, pairwise(self.times), strict=True)
        return {stage: end - start for stage, (start, end) in pairs if start and end}

    def span(self) -> tuple[str, dict[str, Any]]:
        """Return the name and attributes of the span, by OpenTelemetry's semantic conventions for the protocol."""
        return self.operation, {}

    def log_fields(self) -> tuple[str, dict[str, Any]]:
        """Return the access log message and the fields that depend on the protocol."""
        return f"{self.protocol} {self.operation} {self.status}", {}

    def time_remaining(self) -> float | None:
        """Return the seconds until the time limit or the client's deadline, whichever is earlier, or None."""
        own = None if self.timeout is None else self.begun + self.timeout - monotonic()
        limits = own, self.client_time_remaining()
        return min((each for each in limits if each is not None), default=None)

    def client_time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline, or None if it has none."""
        return None

    def is_active(self) -> bool:
        """Return True if the client still waits for the response."""
        return True

    def release_thread(self) -> None:
        """Let another thread wait for requests, because this one is about to block or to run for a long time."""

    def is_abandoned(self) -> bool:
        """Return True if the client has disconnected. After a fast response, return False without a check."""
        return self.predicted - self.begun > QUICK_RESPONSE_SECONDS and not self.is_active()


# The requests that this thread processes: one, or those of a batch. Log lines contain their ids.
current_contexts: ContextVar[tuple[RequestContext, ...]] = ContextVar(
    "current_contexts", default=()
)
