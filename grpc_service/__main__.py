"""gRPC server without REST, in one process: python -m grpc_service"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from app.config.environment import log_environment
from app.config.resources import configure_malloc, freeze_objects, limit_library_threads
from app.config.settings import read_settings, use_settings
from app.inference.startup_errors import describe_error, exc_info_of
from app.observability import log
from app.protocol.errors import ConfigurationError
from app.runtime.worker_exit import end_process_within

if TYPE_CHECKING:
    from app.service import Service
    from grpc_service.server import Server

logger = logging.getLogger("grpc_service")


class Loaded(NamedTuple):
    """Event: the model is ready."""


class LoadFailure(NamedTuple):
    """Event: load() or the warm-up has raised an exception."""

    problem: str
    error: BaseException


class Stop(NamedTuple):
    """Event: the process has received SIGTERM or SIGINT."""

    signal_number: int


def main() -> None:
    configure_malloc()
    log.configure()
    settings = read_settings()
    log.configure(settings.log_format, settings.log_level)
    log.handler.start()
    log_environment(settings)
    limit_library_threads(1)
    # Import these now: on import, grpcio reads its log level, and NumPy's libraries their number of
    # threads.
    from app.inference.owner_files import import_owner_file
    from app.observability.access_log import AccessLog
    from app.observability.capture import Capture
    from app.service import Service

    use_settings(settings)
    try:
        service = Service(settings, import_owner_file("predict"))
    except ConfigurationError as error:
        exit_with_error(error, "The application cannot be imported", 4)
    captures = [Capture(settings)] if settings.capture_dir else []
    service.start_observers(AccessLog(settings.log_format), *captures)
    serve(service, service.make_grpc_server(reuse_port=False))
    service.close()
    end_process_within(1, status=0)


def serve(service: Service, server: Server) -> None:
    """Load the model and serve until SIGTERM or SIGINT.

    Exit with status 3 if load() or the warm-up fails.
    """
    settings = service.settings
    server.start()
    events: SimpleQueue[Loaded | LoadFailure | Stop] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: events.put(Stop(received)))
    signal.signal(signal.SIGHUP, _ignore_signal)

    def load() -> None:
        problem = "load() failed"
        try:
            service.model.load()
            problem = "Warm-up failed"
            service.model.warm_up()
            freeze_objects()
            service.start_health_check(server.report_ready)
        except BaseException as error:
            events.put(LoadFailure(problem, error))
        else:
            events.put(Loaded())

    threading.Thread(target=load, daemon=True).start()
    event = events.get()
    if isinstance(event, LoadFailure):
        exit_with_error(event.error, event.problem, 3)
    if isinstance(event, Loaded):
        server.report_ready(service.is_ready)
        name = service.info.metadata.name
        logger.info("%s is ready on %s", name, settings.address(settings.grpc_port))
        event = events.get()

    # From here on, `event` is a Stop, which can also come before the end of load().
    service.model.stop()
    server.report_stopping()
    if event == Stop(signal.SIGTERM) and service.model.accepts_requests:
        time.sleep(settings.shutdown_delay_seconds)
    server.close(settings.shutdown_timeout_seconds)


def exit_with_error(error: BaseException, problem: str, status: int) -> NoReturn:
    """Log the startup error and exit with the status that gunicorn uses for it."""
    if exc_info := exc_info_of(error):
        logger.error("%s. The service does not start", problem, exc_info=exc_info)
    text = (
        str(error)
        if isinstance(error, ConfigurationError)
        else f"{problem}: {describe_error(error)}"
    )
    logger.critical("Cannot start: %s", text)
    sys.exit(status)


def _ignore_signal(number: int, frame: object) -> None:
    logger.warning("Ignored SIGHUP. Only gunicorn reloads the model")


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        exit_with_error(error, "Startup failed", 1)
