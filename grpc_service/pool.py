"""Thread pool for gRPC calls.

grpcio assigns a thread to a call before the message arrives. This pool assigns it when the message is complete, so
slow clients do not block threads. Small calls also take a third less time. Only this module uses private names of
grpcio. If a release lacks them, concurrent.futures.ThreadPoolExecutor replaces the pool.

Only grpcio limits incomplete messages and unread responses: to 1,000 calls per connection and MAX_REQUEST_BYTES per
message.
"""

import inspect
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

try:
    from grpc import _server
except ImportError:
    _server = None

# Streaming calls, such as those of reflection. Each uses one thread until it ends.
MAX_STREAMS = 256
# Private functions of grpcio with their parameters, and attributes of its _RPCState.
SIGNATURES = {
    "_Context": "rpc_event state request_deserializer",
    "_abort": "state call code details",
    "_is_rpc_state_active": "state",
    "_receive_message": "state call request_deserializer",
    "_status": "rpc_event state serialized_response",
    "_unary_request": "rpc_event state request_deserializer",
    "_unary_response_in_pool": "rpc_event state behavior argument_thunk request_deserializer response_serializer",
}
STATE = {"aborted", "condition", "due", "request"}
GET_REQUEST = "unary_request"  # the function that waits for the message of a unary call
CALL_ARGUMENTS = 7  # number of arguments for a call: grpcio's response function and its arguments

logger = logging.getLogger(__name__)


def is_supported() -> bool:
    """Return True if grpcio has the private names that this module uses."""
    try:
        signatures = {
            name: " ".join(inspect.signature(getattr(_server, name)).parameters)
            for name in SIGNATURES
        }
        core = _server.cygrpc
        others = (
            _server._RECEIVE_MESSAGE_TOKEN,
            core.ReceiveMessageOperation,
            core.StatusCode.unknown,
        )
        is_named = _server._unary_request(None, None, None).__name__ == GET_REQUEST
        has_state = vars(_server._RPCState()).keys() >= STATE
        return signatures == SIGNATURES and all((*others, is_named, has_state))
    except (AttributeError, TypeError, ValueError):
        return False


IS_SUPPORTED = is_supported()


def create_pool(threads: int, is_custom: bool = True) -> Executor:
    """Return a Pool, or a ThreadPoolExecutor if `is_custom` is false or the release of grpcio is not supported."""
    if is_custom and IS_SUPPORTED:
        return Pool(threads)
    if is_custom:
        logger.warning(
            "The fast thread pool does not support this release of grpcio. Using ThreadPoolExecutor"
        )
    return ThreadPoolExecutor(threads + MAX_STREAMS, "grpc")


class Accepted:
    """A completed future. grpcio uses it only to count calls."""

    def add_done_callback(self, call: Callable[[Any], Any]) -> None:
        call(self)


ACCEPTED = Accepted()


class Pool(Executor):
    """Runs submitted calls in order, in at most `threads` daemon threads, which start on demand."""

    def __init__(self, threads: int):
        self._threads = threads
        self._ready: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self._submitted = 0
        self._done: list[int] = []  # completed calls by thread, which needs no lock
        self._streams: set[int] = set()

    def submit(self, run: Callable[..., Any], /, *arguments: Any) -> Any:  # type: ignore[override]
        """Schedule the call. Only grpcio's event thread calls this method."""
        if len(arguments) != CALL_ARGUMENTS:
            self._put(run, arguments)
        elif (
            arguments[0] is _server._unary_response_in_pool and arguments[4].__name__ == GET_REQUEST
        ):
            self._receive(run, arguments)
        else:
            self._stream(run, arguments)
        return ACCEPTED

    def _receive(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Start to receive the message. grpcio does this in the thread of the call, and blocks it."""
        respond, event, state, behavior, wait, read, write = arguments
        receive = _server._receive_message(state, event.call, read)

        def received(message: Any) -> Any:
            """Queue the call. grpcio's event thread also calls this if the call ended without a message."""
            finished = receive(message)
            request, state.request = state.request, None
            if request is None or write:
                get = wait if request is None else lambda: request
                self._put(run, (respond, event, state, behavior, get, read, write))
            else:
                self._put(run, (run_handler, event, state, behavior, request, read))
            return finished

        with state.condition:
            if _server._is_rpc_state_active(state):
                event.call.start_server_batch(
                    (_server.cygrpc.ReceiveMessageOperation(0),), received
                )
                state.due.add(_server._RECEIVE_MESSAGE_TOKEN)

    def _put(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Queue the call. Start a thread if none is idle."""
        index = len(self._done)
        if index < self._threads and self._submitted - sum(self._done) >= index:
            self._done.append(0)
            if not self._start(lambda: self._run(index), f"grpc_{index}"):
                self._done.pop()
        self._submitted += 1
        self._ready.put((run, arguments))

    def _start(self, target: Callable[[], None], name: str) -> bool:
        try:
            threading.Thread(target=target, name=name, daemon=True).start()
        except (
            RuntimeError
        ) as error:  # limit of the system. An exception would end grpcio's event thread
            logger.error("Cannot start a thread for gRPC: %s", error)
            return False
        return True

    def _run(self, index: int) -> None:
        while True:
            run, arguments = self._ready.get()
            try:
                run(*arguments)
            except BaseException:  # keep the thread for other calls
                logger.exception("A gRPC call failed")
            del run, arguments  # release the request before the next call arrives
            self._done[index] += 1

    def _stream(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Run the call in a separate thread. Cancel it if MAX_STREAMS are running or no thread can start."""
        call = arguments[1].call

        def finish() -> None:
            try:
                run(*arguments)
            finally:
                self._streams.discard(id(call))

        self._streams.add(id(call))
        if len(self._streams) > MAX_STREAMS or not self._start(finish, "grpc_stream"):
            self._streams.discard(id(call))
            call.cancel()


def run_handler(event: Any, state: Any, behavior: Any, request: Any, read: Any) -> None:
    """Call a handler and send its response, without features of grpcio's function that cost 10 % more time."""
    try:
        response = behavior(request, _server._Context(event, state, read))
    except Exception:
        if not state.aborted:
            logger.exception("A gRPC call failed")
        with state.condition:
            _server._abort(state, event.call, _server.cygrpc.StatusCode.unknown, b"the call failed")
        return
    _server._status(event, state, response)
