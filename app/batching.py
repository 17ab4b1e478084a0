"""Batches: requests that differ only in their first dimension share one call of predict().

The first request leads. Others of its kind join while its thread waits for a slot, and then for MAX_BATCH_DELAY_MS.
Batches therefore grow with the load, and a request that is alone does not wait for others.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable
from time import monotonic

import numpy as np

from app.admission import Admission, seconds_left, too_late
from app.call import Call, serving
from app.errors import Abandoned, InferenceError, InvalidInput, ModelError, SetupError
from app.types import InferenceRequest, ModelMetadata, Parameters, RequestInput, RequestOutput, ResponseOutput

# Parameters that the transports use, and predict() does not.
OF_THE_WAY = {"binary_data", "binary_data_output", "timeout"}

# The outputs of predict() by name, and the parameters of the response.
Answer = tuple[dict[str, ResponseOutput], Parameters]
Work = Callable[[InferenceRequest], Answer]


class Member:
    """A request in a batch, the lock at which its thread waits, and later its answer or error.

    The thread of the member that `leads` runs the batch. The others have a place in the queue. `until` is the deadline
    by time.monotonic().
    """

    __slots__ = ("answer", "call", "error", "has_place", "leads", "request", "rows", "until", "waits")

    def __init__(self, request: InferenceRequest, call: Call, seconds: float | None):
        self.until = math.inf if seconds is None else monotonic() + seconds
        self.request, self.call, self.rows = request, call, len(request.inputs[0].data)
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.leads = self.has_place = False
        self.waits = threading.Lock()
        self.waits.acquire()

    def result(self) -> Answer:
        if self.answer is None:
            raise self.error or RuntimeError("a batch left one of its requests out")
        return self.answer


class Batch:
    """Requests of one kind. Others can join while it is in Batcher.open."""

    __slots__ = ("full", "kind", "members", "opened", "rows")

    def __init__(self, kind: Hashable):
        self.kind, self.opened = kind, monotonic()
        self.members: list[Member] = []
        self.rows = 0
        self.full = threading.Event()

    def add(self, member: Member) -> None:
        self.members.append(member)
        self.rows += member.rows

    def remove(self, member: Member) -> None:
        self.members.remove(member)
        self.rows -= member.rows


class Batcher:
    """Runs batches of at most `size` rows, each in one slot of `admission`, after at most `delay` seconds."""

    def __init__(self, admission: Admission, metadata: ModelMetadata, size: int, delay: float):
        for tensor in (*metadata.inputs, *metadata.outputs):
            if tensor.shape[:1] != [-1]:
                subject = f'MAX_BATCH_SIZE={size}: tensor "{tensor.name}" of METADATA has the shape {tensor.shape}'
                raise SetupError(f"{subject}; requests can be batched where the first dimension of all is -1")
        self.admission, self.size, self.delay = admission, size, delay
        self.open: dict[Hashable, Batch] = {}
        self.lock = threading.Lock()

    def run(self, work: Work, request: InferenceRequest, call: Call, timeout: float | None) -> Answer:
        """Return the result of `work` for `request`. Raise its errors, or those of Admission.run."""
        kind = kind_of(request)
        if kind is None:
            return self.admission.run(work, request, call=call, timeout=timeout)
        seconds = seconds_left(call, timeout)
        member = Member(request, call, seconds)
        batch, leads = self.join(member, kind)
        if not leads:  # member.leads may have changed since, and who follows has a lock to take
            self.follow(batch, member, self.admission.patience(seconds))
        if member.leads:
            self.lead(batch, member, work, timeout)
        return member.result()

    def join(self, member: Member, kind: Hashable) -> tuple[Batch, bool]:
        """Add `member` to a batch. Return the batch, and whether it leads: if it is first, or if the queue is full."""
        with self.lock:
            batch = self.open.get(kind)
            if batch and batch.rows + member.rows > self.size:
                self.close(batch)
                batch = None
            member.has_place = batch is not None and self.admission.places.take()
            leads = member.leads = batch is None or not member.has_place
            if batch is None or leads:
                if batch:
                    self.close(batch)
                batch = self.open[kind] = Batch(kind)
            batch.add(member)
            if self.admission.latest(member.until) < batch.opened + self.delay:
                batch.full.set()  # its deadline does not allow the delay
            if batch.rows >= self.size:
                self.close(batch)
        return batch, leads

    def close(self, batch: Batch) -> None:
        """Let no other request join."""
        if self.open.get(batch.kind) is batch:
            del self.open[batch.kind]
        batch.full.set()

    def follow(self, batch: Batch, member: Member, seconds: float | None) -> None:
        """Waits for the answer, or until the leader has left and `member` leads."""
        member.call.release_thread()
        if member.waits.acquire(timeout=-1 if seconds is None else seconds):
            return
        with self.lock:
            waits = member in batch.members and not member.leads
            if waits:
                batch.remove(member)
                self.admission.places.give()
        if waits:
            raise too_late()
        member.waits.acquire()  # it is being run, or leads

    def lead(self, batch: Batch, member: Member, work: Work, timeout: float | None) -> None:
        """Run the batch as soon as there is a slot. If that fails for this member, another leads."""
        try:
            self.admission.take(member.call, timeout, has_place=member.has_place)
        except InferenceError:
            self.hand_over(batch, member)
            raise
        try:
            member.call.release_thread()
            if not batch.full.is_set() and (rest := batch.opened + self.delay - monotonic()) > 0:
                batch.full.wait(rest)
            with self.lock:
                self.close(batch)
                members, batch.members = batch.members, []
            self.answer(members, member, work)
        finally:
            self.admission.slots.give()

    def hand_over(self, batch: Batch, member: Member) -> None:
        with self.lock:
            batch.remove(member)
            if batch.members:
                batch.members[0].leads = True
                batch.members[0].waits.release()
            else:
                self.close(batch)

    def answer(self, members: list[Member], leader: Member, work: Work) -> None:
        """Run the members whose deadlines have not passed and whose clients still wait. Wake all members."""
        for each in members:
            if each is not leader:
                self.admission.places.give()
        active = [each for each in members if may_run(each, alone=len(members) == 1)]
        try:
            if active:
                run(active, work)
                if active[0].call.predicted:
                    self.admission.took(active[0].call.predicted - active[0].call.started)
            for each in active if len(active) > 1 and active[0].error is not None else ():
                if may_run(each):
                    run([each], work)
                each.waits.release()
                members.remove(each)
        finally:
            for each in members:
                each.waits.release()


def may_run(member: Member, alone: bool = False) -> bool:
    """Return whether it is worth running. Otherwise, set its error. If it is alone, its client is not asked."""
    if member.until <= monotonic():
        member.error = too_late()
    elif not (alone or member.call.is_active()):
        member.error = Abandoned("the client disconnected")
    else:
        return True
    return False


def run(members: list[Member], work: Work) -> None:
    """Run the requests as one. An error is the error of all. InvalidInput does not count as a duration of predict()."""
    rows, started, predicted = [each.rows for each in members], monotonic(), 0.0
    for each in members:
        each.call.started, each.call.rows, each.call.leads = started, sum(rows), each is members[0]
    own = serving.get()
    serving.set(tuple(each.call for each in members))
    try:
        answers = split(work(merged([each.request for each in members])), rows)
    except BaseException as error:  # each thread raises its own
        for each in members:
            each.error = error
    else:
        for each, answer in zip(members, answers, strict=True):
            each.answer, each.error = answer, None
    finally:
        serving.set(own)
        if not isinstance(members[0].error, InvalidInput):
            predicted = monotonic()
        for each in members:
            each.call.predicted = predicted


def kind_of(request: InferenceRequest) -> Hashable | None:
    """Return what requests of one batch have in common, or None if the inputs have no common first dimension."""
    rows = {each.data.shape[:1] for each in request.inputs}
    if len(rows) != 1 or rows <= {(), (0,)}:
        return None
    return (
        kept(request.parameters),
        *((each.name, each.datatype, each.data.shape[1:], kept(each.parameters)) for each in request.inputs),
        *((each.name, kept(each.parameters)) for each in request.outputs),
    )


def kept(parameters: Parameters) -> str:
    """Return the parameters for predict() in a form that can be compared."""
    return repr(sorted(of_the_model(parameters).items())) if parameters else "[]"


def of_the_model(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if name not in OF_THE_WAY}


def merged(requests: list[InferenceRequest]) -> InferenceRequest:
    """Return one request without an id for requests of one kind. A single one is not changed."""
    first = requests[0]
    if len(requests) == 1:
        return first
    inputs = []
    for tensors in zip(*(each.inputs for each in requests), strict=True):
        array, parameters = np.concatenate([each.data for each in tensors]), of_the_model(tensors[0].parameters)
        inputs.append(RequestInput.of(tensors[0].name, tensors[0].datatype, array, parameters))
    outputs = [RequestOutput(each.name, of_the_model(each.parameters)) for each in first.outputs]
    parameters = of_the_model(first.parameters)
    return InferenceRequest(inputs, first.model_name, first.model_version, parameters=parameters, outputs=outputs)


def split(answer: Answer, rows: list[int]) -> list[Answer]:
    """Split a result into parts with the given numbers of rows. Raise ModelError if an output has another total."""
    outputs, parameters = answer
    total = sum(rows)
    for output in outputs.values():
        if len(output.data) != total:
            problem = f"predict() returned {len(output.data)} rows for {total}"
            remedy = "batching needs one output row per input row"
            raise ModelError(problem, remedy=remedy).about("output", output.name, is_declared=True)
    if len(rows) == 1:
        return [answer]
    answers: list[Answer] = [({}, parameters) for _ in rows]
    for name, output in outputs.items():
        begin = 0
        for (parts, _), count in zip(answers, rows, strict=True):
            array = output.data[begin : begin + count]
            parts[name] = ResponseOutput.of(name, output.datatype, array, output.parameters)
            begin += count
    return answers
