"""Lifecycle of a worker: model load, readiness and graceful shutdown."""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gunicorn.arbiter import Arbiter
from gunicorn.workers.base import Worker

from app.config.settings import Settings
from app.inference.call import Call
from app.inference.startup_errors import describe_error, exc_info_of
from app.observability.access_log import AccessLog
from app.observability.log import handler
from app.observability.observer_queue import Observer
from app.server.shared_state import READY, STOPPING, STUCK, SharedState
from app.version import SERVICE_NAME

if TYPE_CHECKING:
    from flask import Flask

    from app.service import Service

logger = logging.getLogger(__name__)


class WorkerLifecycle:
    """Starts and stops both protocols in a worker. `accept` makes the HTTP server accept connections."""

    max_body_setting = "MAX_REQUEST_BYTES"

    def __init__(
        self,
        app: Flask,
        server: Worker,
        settings: Settings,
        shared: SharedState,
        accept: Callable[[], None],
    ):
        self.app, self.server, self.settings, self.shared, self.accept = (
            app,
            server,
            settings,
            shared,
            accept,
        )
        self.service: Service = app.extensions["service"]
        self.server_name = SERVICE_NAME
        self.max_body_bytes = settings.max_request_bytes
        self.drain_seconds, self.finish_seconds = (
            settings.shutdown_delay_seconds,
            settings.shutdown_timeout_seconds,
        )
        self.grpc: Any = None
        self.closing: threading.Thread | None = None

    def start(self) -> None:
        """Load the model in a thread. If no worker is ready, accept probes immediately."""
        observers: list[Observer] = [AccessLog(self.settings.log_format)]
        if self.settings.predict_timeout_seconds:
            faulthandler.enable()  # gunicorn sends SIGABRT to a worker without a heartbeat
            observers.append(self.replace_if_stuck)
        if self.settings.capture_dir:
            from app.observability.capture import (
                Capture,
            )  # imports prometheus_client, which must follow its directory

            observers.append(Capture(self.settings))
        self.service.start_observers(*observers)
        if (
            not self.shared.has_ready() and "GUNICORN_PID" not in os.environ
        ):  # in an upgrade (USR2), old workers serve
            self.open()
        threading.Thread(target=self.load, name="load", daemon=True).start()

    def load(self) -> None:
        """Load the model, warm it up and accept connections."""
        with self.exit_on_error("load()"):
            self.service.model.load()
        with self.exit_on_error("Warm-up"):
            self.service.model.warm_up()
        if self.server.alive:
            self.open()
            self.mark_ready()
            self.service.start_health_check(self.grpc.report_ready)

    @contextmanager
    def exit_on_error(self, step: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            keeping = "Keeping the current workers. Fix the error and send SIGHUP again"
            problem = f"{step} failed. {keeping if self.shared.has_ready() else 'The service does not start'}"
            self.service.metrics.workers.set(
                0
            )  # gunicorn calls child_exit only after a successful start
            cause = f"{step} failed: {describe_error(error)}"
            self.shared.exit_worker(problem, cause, exc_info_of(error), Arbiter.WORKER_BOOT_ERROR)

    def mark_ready(self) -> None:
        self.shared.set_state(self.server.age, READY)
        logger.info("Worker %d is ready", os.getpid())
        with suppress(OSError):  # the master has exited
            os.kill(self.server.ppid, signal.SIGCHLD)  # wake the master, which stops old workers
        if self.server.age == 1:  # the first worker
            print_startup_message(self.service, "page" in self.app.blueprints)

    def replace_if_stuck(self, calls: list[Call]) -> None:
        """If a call of predict() is stuck, let the master replace this worker. It checks the states each second."""
        if self.service.pipeline.has_stuck_call and self.shared.state(self.server.age) < STUCK:
            logger.warning("Replacing worker %d, because a call of predict() is stuck", os.getpid())
            self.shared.set_state(self.server.age, STUCK)
            if "rolling_reload" in self.settings.disable_optimizations:
                os.kill(
                    os.getpid(), signal.SIGTERM
                )  # gunicorn's own master starts a worker when this one has exited

    def open(self) -> None:
        """Start the gRPC server, and accept connections of both protocols."""
        with self.exit_on_error("Opening the ports"):
            if self.grpc is None:
                self.grpc = self.service.make_grpc_server()
                self.grpc.start()
            self.grpc.report_ready(self.service.is_ready)
            self.accept()

    def on_stop(self) -> None:
        """If the whole service stops, report "not ready". Requests are still accepted."""
        self.shared.set_state(self.server.age, STOPPING)
        is_stopping = self.shared.wait_for_stop()
        if is_stopping:
            self.service.model.stop()
        if not (is_stopping and self.service.model.accepts_requests):
            self.drain_seconds = 0  # other workers serve, or this service was never ready
        if is_stopping and self.grpc:
            self.grpc.report_stopping()

    def on_drain_end(self) -> None:
        """Reject new gRPC calls. Running calls finish in parallel with REST requests."""
        if self.grpc:
            self.closing = threading.Thread(
                target=self.grpc.close, args=(self.settings.shutdown_timeout_seconds,)
            )
            self.closing.start()

    def is_closing(self) -> bool:
        return self.closing is not None and self.closing.is_alive()

    def should_accept(self) -> bool:
        return self.service.model.accepts_requests or not self.shared.has_ready()

    def is_service_stopping(self) -> bool:
        return self.shared.is_stopping

    def close(self) -> None:
        """Finish running calls, and write the last metrics, log lines and spans."""
        if self.closing is None:
            self.on_stop()
            self.on_drain_end()
        if self.closing:
            self.closing.join()
        self.service.close()
        handler.flush()
        code = getattr(sys.exc_info()[1], "code", None)
        status = code if isinstance(code, int) else 0
        # Exit after one second, because Python would wait for running threads of the model.
        timer = threading.Timer(1, os._exit, [status])
        timer.daemon = True
        timer.start()


def print_startup_message(service: Service, has_page: bool) -> None:
    """Print the addresses, the process id and an example command. With LOG_FORMAT=json, log the addresses."""
    from app.inference.example import curl_command

    settings = service.settings
    metadata = service.info.metadata
    here = settings.with_local_host()
    addresses = {"REST": f"{here.url}/v2", "gRPC": here.address(settings.grpc_port)}
    addresses |= {"Page": f"{here.url}/"} if has_page else {}
    if settings.log_format == "json":
        extra = {f"{name.lower()}_address": address for name, address in addresses.items()}
        logger.info("%s %s is ready", metadata.name, metadata.version, extra=extra)
        return
    command = curl_command(
        service.info.example(), f"{here.url}/v2/models/{quote(metadata.name)}", settings
    )
    shown = {
        **addresses,
        "PID": f" {os.getppid()}: HUP loads the model again, TERM stops the service",
    }
    lines = "".join(f"\n    {name}  {text}" for name, text in shown.items())
    print(  # noqa: T201
        f"\n  {metadata.name} {metadata.version} is ready{lines}\n\n  Try it:\n    {command}\n",
        flush=True,
    )
