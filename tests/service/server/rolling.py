"""A configuration of gunicorn that takes over the arbiter: `-c python:tests.service.server.rolling`.

gunicorn executes a file again at SIGHUP, but imports a module once. All workers need the same states.
"""

from __future__ import annotations

import os
import signal

from gunicorn.arbiter import Arbiter

from app.server.arbiter import RollingArbiter
from app.server.shared_state import READY, SharedState
from app.server.worker import Worker

workers = 2
shared = SharedState()


def on_starting(server: Arbiter) -> None:
    RollingArbiter.take_over(server, shared, lambda: None)


def post_worker_init(worker: Worker) -> None:
    shared.set_state(worker.age, READY)
    os.kill(worker.ppid, signal.SIGCHLD)  # the arbiter checks which workers can stop


def child_exit(server: RollingArbiter, worker: Worker) -> None:
    server.handle_worker_exit(worker)
