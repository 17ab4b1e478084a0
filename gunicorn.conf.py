"""gunicorn configuration, which `gunicorn 'app:create_app()'` reads. Each worker serves REST and
gRPC.

Settings are environment variables (docs/configuration.md). app/runtime/gunicorn_hooks.py implements
the server hooks.
"""

import math
import select

from app.config.resources import raise_file_limit
from app.config.tls import server_context
from app.observability.metric_files import memory_directory
from app.runtime import gunicorn_hooks

# Time for a worker to exit after the time limit for its requests.
SPARE_SECONDS = 4
# Without a heartbeat for this time, gunicorn kills a worker. The time limit of predict() is added,
# because a predict() that does not release the GIL delays the heartbeat.
HEARTBEAT_SECONDS = 30

settings = gunicorn_hooks.configure()

bind = settings.address(settings.http_port)
workers = settings.workers
threads = settings.threads
worker_connections = max(raise_file_limit(), threads + 1)
keepalive = settings.keepalive_seconds
# gunicorn's default lets each client on this machine, such as a proxy that forwards all headers,
# change the path of a request: SCRIPT_NAME removes a prefix, behind the path rules of the proxy.
forwarder_headers = ""
timeout = HEARTBEAT_SECONDS + math.ceil(settings.predict_timeout_seconds)
graceful_timeout = (
    math.ceil(settings.shutdown_delay_seconds) + settings.shutdown_timeout_seconds + SPARE_SECONDS
)
loglevel = settings.log_level.lower()
logger_class = gunicorn_hooks.Logger
control_socket_disable = True  # the control socket needs a writable home directory

has_epoll = hasattr(select, "epoll")  # only on Linux
if has_epoll and settings.is_enabled("worker"):
    worker_class = "app.runtime.gunicorn_hooks.ServiceWorker"
else:
    worker_class = "gthread"

memory = memory_directory()
if memory is not None:
    worker_tmp_dir = str(memory)

if settings.tls_cert_file is not None:
    certfile = str(settings.tls_cert_file)
    keyfile = str(settings.tls_key_file)
    tls = server_context(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)

    def ssl_context(conf, make):
        """Return one context for all connections.

        By default, gunicorn reads the files for each connection.
        """
        return tls


def nworkers_changed(server, new_value, old_value):
    """Check --preload.

    Of gunicorn's hooks, only this one runs before --preload takes effect, at start and reload.
    """
    gunicorn_hooks.check_preload(server, is_start=old_value is None)


def on_starting(server):
    gunicorn_hooks.prepare_master(server, settings)


def pre_request(worker, request):
    """Log nothing. gunicorn's default hook logs the path, which the client controls."""


def pre_fork(server, worker):
    gunicorn_hooks.prepare_fork(server, worker, settings)


def post_fork(server, worker):
    gunicorn_hooks.prepare_worker(worker)


def post_worker_init(worker):
    gunicorn_hooks.start_worker(worker, settings)


def child_exit(server, worker):
    gunicorn_hooks.finish_worker(server, worker)


def worker_exit(server, worker):
    gunicorn_hooks.end_worker(worker)


def on_exit(server):
    gunicorn_hooks.finish_master(server)
