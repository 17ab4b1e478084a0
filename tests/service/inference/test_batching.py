"""Adaptive batching on both transports: which requests share a call of predict(), and which request gets an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

import numpy as np
import pytest

from app.api import ConfigurationError, InvalidInput, MetadataTensor
from grpc_service import messages
from tests.service import models
from tests.service.conftest import FORMS, Service
from tests.service.processes import wait_for
from tests.service.wires import Answer, Rest, Sent

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
            raise InvalidInput("foreign")
        return (x * 2)[: -1 if ODD in x else None]


class Crowd:
    """Requests that arrive while the model is busy with a first request of a single row."""

    def __init__(self, serve: Callable[..., Service], **settings: Any):
        self.model = Model()
        self.service = serve(self.model.module, **{"max_concurrency": 1, "max_batch_size": 8, **settings})
        self.pool = ThreadPoolExecutor(80)
        self.sent: list[Future[Answer]] = []
        self.others = 0  # requests in the service that this object did not send
        self.first = self.send("rest json", [0])
        wait_for(lambda: self.model.calls == [1])

    def send(self, form: str, values: list[float], width: int = 1, **options: Any) -> Future[Answer]:
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
        return self.service.plane.admission.in_flight - self.others

    def calls(self) -> list[int]:
        """Release the model, wait for all responses and return the rows of each call after the first."""
        self.model.go.set()
        self.pool.shutdown()
        assert self.service.plane.admission.in_flight == 0
        assert self.service.plane.batcher.open == {}
        return self.model.calls[1:]


@pytest.fixture
def crowd(serve: Callable[..., Service]) -> Iterator[Callable[..., Crowd]]:
    crowds: list[Crowd] = []

    def gather(**settings: Any) -> Crowd:
        crowds.append(Crowd(serve, **settings))
        return crowds[-1]

    yield gather
    for each in crowds:
        each.model.go.set()
        each.pool.shutdown()


def values(future: Future[Answer]) -> list[float]:
    answer = future.result()
    assert answer.kind == "ok", answer
    return answer.outputs["y"][2]


def test_batches_requests_of_both_protocols(crowd: Callable[..., Crowd]) -> None:
    """Queued requests of both protocols run in one call, and each response has its own rows and id."""
    waiting = crowd()
    futures = [waiting.send(form, [index, index + 0.5], request_id=form) for index, form in enumerate(FORMS)]
    assert waiting.calls() == [8]
    assert values(waiting.first) == [0]
    for index, (form, future) in enumerate(zip(FORMS, futures, strict=True)):
        assert values(future) == [index * 2, index * 2 + 1]
        assert future.result().id == form


@pytest.mark.parametrize(
    "other",
    [{"width": 2}, {"parameters": {"temperature": 0.5}}, {"outputs": ["y"]}, {"content_types": {"x": "np"}}],
    ids=str,
)
def test_batches_only_compatible_requests(crowd: Callable[..., Crowd], other: dict[str, Any]) -> None:
    """Requests with other trailing dimensions, parameters or requested outputs are not in the same batch."""
    waiting = crowd()
    futures = [waiting.send(form, [1, 1], **options) for form in FORMS for options in ({}, other)]
    assert sorted(waiting.calls()) == sorted([8, 8 // other.get("width", 1)])
    assert all(values(future) == [2, 2] for future in futures)


def test_batches_requests_of_different_transports(crowd: Callable[..., Crowd]) -> None:
    """Requests that differ only in a timeout or in the form of the outputs are in the same batch."""
    waiting = crowd()
    futures = [
        waiting.send("grpc raw", [1], parameters={"timeout": 60 * MICROSECONDS}),
        waiting.send("rest json", [2], parameters={"binary_data_output": True}),
        waiting.send("grpc typed", [3]),
    ]
    assert waiting.calls() == [3]
    assert [values(future) for future in futures] == [[2], [4], [6]]


def test_batch_size_is_limited(crowd: Callable[..., Crowd]) -> None:
    """A batch has at most MAX_BATCH_SIZE rows. A larger request runs by itself and is not split."""
    waiting = crowd()
    futures = [waiting.send("grpc raw", [1] * count) for count in (5, 4, 4, 20, 1)]
    assert sorted(waiting.calls()) == [1, 5, 8, 20]
    assert [len(values(future)) for future in futures] == [5, 4, 4, 20, 1]


@pytest.mark.parametrize(
    ("value", "kind"), [(BAD, "INTERNAL"), (ODD, "INTERNAL"), (FOREIGN, "INVALID_ARGUMENT")], ids=str
)
@pytest.mark.parametrize("form", FORMS)
def test_one_failing_request_does_not_fail_the_batch(
    crowd: Callable[..., Crowd], form: str, value: float, kind: str
) -> None:
    """If a batch fails, its requests run one by one, and only the faulty request gets an error."""
    waiting = crowd()
    good, bad, last = waiting.send("rest json", [1, 2]), waiting.send(form, [3, value]), waiting.send("grpc typed", [4])
    assert waiting.calls() == [5, 2, 2, 1]
    assert bad.result().kind == kind
    assert (values(good), values(last)) == ([2, 4], [8])


@pytest.mark.parametrize("form", ["rest json", "grpc raw"])
def test_expired_request_is_not_rerun(crowd: Callable[..., Crowd], form: str) -> None:
    """If a batch fails, a request whose deadline has passed does not run again."""
    waiting = crowd()
    bad, good = waiting.send("grpc raw", [BAD]), waiting.send("rest json", [1, 1])
    hasty = waiting.send(form, [5, 5, 5], parameters={"timeout": 3 * MICROSECONDS})
    waiting.model.until = monotonic() + 3
    assert waiting.calls() == [6, 1, 2]
    assert [each.result().kind for each in (bad, hasty)] == ["INTERNAL", "DEADLINE_EXCEEDED"]
    assert values(good) == [2, 2]


@pytest.mark.parametrize("form", FORMS)
def test_wrong_number_of_rows_is_a_model_error(serve: Callable[..., Service], form: str) -> None:
    """An output with another number of rows than the inputs is an error of the model, even without other requests."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=8)
    answer = service.forms[form].infer([("x", "FP32", [2, 1], [1, ODD])])
    assert (answer.kind, answer.text) == (
        "INTERNAL",
        'output "y": predict() returned 1 rows for 2; batching needs one output row per input row',
    )


@pytest.mark.parametrize("size", [1, 8])
def test_invalid_input_is_not_measured(serve: Callable[..., Service], size: int) -> None:
    """A call of predict() that raises InvalidInput does not affect the average duration, with and without batching."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=size)
    ask, admission = service.forms["rest json"].infer, service.plane.admission
    assert ask([("x", "FP32", [1, 1], [FOREIGN])]).kind == "INVALID_ARGUMENT"
    assert admission.average_seconds == 0
    assert ask([("x", "FP32", [1, 1], [1])]).kind == "ok"
    assert admission.average_seconds > 0


@pytest.mark.parametrize("form", FORMS)
def test_invalid_requests_are_not_batched(crowd: Callable[..., Crowd], form: str) -> None:
    """A request with invalid inputs is rejected before it joins a batch."""
    waiting = crowd()
    good = waiting.send("rest json", [1])
    assert waiting.service.forms[form].infer([("z", "FP32", [1, 1], [1])]).kind == "INVALID_ARGUMENT"
    assert waiting.calls() == [1]
    assert values(good) == [2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_first", [True, False])
def test_expired_request_is_removed_from_its_batch(crowd: Callable[..., Crowd], form: str, is_first: bool) -> None:
    """A request whose deadline passes does not run with its batch, whether it is the first request or a later one."""
    waiting = crowd()
    patient = None if is_first else waiting.send("grpc raw", [1])
    hasty = waiting.send(form, [5, 5], parameters={"timeout": MICROSECONDS // 5})
    patient = patient or waiting.send("grpc raw", [1])
    third = waiting.send("rest json", [2])
    assert hasty.result().kind == "DEADLINE_EXCEEDED"
    calls = waiting.calls()
    assert (values(patient), values(third)) == ([2], [4])
    assert calls == [2]


def test_queue_is_limited_with_batching(crowd: Callable[..., Crowd]) -> None:
    """A request that waits for a batch counts toward MAX_QUEUE_SIZE, and further requests are rejected."""
    waiting = crowd(max_queue_size=2)
    futures = [waiting.send("rest json", [1]), waiting.send("grpc raw", [2])]
    assert waiting.send("rest json", [3]).result().kind == "UNAVAILABLE"
    assert waiting.send("grpc raw", [3]).result().kind == "RESOURCE_EXHAUSTED"
    assert waiting.calls() == [2]
    assert [values(future) for future in futures] == [[2], [4]]


def test_no_batches_without_a_queue(crowd: Callable[..., Crowd]) -> None:
    """With MAX_QUEUE_SIZE=0, requests do not wait for a batch, and each runs by itself."""
    waiting = crowd(max_queue_size=0, max_concurrency=3, max_batch_delay_ms=100)
    futures = [waiting.send("rest json", [1]), waiting.send("grpc raw", [2])]
    assert waiting.calls() == [1, 1]
    assert [values(future) for future in futures] == [[2], [4]]


def test_waits_for_a_full_batch(serve: Callable[..., Service]) -> None:
    """With MAX_BATCH_DELAY_MS, a request waits until the batch is full, even if the model is free."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=4, max_batch_delay_ms=10_000)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(service.forms[form].infer, [("x", "FP32", [1, 1], [1])]) for form in FORMS[2:] * 2]
        assert [values(future) for future in futures] == [[2]] * 4
    assert model.calls == [4]


@pytest.mark.parametrize("form", FORMS)
def test_does_not_wait_past_the_deadline(serve: Callable[..., Service], form: str) -> None:
    """A request does not wait for MAX_BATCH_DELAY_MS if its deadline is earlier."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=4, max_batch_delay_ms=600_000)
    answer = service.forms[form].infer([("x", "FP32", [1, 1], [1])], parameters={"timeout": 20 * MICROSECONDS})
    assert (answer.kind, model.calls) == ("ok", [1])


def test_first_request_of_a_batch_is_canceled(serve: Callable[..., Service]) -> None:
    """If the client of a batch's first request disconnects during the delay, the others run without it."""
    model = Model()
    model.go.set()
    service = serve(model.module, max_batch_size=2, max_batch_delay_ms=600_000)
    gone = ask_alone(service, [1])
    wait_for(lambda: service.plane.admission.in_flight == 1)
    assert gone.cancel()
    answer = service.grpc.infer([("x", "FP32", [1, 1], [3])])
    assert (answer.outputs["y"][2], model.calls) == ([6], [1])


def ask_alone(service: Service, values: list[float]) -> Any:
    """Start a gRPC call and return its future."""
    request = messages.ModelInferRequest(model_name="test")
    request.inputs.add(name="x", datatype="FP32", shape=[len(values), 1]).contents.fp32_contents.extend(values)
    infer = service.channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    return infer.future(request.SerializeToString())


def test_canceled_request_is_removed_from_its_batch(crowd: Callable[..., Crowd]) -> None:
    """A call that is canceled while it waits in a batch does not run."""
    waiting = crowd()
    leads = waiting.send("rest json", [1])
    inside = waiting.inside()
    gone = ask_alone(waiting.service, [7, 7, 7])
    wait_for(lambda: waiting.inside() > inside)
    assert gone.cancel()
    waiting.others = 1  # The canceled request stays inside until its batch runs.
    stays = waiting.send("grpc raw", [2])
    assert waiting.calls() == [2]
    assert (values(leads), values(stays)) == ([2], [4])


def test_inputs_with_different_rows_are_not_batched(serve: Callable[..., Service]) -> None:
    """A request whose inputs have different first dimensions runs unchanged and by itself."""
    service = serve(models.two_by_two(), max_batch_size=8)
    for form in FORMS:
        answer = service.forms[form].infer([("a", "FP32", [1, 2], [1, 2]), ("b", "INT64", [2], [3, 4])])
        assert answer.outputs["double"][2] == [6, 8]


def test_responses_are_correct_under_load(serve: Callable[..., Service]) -> None:
    """Under load, each request gets its own result, with text and numbers, and with or without the optional input."""
    tensors = [MetadataTensor("b", "BYTES", [-1]), MetadataTensor("c", "FP32", [-1, 2])]

    def predict(_: Any, b: np.ndarray, c: np.ndarray | None = None) -> dict[str, np.ndarray]:
        return {"b": b, "c": np.ones((len(b), 2), "f4") if c is None else c}

    service = serve(models.model(tensors, tensors, predict), max_batch_size=16, max_concurrency=1)

    def ask(index: int) -> bool:
        count, is_whole = index % 5 + 1, index % 3 > 0
        b = "b", "BYTES", [count], [b"%d" % (index + each) for each in range(count)]
        c = "c", "FP32", [count, 2], [index + each for each in range(2 * count)] if is_whole else [1] * 2 * count
        answer = service.forms[FORMS[2 + index % 2]].infer([b, c] if is_whole else [b])
        return all(answer.outputs[name] == (datatype, shape, data) for name, datatype, shape, data in (b, c))

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(400)))


def test_rejects_batching_with_a_fixed_first_dimension(serve: Callable[..., Service]) -> None:
    """Batching is rejected at startup if METADATA has a fixed first dimension."""
    with pytest.raises(ConfigurationError, match='MAX_BATCH_SIZE=8: tensor "x" of METADATA'):
        serve(models.echo("FP32", [1, 3]), max_batch_size=8)
