"""The context of one request: its id, its times and its outcome."""

from __future__ import annotations

import re
from contextvars import ContextVar
from itertools import pairwise
from random import getrandbits
from time import monotonic
from typing import Any

INFER = "infer"
STAGES = ("decode", "queue", "predict", "encode")
# Valid request ids of clients. Anything else could break a log line or a header.
SAFE_ID = re.compile(r"[!-~]{1,128}")
# W3C trace context: version, trace, the client's span, flags.
TRACEPARENT = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

QUICK_RESPONSE_SECONDS = 0.005  # after a shorter time, the client is not asked whether it still waits


class RequestContext:
    """The context of a request. Its transport creates it, and observers receive it at the end.

    operation, status: the operation's name on both protocols, such as model_metadata, and the protocol's status code.
    begun, decoded, started, predicted, ended: times by time.monotonic() or 0. predict() runs from started to predicted.
    received, sent: sizes of the bodies in bytes, without compression.
    rows: rows of the batch, or 0 without batching. `leads` is true for the first request of a batch.
    error, failure: the error message without values that the client sent, and the class of the exception.
    traceparent, tracestate: those of the client, or empty. With a tracer, `traceparent` is our span, `traced`.
    """

    # Class attributes, because most requests never change them.
    protocol = status = traceparent = tracestate = ""
    traced: Any = None
    error: str | None = None
    failure: type[BaseException] | None = None
    decoded = started = predicted = ended = 0.0
    received = sent = rows = 0
    leads = False

    def __init__(self, operation: str, request_id: str | None = None, traceparent: str = "", tracestate: str = ""):
        self.begun = monotonic()
        self.operation = operation
        made = getrandbits(128).to_bytes(16, "big").hex()  # nosec B311 - an id is not a secret
        self.id = request_id if request_id and SAFE_ID.fullmatch(request_id) else made
        if traceparent and TRACEPARENT.fullmatch(traceparent):
            self.traceparent, self.tracestate = traceparent, tracestate

    @property
    def times(self) -> tuple[float, ...]:
        """Return the start of the request and the end of each stage, or 0 for a stage that it has not completed."""
        return self.begun, self.decoded, self.started, self.predicted, 0.0 if self.error else self.ended

    def stage_seconds(self) -> dict[str, float]:
        """Return the duration of each completed stage, by the name of the stage."""
        pairs = zip(STAGES, pairwise(self.times), strict=True)
        return {stage: end - start for stage, (start, end) in pairs if start and end}

    def span(self) -> tuple[str, dict[str, Any]]:
        """Return the name and the attributes of the request's span (OpenTelemetry's conventions for the protocol)."""
        return self.operation, {}

    def log_fields(self) -> tuple[str, dict[str, Any]]:
        """Return the message of the access log, and the fields of the protocol."""
        return f"{self.protocol} {self.operation} {self.status}", {}

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline, or None if it has none."""
        return None

    def is_active(self) -> bool:
        """Return whether the client still waits."""
        return True

    def release_thread(self) -> None:
        """Let the server use another thread: this one is about to wait, or to run for long."""

    def is_abandoned(self) -> bool:
        """Return whether the client has disconnected. A client that got a quick response is not asked."""
        return self.predicted - self.begun > QUICK_RESPONSE_SECONDS and not self.is_active()


# The requests that this thread works for: one, or those of a batch. Log lines carry their ids.
current_contexts: ContextVar[tuple[RequestContext, ...]] = ContextVar("current_contexts", default=())
