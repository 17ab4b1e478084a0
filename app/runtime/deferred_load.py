"""Switch that defers load(). It is a context variable, because gunicorn calls create_app() without arguments."""

from contextvars import ContextVar

# True if load() is called later, while a worker already responds to probes.
is_load_deferred: ContextVar[bool] = ContextVar("is_load_deferred", default=False)
