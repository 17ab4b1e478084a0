"""A call: one client calls one operation of the service, over REST or gRPC.

The transport creates a Call when a request arrives, passes it on as an argument, and adds it to the
observer queue when the response is complete. The parts of a call record what the observers (the
access log, metrics, statistics, spans, capture) need to know:

    Call          who calls which operation, and until when
    Timings       when each stage of the call ended
    Outcome       status, error and sizes
    Trace         the distributed trace that the call belongs to
    BatchShare    the call's part of a batch
    Additions     what predict() adds to the response
    Sample        request and response, if the call is captured

Attributes that most calls never set have a default in the class, because each request creates a
call.

predict() gets a RequestContext, which shows only what an owner may use (request_context.py).
"""

import math
import re
from collections import UserDict
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from itertools import pairwise
from random import getrandbits
from time import monotonic
from types import MappingProxyType
from typing import Any, NamedTuple

INFER = "infer"
STAGES = ("decode", "queue", "predict", "encode")
# Valid request ids of clients. Other characters could break a log line or a header.
SAFE_ID = re.compile(r"[!-~]{1,128}")
# W3C Trace Context: version, trace id, parent id, flags.
TRACEPARENT = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
# Response headers that predict() may set, in both protocols. Excluded are those that the service or
# the transport sets, and gRPC's binary metadata (-bin).
HEADER_NAME = re.compile(
    r"(?!(content|grpc|inference-header)-"
    r"|(connection|date|server|transfer-encoding|x-request-id)$"
    r"|.*-bin$)"
    r"[a-z0-9_.-]+"
)
HEADER_VALUE = re.compile(r"[ -~]*")
# To find out whether the client has left takes a system call. After less time, it is not worth it.
QUICK_RESPONSE_SECONDS = 0.005


class Headers(UserDict[str, str]):
    """HTTP headers or gRPC metadata. Names are case-insensitive.

    Setting an invalid header raises ValueError. Those of a request are in `data`, without a check.
    """

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self.data

    def __getitem__(self, name: str) -> str:
        return self.data[name.lower()]

    def __setitem__(self, name: str, value: str) -> None:
        lower_name = name.lower()
        if not HEADER_NAME.fullmatch(lower_name) or not HEADER_VALUE.fullmatch(value):
            expected = "a name that the service does not set, and ASCII"
            raise ValueError(f"Invalid response header {name!r}. Expected {expected}.")
        self.data[lower_name] = value

    def __delitem__(self, name: str) -> None:
        del self.data[name.lower()]


class Timings:
    """Times of time.monotonic() at which the call began and its stages ended, or 0.0.

        begun --decode--> decoded --queue--> started --predict--> predicted --encode--> encoded

    `started` is the start of predict(), so it ends the stage `queue`. A stage has no end if the
    call failed before. `ended` is the end of every call, `encoded` only that of a successful one.
    """

    # Defaults of attributes that most calls set later, or never.
    decoded = 0.0
    started = 0.0
    predicted = 0.0
    encoded = 0.0
    ended = 0.0

    def __init__(self) -> None:
        self.begun = monotonic()

    def end_decoding(self) -> None:
        self.decoded = monotonic()

    def record_predict(self, started: float, predicted: float) -> None:
        self.started = started
        self.predicted = predicted

    @property
    def stage_times(self) -> tuple[float, ...]:
        """The begin of the call and the end of each of STAGES: one more element than STAGES."""
        return (self.begun, self.decoded, self.started, self.predicted, self.encoded)

    @property
    def total_seconds(self) -> float:
        return self.ended - self.begun

    def stage_seconds(self) -> dict[str, float]:
        """Return the duration of each completed stage in seconds, by name."""
        durations = {}
        for stage, (begin, end) in zip(STAGES, pairwise(self.stage_times), strict=True):
            if begin and end:
                durations[stage] = end - begin
        return durations


class Outcome:
    """How a call ended.

    status: the protocol's status code, such as "200" or "NOT_FOUND", or "" without a response.
    error_class, error_text: class of the exception, and its message without data from the client.
    request_bytes, response_bytes: sizes of the bodies. Those of infer calls are the sizes before
        compression.
    """

    status = ""
    error_class: type[BaseException] | None = None
    error_text: str | None = None
    request_bytes = 0
    response_bytes = 0

    def set_request_bytes(self, size: int) -> None:
        self.request_bytes = size

    def set_response_bytes(self, size: int) -> None:
        self.response_bytes = size

    def succeed(self, status: str, response_bytes: int) -> None:
        self.status = status
        self.response_bytes = response_bytes

    def set_status(self, status: str) -> None:
        self.status = status

    def fail(self, error_class: type[BaseException], text: str) -> None:
        self.error_class = error_class
        self.error_text = text


class Trace(NamedTuple):
    """The distributed trace of a call, by W3C Trace Context.

    `traceparent` and `tracestate` are the client's headers. With tracing, `traceparent` refers to
    `span`, the span of this service.
    """

    traceparent: str
    tracestate: str = ""
    span: Any = None

    @property
    def trace_id(self) -> str:
        """The trace id as hexadecimal text, or "" without a trace."""
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The id of the current span as hexadecimal text, or "" without a trace."""
        return self.traceparent[36:52]


NO_TRACE = Trace(traceparent="")


class BatchShare(NamedTuple):
    """A request's part of a batch. The first request of a batch represents it in the metrics."""

    rows: int
    batch_rows: int
    is_first: bool


class Additions(NamedTuple):
    """What predict() adds to the response: HTTP headers or trailing metadata, and parameters."""

    headers: MutableMapping[str, str]
    parameters: MutableMapping[str, Any]


_EMPTY: Any = MappingProxyType({})
NO_ADDITIONS = Additions(headers=_EMPTY, parameters=_EMPTY)


class Sample:
    """Request and response of a call that is captured (CAPTURE_DIR)."""

    __slots__ = ("request", "response")

    def __init__(self, request: Any):
        self.request = request
        self.response: Any = None

    def complete(self, response: Any) -> None:
        self.response = response


class Call:
    """One call of an operation. Transports derive classes that know the client and its connection.

    id: the client's request id, or a new one.
    operation: its name in both protocols, such as `infer` or `model_metadata`.
    deadline: when the result is no longer useful, a time of time.monotonic() or math.inf.
    additions: headers and parameters that predict() adds to the response.
    share: the part of a batch, or None without batching.
    """

    protocol = ""
    # Defaults of attributes that most calls never set.
    trace = NO_TRACE
    client_address = ""
    headers: Mapping[str, str] = _EMPTY
    additions = NO_ADDITIONS
    share: BatchShare | None = None
    sample: Sample | None = None
    deadline = math.inf

    def __init__(
        self,
        operation: str,
        request_id: str | None = None,
        traceparent: str = "",
        tracestate: str = "",
        transport: Any = None,
    ):
        self.timings = Timings()
        self.operation = operation
        # What the transport knows about the connection: a WSGI environ, or grpcio's context.
        self._transport = transport
        if request_id and SAFE_ID.fullmatch(request_id):
            self.id = request_id
        else:
            self.id = getrandbits(128).to_bytes(16, "big").hex()  # nosec B311 - not a secret
        self.outcome = Outcome()
        if traceparent and TRACEPARENT.fullmatch(traceparent):
            self.trace = Trace(traceparent, tracestate)

    def enter_span(self, span: Any, traceparent: str) -> None:
        """Let log records and predict() refer to the span of this service from now on."""
        self.trace = Trace(traceparent, self.trace.tracestate, span)

    def set_deadline(self, deadline: float) -> None:
        self.deadline = deadline

    def end(self) -> None:
        """Record the end of the call."""
        # The observers keep the call for a while, but not the client's connection.
        self._transport = None
        timings = self.timings
        timings.ended = monotonic()
        # Its last stage is the encoding of the response, which a failed call does not have.
        if self.outcome.error_class is None:
            timings.encoded = timings.ended

    def client_deadline(self) -> float:
        """Return the client's deadline as a time of time.monotonic(), or math.inf."""
        return math.inf

    def join_batch(self, share: BatchShare) -> None:
        self.share = share

    def keep_sample(self, request: Any) -> None:
        """Keep the request, and later its response, for capture."""
        self.sample = Sample(request)

    def reset_additions(self) -> None:
        """Let predict() add headers and parameters. Forget those of an earlier run.

        A request runs again if its batch has failed.
        """
        self.additions = Additions(headers=Headers(), parameters={})

    def set_response_parameters(self, parameters: MutableMapping[str, Any]) -> None:
        self.additions = Additions(self.additions.headers, parameters)

    def span_name(self) -> str:
        """Return the name of the span, by OpenTelemetry's conventions for the protocol."""
        return self.operation

    def span_attributes(self) -> dict[str, Any]:
        """Return the attributes of the span, by OpenTelemetry's conventions for the protocol."""
        return {}

    def log_message(self) -> str:
        """Return the message of the access log."""
        return f"{self.protocol} {self.operation} {self.outcome.status}"

    def log_fields(self) -> dict[str, Any]:
        """Return the fields that only this protocol has. Only JSON lines contain them."""
        return {}

    def is_active(self) -> bool:
        """Return True if the client still waits for the response."""
        return True

    def is_abandoned(self) -> bool:
        """Return True if the client has disconnected during a slow predict().

        Without predict(), and after a quick one, return False without a check.
        """
        timings = self.timings
        if timings.predicted - timings.begun <= QUICK_RESPONSE_SECONDS:
            return False
        return not self.is_active()

    def release_thread(self) -> None:
        """Let another thread wait for requests, because this one will block or compute.

        Transports whose threads wait for requests override this.
        """


# The calls that this thread processes: one, or those of a batch. Only log records read them.
current_calls: ContextVar[tuple[Call, ...]] = ContextVar("current_calls", default=())
