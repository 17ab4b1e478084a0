"""One load() for all workers, in the master and before it forks them, so that they share the memory of the model.

The master loads in a thread of its own, so that it goes on handling signals, and because OpenMP (libgomp) keeps the
threads that load() computes with for the thread that does: they end with it, where a worker forked beside them would
wait for them for ever. Nobody is forked while a model loads. One worker, forked before, answers probes until the
others are ready.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from app.board import Board
from app.dataplane import load_later
from app.failure import reason, shown
from app.master import reread

logger = logging.getLogger(__name__)

THREADS = "/proc/self/task"
# Threads that end with the one that started them do so within a moment.
ENDING_SECONDS = 0.3


class Job(threading.Thread):
    """Calls `work`, and then `on_end`; `error` is what `work` raised."""

    def __init__(self, work: Callable[[], Any], on_end: Callable[[], Any]):
        super().__init__(name="load", daemon=True)
        self.work, self.on_end = work, on_end
        self.error: BaseException | None = None
        self.is_done = False
        self.before = system_threads()

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.error = error
        self.is_done = True
        self.on_end()

    def end(self) -> None:
        """Waits until the system has ended the thread too, which takes a moment more than join() does."""
        self.join()
        while str(self.native_id) in system_threads():
            time.sleep(0.001)

    def left(self) -> int:
        """How many of the threads that `work` has started stay when it has ended."""
        end = time.monotonic() + ENDING_SECONDS
        while (left := system_threads() - self.before) and time.monotonic() < end:
            time.sleep(0.001)
        return len(left)


class Preload:
    """Puts itself in the place of what `server` does otherwise, once app.master looks after it."""

    def __init__(self, server: Arbiter, board: Board):
        self.server, self.board = server, board
        self.plane: Any = None
        self.job: Job | None = None
        self.then: Callable[[Job], None]
        self.loads_again = False
        self.manage, self.spawn, self.halt = server.manage_workers, server.spawn_worker, server.halt
        self.reap = server.reap_workers
        server.manage_workers, server.reap_workers = self.manage_workers, self.reap_workers
        server.halt, server.reload = self.halt_at_once, self.reload

    def manage_workers(self) -> None:
        """Goes on when the thread has ended."""
        if self.plane is None and self.job is None:
            load_later()
            self.begin(self.server.app.wsgi, self.answer_probes)
        elif self.job and self.job.is_done:
            job, self.job = self.job, None
            job.end()
            self.server.spawn_worker = self.spawn
            self.reap()
            self.then(job)
        self.manage()

    def reap_workers(self) -> None:
        """Only where a worker has ended, while load() may be waiting for processes of its own: gunicorn takes any."""
        if self.job is None or any(map(has_ended, self.server.WORKERS)):
            self.reap()

    def begin(self, work: Callable[[], Any], then: Callable[[Job], None]) -> None:
        """Starts a thread; workers that have ended are replaced when it has too."""
        self.server.spawn_worker = lambda: None
        self.job, self.then = Job(work, self.server.wakeup), then
        self.job.start()

    def answer_probes(self, job: Job) -> None:
        """Has one worker do so, and loads, where the application could be imported."""
        if job.error:
            self.give_up("the application cannot be imported", job.error, reason(job.error), Arbiter.APP_LOAD_ERROR)
        self.plane = self.server.app.wsgi().extensions["data_plane"]
        self.server.spawn_worker()
        self.board.renewed_at = self.server.worker_age  # it is to be replaced, once there is a model
        self.begin(self.load, self.renew)

    def load(self) -> None:
        begun = time.monotonic()
        self.plane.load()
        gc.unfreeze()  # what an earlier model has left is collected, and the rest frozen, before the next fork
        logger.info("the model was loaded in %.1f s, for all workers", time.monotonic() - begun)

    def renew(self, job: Job) -> None:
        """Has new workers take over, where load() did not raise; where the first did, that is the end."""
        if not job.error:
            self.board.renew(self.server.worker_age)
            if left := job.left():
                logger.warning(
                    "load() left %d thread(s), which no worker has; a BLAS starts its own anew, but if predict() needs "
                    "others, set PRELOAD=off",
                    left,
                )
        elif self.plane.is_loaded:
            told = "load() failed, and the workers keep the model that they have: %s"
            logger.error(told, reason(job.error), exc_info=shown(job.error))
        else:
            why = f"load() failed: {reason(job.error)}"
            self.give_up("load() failed", job.error, why, Arbiter.WORKER_BOOT_ERROR)
        if self.loads_again:
            self.manage()
            self.reload()

    def give_up(self, what: str, error: BaseException, why: str, status: int) -> NoReturn:
        """Ends the service; the last line is `why`."""
        if exc_info := shown(error):
            logger.error("%s, and the service does not start", what, exc_info=exc_info)
        self.board.has_failed = True
        self.board.reasons.append(why)
        raise HaltServer(None, status)

    def reload(self) -> None:
        """Loads again, after what is being loaded now; the code is what was imported at the start."""
        self.loads_again = self.job is not None
        if not self.loads_again and reread(self.server):
            self.begin(self.load, self.renew)

    def halt_at_once(self, reason: str | None = None, exit_status: int = 0) -> None:
        """halt(), which a thread that is still loading cannot delay, nor crash as the interpreter ends."""
        try:
            self.halt(reason, exit_status)
        except SystemExit:
            if self.job:
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(exit_status)
            raise


def has_ended(pid: int) -> bool:
    """Whether that child has, and is not waited for yet; True where the system does not tell."""
    if not hasattr(os, "waitid"):
        return True
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def system_threads() -> set[str]:
    """The ids of this process's threads, where the system lists them."""
    return set(os.listdir(THREADS)) if os.path.isdir(THREADS) else set()
