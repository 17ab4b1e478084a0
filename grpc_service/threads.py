"""The threads that answer gRPC calls: what grpcio asks of a ThreadPoolExecutor, messages before threads, and answers.

grpcio gives a call its thread before the call's message has come. Here the message is asked for first, by grpcio's own
thread of events, and the call has its thread once that is there: slow clients hold none, and a small call takes a
tenth less of the processor, since its thread is not put to sleep in between. What calls a handler of bytes is here too.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from grpc import _observability
from grpc._cython.cygrpc import ReceiveMessageOperation, StatusCode
from grpc._server import (
    _RECEIVE_MESSAGE_TOKEN,
    _abort,
    _Context,
    _is_rpc_state_active,
    _receive_message,
    _status,
)

from grpc_service.unread import SHORT, Unread

logger = logging.getLogger(__name__)

# Messages that are on their way or wait for a thread; those of further calls are left with their clients.
MESSAGES_AT_MOST = 512
# Where calls are left, those whose messages take longer are ended, first of the clients that have the most.
LATE_SECONDS = 1.0
WATCH_SECONDS = 0.1
# Calls of many messages, such as reflection's, which hold a thread as long as their clients like.
STREAMS_AT_MOST = 64

# What grpcio submits: its own function, and what that is to be called with.
SUBMITTED = "respond", "event", "state", "behavior", "wait", "read", "write"

Work = tuple[Callable[..., Any], tuple[Any, ...]]


class Accepted:
    """What stands for a future: grpcio only counts by it the calls that it gave away."""

    def add_done_callback(self, call: Callable[[Any], Any]) -> None:
        call(self)


ACCEPTED = Accepted()


class Threads(Executor):
    """At most `count` threads that run what is submitted, first come, first served; they end with the process.

    There are as many as were ever busy at once, so that nothing waits while another could be started. Of answers that
    clients do not take, at most `unread` bytes are kept.
    """

    def __init__(self, count: int, name: str, unread: int = sys.maxsize):
        self._count, self._name = count, name
        self._left: deque[Work] = deque()  # whose messages nobody has asked for
        self._coming: dict[Any, float] = {}  # since when a call's message is
        self._ready: SimpleQueue[Work] = SimpleQueue()
        self._submitted = 0
        self._done: list[int] = []  # by each thread, so that none needs a lock to count
        self._running: list[Any] = []  # the call of each thread
        self._streams: dict[Any, None] = {}  # in their order; each ends in a thread of its own
        self._watching = False
        self._unread = Unread(unread, self._start)

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return len(self._left) + len(self._coming) + self._submitted - sum(self._done) + len(self._streams)

    @property
    def peers(self) -> set[str]:
        """The clients that have a call which runs or waits."""
        left = [call_of(arguments) for _, arguments in list(self._left)]
        return {*map(peer, [*left, *list(self._coming), *self._running, *list(self._streams)])} - {""}

    def submit(self, run: Callable[..., Any], /, *arguments: Any) -> Any:  # type: ignore[override]
        """Runs the call in a thread. Only grpcio's one thread of events submits."""
        call = call_of(arguments)
        if call is None:
            self._put(run, arguments)
        elif arguments[4].__name__ == "unary_request":  # the call has one message
            self._left.append((run, arguments))
            self._ask()
        else:
            self._stream(call, run, arguments)
        return ACCEPTED

    def _ask(self) -> None:
        """Asks for messages, as long as there may be more of them."""
        while self._left and len(self._coming) + self._ready.qsize() < MESSAGES_AT_MOST:
            try:
                run, arguments = self._left.popleft()
            except IndexError:  # another thread was faster
                return
            self._receive(run, *arguments)
        if self._left and not self._watching:
            self._watching = self._start(self._watch, "watch")

    def _receive(
        self, run: Any, respond: Any, event: Any, state: Any, behavior: Any, wait: Any, read: Any, write: Any
    ) -> None:
        """What the call's thread does first where grpcio is left alone, without its waiting for the message."""
        receive = _receive_message(state, event.call, read)

        def came(received: Any) -> Any:
            """Called in the thread of events, also where no message will come, which `wait` then finds again."""
            finished = receive(received)
            del self._coming[event.call]
            request, state.request = state.request, None
            if request is None or write or _observability._OBSERVABILITY_PLUGIN:
                get = wait if request is None else lambda: request
                self._put(run, (respond, event, state, behavior, get, read, write))
            else:
                self._put(run, (answer, event, state, behavior, request, read, write))
            if self._left:
                self._ask()
            return finished

        with state.condition:
            if _is_rpc_state_active(state):
                self._coming[event.call] = time.monotonic()
                event.call.start_server_batch((ReceiveMessageOperation(0),), came)
                state.due.add(_RECEIVE_MESSAGE_TOKEN)

    def _put(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """For the next thread that has nothing to do; one more is started where none has, and there may be more."""
        index = len(self._done)
        if index < self._count and self._submitted - sum(self._done) >= index:
            self._done.append(0)
            self._running.append(None)
            if not self._start(lambda: self._run(index), str(index)):
                self._done.pop()
                self._running.pop()
        self._submitted += 1
        self._ready.put((run, arguments))

    def _start(self, target: Callable[[], None], name: str) -> bool:
        """False where the system has no more threads: grpcio's own must live on."""
        try:
            threading.Thread(target=target, name=f"{self._name}_{name}", daemon=True).start()
            return True
        except RuntimeError as error:
            logger.error("one thread less for gRPC: %s", error)
            return False

    def _run(self, index: int) -> None:
        while True:
            run, arguments = self._ready.get()
            self._running[index] = call = call_of(arguments)
            try:
                size = run(*arguments)
                if call and size and size > SHORT:
                    self._unread.add(call, arguments[2], size)
            except BaseException:  # the thread has others to answer
                logger.exception("a gRPC call failed")
            self._running[index] = None
            del run, arguments, call  # a request must not live on until the next
            self._done[index] += 1
            if self._left:
                self._ask()

    def _stream(self, call: Any, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Runs it in a thread of its own; where there are too many, one of the client that has the most is ended."""

        def finish() -> None:
            try:
                run(*arguments)
            finally:
                self._streams.pop(call, None)

        if len(self._streams) >= STREAMS_AT_MOST:
            for oldest in greediest(list(self._streams))[:1]:
                self._streams.pop(oldest, None)
                give_up(oldest)
        self._streams[call] = None
        if not self._start(finish, "stream"):
            self._streams.pop(call)
            give_up(call)

    def _watch(self) -> None:
        """Ends calls whose messages are long in coming, as many as others are left."""
        while True:
            time.sleep(WATCH_SECONDS)
            if self._left:
                now, coming = time.monotonic(), dict(self._coming)
                late = [call for call in greediest(coming) if now - coming[call] > LATE_SECONDS]
                for call in late[: len(self._left)]:
                    give_up(call)


def answer(event: Any, state: Any, behavior: Any, request: Any, read: Any, write: Any) -> int:
    """What grpcio's own does for a call of bytes, a small one in a tenth less of the processor; the answer's size."""
    try:
        response = behavior(request, _Context(event, state, read))
    except Exception:
        if not state.aborted:
            logger.exception("a gRPC call failed")
        with state.condition:
            _abort(state, event.call, StatusCode.unknown, b"the call failed")
        return 0
    _status(event, state, response)
    return len(response)


def call_of(arguments: tuple[Any, ...]) -> Any:
    """grpcio's own, of what it submits; None for all else."""
    return getattr(arguments[1], "call", None) if len(arguments) == len(SUBMITTED) else None


def peer(call: Any) -> str:
    """The call's client, as grpcio names it: "ipv4:127.0.0.1:4711"; none where there is no call."""
    return call.peer().decode() if call else ""


def give_up(call: Any) -> None:
    with suppress(Exception):  # it has ended
        call.cancel()


def greediest(calls: Iterable[Any]) -> list[Any]:
    """The calls of the clients that have as many of them as any client has, in their order."""
    by_peer = [(call, peer(call)) for call in calls]
    counts = Counter(each for _, each in by_peer)
    most = max(counts.values(), default=0)
    return [call for call, each in by_peer if counts[each] == most]
