"""A model that records its batches, and clients that send requests at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

import numpy as np

from app.protocol.errors import InvalidInput
from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import Response, Rest, Sent
from tests.kit import models
from tests.kit.processes import wait_for
from tests.kit.service import Service

BAD, ODD, FOREIGN = -1.0, -2.0, -3.0
MICROSECONDS = 10**6


class Model:
    """A model that records the number of rows of each call and doubles the rows when `go` is set.

    A row BAD raises an exception once `until` is past. FOREIGN raises InvalidInput, and ODD drops one row.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.go = threading.Event()
        self.until = 0.0
        metadata = [MetadataTensor("x", "FP32", [-1, -1])], [MetadataTensor("y", "FP32", [-1, -1])]
        self.module = models.model(*metadata, self.predict)

    def predict(self, _: Any, x: np.ndarray) -> np.ndarray:
        self.calls.append(len(x))
        assert self.go.wait(60)
        if BAD in x:
            wait_for(lambda: monotonic() > self.until)
            raise ValueError("bad")
        if FOREIGN in x:
            raise InvalidInput("Invalid x. Expected another number.")
        return (x * 2)[: -1 if ODD in x else None]


class QueuedRequests:
    """Requests that arrive while the model is busy with a first request of a single row."""

    def __init__(self, serve: Callable[..., Service], **settings: Any):
        self.model = Model()
        self.service = serve(
            self.model.module, **{"max_concurrency": 1, "max_batch_size": 8, **settings}
        )
        self.pool = ThreadPoolExecutor(80)
        self.sent: list[Future[Response]] = []
        self.others = 0  # requests in the service that this object did not send
        self.first = self.send("rest json", [0])
        wait_for(lambda: self.model.calls == [1])

    def send(
        self, form: str, values: list[float], width: int = 1, **options: Any
    ) -> Future[Response]:
        """Send rows of `width` elements. Return when the request is queued or rejected."""
        client = self.service.forms[form]
        if form.startswith("rest"):
            client = Rest(self.service.app.test_client(), binary=form.endswith("binary"))
        sent: Sent = ("x", "FP32", [len(values) // width, width], values)
        self.sent.append(self.pool.submit(client.infer, [sent], **options))
        # A request without a response is in the service. A request whose deadline passes has a response.
        wait_for(lambda: self.inside() >= sum(not each.done() for each in self.sent))
        return self.sent[-1]

    def inside(self) -> int:
        return self.service.core.pipeline.scheduler.in_flight - self.others

    def calls(self) -> list[int]:
        """Release the model, wait for all responses and return the rows of each call after the first."""
        self.model.go.set()
        self.pool.shutdown()
        assert self.service.core.pipeline.scheduler.in_flight == 0
        assert self.service.core.pipeline.scheduler.open_groups == 0
        return self.model.calls[1:]


def values(future: Future[Response]) -> list[float]:
    response = future.result()
    assert response.kind == "ok", response
    return response.outputs["y"][2]
