"""Thread pool for grpcio's server, which gives a call a thread when its message is complete.

grpcio itself gives a call a thread when its headers arrive. The thread asks for the message, and
sleeps until it is complete. Thus, a client that sends slowly occupies a thread, and each call wakes
a thread twice. This pool asks for the message first:

    grpcio    headers → thread: ask for the message, sleep, handle the call
    here      headers → ask for the message → message → thread: handle the call

The invariant: a thread of the pool never waits for a client. A streaming call does, so it has a
thread of its own, which is not in the pool. receive_limit.py limits the messages that are arriving.
Only grpcio limits the responses that are not read: to 1,000 calls per connection.

grpcio has no interface for this. The pool works with private functions and objects of its module
`grpc/_server.py`, which are explained below. No other module does. IS_SUPPORTED tells whether the
installed release has them. If not, the pool is a ThreadPoolExecutor: the service works, but
slow clients occupy threads, and each call takes longer.

The lines below are those of grpcio 1.85. Those of 1.66 do the same.

One thread of grpcio, the event thread, receives all events of the server: headers, messages and
ends of calls. For the headers of a unary call, it locks `state.condition` and submits the call:

    return thread_pool.submit(                              # in _handle_unary_unary()
        state.context.run,
        _unary_response_in_pool,
        rpc_event,
        state,
        method_handler.unary_unary,
        unary_request,
        method_handler.request_deserializer,
        method_handler.response_serializer,
    )

SubmittedCall has names for these arguments. In the thread, `_unary_response_in_pool()` first calls
`unary_request()`, which waits for the message:

    with state.condition:                                   # in _unary_request()
        if not _is_rpc_state_active(state):
            return None
        rpc_event.call.start_server_batch(
            (cygrpc.ReceiveMessageOperation(_EMPTY_FLAGS),),
            _receive_message(state, rpc_event.call, request_deserializer),
        )
        state.due.add(_RECEIVE_MESSAGE_TOKEN)
        while True:
            state.condition.wait()

`_receive_message()` returns a callback. The event thread calls it when the operation is complete.
The callback stores the message in `state.request`, which remains None if there is none, and removes
the token from `state.due`, the set of operations that are not complete.

UnaryRequestCall.receive() replaces these lines, except for the loop. It starts the operation with
a callback of its own, which calls that of grpcio and queues the call.

Next, `_unary_response_in_pool()` calls the handler and sends the response. `_status()` does not
wait until the client has read it:

    response, proceed = _call_behavior(                     # in _unary_response_in_pool()
        rpc_event, state, behavior, argument, request_deserializer
    )
    if proceed:
        serialized_response = _serialize_response(
            rpc_event, state, response, response_serializer
        )
        if serialized_response is not None:
            _status(rpc_event, state, serialized_response)

run_handler() replaces these lines if the handler returns bytes, as those of this service do.
"""

import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple

from app.inference.memory_budget import MemoryBudget
from grpc_service.grpc_call import RETRY_AFTER
from grpc_service.memory_watch import MemoryWatch
from grpc_service.receive_limit import ReceiveLimit

try:
    from grpc import _server
except ImportError:
    _server = None

# Streaming calls, such as those of reflection. Each uses one thread until it ends.
MAX_STREAMS = 256
# Messages that can arrive at the same time, and calls that can wait for this. In a burst, many
# small calls begin before the first of their messages arrives.
MAX_MESSAGES = 2**11
MAX_WAITING = 2**14
# The same for methods without an API key. Their messages are small.
MAX_OPEN_MESSAGES = 2**10
MAX_OPEN_WAITING = 2**10
# Memory for their messages that are arriving.
MAX_OPEN_BYTES = 2**24
TOO_MANY_MESSAGES = b"Server overloaded: too many messages are arriving. Retry later."

# The private functions of grpcio that this module uses or replaces, with their parameters.
_PARAMETERS = {
    "_Context": ["rpc_event", "state", "request_deserializer"],
    "_abort": ["state", "call", "code", "details"],
    "_is_rpc_state_active": ["state"],
    "_receive_message": ["state", "call", "request_deserializer"],
    "_status": ["rpc_event", "state", "serialized_response"],
    "_unary_request": ["rpc_event", "state", "request_deserializer"],
    "_unary_response_in_pool": [
        "rpc_event",
        "state",
        "behavior",
        "argument_thunk",
        "request_deserializer",
        "response_serializer",
    ],
}
# The attributes of its _RPCState.
_STATE_ATTRIBUTES = {"aborted", "condition", "due", "request", "trailing_metadata"}
_STATUS_CODES = ("resource_exhausted", "unknown")
# The function that `_unary_request()` returns. A call with a stream of requests has another one.
_GET_UNARY_REQUEST = "unary_request"

logger = logging.getLogger(__name__)


def is_supported() -> bool:
    """Return True if the installed grpcio has the private names that this module uses."""
    try:
        return _has_functions() and _has_values()
    except (AttributeError, TypeError, ValueError):
        return False


def _has_functions() -> bool:
    for name, parameters in _PARAMETERS.items():
        signature = inspect.signature(getattr(_server, name))
        if list(signature.parameters) != parameters:
            return False
    get_request = _server._unary_request(None, None, None)
    return bool(get_request.__name__ == _GET_UNARY_REQUEST)


def _has_values() -> bool:
    state = _server._RPCState()
    return (
        vars(state).keys() >= _STATE_ATTRIBUTES
        and hasattr(_server, "_RECEIVE_MESSAGE_TOKEN")
        and hasattr(_server.cygrpc, "ReceiveMessageOperation")
        and all(hasattr(_server.cygrpc.StatusCode, name) for name in _STATUS_CODES)
    )


IS_SUPPORTED = is_supported()


def create_pool(threads: int, budget: MemoryBudget, is_custom: bool = True) -> Executor:
    """Return a Pool, or a ThreadPoolExecutor if the release of grpcio is not supported.

    `is_custom` is False if the operator has disabled this optimization.
    """
    if is_custom and IS_SUPPORTED:
        return Pool(threads, budget)
    if is_custom:
        logger.warning(
            "The fast thread pool does not support this release of grpcio. Using ThreadPoolExecutor"
        )
    return ThreadPoolExecutor(threads + MAX_STREAMS, "grpc")


class SubmittedCall(NamedTuple):
    """The arguments that grpcio submits for a call, in its order.

    - respond: grpcio's function for the call. The other fields are its arguments.
    - event: the event of the call's headers. `event.call` is the call in grpcio's C core.
    - state: the _RPCState of the call. `state.condition` guards it.
    - handler: takes the request and a ServicerContext.
    - get_request: waits for the message of a unary call. For other calls, returns an iterator.
    - deserialize, serialize: the functions of the handler, or None for bytes.
    """

    respond: Callable[..., None]
    event: Any
    state: Any
    handler: Callable[[Any, Any], Any]
    get_request: Callable[[], Any]
    deserialize: Callable[[bytes], Any] | None
    serialize: Callable[[Any], bytes] | None


_NUMBER_OF_ARGUMENTS = len(SubmittedCall._fields)


class UnaryRequestCall:
    """A call with one request, whose message has not arrived yet.

    limit: counts the call while its message is arriving
    hand_over: called in grpcio's event thread when the message is complete, or when none will come
    """

    __slots__ = ("_hand_over", "_limit", "_store_message", "call", "run")

    def __init__(
        self,
        run: Callable[..., Any],
        call: SubmittedCall,
        *,
        limit: ReceiveLimit,
        hand_over: Callable[["UnaryRequestCall"], None],
    ):
        self.run = run
        self.call = call
        self._limit = limit
        self._hand_over = hand_over
        # grpcio's own callback.
        self._store_message = _server._receive_message(
            call.state, call.event.call, call.deserialize
        )

    def receive(self) -> bool:
        """Start to receive the message. Return False if the call has ended."""
        state = self.call.state
        with state.condition:
            if not _server._is_rpc_state_active(state):
                return False
            operation = _server.cygrpc.ReceiveMessageOperation(0)
            self.call.event.call.start_server_batch((operation,), self._finish)
            state.due.add(_server._RECEIVE_MESSAGE_TOKEN)
        return True

    def _finish(self, message_event: Any) -> Any:
        """Store the message in the state of the call. grpcio uses the result."""
        result = self._store_message(message_event)
        self._limit.remove(self)
        self._hand_over(self)
        return result

    def end(self) -> None:
        """End the call with the status for an overload."""
        state = self.call.state
        with state.condition:
            if _server._is_rpc_state_active(state):
                state.trailing_metadata = (RETRY_AFTER,)
                code = _server.cygrpc.StatusCode.resource_exhausted
                _server._abort(state, self.call.event.call, code, TOO_MANY_MESSAGES)


class AcceptedCall:
    """The future of a submitted call, which is always done. grpcio only counts calls with it."""

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        callback(self)


_ACCEPTED_CALL = AcceptedCall()


class Pool(Executor):
    """Runs calls in the order in which their messages are complete, in at most `threads` threads.

    The threads start on demand. They are daemon threads, so a handler that does not return does not
    prevent the exit of the process.

    budget: limits the memory of arriving messages
    """

    def __init__(self, threads: int, budget: MemoryBudget):
        self._max_threads = threads
        self._queue: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        # Each counter has one writer, so they need no lock: the event thread writes the first one,
        # and each thread of the pool writes its element of the second one.
        self._queued_calls = 0
        self._completed_calls: list[int] = []
        self._messages = ReceiveLimit(MAX_MESSAGES, MAX_WAITING)
        self._open_messages = ReceiveLimit(MAX_OPEN_MESSAGES, MAX_OPEN_WAITING)
        self._memory_watch = MemoryWatch(self._messages, budget)
        self._open_memory_watch = MemoryWatch(self._open_messages, budget, MAX_OPEN_BYTES)
        self._free_streams = threading.Semaphore(MAX_STREAMS)

    def submit(self, run: Callable[..., Any], /, *arguments: Any) -> Any:  # type: ignore[override]
        """Schedule run(*arguments). Only grpcio's event thread calls this method.

        For a call, `run` is `state.context.run`, which sets the context variables of the call.
        """
        if len(arguments) != _NUMBER_OF_ARGUMENTS:
            self._put(run, arguments)  # any other function, as in all executors
            return _ACCEPTED_CALL
        # As SubmittedCall(*arguments), but without a Python function: the event thread is the
        # bottleneck of small calls.
        call = tuple.__new__(SubmittedCall, arguments)
        if call.get_request.__name__ != _GET_UNARY_REQUEST:
            if getattr(call.handler, "is_rejection", False):
                run(*call)  # only sends a status, so it needs no thread
            else:
                self._start_stream(run, call)
            return _ACCEPTED_CALL

        limit = self._messages
        memory_watch = self._memory_watch
        if getattr(call.handler, "is_open", False):
            limit = self._open_messages
            memory_watch = self._open_memory_watch
        limit.add(UnaryRequestCall(run, call, limit=limit, hand_over=self._hand_over))
        memory_watch.wake()
        return _ACCEPTED_CALL

    def _hand_over(self, incoming: UnaryRequestCall) -> None:
        """Queue a call whose message has arrived, or start its stream of responses."""
        run = incoming.run
        call = incoming.call
        state = call.state
        request = state.request
        state.request = None
        if request is None:
            # The client has sent no message or a malformed one, or has canceled the call. grpcio's
            # function fails a call that has not ended: it asks for the message again, and gets none
            # at once.
            self._put(run, call)
        elif call.respond is not _server._unary_response_in_pool:
            self._start_stream(run, call._replace(get_request=partial(_identity, request)))
        elif call.serialize is None:  # the handler returns bytes
            arguments = (run_handler, call.event, state, call.handler, request, call.deserialize)
            self._put(run, arguments)
        else:
            self._put(run, call._replace(get_request=partial(_identity, request)))

    def _put(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Queue run(*arguments). Start a thread if none is idle."""
        threads = len(self._completed_calls)
        if threads < self._max_threads:
            unfinished_calls = self._queued_calls - sum(self._completed_calls)
            if unfinished_calls >= threads:
                self._add_thread(index=threads)
        self._queued_calls += 1
        self._queue.put((run, arguments))

    def _add_thread(self, index: int) -> None:
        self._completed_calls.append(0)
        if not _start_thread(lambda: self._run_calls(index), f"grpc_{index}"):
            self._completed_calls.pop()

    def _run_calls(self, index: int) -> None:
        """Run calls forever, as the thread with this index."""
        while True:
            run, arguments = self._queue.get()
            try:
                run(*arguments)
            except BaseException:  # keep the thread for other calls
                logger.exception("A gRPC call failed")
            del run, arguments  # release the request before the next call arrives
            self._completed_calls[index] += 1

    def _start_stream(self, run: Callable[..., Any], call: SubmittedCall) -> None:
        """Run a streaming call in a thread of its own, or cancel it if this is not possible."""

        def run_stream() -> None:
            try:
                run(*call)
            finally:
                self._free_streams.release()

        if not self._free_streams.acquire(blocking=False):
            call.event.call.cancel()
        elif not _start_thread(run_stream, "grpc_stream"):
            self._free_streams.release()
            call.event.call.cancel()


def _start_thread(target: Callable[[], None], name: str) -> bool:
    """Start a daemon thread. Return False if the system has too many threads.

    An exception would end the event thread, and with it the server.
    """
    try:
        threading.Thread(target=target, name=name, daemon=True).start()
    except RuntimeError as error:
        logger.error("Cannot start a thread for gRPC: %s", error)
        return False
    return True


def _identity(request: Any) -> Any:
    return request


def run_handler(
    event: Any, state: Any, handler: Callable[[Any, Any], Any], request: Any, deserialize: Any
) -> None:
    """Call a handler that returns bytes, and send the response.

    grpcio's functions also import a module, enter a context manager and set the context of the
    observability plugin, which takes 10 % of the time of a call.
    """
    try:
        context = _server._Context(event, state, deserialize)
        response = handler(request, context)
    except Exception:
        # context.abort() raises an exception, after it has set `aborted` and the status of the
        # call. _abort() sends this status. Otherwise, it sends the status below.
        if not state.aborted:
            logger.exception("A gRPC call failed")
        unknown = _server.cygrpc.StatusCode.unknown
        with state.condition:
            _server._abort(state, event.call, unknown, b"the call failed")
        return
    _server._status(event, state, response)
