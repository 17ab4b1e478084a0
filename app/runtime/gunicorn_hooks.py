"""Implementation of gunicorn's server hooks, in the master and in each worker."""

import gc
import logging
import os
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NoReturn

from gunicorn import glogging
from gunicorn.arbiter import Arbiter

from app import runtime
from app.config.environment import log_environment
from app.config.resources import configure_malloc, limit_library_threads
from app.config.settings import Settings, read_settings
from app.inference.startup_errors import describe_error
from app.observability import log
from app.observability.metric_files import (
    create_directory,
    find_free_slot,
    remove_directory,
    take_slot,
    use_slots,
)
from app.protocol.errors import ConfigurationError
from app.runtime.worker_exit import end_process_within, fail_start, propagating_exit_status
from app.runtime.worker_lifecycle import WorkerLifecycle
from app.server.arbiter import RollingArbiter, accept_signals
from app.server.shared_state import ENDED, STUCK, SharedState
from app.server.sockets import find_port_problem
from app.server.worker import Worker

# Time for `atexit` callbacks of the model's libraries, and for its threads.
EXIT_SECONDS = 1

logger = logging.getLogger("app")

shared = SharedState()  # shared by this master and its workers


def configure() -> Settings:
    """Configure logging, metrics and CPU limits.

    Return the settings, or exit with status 1 if one is invalid.
    """
    log.configure()
    try:
        settings = read_settings()
        log.configure(settings.log_format, settings.log_level)
        create_directory(settings.workers)
    except ConfigurationError as error:
        exit_with_error(str(error))
    configure_malloc()
    limit_library_threads(settings.workers)
    return settings


def exit_with_error(problem: str) -> NoReturn:
    """Exit with status 1, because the service cannot start. Only in the master."""
    logger.critical("Cannot start: %s", problem)
    sys.exit(1)


def check_preload(server: Arbiter, *, is_start: bool) -> None:
    """Exit if gunicorn's option --preload is set at the start.

    Ignore it in a reload, which must not stop the service.

    Call this before gunicorn creates the application in the master. It would load the model there,
    and fork workers afterwards. A fork copies no threads, so models that use OpenMP, CUDA or
    threads of their own would hang or fail in the workers. gunicorn also keeps the application, so
    SIGHUP would not load the model again.
    """
    if not server.cfg.preload_app:
        return

    problem = (
        "not available, because the model must be loaded after the fork. Remove it. To share the"
        " memory of a model between workers, map its file in load()."
    )
    if is_start:
        exit_with_error(f"--preload (preload_app): {problem}")
    logger.error("Ignored --preload (preload_app): %s", problem)
    server.cfg.set("preload_app", False)


class Logger(glogging.Logger):
    """Passes gunicorn's records to the root logger, unless a file is configured for them."""

    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        _propagate_unless_file(self.error_log, cfg.errorlog)
        _propagate_unless_file(self.access_log, cfg.accesslog)


def _propagate_unless_file(target: logging.Logger, file: str | None) -> None:
    """Let a logger of gunicorn pass its records to the root logger, unless it has a file."""
    target.propagate = file == "-"
    if target.propagate:
        for handler in list(target.handlers):
            target.removeHandler(handler)


class ServiceWorker(Worker):
    """Serves the application that create_app() returns."""

    def load_wsgi(self) -> None:
        """Import the application.

        If that fails, log a one-line reason and the traceback from predict.py on.
        """
        try:
            super().load_wsgi()
            self.lifecycle = WorkerLifecycle(
                self.wsgi, self, read_settings(), shared, self.accept_connections
            )
            self.lifecycle.service.pipeline.memory.observe_transfers(
                lambda: self.connections.buffered_bytes
            )
        except BaseException as error:  # includes SystemExit and panics of Rust extensions
            fail_start(
                shared,
                error,
                problem="Cannot import the application",
                reason=describe_error(error),
                status=Arbiter.APP_LOAD_ERROR,
            )


def prepare_master(server: Arbiter, settings: Settings) -> None:
    """Log the environment, check the ports, and replace gunicorn's arbiter."""
    log_environment(settings)
    if "metric_compaction" not in settings.disable_optimizations:
        use_slots()
    if "rolling_reload" not in settings.disable_optimizations:
        RollingArbiter.take_over(server, shared, read_settings)
    # Workers share GRPC_PORT with SO_REUSEPORT, which would also allow another program on the port.
    problem = find_port_problem(
        settings.host, {"HTTP_PORT": settings.http_port, "GRPC_PORT": settings.grpc_port}
    )
    # gunicorn sets this variable in an upgrade (USR2), when the old master has the ports.
    is_upgrade = "GUNICORN_PID" in os.environ
    if problem and not is_upgrade:
        exit_with_error(problem)


def prepare_fork(server: Arbiter, worker: Any, settings: Settings) -> None:
    """Assign a slot for metric files and a device to a new worker, and prepare the memory for
    copy-on-write.
    """
    worker.slot = find_free_slot([other.slot for other in server.WORKERS.values()])
    worker.device = _find_free_device(server, settings.devices)
    gc.collect()
    # Otherwise, garbage collection in a worker writes to these objects, which copies their pages.
    gc.freeze()


def _find_free_device(server: Arbiter, devices: Sequence[str]) -> str | None:
    """Return the device with the fewest workers, or None without devices."""
    running = [worker for worker in server.WORKERS.values() if shared.state(worker.age) < STUCK]
    running.sort(key=lambda worker: worker.age, reverse=True)
    # A reload replaces the workers that are not among the newest ones.
    newest = running[: server.num_workers - 1]
    counts = Counter(worker.device for worker in newest)
    return min(devices, key=counts.__getitem__, default=None)


def prepare_worker(worker: Any) -> None:
    """Set up logging, metrics, the device and the environment of this process, a new worker.

    Call this after the fork.
    """
    log.handler.start()
    if worker.device:
        # Before the model's libraries are imported.
        os.environ["CUDA_VISIBLE_DEVICES"] = worker.device
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        logger.info("Worker %d uses device %s", os.getpid(), worker.device)
    take_slot(worker.slot)
    # gunicorn's setting for the whole server. Probes and the startup message do not know the
    # prefix, and log_environment() has said that it has no effect.
    os.environ.pop("SCRIPT_NAME", None)
    runtime.is_worker = True


def start_worker(worker: Any, settings: Settings) -> None:
    """Start the lifecycle of a worker, which loads the model.

    A ServiceWorker already has one, and accepts connections when the model is ready. gunicorn's own
    workers, such as gthread, accept connections from the start, so there is nothing to do then.
    """
    if not isinstance(worker, ServiceWorker):
        accept_signals()
        worker.lifecycle = WorkerLifecycle(
            worker.wsgi, worker, settings, shared, accept=lambda: None
        )
    worker.lifecycle.start()


def end_worker(worker: Any) -> None:
    """Finish the work of this worker, which then has EXIT_SECONDS to exit.

    gunicorn calls the hook for this in a `finally` clause, while its SystemExit is propagating.
    """
    lifecycle = getattr(worker, "lifecycle", None)
    if lifecycle is None:  # the application could not be imported
        return

    status = propagating_exit_status()
    lifecycle.close()
    end_process_within(EXIT_SECONDS, status=status)


def finish_worker(server: Arbiter, worker: Any) -> None:
    """Clean up after a worker that has exited. The rolling arbiter checks if its start failed."""
    from prometheus_client.multiprocess import mark_process_dead

    # The names of its metric files, with and without compaction.
    mark_process_dead(worker.slot)
    mark_process_dead(worker.pid)
    if isinstance(server, RollingArbiter):
        server.handle_worker_exit(worker)
    else:
        shared.set_state(worker.age, ENDED)


def finish_master(server: Arbiter) -> None:
    """Remove the metric files. If the service could not start, log the reason as the last line."""
    remove_directory(server.pid)
    # A rolling arbiter also records failures after a successful start. gunicorn's own arbiter halts
    # at the first one.
    has_failed = server.has_failed if isinstance(server, RollingArbiter) else True
    if shared.reason and has_failed:
        logger.critical("Cannot start: %s", shared.reason)
