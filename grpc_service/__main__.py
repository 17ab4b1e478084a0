"""gRPC server without REST, in one process: python -m grpc_service"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn

from app.config.environment import log_environment
from app.config.resources import configure_malloc, limit_library_threads
from app.config.settings import Settings, read_settings
from app.inference.startup_errors import describe_error, exc_info_of
from app.observability import log
from app.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from app.inference.data_plane import DataPlane
    from grpc_service.server import Server

logger = logging.getLogger("grpc_service")


def main() -> None:
    configure_malloc()
    log.configure()
    settings = read_settings()
    log.configure(settings.log_format, settings.log_level)
    log.handler.start()
    log_environment(settings)
    limit_library_threads(1)
    # Import now: grpcio reads its log level and NumPy's libraries read their number of threads on import.
    from app.inference.data_plane import DataPlane, import_owner_file
    from app.observability.access_log import AccessLog
    from app.observability.capture import Capture
    from app.observability.observer_queue import ObserverQueue
    from app.observability.statistics import Statistics
    from app.observability.tracing import make_spans
    from grpc_service.server import Server

    try:
        plane = DataPlane(import_owner_file("predict"), settings, ObserverQueue(), make_spans)
    except ConfigurationError as error:
        exit_with_error(error, "The application cannot be imported", 4)
    statistics = Statistics(plane)
    captures = [Capture(settings)] if settings.capture_dir else []
    plane.observer_queue.start(statistics.observe, AccessLog(settings.log_format), *captures)
    serve(plane, Server(plane, settings, statistics), settings)
    plane.close()
    # Exit after one second, because Python would wait for running threads of the model.
    timer = threading.Timer(1, os._exit, [0])
    timer.daemon = True
    timer.start()


def serve(plane: DataPlane, server: Server, settings: Settings) -> None:
    """Load the model and serve until SIGTERM or SIGINT. Exit with status 3 if load() or the warm-up fails."""
    server.start()
    events: SimpleQueue[int | BaseException | None] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: events.put(received))
    signal.signal(
        signal.SIGHUP, lambda *_: logger.warning("Ignored SIGHUP. Only gunicorn reloads the model")
    )

    def load() -> None:
        try:
            plane.load()
            plane.warm_up()
            plane.start_health_check(server.report_ready)
            events.put(None)
        except BaseException as error:
            events.put(error)

    threading.Thread(target=load, daemon=True).start()
    event = events.get()
    if isinstance(event, BaseException):
        exit_with_error(event, "Warm-up failed" if plane.is_loaded else "load() failed", 3)
    if event is None:
        server.report_ready(plane.is_ready)
        logger.info(
            "%s is ready on %s", plane.metadata().name, settings.address(settings.grpc_port)
        )
        event = events.get()
    plane.is_stopping = True
    server.report_stopping()
    time.sleep(settings.shutdown_delay_seconds if event == signal.SIGTERM and plane.is_warm else 0)
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


if __name__ == "__main__":
    try:
        main()
    except Exception as error:
        exit_with_error(error, "Startup failed", 1)
