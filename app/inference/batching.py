"""Dynamic batching: requests whose shapes differ only in the first dimension share one call of predict().

Requests join a batch while its first request waits for a slot, and then for MAX_BATCH_DELAY_MS (default: 0). Batches
therefore grow with the load. By default, a request does not wait for others if a slot is free.
"""

import math
import threading
from collections.abc import Callable, Hashable
from time import monotonic

import numpy as np

from app.inference.admission import NOT_MEASURED, Admission, Waiter, deadline_exceeded, seconds_left
from app.inference.request_context import RequestContext, current_contexts
from app.protocol.errors import (
    ClientDisconnected,
    ConfigurationError,
    InferenceError,
    ModelError,
    PredictTimeout,
)
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import ModelMetadata
from app.protocol.tensors import RequestInput, ResponseOutput

# Parameters for the transport, which predict() does not use.
TRANSPORT_PARAMETERS = {"binary_data", "binary_data_output", "timeout"}

# The outputs of predict() by name, and the parameters of the response.
Result = tuple[dict[str, ResponseOutput], dict[str, object]]
Work = Callable[[InferenceRequest], Result]


class BatchMember(Waiter):
    """A request in a batch, with its result or error. `until` is its deadline in terms of time.monotonic()."""

    result: Result

    def __init__(self, request: InferenceRequest, context: RequestContext, seconds: float | None):
        super().__init__(context)
        self.request, self.rows = request, len(request.inputs[0].data)
        self.until = math.inf if seconds is None else monotonic() + seconds

    def may_run(self) -> bool:
        """Return True if the deadline has not passed and the client is connected. Otherwise, set `error`."""
        is_late = self.until <= monotonic()
        if is_late or not self.context.is_active():
            self.error = (
                deadline_exceeded() if is_late else ClientDisconnected("Client disconnected.")
            )
            return False
        return True


class Batch:
    """Requests of one kind. More requests can join while the batch is in Batcher.open."""

    def __init__(self, kind: Hashable):
        self.kind, self.opened = kind, monotonic()
        self.members: list[BatchMember] = []
        self.rows = 0  # including the rows of requests that have timed out
        self.full = threading.Event()


class Batcher:
    """Runs batches of at most `size` rows. A batch takes one slot of `admission` and waits at most `delay` seconds."""

    def __init__(self, admission: Admission, metadata: ModelMetadata, size: int, delay: float):
        for tensor in (*metadata.inputs, *metadata.outputs):
            if tensor.shape[:1] != [-1]:
                subject = f'MAX_BATCH_SIZE={size}: tensor "{tensor.name}" of METADATA has the shape {tensor.shape}'
                raise ConfigurationError(
                    f"{subject}. Expected -1 as the first dimension of every tensor."
                )
        self.admission, self.size, self.delay = admission, size, delay
        self.open: dict[Hashable, Batch] = {}

    def run(self, work: Work, request: InferenceRequest, context: RequestContext) -> Result:
        """Return the result of `work` for `request`. Raise its exceptions, or those of Admission.run()."""
        kind = batch_key(request)
        if kind is None:
            return self.admission.run(work, request, context=context)
        seconds = seconds_left(context)
        member = BatchMember(request, context, seconds)
        batch = self.join(member, kind)
        if not member.has_slot:
            try:
                self.admission.wait(member, batch.members, seconds)
            except InferenceError:
                with self.admission.lock:
                    if not batch.members:
                        self.close(batch)
                raise
        if member.has_slot:
            self.run_batch(batch, member, work)
        if member.error is not None:
            raise member.error
        return member.result

    def join(self, member: BatchMember, kind: Hashable) -> Batch:
        """Add `member` to the open batch of its kind. If it does not fit or the queue is full, start a new batch."""
        with self.admission.lock:
            batch = self.open.get(kind)
            has_room = batch is not None and batch.members and batch.rows + member.rows <= self.size
            if (
                batch is not None
                and has_room
                and self.admission.waiting < self.admission.max_queued
            ):
                self.admission.waiting += 1
            else:
                if batch is not None:
                    self.close(batch)
                batch = Batch(kind)
                self.admission.enqueue(member, batch.members)
                self.open[kind] = batch
            batch.members.append(member)
            batch.rows += member.rows
            if self.admission.latest_start(member.until) < batch.opened + self.delay:
                batch.full.set()  # the deadline is too close for the delay
            if batch.rows >= self.size:
                self.close(batch)
        return batch

    def close(self, batch: Batch) -> None:
        """Accept no more requests in the batch, and end its delay."""
        if self.open.get(batch.kind) is batch:
            del self.open[batch.kind]
        batch.full.set()

    def run_batch(self, batch: Batch, member: BatchMember, work: Work) -> None:
        """Wait for the delay, then run the batch in the slot of `member`."""
        try:
            member.context.release_thread()
            if not batch.full.is_set() and (rest := batch.opened + self.delay - monotonic()) > 0:
                batch.full.wait(rest)
            with self.admission.lock:
                self.close(batch)
                members = batch.members[:]
                batch.members.clear()
                self.admission.waiting -= len(members) - 1
            self.run_members(members, work)
        finally:
            self.admission.release()

    def run_members(self, members: list[BatchMember], work: Work) -> None:
        """Run the active requests in one call. If it fails before the time limit, run each separately. Wake all."""
        active = members if len(members) == 1 else [each for each in members if each.may_run()]
        if active:
            self.run_as_one(active, work)
        error = active[0].error if len(active) > 1 else None
        has_failed = error is not None and not isinstance(error, PredictTimeout)
        for each in members:
            if has_failed and each.may_run():
                self.run_as_one([each], work)
            each.lock.release()

    def run_as_one(self, members: list[BatchMember], work: Work) -> None:
        """Run the requests in one call of predict(). All get its error. Do not record the duration if NOT_MEASURED."""
        rows, started, predicted = [each.rows for each in members], monotonic(), 0.0
        for each in members:
            each.context.started, each.context.rows, each.context.batch_rows = (
                started,
                each.rows,
                sum(rows),
            )
            each.context.leads = each is members[0]
        token = current_contexts.set(tuple(each.context for each in members))
        try:
            results = split_result(work(merge_requests([each.request for each in members])), rows)
            for each, result in zip(members, results, strict=True):
                each.result, each.error = result, None
        except BaseException as error:
            for each in members:
                each.error = error
        finally:
            current_contexts.reset(token)
        if not isinstance(members[0].error, NOT_MEASURED):
            predicted = monotonic()
            self.admission.record_duration(predicted - started)
        for each in members:
            each.context.predicted = predicted


def batch_key(request: InferenceRequest) -> Hashable | None:
    """Return the key that requests of one batch share, or None if the request cannot be part of a batch."""
    rows = {each.data.shape[:1] for each in request.inputs}
    if len(rows) != 1 or rows <= {(), (0,)}:
        return None
    return (
        parameter_key(request.parameters),
        *(
            (each.name, each.datatype, each.data.shape[1:], parameter_key(each.parameters))
            for each in request.inputs
        ),
        *((each.name, parameter_key(each.parameters)) for each in request.outputs),
    )


def parameter_key(parameters: dict[str, object]) -> str:
    """Return the parameters for predict() in a form that supports comparison."""
    return repr(
        sorted(
            (name, each) for name, each in parameters.items() if name not in TRANSPORT_PARAMETERS
        )
    )


def merge_requests(requests: list[InferenceRequest]) -> InferenceRequest:
    """Merge requests of one kind into one request, with the parameters of the first."""
    first = requests[0]
    if len(requests) == 1:
        return first
    inputs = []
    for tensors in zip(*(each.inputs for each in requests), strict=True):
        array, parameters = np.concatenate([each.data for each in tensors]), tensors[0].parameters
        inputs.append(RequestInput.of(tensors[0].name, tensors[0].datatype, array, parameters))
    name, version, outputs = first.model_name, first.model_version, first.outputs
    return InferenceRequest(inputs, name, version, parameters=first.parameters, outputs=outputs)


def split_result(result: Result, rows: list[int]) -> list[Result]:
    """Split the result of a batch into parts with the given `rows`. Raise ModelError if an output has another total."""
    outputs, parameters = result
    total = sum(rows)
    for output in outputs.values():
        if len(output.data) != total:
            problem = f"predict() returned the wrong number of rows. Expected {total}, got {len(output.data)}"
            remedy = "batching needs one output row per input row"
            raise ModelError(problem, remedy=remedy).about("output", output.name, is_declared=True)
    if len(rows) == 1:
        return [result]
    results: list[Result] = [({}, parameters) for _ in rows]
    for name, output in outputs.items():
        begin = 0
        for (parts, _), count in zip(results, rows, strict=True):
            array = output.data[begin : begin + count]
            parts[name] = ResponseOutput.of(
                name, output.datatype, array, output.parameters, output.missing
            )
            begin += count
    return results
