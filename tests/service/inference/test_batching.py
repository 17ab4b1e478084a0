"""Adaptive batching on both transports: which requests share a call of predict(), and which request gets an error."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

import numpy as np
import pytest

from app.api import ConfigurationError
from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import FORMS
from tests.kit import models
from tests.kit.service import Service
from tests.service.inference.batches import (
    BAD,
    FOREIGN,
    MICROSECONDS,
    ODD,
    Model,
    QueuedRequests,
    values,
)


def test_batches_requests_of_both_protocols(queued_requests: Callable[..., QueuedRequests]) -> None:
    """Queued requests of both protocols run in one call, and each response has its own rows and id."""
    waiting = queued_requests()
    futures = [
        waiting.send(form, [index, index + 0.5], request_id=form)
        for index, form in enumerate(FORMS)
    ]
    assert waiting.calls() == [8]
    assert values(waiting.first) == [0]
    for index, (form, future) in enumerate(zip(FORMS, futures, strict=True)):
        assert values(future) == [index * 2, index * 2 + 1]
        assert future.result().id == form


@pytest.mark.parametrize(
    "other",
    [
        {"width": 2},
        {"parameters": {"temperature": 0.5}},
        {"outputs": ["y"]},
        {"content_types": {"x": "np"}},
    ],
    ids=str,
)
def test_batches_only_compatible_requests(
    queued_requests: Callable[..., QueuedRequests], other: dict[str, Any]
) -> None:
    """Requests with other trailing dimensions, parameters or requested outputs are not in the same batch."""
    waiting = queued_requests()
    futures = [waiting.send(form, [1, 1], **options) for form in FORMS for options in ({}, other)]
    assert sorted(waiting.calls()) == sorted([8, 8 // other.get("width", 1)])
    assert all(values(future) == [2, 2] for future in futures)


def test_batches_requests_of_different_transports(
    queued_requests: Callable[..., QueuedRequests],
) -> None:
    """Requests that differ only in a timeout or in the form of the outputs are in the same batch."""
    waiting = queued_requests()
    futures = [
        waiting.send("grpc raw", [1], parameters={"timeout": 60 * MICROSECONDS}),
        waiting.send("rest json", [2], parameters={"binary_data_output": True}),
        waiting.send("grpc typed", [3]),
    ]
    assert waiting.calls() == [3]
    assert [values(future) for future in futures] == [[2], [4], [6]]


def test_batch_size_is_limited(queued_requests: Callable[..., QueuedRequests]) -> None:
    """A batch has at most MAX_BATCH_SIZE rows. A larger request runs by itself and is not split."""
    waiting = queued_requests()
    futures = [waiting.send("grpc raw", [1] * count) for count in (5, 4, 4, 20, 1)]
    assert sorted(waiting.calls()) == [1, 5, 8, 20]
    assert [len(values(future)) for future in futures] == [5, 4, 4, 20, 1]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(BAD, "INTERNAL"), (ODD, "INTERNAL"), (FOREIGN, "INVALID_ARGUMENT")],
    ids=str,
)
@pytest.mark.parametrize("form", FORMS)
def test_one_failing_request_does_not_fail_the_batch(
    queued_requests: Callable[..., QueuedRequests], form: str, value: float, kind: str
) -> None:
    """If a batch fails, its requests run one by one, and only the faulty request gets an error."""
    waiting = queued_requests()
    good, bad, last = (
        waiting.send("rest json", [1, 2]),
        waiting.send(form, [3, value]),
        waiting.send("grpc typed", [4]),
    )
    assert waiting.calls() == [5, 2, 2, 1]
    assert bad.result().kind == kind
    assert (values(good), values(last)) == ([2, 4], [8])


@pytest.mark.parametrize("form", ["rest json", "grpc raw"])
def test_expired_request_is_not_rerun(
    queued_requests: Callable[..., QueuedRequests], form: str
) -> None:
    """If a batch fails, a request whose deadline has passed does not run again."""
    waiting = queued_requests()
    bad, good = waiting.send("grpc raw", [BAD]), waiting.send("rest json", [1, 1])
    expiring = waiting.send(form, [5, 5, 5], parameters={"timeout": 3 * MICROSECONDS})
    waiting.model.until = monotonic() + 3
    assert waiting.calls() == [6, 1, 2]
    assert [call.result().kind for call in (bad, expiring)] == ["INTERNAL", "DEADLINE_EXCEEDED"]
    assert values(good) == [2, 2]


@pytest.mark.parametrize("form", FORMS)
def test_wrong_number_of_rows_is_a_model_error(serve: Callable[..., Service], form: str) -> None:
    """An output with another number of rows than the inputs is an error of the model, even without other requests."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=8)
    response = service.forms[form].infer([("x", "FP32", [2, 1], [1, ODD])])
    assert (response.kind, response.text) == (
        "INTERNAL",
        'Output "y": predict() returned the wrong number of rows. Expected 2, got 1. '
        "Batching needs one output row per input row.",
    )


@pytest.mark.parametrize("size", [1, 8])
def test_invalid_input_is_not_measured(serve: Callable[..., Service], size: int) -> None:
    """A call of predict() that raises InvalidInput does not affect the average duration, with and without batching."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=size)
    check_request, admission = service.forms["rest json"].infer, service.core.pipeline.scheduler
    assert check_request([("x", "FP32", [1, 1], [FOREIGN])]).kind == "INVALID_ARGUMENT"
    assert admission.average_seconds == 0
    assert check_request([("x", "FP32", [1, 1], [1])]).is_success
    assert admission.average_seconds > 0


@pytest.mark.parametrize("form", FORMS)
def test_invalid_requests_are_not_batched(
    queued_requests: Callable[..., QueuedRequests], form: str
) -> None:
    """A request with invalid inputs is rejected before it joins a batch."""
    waiting = queued_requests()
    good = waiting.send("rest json", [1])
    assert (
        waiting.service.forms[form].infer([("z", "FP32", [1, 1], [1])]).kind == "INVALID_ARGUMENT"
    )
    assert waiting.calls() == [1]
    assert values(good) == [2]


def test_inputs_with_different_rows_are_not_batched(serve: Callable[..., Service]) -> None:
    """A request whose inputs have different first dimensions runs unchanged and by itself."""
    service = serve(models.two_by_two(), max_batch_size=8)
    for form in FORMS:
        response = service.forms[form].infer(
            [("a", "FP32", [1, 2], [1, 2]), ("b", "INT64", [2], [3, 4])]
        )
        assert response.outputs["double"][2] == [6, 8]


def test_responses_are_correct_under_load(serve: Callable[..., Service]) -> None:
    """Under load, each request gets its own result, with text and numbers, and with or without the optional input."""
    tensors = [MetadataTensor("b", "BYTES", [-1]), MetadataTensor("c", "FP32", [-1, 2])]

    def predict(_: Any, b: np.ndarray, c: np.ndarray | None = None) -> dict[str, np.ndarray]:
        return {"b": b, "c": np.ones((len(b), 2), "f4") if c is None else c}

    service = serve(models.model(tensors, tensors, predict), max_batch_size=16, max_concurrency=1)

    def check_request(index: int) -> bool:
        count, is_whole = index % 5 + 1, index % 3 > 0
        b = "b", "BYTES", [count], [b"%d" % (index + row) for row in range(count)]
        c = (
            "c",
            "FP32",
            [count, 2],
            [index + row for row in range(2 * count)] if is_whole else [1] * 2 * count,
        )
        response = service.forms[FORMS[2 + index % 2]].infer([b, c] if is_whole else [b])
        return all(
            response.outputs[name] == (datatype, shape, data)
            for name, datatype, shape, data in (b, c)
        )

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(check_request, range(400)))


def test_rejects_batching_with_a_fixed_first_dimension(serve: Callable[..., Service]) -> None:
    """Batching is rejected at startup if METADATA has a fixed first dimension."""
    with pytest.raises(ConfigurationError, match='MAX_BATCH_SIZE=8: tensor "x" of METADATA'):
        serve(models.echo("FP32", [1, 3]), max_batch_size=8)
