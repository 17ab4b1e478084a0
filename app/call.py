"""One call of the service: who waits for its answer, and what became of it."""

from __future__ import annotations

import re
from contextvars import ContextVar
from random import getrandbits
from time import monotonic
from typing import Any

from app.errors import InferenceError

INFER = "ModelInfer"
# What a client may name its request; anything else could break a log, or a header.
SAFE_ID = re.compile(r"[!-~]{1,128}")
# W3C's: version, trace, the caller's span, flags.
TRACEPARENT = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")

# A caller that waited less is taken to be there.
PATIENCE_SECONDS = 0.005


class Call:
    """Made when a request comes, by its transport; filled in as it passes, and put into the journal when answered.

    `method` is gRPC's name of what is asked, on both protocols, and `status` the protocol's own. `begun`, `decoded`,
    `started` and `predicted` (around predict(), behind the queue) and `ended` are by time.monotonic(), 0 for what
    was never reached. `received` and `sent` are bytes, of bodies without their compression. `rows` is the first
    dimension of the inputs that predict() was called with, 0 without batching, and `leads` says whether the call is the
    first of those that it was called for. `error` is the error text without what the client sent, and `failure` the
    class of the InferenceError. `traceparent` and `tracestate` are the caller's. With a tracer, `traceparent` is
    the call's own span, and `traced` is the span itself.
    """

    # What most calls never have otherwise, so that a call is made quickly.
    protocol = status = ""
    tracestate: str | None = None
    traceparent: str | None = None
    traced: Any = None
    error: str | None = None
    failure: type[InferenceError] | None = None
    decoded = started = predicted = ended = 0.0
    received = sent = rows = 0
    leads = False

    def __init__(self, method: str, request_id: str | None = None, traceparent: str | None = None):
        """An id that is made is no secret, and so of no more than chance."""
        self.begun = monotonic()
        self.method = method
        made = getrandbits(128).to_bytes(16, "big").hex()  # nosec B311
        self.id = request_id if request_id and SAFE_ID.fullmatch(request_id) else made
        if traceparent and TRACEPARENT.fullmatch(traceparent):
            self.traceparent = traceparent

    def time_remaining(self) -> float | None:
        """The seconds that the caller will wait yet; None where it has not said."""
        return None

    def is_active(self) -> bool:
        """Whether the caller still waits."""
        return True

    def release_thread(self) -> None:
        """Let the server use another thread: this one is about to wait, or to run for long."""

    def is_unread(self) -> bool:
        """Whether nobody reads the answer; asked where the caller had to wait for it."""
        return self.predicted - self.begun > PATIENCE_SECONDS and not self.is_active()


# The calls that this thread works for, whose ids its log lines carry: one, or those of a batch.
serving: ContextVar[tuple[Call, ...]] = ContextVar("serving", default=())
