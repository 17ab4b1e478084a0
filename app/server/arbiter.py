"""gunicorn's arbiter with a reload that keeps the old workers until new ones are ready."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from app.server.worker_state import Board

# Time between the failed start of a worker and the next try. The second applies if no worker is ready.
RETRY_SECONDS, URGENT_RETRY_SECONDS = 10, 1
STOP_SIGNALS = [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT]  # of the arbiter to a worker


class EndedEarly(HaltServer):
    """A worker ended before it was ready and reported no reason. Its model ended the process, or it was killed."""


class RollingArbiter(Arbiter):
    """Replaces workers only when new ones are ready. Halts only if no worker is ready or can become ready.

    gunicorn creates its arbiter itself, so take_over() turns a running one into this class. It overrides methods that
    gunicorn does not document.

    renewed_at: age up to which workers are to be replaced.
    failed_at: time.monotonic() of the last failed start.
    excused: workers that were ready or got a signal. Their end is not a failed start.
    stopped: process ids of the workers that got SIGTERM.
    """

    board: Board
    renewed_at, failed_at = 0, -math.inf
    has_served = has_failed = is_ending = False

    @classmethod
    def take_over(cls, server: Arbiter, board: Board, check: Callable[[], object]) -> None:
        """Turn `server` into a rolling arbiter. A reload does nothing if `check` raises: gunicorn would end."""
        server.__class__ = cls
        server.board, server.check = board, check
        server.excused, server.stopped = WeakSet(), set()

    def spawn_worker(self) -> None:
        """Start a worker, which gets signals when it calls accept_signals(). If that fails, the others continue."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            super().spawn_worker()
        except OSError as error:
            if os.getpid() != self.pid:
                raise
            self.log.error("a new worker cannot be started: %s", error)
            self.failed_at = time.monotonic()
        finally:
            accept_signals()

    def kill_worker(self, pid: int, sig: int) -> None:
        """Send a signal, but no second SIGTERM, which would interrupt the shutdown of the worker."""
        self.excused.add(self.WORKERS[pid])
        if sig != signal.SIGTERM or pid not in self.stopped:
            super().kill_worker(pid, sig)
        if sig == signal.SIGTERM and pid in self.WORKERS:
            self.stopped.add(pid)

    def check_exit(self, worker: Any) -> None:
        """Forget a worker that has ended. Raise EndedEarly if that is a failed start."""
        is_excused = worker.pid in self.find_ready() or worker in self.excused
        self.forget(worker.pid)
        if not is_excused and worker.age > self.renewed_at:
            raise EndedEarly("a worker ended before it was ready, and did not say why", self.WORKER_BOOT_ERROR)

    def forget(self, pid: int) -> None:
        self.board.forget(pid)
        self.stopped.discard(pid)

    def find_ready(self) -> set[int]:
        """Return the process ids of the workers that are ready, and remember them."""
        ready = self.board.ready()
        self.has_served |= bool(ready)
        self.excused.update(worker for pid, worker in self.WORKERS.items() if pid in ready)
        return ready

    def find_serving(self) -> set[int]:
        """Return the process ids of the workers that are ready and were not asked to stop."""
        return {pid for pid in self.find_ready() if pid in self.WORKERS and pid not in self.stopped}

    def reap_workers(self) -> None:
        """Reap ended workers. Only a failed start halts, and only if no worker is ready or can become ready."""
        while True:
            try:
                super().reap_workers()
                return
            except HaltServer as halt:
                # Workers that were ready or got SIGTERM only have the exit code of a failed start.
                excused = (self.board.ready() | self.stopped) - self.WORKERS.keys()
                for pid in excused:
                    self.forget(pid)
                if not excused:
                    self.handle_failed_start(halt)  # continue: one signal can stand for several workers
                elif not self.is_ending:
                    self.log_failures(self.board.hear())

    def handle_failed_start(self, halt: HaltServer) -> None:
        new = self.board.hear()
        if not self.board.reasons:
            new = self.board.reasons = [halt.reason]
        may_recover = self.has_served and (self.WORKERS or isinstance(halt, EndedEarly))
        if self.find_serving() or may_recover:
            self.log_failures(new)
            self.failed_at = time.monotonic()
            self.cancel_reload()
        elif not (self.board.is_stopping or self.has_failed):  # gunicorn would fail over a second halt in the first
            self.has_failed = True
            raise HaltServer(None, halt.exit_status) from None

    def log_failures(self, reasons: list[str]) -> None:
        then = "those that are ready stay" if self.find_serving() else "others are tried"
        for reason in reasons:
            self.log.error("a new worker cannot start, and %s: %s", then, reason)

    def reload(self) -> None:
        """Read the configuration again and replace all workers, without waiting for the old ones to end."""
        if self.reread():
            self.renew()

    def renew(self) -> None:
        """Replace all workers now. Stop the new ones of an unfinished reload first."""
        self.cancel_reload()
        self.renewed_at, self.failed_at = self.worker_age, -math.inf

    def cancel_reload(self) -> None:
        """Stop the new workers, so that all have the same model. If too few old ones serve, continue the reload."""
        new = {pid for pid, worker in self.WORKERS.items() if worker.age > self.renewed_at}
        if len(self.find_serving() - new) >= self.num_workers:
            for pid in new:
                self.kill_worker(pid, signal.SIGTERM)
            self.renewed_at = 0

    def reread(self) -> bool:
        """Read the configuration again, except for addresses. Return False if it is not valid."""
        try:
            self.check()
        except Exception as error:
            self.log.error("nothing is loaded again: %s", error)
            return False
        self.app.reload()
        self.setup(self.app)
        self.log.reopen_files()
        self.cfg.on_reload(self)
        return True

    def manage_workers(self) -> None:
        """Start missing workers. Stop old workers when the new ones are ready, or when one is and no old one is."""
        by_age = sorted(self.WORKERS.values(), key=lambda worker: worker.age)
        candidates = [worker for worker in by_age if worker.age > self.renewed_at and worker.pid not in self.stopped]
        newest = candidates[-self.num_workers :]
        new, ready = {worker.pid for worker in newest}, self.find_serving()
        old = self.WORKERS.keys() - new
        for pid in old - ready if old & ready else ():
            self.kill_worker(pid, signal.SIGTERM)  # a worker of an earlier reload need not become ready any more
        if len(newest) < self.num_workers:
            self.spawn_missing(self.num_workers - len(newest), bool(ready))
        elif not old:
            super().manage_workers()
        elif new <= ready or (new & ready and not old & ready):  # gunicorn's method would count stopped workers
            for pid in old & self.WORKERS.keys():
                self.kill_worker(pid, signal.SIGTERM)

    def spawn_missing(self, count: int, is_served: bool) -> None:
        if time.monotonic() < self.failed_at + (RETRY_SECONDS if is_served else URGENT_RETRY_SECONDS):
            return
        self.board.let_tell()
        for _ in range(count):
            self.spawn_worker()

    def stop(self, graceful: bool = True) -> None:
        """Stop the workers. They know that the whole service stops, unless another master (USR2) has the sockets."""
        self.is_ending = True
        is_second_master = self.master_pid and self.master_pid == os.getppid()
        if not (self.reexec_pid or is_second_master):
            self.board.show_stop()
        super().stop(graceful)

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Stop. The last lines of the log are the reasons of a failed start."""
        try:
            super().halt(reason, exit_status)
        finally:
            self.board.hear()
            for each in self.board.reasons if self.has_failed else ():
                self.log.critical("cannot start: %s", each)


def accept_signals() -> None:
    """Deliver the stop signals that spawn_worker() held back. A worker class calls this when it handles them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
