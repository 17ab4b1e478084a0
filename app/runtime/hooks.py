"""The work of gunicorn.conf.py, in the master and in each worker."""

from __future__ import annotations

import gc
import logging
import os
import sys
from typing import Any, NoReturn

from gunicorn import glogging
from gunicorn.arbiter import Arbiter

from app.config.resources import configure_malloc, limit_library_threads, release_free_memory
from app.config.settings import Settings, find_warnings, read_settings
from app.inference.startup_errors import describe_error, exc_info_of
from app.observability import log
from app.observability.metric_files import create_directory, find_free_slot, remove_directory, take_slot, use_slots
from app.protocol.errors import ConfigurationError
from app.runtime.deferred_load import is_load_deferred
from app.runtime.lifecycle import ServiceLifecycle
from app.runtime.preload import PreloadingArbiter
from app.server.arbiter import RollingArbiter, accept_signals
from app.server.sockets import find_port_problem
from app.server.worker import Worker
from app.server.worker_state import ENDED, WorkerState

logger = logging.getLogger("app")

states = WorkerState()  # of this master and its workers


def configure() -> Settings:
    """Configure logging, metrics and CPU limits. Return the settings, or exit with status 1 if one is invalid."""
    log.configure()
    try:
        settings = read_settings()
        create_directory(settings.workers)
    except ConfigurationError as error:
        exit_with_error(str(error))
    log.configure(settings.log_format, settings.log_level)
    configure_malloc()
    limit_library_threads(settings.workers)
    return settings


def exit_with_error(problem: str) -> NoReturn:
    logger.critical("Cannot start: %s", problem)
    sys.exit(1)


class Logger(glogging.Logger):
    """Sends gunicorn's lines to our log, unless they go to a file of their own."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for target, file in ((self.error_log, cfg.errorlog), (self.access_log, cfg.accesslog)):
            target.propagate = file == "-"
            for handler in list(target.handlers) if target.propagate else ():
                target.removeHandler(handler)


class ServiceWorker(Worker):
    """Serves the application that create_app() returns."""

    def load_wsgi(self) -> None:
        """Import the application. If that fails, report the reason in one line and the owner's part of a traceback."""
        try:
            super().load_wsgi()
            self.lifecycle = ServiceLifecycle(self.wsgi, self, read_settings(), states, self.accept_connections)
        except BaseException as error:  # SystemExit of predict.py, or a panic of Rust
            problem = "Cannot import the application"
            states.exit_worker(problem, describe_error(error), exc_info_of(error), Arbiter.APP_LOAD_ERROR)


def prepare_master(server: Arbiter, settings: Settings) -> None:
    """Check what can be checked before the first fork, and take over gunicorn's arbiter."""
    for warning in find_warnings(settings):
        logger.warning(warning)
    if "metric_compaction" not in settings.disable_optimizations:
        use_slots()
    if "rolling_reload" not in settings.disable_optimizations:
        arbiter = PreloadingArbiter if settings.preload_model else RollingArbiter
        arbiter.take_over(server, states, read_settings)
    # Workers share GRPC_PORT by SO_REUSEPORT, and would share it with another program.
    problem = find_port_problem(settings.host, {"HTTP_PORT": settings.http_port, "GRPC_PORT": settings.grpc_port})
    if problem and "GUNICORN_PID" not in os.environ:  # set for an upgrade in place, where the old master has the ports
        exit_with_error(problem)


def prepare_fork(server: Arbiter, worker: Any) -> None:
    """Give a new worker a name for its metric files, and prepare the memory that it will share."""
    worker.slot = find_free_slot([other.slot for other in server.WORKERS.values()])
    gc.collect()
    release_free_memory()
    gc.freeze()  # otherwise the collector of each worker writes to the pages of these objects, and they are not shared


def prepare_worker(worker: Any) -> None:
    """Log and count in this process, and defer load(). Call this after the fork."""
    log.handler.start()
    take_slot(worker.slot)
    is_load_deferred.set(True)


def start_worker(worker: Any, settings: Settings) -> None:
    """Start the lifecycle of a worker. gunicorn's own workers always accept connections."""
    if not isinstance(worker, ServiceWorker):
        accept_signals()
        worker.lifecycle = ServiceLifecycle(worker.wsgi, worker, settings, states, lambda: None)
    worker.lifecycle.start()


def finish_worker(server: Arbiter, worker: Any) -> None:
    """Forget a worker that has ended. The rolling arbiter checks whether it ever was ready."""
    from prometheus_client.multiprocess import mark_process_dead

    for name in (worker.slot, worker.pid):  # by which its files are called, with and without compaction
        mark_process_dead(name)
    if isinstance(server, RollingArbiter):
        server.handle_worker_exit(worker)
    else:
        states.set_state(worker.age, ENDED)


def finish_master(server: Arbiter) -> None:
    remove_directory(server.pid)
    if states.reason and getattr(server, "has_failed", True):  # False: it ran, and was stopped
        logger.critical("Cannot start: %s", states.reason)
