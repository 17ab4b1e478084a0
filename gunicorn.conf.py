"""gunicorn's configuration, read by `gunicorn 'app:create_app()'`: REST by gunicorn, gRPC beside it in each worker."""

import errno
import logging
import os
import select
import signal
import socket
import sys
from dataclasses import replace

from gunicorn.errors import AppImportError, HaltServer

from app.config import read_settings
from app.errors import SetupError
from app.machine import keep_memory, share_cores

try:
    settings = read_settings()
except SetupError as error:
    sys.exit(f"cannot start: {error}")

keep_memory()
share_cores(settings.workers)
logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

bind = settings.address(settings.http_port)
worker_class = "app.worker.Worker" if hasattr(select, "epoll") else "gthread"
workers = settings.workers
threads = settings.threads
keepalive = settings.keepalive
graceful_timeout = settings.graceful_timeout
loglevel = settings.log_level.lower()
# A control socket and heartbeat files on disk would need a writable home and a fast disk.
control_socket_disable = True
worker_tmp_dir = "/dev/shm" if os.path.isdir("/dev/shm") else None


def on_starting(server):
    """Says so where a port is another's. Workers share GRPC_PORT by SO_REUSEPORT, and would share it with strangers."""
    halt_once(server)
    if "GUNICORN_PID" in os.environ:  # gunicorn's own sign of an upgrade in place, where the ports are the old master's
        return
    for variable, port in (("HTTP_PORT", settings.http_port), ("GRPC_PORT", settings.grpc_port)):
        try:
            probe(port)
        except OSError as error:
            blamed = f"HOST={settings.host}" if error.errno == errno.EADDRNOTAVAIL else f"{variable}={port}"
            sys.exit(f"cannot start: {blamed}: {error.strerror}")


def halt_once(server):
    """Where one worker cannot start gunicorn halts, and where another cannot either it would fail over its own halt."""
    reap, halts = server.reap_workers, []

    def reap_workers():
        try:
            reap()
        except HaltServer as halt:
            halts.append(halt)
            if len(halts) == 1:
                raise

    server.reap_workers = reap_workers


def probe(port):
    family, kind, protocol, _, address = socket.getaddrinfo(settings.host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)


def post_fork(server, worker):
    """A project that cannot work is told in a line, where gunicorn would show a traceback."""
    load = worker.load_wsgi

    def load_wsgi():
        try:
            load()
        except SetupError as error:
            raise AppImportError(f"cannot start: {error}") from error

    worker.load_wsgi = load_wsgi


def post_worker_init(worker):
    """Starts gRPC on the worker's model; here, because grpcio may only be started after the fork."""
    from grpc_service.server import Server

    plane = worker.wsgi.extensions["data_plane"]
    worker.grpc_server = Server(plane, settings, shared=True)
    worker.grpc_server.start()
    stop_rest = signal.getsignal(signal.SIGTERM)

    def stop(number, frame):
        worker.grpc_server.stop()  # gRPC's grace runs beside REST's, or both would take twice GRACEFUL_TIMEOUT
        stop_rest(number, frame)

    signal.signal(signal.SIGTERM, stop)
    if worker.age == 1:  # the first of this master's workers speaks for all
        greet(plane)


def worker_exit(server, worker):
    """Waits for the calls that run; reached by every way out that a worker has."""
    if grpc_server := getattr(worker, "grpc_server", None):
        grpc_server.stop().wait()


def greet(plane):
    """Where the service is, and a call to try."""
    from app.example import curl

    metadata = plane.metadata()
    optional = [tensor["name"] for tensor in plane.config(metadata.name)["input"] if tensor["optional"]]
    here = replace(settings, host="127.0.0.1") if settings.host in ("0.0.0.0", "::") else settings
    url = f"http://{here.address(settings.http_port)}"
    print(
        f"\n  {metadata.name} {metadata.version} is ready"
        f"\n    REST  {url}/v2"
        f"\n    gRPC  {here.address(settings.grpc_port)}"
        f"\n\n  Try it:\n    {curl(metadata, url, optional)}\n",
        flush=True,
    )
