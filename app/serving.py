"""A worker's life: it loads the model while it answers probes, opens its doors, and closes them in order."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gunicorn.arbiter import Arbiter

from app.board import Board
from app.config import Settings
from app.dataplane import DataPlane
from app.failure import reason, shown
from app.worker import Worker

logger = logging.getLogger(__name__)

# What a thread that is no daemon, which Python would wait for, has left to end by itself.
THREAD_SECONDS = 1.0


class Serving:
    """Both protocols of `worker`, on one data plane; `make_grpc` makes the server of the other.

    `on_ready` is called when the model is loaded.
    """

    def __init__(
        self,
        worker: Worker,
        plane: DataPlane,
        settings: Settings,
        board: Board,
        make_grpc: Callable[[], Any],
        on_ready: Callable[[], Any],
    ):
        self.worker, self.plane, self.settings, self.board = worker, plane, settings, board
        self.make_grpc, self.on_ready = make_grpc, on_ready
        self.grpc: Any = None
        self.opening = threading.Lock()
        plane.admission.step_aside = worker.crew.step_aside
        worker.drain_seconds, worker.finish_seconds = settings.drain_seconds, settings.graceful_timeout
        worker.before_stop, worker.before_close, worker.is_closing = self.leave, self.refuse, self.is_closing
        worker.is_last = lambda: board.is_stopping
        worker.is_needed = lambda: plane.is_warm or not board.ready()
        self.closing: threading.Thread | None = None

    def start(self) -> None:
        """Loads the model beside the worker's own work; until then probes are told, while no other worker is ready.

        With PRELOAD a worker that has no model is there to answer probes while the master loads it.
        """
        if not self.board.ready():
            self.open()
        if self.plane.is_loaded or not self.settings.preload:
            threading.Thread(target=self.load, name="load", daemon=True).start()

    def load(self) -> None:
        """Loads, unless the master has, warms up and takes connections; what fails of it is the worker's end."""
        step = "load()"
        try:
            if not self.plane.is_loaded:  # by the master
                begun = time.monotonic()
                self.plane.load()
                logger.info("the model was loaded in %.1f s", time.monotonic() - begun)
            step = "the warm-up"
            self.plane.warm_up()
            step = "opening the ports"
            if self.worker.alive:
                self.open()
        except BaseException as error:
            failed = f"{step} failed"
            stay = "those that are ready stay; mend it, and send HUP again"
            then = stay if self.board.ready() else "the service does not start"
            self.board.report(f"{failed}: {reason(error)}")
            if (exc_info := shown(error)) and self.board.may_tell():
                logger.error("%s, and %s", failed, then, exc_info=exc_info)
            logging.shutdown()
            os._exit(Arbiter.WORKER_BOOT_ERROR)
        if self.worker.alive:
            self.board.show(self.worker.age, True)
            logger.info("worker %d is ready", os.getpid())
            with suppress(OSError):
                os.kill(self.worker.ppid, signal.SIGCHLD)  # the master looks who can go
            self.on_ready()

    def open(self) -> None:
        """Takes connections; gRPC has a port of its own."""
        with self.opening:
            if self.grpc is None:
                self.grpc = self.make_grpc()
                self.grpc.start()
            self.grpc.show_ready(self.plane.ready)
            self.worker.open_doors()

    def leave(self) -> None:
        """Says that the service is not ready any more, where it is all of it that stops, and still answers."""
        self.board.show(self.worker.age, False)
        if not (self.board.is_stopping and self.plane.is_loaded):
            self.worker.drain_seconds = 0  # others are there, or nobody was served yet
        if self.board.is_stopping:
            self.plane.is_stopping = True
            if self.grpc:
                self.grpc.leave()

    def refuse(self) -> None:
        """Takes no new calls of gRPC, whose connections end beside REST's."""
        if self.grpc and self.closing is None:
            self.closing = threading.Thread(target=self.grpc.close, args=(self.settings.graceful_timeout,))
            self.closing.start()

    def is_closing(self) -> bool:
        return self.closing is not None and self.closing.is_alive()

    def close(self) -> None:
        """Waits for what runs; reached by every way out that a worker has."""
        self.leave()
        self.refuse()
        if self.closing:
            self.closing.join()

    def end_soon(self, status: Any) -> None:
        """Sees to it that the process, which is ending, does, whatever threads of the model's own still run."""

        def end() -> None:
            logger.warning("threads that the model has started still run, and end with the worker")
            logging.shutdown()
            os._exit(status if isinstance(status, int) else 0)

        timer = threading.Timer(THREAD_SECONDS, end)
        timer.daemon = True
        timer.start()
