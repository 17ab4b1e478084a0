"""The model of a process: loading, warm-up, health, and the end."""

import logging
from collections.abc import Callable
from enum import Enum
from threading import Lock, Timer
from time import monotonic
from typing import Any

from app.config.resources import release_free_memory
from app.inference.predict_adapter import ModelAdapter
from app.inference.startup_errors import describe_error

LOG_SECONDS = 10.0  # interval of log messages during load()
# Maximum wait for the end of a call of is_healthy(), which can hang.
JOIN_SECONDS = 2.0

logger = logging.getLogger(__name__)


class ModelState(Enum):
    LOADING = "loading"
    WARMING_UP = "warming up"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    STOPPING = "stopping"
    CLOSED = "closed"


LOADING = ModelState.LOADING
WARMING_UP = ModelState.WARMING_UP
READY = ModelState.READY
UNHEALTHY = ModelState.UNHEALTHY
STOPPING = ModelState.STOPPING
CLOSED = ModelState.CLOSED

_NEXT_STATES = {
    LOADING: (WARMING_UP, CLOSED),
    WARMING_UP: (READY, CLOSED),
    READY: (UNHEALTHY, STOPPING, CLOSED),
    UNHEALTHY: (READY, STOPPING, CLOSED),
    STOPPING: (CLOSED,),
    CLOSED: (),
}

# States in which predict() can be called.
ACCEPTING = (READY, UNHEALTHY, STOPPING)


class Repeater(Timer):
    """Calls a function every `interval` seconds in a thread, until the end of a `with` block."""

    def __enter__(self) -> None:
        self.start()  # a daemon thread if the calling thread is one

    def __exit__(self, *_: object) -> None:
        self.cancel()
        self.join(JOIN_SECONDS)

    def run(self) -> None:
        while not self.finished.wait(self.interval):
            try:
                self.function(*self.args)
            except Exception:
                logger.exception("A repeated call failed")


class ModelRunner:
    """Runs load(), the warm-up, is_healthy() and unload() of one predict.py, in one process.

    `model` is what load() returned. The state says what it can be used for:

        state       predict()  reports ready  next state
        ----------  ---------  -------------  --------------------------------------------
        LOADING     no         no             WARMING_UP when load() has returned
        WARMING_UP  no         no             READY when the warm-up has ended
        READY       yes        yes            UNHEALTHY when is_healthy() fails
        UNHEALTHY   yes        no             READY when is_healthy() succeeds again
        STOPPING    yes        no             CLOSED after the last request
        CLOSED      no         no             -

    READY and UNHEALTHY become STOPPING if the whole service stops. Every state can become CLOSED:
    in LOADING and WARMING_UP, nothing waits for a model that no request has used.
    """

    def __init__(self, adapter: ModelAdapter):
        self.load_seconds = 0.0
        self._adapter = adapter
        self.model: Any = None
        self._state = LOADING
        self._state_lock = Lock()  # load(), health check and stop() run in different threads
        self._health_check: Repeater | None = None

    @property
    def state(self) -> ModelState:
        return self._state

    @property
    def accepts_requests(self) -> bool:
        """True if predict() can be called. An unhealthy or stopping model still responds."""
        return self._state in ACCEPTING

    @property
    def is_ready(self) -> bool:
        """True if clients should send requests."""
        return self._state is READY

    def load(self) -> None:
        """Call load(), and log its progress. Its exceptions propagate."""
        logger.info("Loading the model")
        begun = monotonic()

        def log_progress() -> None:
            logger.info("Still loading the model after %.0f s", monotonic() - begun)

        with Repeater(LOG_SECONDS, log_progress):
            self.model = self._adapter.module.load()
        self.load_seconds = monotonic() - begun
        self._enter(WARMING_UP)
        logger.info("Loaded the model in %.1f s", self.load_seconds)

    def warm_up(self) -> None:
        """Warm up the model, which is ready then. Exceptions of predict.py propagate."""
        self._adapter.warm_up(self.model)
        release_free_memory()
        self._enter(READY)

    def start_health_check(self, seconds: float, report: Callable[[bool], None]) -> None:
        """Call is_healthy(), if it is defined, every `seconds`, if that is not 0.

        After each change of the result, pass is_ready to `report`.
        """
        is_healthy = self._adapter.module.is_healthy
        if is_healthy is None or not seconds:
            return
        self._health_check = Repeater(seconds, self._check_health, [is_healthy, report])
        self._health_check.start()

    def stop(self) -> None:
        """Report that the model is not ready. It still accepts requests, if it was ready before."""
        is_stopping = self._enter(STOPPING)
        if not is_stopping and not self.accepts_requests:
            self._enter(CLOSED)

    def close(self, is_in_use: Callable[[], bool]) -> None:
        """Accept no more requests. Then call unload(), unless a request still uses the model."""
        was_ready = self.accepts_requests
        self._enter(CLOSED)
        if is_in_use():
            logger.warning("Requests have not finished. Exiting without unload()")
            return
        if self._health_check is not None:
            self._health_check.__exit__()
        unload = self._adapter.module.unload
        if was_ready and unload is not None:
            try:
                unload(self.model)
            except BaseException:  # includes SystemExit and panics of Rust extensions
                logger.exception("unload() raised an exception")

    def _enter(self, state: ModelState) -> bool:
        """Change the state, and return True, if the transition exists. Otherwise, return False."""
        with self._state_lock:
            is_allowed = state in _NEXT_STATES[self._state]
            if is_allowed:
                self._state = state
        return is_allowed

    def _check_health(
        self, is_healthy: Callable[[Any], Any], report: Callable[[bool], None]
    ) -> None:
        problem = self._health_problem(is_healthy)
        if problem and self._enter(UNHEALTHY):
            logger.warning("The model is unhealthy: %s", problem)
            report(self.is_ready)
        elif not problem and self._state is UNHEALTHY and self._enter(READY):
            logger.warning("The model is healthy again")
            report(self.is_ready)

    def _health_problem(self, is_healthy: Callable[[Any], Any]) -> str:
        """Call is_healthy(). Return the reason why the model is unhealthy, or ""."""
        try:
            result = is_healthy(self.model)
            if result:  # an array has no truth value
                return ""
        except BaseException as error:  # includes SystemExit and panics of Rust extensions
            return describe_error(error)
        return f"is_healthy() returned {result}"
