"""Requests that wait for a batch: limits, deadlines and cancellation."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from grpc_service import messages
from oip_conformance.wires import FORMS
from tests.kit.processes import wait_for
from tests.kit.service import Service
from tests.service.inference.batches import MICROSECONDS, Model, QueuedRequests, values


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_first", [True, False])
def test_expired_request_is_removed_from_its_batch(
    queued_requests: Callable[..., QueuedRequests], form: str, is_first: bool
) -> None:
    """A request whose deadline passes does not run with its batch, whether it is the first request or a later one."""
    waiting = queued_requests()
    patient = None if is_first else waiting.send("grpc raw", [1])
    expiring = waiting.send(form, [5, 5], parameters={"timeout": MICROSECONDS // 5})
    patient = patient or waiting.send("grpc raw", [1])
    third = waiting.send("rest json", [2])
    assert expiring.result().kind == "DEADLINE_EXCEEDED"
    calls = waiting.calls()
    assert (values(patient), values(third)) == ([2], [4])
    assert calls == [2]


def test_queue_is_limited_with_batching(queued_requests: Callable[..., QueuedRequests]) -> None:
    """A request that waits for a batch counts toward MAX_QUEUE_SIZE, and further requests are rejected."""
    waiting = queued_requests(max_queue_size=2)
    futures = [waiting.send("rest json", [1]), waiting.send("grpc raw", [2])]
    assert waiting.send("rest json", [3]).result().kind == "UNAVAILABLE"
    assert waiting.send("grpc raw", [3]).result().kind == "RESOURCE_EXHAUSTED"
    assert waiting.calls() == [2]
    assert [values(future) for future in futures] == [[2], [4]]


def test_no_batches_without_a_queue(queued_requests: Callable[..., QueuedRequests]) -> None:
    """With MAX_QUEUE_SIZE=0, requests do not wait for a batch, and each runs by itself."""
    waiting = queued_requests(max_queue_size=0, max_concurrency=3, max_batch_delay_ms=100)
    futures = [waiting.send("rest json", [1]), waiting.send("grpc raw", [2])]
    assert waiting.calls() == [1, 1]
    assert [values(future) for future in futures] == [[2], [4]]


def test_waits_for_a_full_batch(serve: Callable[..., Service]) -> None:
    """With MAX_BATCH_DELAY_MS, a request waits until the batch is full, even if the model is free."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=4, max_batch_delay_ms=10_000)
    with ThreadPoolExecutor(4) as pool:
        futures = [
            pool.submit(service.forms[form].infer, [("x", "FP32", [1, 1], [1])])
            for form in FORMS[2:] * 2
        ]
        assert [values(future) for future in futures] == [[2]] * 4
    assert model.calls == [4]


@pytest.mark.parametrize("form", FORMS)
def test_does_not_wait_past_the_deadline(serve: Callable[..., Service], form: str) -> None:
    """A request does not wait for MAX_BATCH_DELAY_MS if its deadline is earlier."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=4, max_batch_delay_ms=600_000)
    response = service.forms[form].infer(
        [("x", "FP32", [1, 1], [1])], parameters={"timeout": 20 * MICROSECONDS}
    )
    assert response.is_success, response
    assert model.calls == [1]


def test_first_request_of_a_batch_is_canceled(serve: Callable[..., Service]) -> None:
    """If the client of a batch's first request disconnects during the delay, the others run without it."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=2, max_batch_delay_ms=600_000)
    gone = start_single_call(service, [1])
    wait_for(lambda: service.core.pipeline.scheduler.in_flight == 1)
    assert gone.cancel()
    response = service.grpc.infer([("x", "FP32", [1, 1], [3])])
    assert (response.outputs["y"][2], model.calls) == ([6], [1])


def start_single_call(service: Service, values: list[float]) -> Any:
    """Start a gRPC call and return its future."""
    request = messages.ModelInferRequest(model_name="test")
    request.inputs.add(
        name="x", datatype="FP32", shape=[len(values), 1]
    ).contents.fp32_contents.extend(values)
    infer = service.channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    return infer.future(request.SerializeToString())


def test_canceled_request_is_removed_from_its_batch(
    queued_requests: Callable[..., QueuedRequests],
) -> None:
    """A call that is canceled while it waits in a batch does not run."""
    waiting = queued_requests()
    leads = waiting.send("rest json", [1])
    inside = waiting.inside()
    gone = start_single_call(waiting.service, [7, 7, 7])
    wait_for(lambda: waiting.inside() > inside)
    assert gone.cancel()
    waiting.others = 1  # The canceled request stays inside until its batch runs.
    stays = waiting.send("grpc raw", [2])
    assert waiting.calls() == [2]
    assert (values(leads), values(stays)) == ([2], [4])
