"""What gunicorn's master does otherwise: old workers stay until new ones are ready, and a failure is told once."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from app.board import Board
from app.config import read_settings
from app.errors import SetupError

# Between a worker that cannot start and the next try.
REST_SECONDS = 10
# The same where nobody serves.
HASTE_SECONDS = 1
# What the master sends to its workers.
STOPS = [signal.SIGTERM, signal.SIGQUIT, signal.SIGINT]


def look_after(server: Arbiter, board: Board) -> None:
    """Puts these in the place of the master's own ways."""
    server.spawn_worker = spawning(server, board)
    server.kill_worker = dismissing(server, board)
    server.reap_workers = reaping(server, board)
    server.manage_workers = managing(server, board)
    server.reload = reloading(server, board)
    server.stop = stopping(server, board)


class EndedEarly(HaltServer):
    """A worker has ended that never was ready, and not by its own account: its model took it down, or it was killed."""

    def __init__(self) -> None:
        super().__init__("a worker ended before it was ready, and did not say why", Arbiter.WORKER_BOOT_ERROR)


def took_leave(worker: Any, board: Board) -> None:
    """To be told of each worker that has ended; raises EndedEarly."""
    if not board.forget(worker.pid) and worker.age > board.renewed_at:
        raise EndedEarly


def spawning(server: Arbiter, board: Board):  # type: ignore[no-untyped-def]
    """spawn_worker(), whose worker gets no signal before it can take one: call listen() there.

    Where the system makes no more processes, or files, those that there are go on.
    """
    spawn = server.spawn_worker

    def spawn_worker() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            spawn()
        except OSError as error:
            if os.getpid() != server.pid:
                raise
            server.log.error("a new worker cannot be started: %s", error)
            board.failed_at = time.monotonic()
        finally:
            listen()

    return spawn_worker


def dismissing(server: Arbiter, board: Board):  # type: ignore[no-untyped-def]
    """kill_worker(), of whose end nobody asks."""
    kill = server.kill_worker

    def kill_worker(pid: int, number: int) -> None:
        board.excused.add(pid)
        kill(pid, number)

    return kill_worker


def listen() -> None:
    """Lets in the signals that were kept off."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def reaping(server: Arbiter, board: Board):  # type: ignore[no-untyped-def]
    """reap_workers(), to which a worker that cannot start is the end only where no other is ready, nor may become so.

    Where one cannot, gunicorn halts, and where another cannot either it would fail over its own halt.
    """
    reap, halts = server.reap_workers, []

    def reap_workers() -> None:
        while True:
            try:
                return reap()
            except HaltServer as halt:
                ended = board.ready() - server.WORKERS.keys()
                for pid in ended:  # it was ready, and ended by the code of one that cannot start
                    board.forget(pid)
                if ended:
                    continue
                new, ready = board.hear(), board.look()
                if not board.reasons:
                    new = board.reasons = [halt.reason]
                if ready or (board.has_served and (server.WORKERS or isinstance(halt, EndedEarly))):
                    then = "those that are ready stay" if ready else "others are tried"
                    for reason in new:
                        server.log.error("a new worker cannot start, and %s: %s", then, reason)
                    board.failed_at = time.monotonic()
                    if any(worker.pid in ready and worker.age <= board.renewed_at for worker in by_age(server)):
                        board.renewed_at = 0
                elif not board.is_stopping:
                    halts.append(halt)
                    if len(halts) == 1:
                        board.has_failed = True
                        raise HaltServer(None, halt.exit_status) from None

    return reap_workers


def reread(server: Arbiter) -> bool:
    """gunicorn's reload() as far as the configuration goes: it spawns no workers, and waits for none to end.

    False where a file that the settings name will not do, which would end the master: all stays as it is.
    """
    try:
        read_settings()
    except SetupError as error:
        server.log.error("nothing is loaded again: %s", error)
        return False
    manage, spawn, patience = server.manage_workers, server.spawn_worker, []

    def hasten() -> None:
        patience.append(server.cfg.graceful_timeout)
        server.cfg.set("graceful_timeout", 0)

    server.manage_workers, server.spawn_worker = hasten, lambda: None
    try:
        Arbiter.reload(server)
    finally:
        server.manage_workers, server.spawn_worker = manage, spawn
        for seconds in patience:
            server.cfg.set("graceful_timeout", seconds)
    return True


def reloading(server: Arbiter, board: Board):  # type: ignore[no-untyped-def]
    """reload(), which has all workers replaced, and the master not deaf meanwhile."""

    def reload() -> None:
        if reread(server):
            board.renew(server.worker_age)

    return reload


def stopping(server: Arbiter, board: Board):  # type: ignore[no-untyped-def]
    """stop(), of which the workers are told, unless another master (USR2) has the sockets: then others are there."""
    stop = server.stop

    def stop_all(graceful: bool = True) -> None:
        is_heir = server.master_pid and server.master_pid == os.getppid()
        if not (server.reexec_pid or is_heir):
            board.show_stop()
        stop(graceful)

    return stop_all


def managing(server: Arbiter, board: Board):  # type: ignore[no-untyped-def]
    """manage_workers(), which ends old workers only when the new ones are ready, or one is and of the old ones none."""
    manage = server.manage_workers
    told: set[int] = set()
    spared: set[int] = set()  # from a start that another came after

    def manage_workers() -> None:
        told.intersection_update(server.WORKERS)  # a new one may get the number of one that has gone
        spared.intersection_update(server.WORKERS)
        newest = [worker for worker in by_age(server) if worker.age > board.renewed_at][-server.num_workers :]
        ready, new = board.look(), {worker.pid for worker in newest}
        old = server.WORKERS.keys() - new
        for pid in old - ready - told - spared if old & ready else ():  # a later HUP came before it was ready
            spared.add(pid)
            server.kill_worker(pid, signal.SIGTERM)
        if len(newest) < server.num_workers:
            if time.monotonic() < board.failed_at + (REST_SECONDS if ready else HASTE_SECONDS):
                return
            board.let_tell()
            begun = time.monotonic()
            for _ in range(server.num_workers - len(newest)):
                if board.failed_at < begun:
                    server.spawn_worker()
        elif not old or (not old <= told and (new <= ready or (new & ready and not old & ready))):
            told.update(old)  # a second SIGTERM would meet a worker on its way out
            manage()

    return manage_workers


def by_age(server: Arbiter) -> list[Any]:
    """The workers, the oldest first."""
    return sorted(server.WORKERS.values(), key=lambda worker: worker.age)
