"""gRPC alone, in one process: python -m grpc_service"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn

from app import logs
from app.config import Settings, read_settings, without_effect
from app.errors import SetupError
from app.failure import reason, shown
from app.machine import keep_memory, share_cores

if TYPE_CHECKING:
    from app.dataplane import DataPlane
    from grpc_service.server import Server

logger = logging.getLogger("grpc_service")


def main() -> None:
    keep_memory()
    logs.configure(logs.form_wanted())
    settings = read_settings()
    logs.configure(settings.log_format, settings.log_level)
    for variable, why, remedy in without_effect(settings):
        logger.warning("%s: %s; %s", variable, why, remedy)
    share_cores(1)
    logs.out.start()
    # Behind both: grpcio reads how much it may say when it is imported, numpy's libraries how many threads they get.
    from app.dataplane import create_data_plane, load_later
    from app.requestlog import RequestLog
    from app.tracing import Tracing
    from grpc_service.server import Server

    load_later()
    tracing = Tracing()
    try:
        plane = create_data_plane(settings, around_predict=tracing.predict)
    except SetupError as error:
        give_up(error, 4)
    tracing.start(plane)
    plane.journal.observers.append(RequestLog(settings.log_format))
    serve(plane, Server(plane, settings), settings)
    plane.journal.flush()
    tracing.close()


def serve(plane: DataPlane, server: Server, settings: Settings) -> None:
    """Loads the model and answers until a signal ends it; where the model cannot be loaded, that is the end."""
    server.start()
    events: SimpleQueue[int | BaseException | None] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: events.put(received))
    signal.signal(signal.SIGHUP, lambda *_: logger.warning("HUP is gunicorn's: nothing is loaded again here"))
    threading.Thread(target=load, args=(plane, events), daemon=True).start()
    event = events.get()
    if isinstance(event, BaseException):
        failed = "the warm-up failed" if plane.is_loaded else "load() failed"
        if exc_info := shown(event):
            logger.error("%s, and the service does not start", failed, exc_info=exc_info)
        logger.critical("cannot start: %s: %s", failed, reason(event))
        sys.exit(3)
    if event is None:
        server.show_ready(True)
        logger.info("%s is ready on %s", plane.metadata().name, settings.address(settings.grpc_port))
        event = events.get()
    plane.is_stopping = True
    server.leave()
    time.sleep(settings.drain_seconds if event == signal.SIGTERM and plane.is_warm else 0)
    server.close(settings.graceful_timeout)


def load(plane: DataPlane, events: SimpleQueue[int | BaseException | None]) -> None:
    """Beside the main thread, which waits for signals; None is that all went well."""
    try:
        plane.load()
        plane.warm_up()
    except BaseException as error:
        events.put(error)
    else:
        events.put(None)


def give_up(error: SetupError, status: int) -> NoReturn:
    """Ends the start with why; the status is what gunicorn's would be."""
    if exc_info := shown(error):
        logger.error("the application cannot be imported", exc_info=exc_info)
    logger.critical("cannot start: %s", error)
    sys.exit(status)


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        give_up(error, 1)
