"""The threads that answer gRPC calls: what grpcio asks of a ThreadPoolExecutor, messages before threads, and answers.

grpcio gives a call its thread before the call's message has come. Here the message is asked for first, by grpcio's own
thread of events, and the call has its thread once that is there: slow clients hold none, and a small call takes a
tenth less of the processor, since its thread is not put to sleep in between. What calls a handler of bytes is here too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
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

from grpc_service.coming import Coming, Left, Work, greediest, peer
from grpc_service.unread import LARGE, Unread, give_up, note

logger = logging.getLogger(__name__)

# Messages that are on their way or wait for a thread; those of further calls are left with their clients.
MESSAGES_AT_MOST = 512
# How often slow clients are looked for, and how often while there are some.
WATCH_SECONDS, SOON_SECONDS = 1.0, 0.1
# Calls of many messages, such as reflection's, which hold a thread as long as their clients like.
STREAMS_AT_MOST = 64

# What grpcio submits: its own function, and what that is to be called with.
SUBMITTED = "respond", "event", "state", "behavior", "wait", "read", "write"


class Accepted:
    """What stands for a future: grpcio only counts by it the calls that it gave away."""

    def add_done_callback(self, call: Callable[[Any], Any]) -> None:
        call(self)


ACCEPTED = Accepted()


class Threads(Executor):
    """At most `count` threads that run what is submitted, first come, first served; they end with the process.

    There are as many as were ever busy at once, so that nothing waits while another could be started. Of messages that
    are not all there as much is kept as all threads' of the `largest` size, and as much of answers that nobody takes.
    """

    def __init__(self, count: int, name: str, largest: int = 2**26):
        self._count, self._name = count, name
        self._left = Left()
        self.coming, self.unread = Coming(count, largest), Unread(count, largest)
        self._coming = self.coming.since
        self._ready: SimpleQueue[Work] = SimpleQueue()
        self._submitted = 0
        self._done: list[int] = []  # by each thread, so that none needs a lock to count
        self._running: list[Any] = []  # the call of each thread
        self._streams: dict[Any, None] = {}  # in their order; each ends in a thread of its own
        self._is_watching = self._is_closed = False
        self._is_much = threading.Event()  # to look after

    @property
    def busy(self) -> int:
        """Calls that run or wait."""
        return self._left.count + len(self._coming) + self._submitted - sum(self._done) + len(self._streams)

    @property
    def peers(self) -> set[str]:
        """The clients that have a call which runs or waits, or a large answer that is not sent."""
        calls = [*list(self._coming), *self._running, *list(self._streams), *self.unread.large]
        return ({*map(peer, calls)} | self._left.peers) - {""}

    def submit(self, run: Callable[..., Any], /, *arguments: Any) -> Any:  # type: ignore[override]
        """Runs the call in a thread. Only grpcio's one thread of events submits."""
        call = call_of(arguments)
        if call is None:
            self._put(run, arguments)
        elif arguments[4].__name__ == "unary_request":  # the call has one message
            if not self._left.count and len(self._coming) + self._ready.qsize() < MESSAGES_AT_MOST:
                self._receive(run, *arguments)
            else:
                self._left.put(call, (run, arguments))
                self._ask()
        else:
            self._stream(call, run, arguments)
        return ACCEPTED

    def _ask(self) -> None:
        """Asks for messages, as long as there may be more of them."""
        while len(self._coming) + self._ready.qsize() < MESSAGES_AT_MOST and (work := self._left.take()):
            self._receive(work[0], *work[1])
        if self._left.count:
            self._is_much.set()

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
            if self._left.count:
                self._ask()
            return finished

        if not self._is_watching:
            self._is_watching = self._start(self._watch, "watch")
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
                if call:
                    note(arguments[2], call, size or 0)
                    if size and size > LARGE and not self._is_much.is_set():
                        self._is_much.set()
            except BaseException:  # the thread has others to answer
                logger.exception("a gRPC call failed")
            self._running[index] = None
            del run, arguments, call  # a request must not live on until the next
            self._done[index] += 1
            if self._left.count:
                self._ask()

    def close(self) -> None:
        """Looks after no client any more; calls are answered yet."""
        self._is_closed = True
        self._is_much.set()

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
        """Ends calls whose clients are too slow to send, or to take an answer."""
        looked, is_much = 0.0, False
        while not self._is_closed:
            if is_much:
                time.sleep(SOON_SECONDS)
            else:
                self._is_much.wait(WATCH_SECONDS)
                self._is_much.clear()
            now = time.monotonic()
            try:
                late = self.coming.late(now, self._left.count)
                if now > looked + WATCH_SECONDS:
                    looked = now
                    late += self.coming.stalled(now)
                for call in late:
                    give_up(call)
                is_much = self.unread.sweep(now) or bool(self._left.count)
            except OSError as error:  # no file descriptor is left
                logger.error("slow clients of gRPC are not looked for: %s", error)


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
