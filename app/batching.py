"""Requests that differ only in their first dimension, run as one predict() and split again.

The first to come leads: while its thread waits for a slot, and for MAX_BATCH_DELAY_MS where it has one, others of its
kind join. So batches are as large as the load makes them, and a request that is alone waits for nobody.
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

# Parameters of one request's way here and back, which predict() is not asked to heed.
OF_THE_WAY = {"binary_data", "binary_data_output", "timeout"}

# The outputs of predict() by name, and the parameters of the response.
Answer = tuple[dict[str, ResponseOutput], Parameters]
Work = Callable[[InferenceRequest], Answer]


class Member:
    """A request in a batch, the lock that its thread waits at, and then its answer or error.

    It leads where its thread runs the batch, has a place in the queue where it once waited for another's, and must be
    answered until then, by time.monotonic().
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
    """Requests of one kind; others join while it is in Batcher.open."""

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
    """Batches of at most `size` rows, each in one slot of `admission`; it waits at most `delay` seconds for more."""

    def __init__(self, admission: Admission, metadata: ModelMetadata, size: int, delay: float):
        for tensor in (*metadata.inputs, *metadata.outputs):
            if tensor.shape[:1] != [-1]:
                raise SetupError(
                    f'MAX_BATCH_SIZE={size}: tensor "{tensor.name}" of METADATA has the shape {tensor.shape}; '
                    "requests can be batched where the first dimension of all is -1"
                )
        self.admission, self.size, self.delay = admission, size, delay
        self.open: dict[Hashable, Batch] = {}
        self.lock = threading.Lock()

    def run(self, work: Work, request: InferenceRequest, call: Call, timeout: float | None) -> Answer:
        """What `work` makes of `request`, perhaps with others; raises what it raises, or as Admission.run."""
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
        """The batch that `member` is in now, and whether it leads it: as the first, or where nobody else may wait."""
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
                batch.full.set()  # it cannot wait so long
            if batch.rows >= self.size:
                self.close(batch)
        return batch, leads

    def close(self, batch: Batch) -> None:
        """Nobody joins it any more."""
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
        """Runs the batch when there is a slot; where the leader must leave before, another leads."""
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
        """Gives each its answer; those whose deadline is past, or whose callers have left, are not run."""
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
    """Whether its caller still waits for it; else it has its error. One `alone` that has left holds up nobody."""
    if member.until <= monotonic():
        member.error = too_late()
    elif not (alone or member.call.is_active()):
        member.error = Abandoned("the client disconnected")
    else:
        return True
    return False


def run(members: list[Member], work: Work) -> None:
    """Runs the requests as one, whose error is the error of all; InvalidInput is no measure of predict()."""
    rows, started, predicted = [each.rows for each in members], monotonic(), 0.0
    for each in members:
        each.call.started, each.call.rows, each.call.leads = started, sum(rows), each is members[0]
    own = serving.get()
    serving.set(tuple(each.call for each in members))
    try:
        answers = split(work(merged([each.request for each in members])), rows)
    except BaseException as error:  # whose callers wait for it
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
    """What requests have in common that may be one; None for a request without one first dimension of all inputs."""
    rows = {each.data.shape[:1] for each in request.inputs}
    if len(rows) != 1 or rows <= {(), (0,)}:
        return None
    return (
        kept(request.parameters),
        *((each.name, each.datatype, each.data.shape[1:], kept(each.parameters)) for each in request.inputs),
        *((each.name, kept(each.parameters)) for each in request.outputs),
    )


def kept(parameters: Parameters) -> str:
    """The parameters that predict() may heed, as what can be compared."""
    return repr(sorted(of_the_model(parameters).items())) if parameters else "[]"


def of_the_model(parameters: Parameters) -> Parameters:
    return {name: value for name, value in parameters.items() if name not in OF_THE_WAY}


def merged(requests: list[InferenceRequest]) -> InferenceRequest:
    """One request of many of a kind, without an id; one alone stays as it is."""
    first = requests[0]
    if len(requests) == 1:
        return first
    columns = zip(*(each.inputs for each in requests), strict=True)
    return InferenceRequest(
        [
            RequestInput.of(
                column[0].name,
                column[0].datatype,
                np.concatenate([each.data for each in column]),
                of_the_model(column[0].parameters),
            )
            for column in columns
        ],
        first.model_name,
        first.model_version,
        parameters=of_the_model(first.parameters),
        outputs=[RequestOutput(each.name, of_the_model(each.parameters)) for each in first.outputs],
    )


def split(answer: Answer, rows: list[int]) -> list[Answer]:
    """The answers to requests of so many rows each; ModelError where the outputs have not as many together."""
    outputs, parameters = answer
    total = sum(rows)
    for output in outputs.values():
        if len(output.data) != total:
            problem = f"predict() returned {len(output.data)} rows for {total}"
            remedy = "batching needs one output row per input row"
            raise ModelError(problem, remedy=remedy).about("output", output.name, is_declared=True)
    if len(rows) == 1:
        return [answer]
    answers, end = [], 0
    for count in rows:
        begin, end = end, end + count
        answers.append(({name: part(output, begin, end) for name, output in outputs.items()}, parameters))
    return answers


def part(output: ResponseOutput, begin: int, end: int) -> ResponseOutput:
    return ResponseOutput.of(output.name, output.datatype, output.data[begin:end], output.parameters)
