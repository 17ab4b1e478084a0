"""gunicorn's arbiter with a rolling reload: old workers serve until new ones are ready."""

import math
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from app.server.shared_state import ENDED, READY, STARTING, STOPPING, STUCK, SharedState

# Time from the failed start of a worker to the next attempt.
RETRY_SECONDS = 10
URGENT_RETRY_SECONDS = 1  # if no worker is ready
# Signals that the arbiter sends to workers.
STOP_SIGNALS = [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT]


class RollingArbiter(Arbiter):
    """Stops old workers only when new ones are ready.

    Halts only if a start fails before any worker was ready.

    gunicorn creates its arbiter itself, so take_over() changes the class of a running one. This
    class overrides methods that gunicorn does not document.

    check: checks the configuration before a reload
    renewed_at: workers up to this age are replaced
    failed_at: time.monotonic() of the last failed start
    has_served: True after a worker was ready. From then on, the arbiter never halts by itself.
    has_failed: True if the service stops because it cannot start
    is_ending: True after stop()
    """

    shared: SharedState
    check: Callable[[], object]
    renewed_at = 0
    failed_at = -math.inf
    has_served = False
    has_failed = False
    is_ending = False

    @classmethod
    def take_over(cls, server: Arbiter, shared: SharedState, check: Callable[[], object]) -> None:
        """Turn `server` into a rolling arbiter.

        If `check` raises, it rejects a reload. gunicorn itself would exit.
        """
        server.__class__ = cls
        server.shared = shared
        server.check = check

    def spawn_worker(self) -> None:
        """Fork a worker, with stop signals blocked until it calls accept_signals().

        If the fork fails, retry later.
        """
        self.shared.set_state(self.worker_age + 1, STARTING)
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            super().spawn_worker()
        except OSError as error:
            if os.getpid() != self.pid:
                raise
            self.log.error("Cannot fork a worker: %s", error)
            self.failed_at = time.monotonic()
        finally:
            accept_signals()

    def kill_worker(self, pid: int, sig: int) -> None:
        """Send a signal to a worker, but no second SIGTERM, which would interrupt its stop."""
        age = self.WORKERS[pid].age
        if sig == signal.SIGTERM and self.shared.state(age) == STOPPING:
            return
        if sig != signal.SIGUSR1:
            self.shared.set_state(age, STOPPING)
        super().kill_worker(pid, sig)

    def _find_ready(self) -> set[int]:
        """Return the process ids of the workers that are ready and not stopping."""
        ready = set()
        for pid, worker in self.WORKERS.items():
            if self.shared.state(worker.age) in (READY, STUCK):
                ready.add(pid)
                self.has_served = True
        return ready

    def reap_workers(self) -> None:
        """Reap exited workers.

        gunicorn halts the service if a worker exits with status 3 (its boot failed) or 4 (its
        application failed), even if it was ready before. Instead, let handle_worker_exit() decide.
        """
        workers = dict(self.WORKERS)
        try:
            super().reap_workers()
        except HaltServer as halt:
            # gunicorn gives a reason. handle_worker_exit(), which it may have called for another
            # worker, gives none.
            is_decided = not halt.reason
            if is_decided:
                raise
            for pid in workers.keys() - self.WORKERS.keys():
                self.handle_worker_exit(workers[pid], halt.exit_status)
            # gunicorn stopped at this worker. One SIGCHLD can stand for several.
            self.reap_workers()

    def handle_worker_exit(self, worker: Any, status: int = Arbiter.WORKER_BOOT_ERROR) -> None:
        """Record the exit of a worker.

        If its start failed, retry, or halt if no worker was ever ready.
        """
        was_starting = self.shared.state(worker.age) == STARTING
        self.shared.set_state(worker.age, ENDED)
        if not was_starting or worker.age <= self.renewed_at:
            return  # it was ready, received a signal, or is being replaced

        consequence = "Keeping the current workers" if self._find_ready() else "Retrying"
        self.shared.record_failure("A worker ended before it was ready, without an error message")
        if self.has_served:
            self.log.error("New worker failed to start: %s. %s", self.shared.reason, consequence)
            self.failed_at = time.monotonic()
            self._cancel_reload()
        elif not self.is_ending:
            self.has_failed = True
            raise HaltServer(None, status)

    def reload(self) -> None:
        """Reload the configuration and replace all workers, without waiting for the old ones.

        Addresses stay the same. If the configuration is not valid, do nothing but log the error.
        """
        try:
            self.check()
        except Exception as error:
            self.log.error("Reload rejected: %s", error)
            return

        self.app.reload()
        self.setup(self.app)
        self.log.reopen_files()
        self.cfg.on_reload(self)

        self._cancel_reload()  # stops the new workers of an unfinished reload
        self.renewed_at = self.worker_age
        self.failed_at = -math.inf

    def _cancel_reload(self) -> None:
        """Stop the new workers, so that all have the same model.

        If too few old ones are ready, continue the reload.
        """
        new = {pid for pid, worker in self.WORKERS.items() if worker.age > self.renewed_at}
        ready_old = self._find_ready() - new
        if len(ready_old) < self.num_workers:
            return

        for pid in new:
            self.kill_worker(pid, signal.SIGTERM)
        self.renewed_at = 0

    def manage_workers(self) -> None:
        """Start missing workers.

        Stop old or stuck ones when all new ones are ready, or one is and no old one is.
        """
        running = []
        for worker in sorted(self.WORKERS.values(), key=lambda worker: worker.age):
            if self.shared.state(worker.age) < STOPPING:
                running.append(worker)

        current = []
        for worker in running:
            if worker.age > self.renewed_at and self.shared.state(worker.age) != STUCK:
                current.append(worker.pid)
        new = set(current[-self.num_workers :])
        old = {worker.pid for worker in running} - new

        ready = self._find_ready()
        all_are_ready = new <= ready
        only_new_are_ready = bool(new & ready) and not old & ready
        if len(new) < self.num_workers:
            self._spawn_missing(self.num_workers - len(new), is_urgent=not ready)
        elif all_are_ready or only_new_are_ready:
            for pid in old:
                self.kill_worker(pid, signal.SIGTERM)

        if len(self.WORKERS) == self.num_workers:
            super().manage_workers()  # logs metrics

    def _spawn_missing(self, count: int, *, is_urgent: bool) -> None:
        """Start `count` workers, unless the last start has failed too recently."""
        seconds = URGENT_RETRY_SECONDS if is_urgent else RETRY_SECONDS
        if time.monotonic() < self.failed_at + seconds:
            return

        self.shared.clear_failure()
        for _ in range(count):
            self.spawn_worker()

    def stop(self, graceful: bool = True) -> None:
        """Stop the workers.

        Record that the whole service stops, unless another master (USR2) has the sockets.
        """
        self.is_ending = True
        if not (self.reexec_pid or self.master_pid):
            self.shared.record_stop()
        super().stop(graceful)


def accept_signals() -> None:
    """Unblock the stop signals that spawn_worker() blocked.

    Workers call this when their handlers are installed.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
