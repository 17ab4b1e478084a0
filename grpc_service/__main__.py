"""gRPC alone, in one process: python -m grpc_service"""

from __future__ import annotations

import logging
import signal
import sys
import threading

from app.config import read_settings
from app.dataplane import create_data_plane
from app.errors import SetupError
from app.machine import keep_memory
from grpc_service.server import Server


def main() -> None:
    keep_memory()
    settings = read_settings()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    plane = create_data_plane(settings)
    server = Server(plane, settings)
    asked_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_stop.set())
    server.start()
    logging.getLogger(__package__).info(
        "%s is ready on %s", plane.metadata().name, settings.address(settings.grpc_port)
    )
    asked_to_stop.wait()
    server.stop().wait()


if __name__ == "__main__":
    try:
        main()
    except SetupError as error:
        sys.exit(f"cannot start: {error}")
