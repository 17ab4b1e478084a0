"""Time limit for a call of predict() (PREDICT_TIMEOUT_SECONDS)."""

import logging
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import get_ident
from typing import Any

from app.protocol.errors import PredictTimeout

logger = logging.getLogger(__name__)


class TimeLimit:
    """Calls `predict` in another thread. Raise PredictTimeout after `seconds`. A stuck call keeps its thread."""

    def __init__(self, predict: Callable[..., Any], seconds: float):
        self.predict, self.seconds, self.has_stuck_call = predict, seconds, False
        self.pool = ThreadPoolExecutor(
            sys.maxsize, "predict"
        )  # the slots limit the calls that are not stuck

    def __call__(self, *args: Any) -> Any:
        threads: list[int] = []
        future = self.pool.submit(copy_context().run, self._call, threads, *args)
        try:
            return future.result(self.seconds)
        except TimeoutError:
            self.has_stuck_call = True
            problem = f"predict() took longer than {self.seconds:g} s (PREDICT_TIMEOUT_SECONDS)"
            stack = [
                line
                for each in threads
                for line in traceback.format_stack(sys._current_frames()[each])
            ]
            logger.error(
                problem, extra={"stacktrace": "".join(["Stack (most recent call last):\n", *stack])}
            )
            raise PredictTimeout(f"Deadline exceeded: {problem}.") from None

    def _call(self, threads: list[int], *args: Any) -> Any:
        threads.append(get_ident())
        return self.predict(*args)
