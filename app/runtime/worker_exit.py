"""The exit of a worker, and of `python -m grpc_service`. Only end_process() calls os._exit().

| Reason | Function | Thread | Exit status |
|---|---|---|---|
| The worker has stopped | end_process_within() | main | that of gunicorn's sys.exit(), usually 0 |
| The worker cannot start | fail_start() | main, or that of load() | 3 or 4, as in gunicorn |

sys.exit() is not enough in either case. In the main thread, it waits for all threads of the model
that are not daemon threads, so a worker could hang until gunicorn kills it. In another thread, it
ends only this thread.

A worker that has stopped still leaves through sys.exit(), because it may have registered `atexit`
callbacks: the model's libraries to end child processes, the capture of requests to write its last
lines. end_process_within() limits the time for them. The worker also inherits callbacks of the
master, which do nothing in another process.
"""

import logging
import os
import sys
import threading
from typing import NoReturn

from app.inference.startup_errors import exc_info_of
from app.server.shared_state import SharedState

logger = logging.getLogger(__name__)


def end_process(status: int) -> NoReturn:
    """End this process without `atexit` callbacks, and without waiting for threads or output.

    Any thread can call this function. Write the log before.
    """
    os._exit(status)


def end_process_within(seconds: float, *, status: int) -> None:
    """End this process with `status` if it still runs after `seconds`."""
    timer = threading.Timer(seconds, end_process, [status])
    timer.daemon = True
    timer.start()


def fail_start(
    shared: SharedState, error: BaseException, *, problem: str, reason: str, status: int
) -> NoReturn:
    """End this worker, because it cannot start. Any thread can call this function.

    The master logs `reason`. The traceback of `error` is logged here, under the title `problem`. If
    several workers fail, they usually fail in the same way, so only the first one does both.
    """
    if shared.record_failure(reason):
        exc_info = exc_info_of(error)
        if exc_info:
            logger.error(problem, exc_info=exc_info)
    logging.shutdown()
    end_process(status)


def propagating_exit_status() -> int:
    """Return the status of the SystemExit that is propagating, or 0.

    Only inside `except` or `finally`.
    """
    code = getattr(sys.exc_info()[1], "code", None)
    if isinstance(code, int):
        return code
    return 0
