"""The service's HTTP server in a thread of this process.

It is the worker of app/server, without gunicorn's master.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.sock import create_sockets

from app.runtime.gunicorn_hooks import Logger
from app.server.interfaces import ServerOptions
from app.server.worker import Worker
from app.version import SERVICE_NAME
from tests.kit.service import Service
from tests.kit.standalone import Lifecycle

START_SECONDS = 60


class Application(BaseApplication):
    """A service with the settings that gunicorn.conf.py passes to the worker."""

    def __init__(self, service: Service):
        self.service = service
        super().__init__()

    def load_config(self) -> None:
        settings = self.service.settings
        self.cfg.set("bind", "127.0.0.1:0")
        self.cfg.set("threads", settings.threads)
        self.cfg.set("keepalive", settings.keepalive_seconds)

    def load(self) -> Flask:
        return self.service.app


class ThreadWorker(Worker):
    """A worker in a thread. It handles no signals, because they belong to the main thread.

    is_stoppable: is set when the thread has opened the pipe that stop() writes to
    """

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self.is_stoppable = threading.Event()

    def init_signals(self) -> None:
        self.is_stoppable.set()  # gunicorn calls this method after it has opened the pipe

    def load_wsgi(self) -> None:
        super().load_wsgi()
        settings = self.app.service.settings
        options = ServerOptions(
            server_name=SERVICE_NAME,
            max_body_bytes=settings.max_request_bytes,
            max_body_setting="MAX_REQUEST_BYTES",
            finish_seconds=30,
        )
        self.lifecycle = Lifecycle(options)
        self.accept_connections()

    def stop(self) -> None:
        """Stop as after SIGTERM. The thread may have started just now."""
        assert self.is_stoppable.wait(START_SECONDS)
        self.alive = False
        _, wake_pipe = self.PIPE
        os.write(wake_pipe, b".")  # wakes the main loop

    def close(self) -> None:
        """Close the files of the worker, after its thread has ended."""
        self.tmp.close()
        for descriptor in self.PIPE:
            os.close(descriptor)


@contextmanager
def serve_http(service: Service) -> Iterator[int]:
    """Serve REST on a free port of 127.0.0.1 until the end of the `with` block. Yield the port."""
    application = Application(service)
    log = Logger(application.cfg)
    listeners = create_sockets(application.cfg, log)
    _, port = listeners[0].getsockname()
    worker = ThreadWorker(
        age=1,
        ppid=os.getppid(),
        sockets=listeners,
        app=application,
        timeout=30,
        cfg=application.cfg,
        log=log,
    )
    thread = threading.Thread(target=worker.init_process, name="http")
    thread.start()

    try:
        yield port
    finally:
        worker.stop()
        thread.join()
        worker.close()
