"""gunicorn's configuration, read by `gunicorn 'app:create_app()'`: REST by gunicorn, gRPC beside it in each worker."""

import errno
import gc
import logging
import math
import os
import shlex
import sys
from urllib.parse import quote

import gunicorn.http.wsgi
from gunicorn import glogging
from gunicorn.arbiter import Arbiter

from app import logs
from app.board import Board
from app.changes import Changes
from app.config import read_settings, without_effect
from app.errors import SetupError
from app.failure import PREDICT
from app.machine import allow_connections, give_back_memory, keep_memory, share_cores
from app.master import listen, look_after, took_leave
from app.metricfiles import close_folder, folder, folder_in_memory, open_folder, reserve, sweep
from app.tls import server_context
from app.transport import try_to_listen

# What gunicorn gives a worker to end, beside what that gives its requests.
SPARE_SECONDS = 4

logger = logging.getLogger("app")


def give_up(why):
    logger.critical("cannot start: %s", why)
    sys.exit(1)


logs.configure(logs.form_wanted())
try:
    settings = read_settings()
    open_folder(settings.workers)
except SetupError as error:
    give_up(error)

logs.configure(settings.log_format, settings.log_level)
keep_memory()
share_cores(settings.workers)

bind = settings.address(settings.http_port)
worker_class = "app.worker.Worker"
workers = settings.workers
threads = settings.threads
worker_connections = max(allow_connections(), threads + 1)
keepalive = settings.keepalive
graceful_timeout = math.ceil(settings.drain_seconds) + settings.graceful_timeout + SPARE_SECONDS
loglevel = settings.log_level.lower()
# A control socket and heartbeat files on disk would need a writable home and a fast disk.
control_socket_disable = True
# A worker is killed that cannot say so long that it lives, as while predict() holds Python's lock.
timeout = 30
worker_tmp_dir = str(memory) if (memory := folder_in_memory()) else None

if settings.tls_cert:
    certfile, keyfile = str(settings.tls_cert), str(settings.tls_key)
    tls = server_context(settings.tls_cert, settings.tls_key, settings.tls_client_ca)

    def ssl_context(conf, make):
        """One for all connections, in the place of gunicorn's, which reads the files for each."""
        return tls


class logger_class(glogging.Logger):  # noqa: N801 - the setting's name
    """gunicorn's own lines, in the form and by the way of all others; those for a file of its own, in their form."""

    def setup(self, cfg):
        super().setup(cfg)
        for log, file in ((self.error_log, cfg.errorlog), (self.access_log, cfg.accesslog)):
            log.propagate = file == "-"
            for handler in [each for each in log.handlers if getattr(each, "_gunicorn", False)]:
                handler.setFormatter(logs.out.formatter)
                if log.propagate:
                    log.removeHandler(handler)


def on_starting(server):
    """Says so where a port is another's. Workers share GRPC_PORT by SO_REUSEPORT, and would share it with strangers."""
    server.board, server.changes = Board(), Changes(settings.model_dir, [PREDICT])
    if any(folder().glob("*.db")):
        logger.warning("PROMETHEUS_MULTIPROC_DIR has counts of an earlier run, which go on")
    for variable, why, remedy in without_effect(settings):
        logger.warning("%s: %s; %s", variable, why, remedy)
    look_after(server, server.board)
    if settings.preload:
        from app.preload import Preload

        Preload(server, server.board)
    if "GUNICORN_PID" in os.environ:  # gunicorn's own sign of an upgrade in place, where the ports are the old master's
        return
    for variable, port in (("HTTP_PORT", settings.http_port), ("GRPC_PORT", settings.grpc_port)):
        try:
            try_to_listen(settings.host, port)
        except OSError as error:
            blamed = f"HOST={settings.host}" if error.errno == errno.EADDRNOTAVAIL else f"{variable}={port}"
            doctor = f"{shlex.quote(sys.executable)} -m app doctor"  # any other python may lack what the project needs
            advice = f"; {doctor} says by whom" if error.errno == errno.EADDRINUSE else ""
            give_up(f"{blamed}: {error.strerror}{advice}")


def pre_request(worker, request):
    """Log nothing. By default, gunicorn logs the path, which the client chose."""


def pre_fork(server, worker):
    if not settings.preload and (changed := server.changes.since(server.board.renewed_at)):
        logger.warning("%s: changed since other workers loaded it, which HUP has load it, too", changed[0])
    sweep(folder(), "metric_compaction" not in settings.disable_optimizations)
    gc.collect()
    give_back_memory()
    gc.freeze()  # or each worker's collector would write to the pages of what it looks through, and share none


def post_fork(server, worker):
    """A project that cannot work is told in a line, after no more of a traceback than is the user's."""
    logs.out.start()
    load, worker.board = worker.load_wsgi, server.board

    def load_wsgi():
        from app.dataplane import load_later
        from app.failure import reason, shown

        listen()
        load_later()
        try:
            reserve(folder())
            load()
        except BaseException as error:  # SystemExit of predict.py's own, and a panic of Rust's, are no way to start
            worker.board.report(reason(error))
            if (exc_info := shown(error)) and worker.board.may_tell():
                logger.error("the application cannot be imported", exc_info=exc_info)
            sys.exit(Arbiter.APP_LOAD_ERROR)

    worker.load_wsgi = load_wsgi


def post_worker_init(worker):
    """Loads the model, and opens both protocols."""
    from app.requestlog import RequestLog
    from app.serving import Serving
    from grpc_service.server import Server

    plane = worker.wsgi.extensions["data_plane"]
    gunicorn.http.wsgi.SERVER = plane.name  # what the header Server says
    worker.wsgi.extensions["metrics"].start()
    worker.wsgi.extensions["tracing"].start(plane)  # after the fork, for its thread
    plane.journal.observers.append(RequestLog(settings.log_format))
    worker.largest = settings.max_request_bytes

    def make_grpc():  # after the fork, as grpcio may be
        return Server(plane, settings, shared=True)

    def on_ready():
        if worker.age == (2 if settings.preload else 1):  # the first with a model speaks for all
            greet(plane)

    worker.serving_both = Serving(worker, plane, settings, worker.board, make_grpc, on_ready)
    worker.serving_both.start()


def child_exit(server, worker):
    sweep(folder(), "metric_compaction" not in settings.disable_optimizations)
    took_leave(worker, server.board)


def on_exit(server):
    """Ends a failed start with why."""
    close_folder(server.pid)
    if server.board.has_failed:
        server.board.hear()
        for reason in server.board.reasons:
            logger.critical("cannot start: %s", reason)


def worker_exit(server, worker):
    if serving := getattr(worker, "serving_both", None):
        serving.close()
        serving.plane.journal.flush()
        worker.wsgi.extensions["tracing"].close()
        serving.end_soon(getattr(sys.exc_info()[1], "code", None))


def greet(plane):
    """Where the service is, which process takes signals, and a call to try."""
    from app.example import call_to_try, curl_options

    metadata = plane.metadata()
    here = settings.here()
    model = f"{here.url}/v2/models/{quote(metadata.name)}"
    if settings.log_format == "json":
        addresses = {"rest": f"{here.url}/v2", "grpc": here.address(settings.grpc_port)}
        if settings.ui:
            addresses["page"] = f"{here.url}/"
        logger.info("%s %s is ready", metadata.name, metadata.version, extra=addresses)
        return
    page = f"\n    Page  {here.url}/" if settings.ui else ""
    options = "--insecure " if settings.tls_cert else ""  # the certificate is for the name, and not for this address
    options += curl_options(settings.tls_client_ca is not None, settings.api_keys_file is not None)
    print(
        f"\n  {metadata.name} {metadata.version} is ready"
        f"\n    REST  {here.url}/v2"
        f"\n    gRPC  {here.address(settings.grpc_port)}{page}"
        f"\n    PID   {os.getppid()}: HUP loads the model again, TERM stops the service"
        f"\n\n  Try it:\n    {call_to_try(plane.example(), model, options)}\n",
        flush=True,
    )
