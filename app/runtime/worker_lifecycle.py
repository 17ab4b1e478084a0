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

from app.config.cgroups import read_limits
from app.config.resources import freeze_objects, memory_for_requests
from app.config.settings import Settings
from app.inference.call import Call
from app.inference.startup_errors import describe_error
from app.observability.access_log import AccessLog
from app.observability.log import handler
from app.observability.observer_queue import Observer
from app.runtime.memory_release import MemoryRelease
from app.runtime.worker_exit import fail_start
from app.server.interfaces import ServerOptions
from app.server.shared_state import READY, STOPPING, STUCK, SharedState
from app.version import SERVICE_NAME

if TYPE_CHECKING:
    from flask import Flask

    from app.service import Service

# In MiB. With less memory for requests, the service cannot do much.
MIN_REQUEST_MEMORY = 64
MIB = 2**20

logger = logging.getLogger(__name__)


class WorkerLifecycle:
    """Starts and stops both protocols in a worker.

    accept: makes the HTTP server accept connections
    grpc: the gRPC server, from open() on
    closing: the thread that closes the gRPC server, from on_drain_end() on
    """

    def __init__(
        self,
        app: Flask,
        server: Worker,
        settings: Settings,
        shared: SharedState,
        accept: Callable[[], None],
    ):
        self.app = app
        self.server = server
        self.settings = settings
        self.shared = shared
        self.accept = accept
        self.service: Service = app.extensions["service"]
        self.grpc: Any = None
        self.closing: threading.Thread | None = None

    @property
    def options(self) -> ServerOptions:
        return ServerOptions(
            server_name=SERVICE_NAME,
            max_body_bytes=self.settings.max_request_bytes,
            max_body_setting="MAX_REQUEST_BYTES",
            finish_seconds=self.settings.shutdown_timeout_seconds,
        )

    def start(self) -> None:
        """Load the model in a thread. If no other process serves, accept probes immediately."""
        if self.settings.predict_timeout_seconds:
            # gunicorn sends SIGABRT to a worker without a heartbeat. This logs its stacks.
            faulthandler.enable()
        self.service.start_observers(*self._observers())
        is_upgrade = "GUNICORN_PID" in os.environ  # gunicorn's USR2: old workers serve
        others_serve = self.shared.has_ready() or is_upgrade
        if not others_serve:
            self.open()
        threading.Thread(target=self.load, name="load", daemon=True).start()

    def _observers(self) -> list[Observer]:
        """Return the observers of completed calls, in addition to metrics, statistics and spans."""
        has_running_calls = self.service.pipeline.has_running_calls
        observers: list[Observer] = [
            AccessLog(self.settings.log_format),
            MemoryRelease(has_running_calls),
        ]
        if self.settings.predict_timeout_seconds:
            observers.append(self.replace_if_stuck)
        if self.settings.capture_dir:
            # It imports prometheus_client, for which the directory of its files must be set.
            from app.observability.capture import Capture

            observers.append(Capture(self.settings))
        return observers

    def load(self) -> None:
        """Load the model, warm it up and accept connections."""
        with self.exit_on_error("load()"):
            self.service.model.load()
        with self.exit_on_error("Warm-up"):
            self.service.model.warm_up()
        freeze_objects()
        self.limit_memory()
        if self.server.alive:
            self.open()
            self.mark_ready()
            self.service.start_health_check(self.grpc.report_ready)

    def limit_memory(self) -> None:
        """Limit the memory for requests, if that of all workers is limited.

        Call this when the model has taken its memory.
        """
        limit = self.settings.memory_limit_bytes or read_limits().memory_bytes
        if limit is None:
            return
        size = memory_for_requests(limit, self.settings.workers)
        report = logger.info if size >= MIN_REQUEST_MEMORY * MIB else logger.warning
        report(
            "Requests of this worker can use %d MiB. The limit of all workers is %d MiB",
            size // MIB,
            limit // MIB,
        )
        self.service.pipeline.memory.set_total(size)

    @property
    def transfer_bytes(self) -> float:
        return self.service.pipeline.memory.transfer_bytes

    @contextmanager
    def exit_on_error(self, step: str) -> Iterator[None]:
        """End this worker if the body of the `with` statement raises an exception."""
        try:
            yield
        except BaseException as error:  # includes SystemExit and panics of Rust extensions
            if self.shared.has_ready():
                consequence = "Keeping the current workers. Fix the error and send SIGHUP again"
            else:
                consequence = "The service does not start"
            # gunicorn calls child_exit only after a successful start, so nothing else corrects the
            # number of workers.
            self.service.metrics.workers.set(0)
            fail_start(
                self.shared,
                error,
                problem=f"{step} failed. {consequence}",
                reason=f"{step} failed: {describe_error(error)}",
                status=Arbiter.WORKER_BOOT_ERROR,
            )

    def mark_ready(self) -> None:
        self.shared.set_state(self.server.age, READY)
        logger.info("Worker %d is ready", os.getpid())
        with suppress(OSError):  # the master has exited
            os.kill(self.server.ppid, signal.SIGCHLD)  # wake the master, which stops old workers
        if self.server.age == 1:  # the first worker
            print_startup_message(self.service, "page" in self.app.blueprints)

    def replace_if_stuck(self, calls: list[Call]) -> None:
        """If a call of predict() is stuck, let the master replace this worker.

        It is an observer, because those are called regularly. It does not need the calls.
        """
        is_serving = self.shared.state(self.server.age) < STUCK
        if not is_serving or not self.service.pipeline.has_stuck_call:
            return

        logger.warning("Replacing worker %d, because a call of predict() is stuck", os.getpid())
        # RollingArbiter checks the states each second, and starts a new worker before it stops this
        # one. gunicorn's own master starts one when this worker has exited.
        self.shared.set_state(self.server.age, STUCK)
        if not self.settings.is_enabled("rolling_reload"):
            os.kill(os.getpid(), signal.SIGTERM)

    def open(self) -> None:
        """Start the gRPC server, and accept connections of both protocols."""
        with self.exit_on_error("Opening the ports"):
            if self.grpc is None:
                self.grpc = self.service.make_grpc_server()
                self.grpc.start()
            self.grpc.report_ready(self.service.is_ready)
            self.accept()

    def on_stop(self) -> float:
        """Return the duration of the drain in seconds.

        If the whole service stops, report "not ready".
        """
        self.shared.set_state(self.server.age, STOPPING)
        is_service_stopping = self.shared.wait_for_stop()
        if not is_service_stopping:
            return 0  # other workers serve

        self.service.model.stop()
        if self.grpc:
            self.grpc.report_stopping()
        if not self.service.model.accepts_requests:
            return 0  # no client expects responses from a service that was never ready
        return self.settings.shutdown_delay_seconds

    def on_drain_end(self) -> None:
        """Reject new gRPC calls. Running calls finish in parallel with REST requests."""
        if self.grpc:
            self.closing = threading.Thread(
                target=self.grpc.close, args=(self.settings.shutdown_timeout_seconds,)
            )
            self.closing.start()

    def is_closing(self) -> bool:
        return self.closing is not None and self.closing.is_alive()

    def accepts_head(self, environ: dict[str, Any]) -> bool:
        return self.service.accepts_head(environ)

    def should_accept(self) -> bool:
        return self.service.model.accepts_requests or not self.shared.has_ready()

    def is_service_stopping(self) -> bool:
        return self.shared.is_stopping

    def close(self) -> None:
        """Finish running calls, and write the last metrics, log lines and spans.

        gunicorn's own workers have no callbacks for the steps of the stop, so this method does what
        is missing.
        """
        if self.closing is None:
            self.on_stop()
            self.on_drain_end()
        if self.closing:
            self.closing.join()
        self.service.close()
        handler.flush()


def print_startup_message(service: Service, has_page: bool) -> None:
    """Print the addresses, the process id and an example command.

    With LOG_FORMAT=json, log the addresses.
    """
    from app.inference.example import curl_command

    settings = service.settings
    metadata = service.info.metadata
    here = settings.with_local_host()
    addresses = {"REST": f"{here.url}/v2", "gRPC": here.address(settings.grpc_port)}
    if has_page:
        addresses["Page"] = f"{here.url}/"
    if settings.log_format == "json":
        extra = {f"{name.lower()}_address": address for name, address in addresses.items()}
        logger.info("%s %s is ready", metadata.name, metadata.version, extra=extra)
        return
    command = curl_command(
        service.info.example(), f"{here.url}/v2/models/{quote(metadata.name)}", settings
    )
    lines = [f"  {metadata.name} {metadata.version} is ready"]
    lines += [f"    {name}  {address}" for name, address in addresses.items()]
    if settings.is_local:
        lines.append("    Host  only this machine can connect. HOST=0.0.0.0 accepts others")
    lines.append(f"    PID   {os.getppid()}: HUP loads the model again, TERM stops the service")
    lines += ["", "  Try it:", f"    {command}"]
    # One write, because other workers may write log messages at the same time.
    sys.stdout.write("\n" + "\n".join(lines) + "\n\n")
    sys.stdout.flush()
