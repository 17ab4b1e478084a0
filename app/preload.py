"""PRELOAD: the master loads the model once, before it forks, so that all workers share the model's memory."""

from __future__ import annotations

import gc
import logging
import os
import threading
import time
from typing import Any, NoReturn

from gunicorn.errors import HaltServer

from app import is_load_deferred
from app.failure import reason, shown
from app.server.arbiter import RollingArbiter

logger = logging.getLogger(__name__)


class PreloadingArbiter(RollingArbiter):
    """Loads in a thread, so that the master still handles signals. One worker responds to probes until then.

    No worker is forked during a load. It would wait forever for threads of OpenMP, which end with that thread.
    """

    plane: Any = None
    loading: threading.Thread | None = None
    error: BaseException | None = None
    loads_again = False

    def manage_workers(self) -> None:
        if self.plane is None:
            self.import_application()
            super().spawn_worker()
            self.renewed_at = self.worker_age  # it is replaced when there is a model
            self.start_loading()
        elif self.loading and not self.loading.is_alive():
            self.finish_loading(self.loading)
        super().manage_workers()

    def spawn_worker(self) -> None:
        if self.loading is None:
            super().spawn_worker()

    def import_application(self) -> None:
        is_load_deferred.set(True)
        try:
            self.plane = self.app.wsgi().extensions["data_plane"]
        except BaseException as error:  # SystemExit of predict.py, or a panic of Rust
            self.give_up("the application cannot be imported", error, self.APP_LOAD_ERROR, reason(error))

    def start_loading(self) -> None:
        self.loading = threading.Thread(target=self.load, name="load", daemon=True)
        self.loading.start()

    def load(self) -> None:
        self.error = None
        try:
            self.plane.load()
            gc.unfreeze()  # an earlier model is collected before the next fork
            logger.info("the model was loaded in %.1f s, for all workers", self.plane.load_seconds)
        except BaseException as error:
            self.error = error
        self.wakeup()

    def finish_loading(self, thread: threading.Thread) -> None:
        """Replace the workers if load() did not raise. If the first load() did, the service does not start."""
        while os.path.isdir(f"/proc/self/task/{thread.native_id}"):  # the system ends it a moment after join()
            time.sleep(0.001)
        self.loading = None
        self.reap_workers()
        if not self.error:
            self.renew()
        elif self.plane.is_loaded:
            problem = f"load() failed, and the workers keep the model that they have: {reason(self.error)}"
            logger.error(problem, exc_info=shown(self.error))
        else:
            self.give_up("load() failed", self.error, self.WORKER_BOOT_ERROR, f"load() failed: {reason(self.error)}")
        if self.loads_again:
            super().manage_workers()
            self.reload()

    def give_up(self, problem: str, error: BaseException, status: int, text: str) -> NoReturn:
        if exc_info := shown(error):
            logger.error("%s, and the service does not start", problem, exc_info=exc_info)
        self.has_failed, self.board.reasons = True, [text]
        raise HaltServer(None, status)

    def reload(self) -> None:
        """Load the model again, after a load that runs now. The code stays as it was imported at the start."""
        self.loads_again = self.loading is not None
        if not self.loads_again and self.reread():
            self.start_loading()

    def reap_workers(self) -> None:
        """Reap after the load: gunicorn's method also reaps processes that load() may wait for."""
        if self.loading is None or self.is_ending:
            super().reap_workers()

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Halt without waiting for a load, which could crash as the interpreter ends."""
        try:
            super().halt(reason, exit_status)
        finally:
            if self.loading:
                logging.shutdown()
                os._exit(exit_status)
