"""PRELOAD_MODEL: the master loads the model before it forks workers, so that they share the model's memory."""

import atexit
import gc
import logging
import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from gunicorn.errors import HaltServer

from app.inference.startup_errors import describe_error, exc_info_of
from app.protocol.errors import ConfigurationError
from app.runtime.deferred_load import is_load_deferred
from app.server.arbiter import RollingArbiter


class PreloadingArbiter(RollingArbiter):
    """Loads the model in a thread, while the master handles signals and one worker responds to probes."""

    plane: Any = None
    loading: threading.Thread | None = None
    error: BaseException | None = None
    needs_load = True
    exit_status: int | None = None  # set when this process, the master or a worker, exits

    def manage_workers(self) -> None:
        if not self.worker_age:  # before the first fork
            is_load_deferred.set(True)
            atexit.register(
                self.exit
            )  # called last, because the model registers its functions later
            with suppress(BaseException):  # the worker fails in the same way and reports it
                self.plane = self.app.wsgi().extensions["service"].plane
            super().spawn_worker()
            self.renewed_at = self.worker_age  # replaced when the model is loaded
        if self.loading and not self.loading.is_alive():
            self.finish_loading(self.loading)
        if self.needs_load and self.plane and not self.loading:
            self.needs_load = False
            self.loading = threading.Thread(target=self.load, name="load", daemon=True)
            self.loading.start()
        super().manage_workers()

    def spawn_worker(self) -> None:
        """Fork a worker, except during a load. The worker would wait forever for the OpenMP threads of the load."""
        if self.loading is None:
            super().spawn_worker()
            if self.worker_age == self.renewed_at + 1:  # the first worker since the load
                self.warn_about_threads()

    def warn_about_threads(self) -> None:
        """Log the native threads that remain after a fork. Some libraries, such as OpenBLAS, end theirs before it."""
        own = {str(thread.native_id) for thread in threading.enumerate()}
        with suppress(OSError):  # a thread has ended, or the system has no /proc
            files = [
                task / "comm" for task in Path("/proc/self/task").iterdir() if task.name not in own
            ]
            if names := {file.read_text().strip() for file in files} - {
                "jemalloc_bg_thd"
            }:  # restarted after a fork
                remedy = "If workers need them, set PRELOAD_MODEL=off. For onnxruntime, set ORT_DISABLE_TELEMETRY=1"
                self.log.warning(
                    "Native threads only in the master: %s. %s", ", ".join(sorted(names)), remedy
                )

    def load(self) -> None:
        self.error = None
        try:
            self.plane.load()
            if (torch := sys.modules.get("torch")) and torch.cuda.is_initialized():
                raise ConfigurationError(
                    "CUDA is initialized, but fails after a fork. Set PRELOAD_MODEL=off."
                )
            gc.unfreeze()  # so that a previous model is collected before the next fork
        except BaseException as error:
            self.error = error
        self.wakeup()

    def finish_loading(self, thread: threading.Thread) -> None:
        """Replace the workers if load() succeeded. If the first load() failed, raise HaltServer."""
        while os.path.isdir(
            f"/proc/self/task/{thread.native_id}"
        ):  # the kernel thread ends after the Python thread
            time.sleep(0.001)
        self.loading = None
        self.reap_workers()
        if self.error is None:
            self.replace_workers()
            return
        then = "Keeping the current workers" if self.has_served else "The service does not start"
        problem = describe_error(self.error)
        self.log.error("load() failed: %s. %s", problem, then, exc_info=exc_info_of(self.error))
        if not self.has_served:
            self.has_failed, self.shared.reason = True, f"load() failed: {problem}"
            raise HaltServer(None, self.WORKER_BOOT_ERROR)

    def reload(self) -> None:
        """Schedule another load, which starts after a running one. The code is not imported again."""
        self.needs_load |= self.read_config()

    def reap_workers(self) -> None:
        """Do nothing during a load: gunicorn's method also reaps child processes that load() may wait for."""
        if self.loading is None or self.is_ending:
            super().reap_workers()

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Halt without waiting for the model's threads. A load could crash while the interpreter shuts down."""
        self.exit_status = exit_status
        try:
            super().halt(reason, exit_status)
        finally:
            if threading.active_count() > 1:
                self.exit()

    def exit(self) -> None:
        """Exit without native destructors. They could wait for a thread, which no longer exists after a fork."""
        if self.exit_status is not None:
            sys.stdout.flush()
            logging.shutdown()
            os._exit(self.exit_status)
