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
from oip_conformance.wires import InputTuple, Response, Rest
from tests.kit import models
from tests.kit.processes import wait_for
from tests.kit.service import Service

# Rows for which the model does not return their double.
BAD = -1.0
ODD = -2.0
FOREIGN = -3.0
MICROSECONDS = 10**6


class Model:
    """A model that records the number of rows of each call and doubles the rows when `go` is set.

    A row BAD raises an exception once `until` is past. FOREIGN raises InvalidInput, and ODD drops
    one row.
    """

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.go = threading.Event()
        self.until = 0.0
        inputs = [MetadataTensor("x", "FP32", [-1, -1])]
        outputs = [MetadataTensor("y", "FP32", [-1, -1])]
        self.module = models.model(inputs, outputs, self.predict)

    def predict(self, _: Any, x: np.ndarray) -> np.ndarray:
        self.calls.append(len(x))
        assert self.go.wait(60)
        if BAD in x:
            wait_for(lambda: monotonic() > self.until)
            raise ValueError("bad")
        if FOREIGN in x:
            raise InvalidInput("Invalid x. Expected another number.")
        doubled = x * 2
        if ODD in x:
            return doubled[:-1]
        return doubled


class QueuedRequests:
    """Requests that arrive while the model is busy with a first request of a single row."""

    def __init__(self, serve: Callable[..., Service], **settings: Any):
        self.model = Model()
        all_settings = {"max_concurrency": 1, "max_batch_size": 8, **settings}
        self.service = serve(self.model.module, **all_settings)
        self.pool = ThreadPoolExecutor(80)
        self.sent: list[Future[Response]] = []
        self.others = 0  # requests in the service that this object did not send
        self.first = self.send("rest json", [0])
        wait_for(lambda: self.model.calls == [1])

    def send(
        self, form: str, values: list[float], width: int = 1, **options: Any
    ) -> Future[Response]:
        """Send rows of `width` elements. Return when the request is queued or rejected."""
        if form.startswith("rest"):
            # Flask's client cannot be shared by threads.
            client = Rest(self.service.app.test_client(), binary=form.endswith("binary"))
        else:
            client = self.service.forms[form]
        tensor: InputTuple = ("x", "FP32", [len(values) // width, width], values)
        future = self.pool.submit(client.infer, [tensor], **options)
        self.sent.append(future)

        def are_pending_inside() -> bool:
            inside = self.inside()
            # A request whose deadline has passed has a response, and need not be in the service.
            pending = [future for future in self.sent if not future.done()]
            return inside >= len(pending)

        wait_for(are_pending_inside)
        return future

    def inside(self) -> int:
        """Return how many requests of this object are in the service."""
        return self.service.core.pipeline.scheduler.in_flight - self.others

    def calls(self) -> list[int]:
        """Release the model, and wait for all responses.

        Return the rows of each call after the first.
        """
        self.model.go.set()
        self.pool.shutdown()
        scheduler = self.service.core.pipeline.scheduler
        assert scheduler.in_flight == 0
        assert scheduler.open_groups == 0
        return self.model.calls[1:]


def values(future: Future[Response]) -> list[float]:
    """Return the values of the output of a request, which must have succeeded."""
    response = future.result()
    assert response.is_success, response
    _, _, elements = response.outputs["y"]
    return elements
