"""Time limit for a call of predict() (PREDICT_TIMEOUT_SECONDS)."""

import logging
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from threading import get_ident
from typing import Any

from app.protocol.errors import PredictTimeout

logger = logging.getLogger(__name__)


class TimeLimit:
    """Runs functions in threads of its own, and waits at most `seconds` for each.

    Python cannot stop a thread. A function that takes longer keeps its thread until it returns, if
    ever: `has_stuck_call` is True from then on, and the master replaces the worker.
    """

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.has_stuck_call = False
        # The pool has no maximum size. The scheduler limits the number of calls, and a call that
        # takes too long keeps its thread although the scheduler has given its slot to another one.
        self._pool = ThreadPoolExecutor(sys.maxsize, "predict")

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return the result of the function, or raise its exception.

        After the time limit, raise PredictTimeout, and log the function's stack.
        """
        threads: list[int] = []

        def call() -> Any:
            threads.append(get_ident())
            return function(*args)

        future: Future[Any] = self._pool.submit(copy_context().run, call)
        try:
            return future.result(self.seconds)
        except TimeoutError:
            self.has_stuck_call = True
            limit = f"{self.seconds:g} s (PREDICT_TIMEOUT_SECONDS)"
            problem = f"predict() took longer than {limit}"
            logger.error(problem, extra={"stacktrace": _format_stacks(threads)})
            raise PredictTimeout(f"Deadline exceeded: {problem}.") from None


def _format_stacks(threads: list[int]) -> str:
    lines = ["Stack (most recent call last):\n"]
    frames = sys._current_frames()
    for thread in threads:
        lines += traceback.format_stack(frames[thread])
    return "".join(lines)
