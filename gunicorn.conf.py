"""gunicorn's configuration, read by `gunicorn 'app:create_app()'`: REST by gunicorn, gRPC beside it in each worker."""

import logging
import os
import signal
import socket
import sys

from app.config import read_settings
from app.errors import SetupError

try:
    settings = read_settings()
except SetupError as error:
    sys.exit(f"cannot start: {error}")

logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

rest_host = f"[{settings.host}]" if ":" in settings.host else settings.host
bind = f"{rest_host}:{settings.http_port}"
worker_class = "gthread"
workers = settings.workers
threads = settings.threads
keepalive = settings.keepalive
graceful_timeout = settings.graceful_timeout
loglevel = settings.log_level.lower()
# A control socket and heartbeat files on disk would need a writable home and a fast disk.
control_socket_disable = True
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None


def on_starting(server):
    """Says so where GRPC_PORT is another's: workers share it by SO_REUSEPORT, which would share it with others too."""
    if "GUNICORN_PID" in os.environ:
        return
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.grpc_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            sys.exit(f"cannot start: GRPC_PORT={settings.grpc_port}: {error.strerror}")


def post_worker_init(worker):
    """Starts gRPC on the worker's model; here, because grpcio may only be started after the fork."""
    from grpc_service.server import Server

    plane = worker.wsgi.extensions["data_plane"]
    worker.grpc_server = Server(plane, settings)
    worker.grpc_server.start()
    stop_rest = signal.getsignal(signal.SIGTERM)

    def stop(number, frame):
        worker.grpc_server.stop()
        stop_rest(number, frame)

    signal.signal(signal.SIGTERM, stop)
    if worker.age == 1:
        greet(plane.metadata())


def worker_exit(server, worker):
    """Waits for the calls that run; reached by every way out that a worker has."""
    if grpc_server := getattr(worker, "grpc_server", None):
        grpc_server.stop().wait()


def greet(metadata):
    """Where the service is, and a call to try."""
    from app.example import curl

    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else rest_host
    url = f"http://{host}:{settings.http_port}"
    print(
        f"\n  {metadata.name} {metadata.version} is ready"
        f"\n    REST  {url}/v2"
        f"\n    gRPC  {host}:{settings.grpc_port}"
        f"\n\n  Try it:\n    {curl(metadata, url)}\n",
        flush=True,
    )
