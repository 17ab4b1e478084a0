"""The switch that defers load(). gunicorn calls create_app() without arguments, so that it is a context variable."""

from contextvars import ContextVar

# True if a worker calls load() later and responds to probes until then.
is_load_deferred: ContextVar[bool] = ContextVar("is_load_deferred", default=False)
