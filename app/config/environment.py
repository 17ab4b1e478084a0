"""The environment of a service: changed settings, packages and limits of the machine.

The log of a start contains them, because they explain how the service behaves. Problems that stop
the service, such as an invalid setting or a port in use, are errors elsewhere.
"""

import logging
from collections.abc import Iterator

from app.config.packages import find_unmet_requirements
from app.config.resources import raise_file_limit, usable_cores
from app.config.settings import Settings, changed_settings, find_warnings

MIN_CONNECTIONS = 1024  # a worker that serves many clients may need more
MAX_WORKERS_PER_CORE = 2

logger = logging.getLogger("app")


def log_environment(settings: Settings) -> None:
    """Log the changed settings, and a warning with a remedy for each problem. Takes 10 ms."""
    changes = changed_settings(settings)
    if changes:
        values = [f"{variable}={value}" for variable, value in changes.items()]
        logger.info("Changed settings: %s", ", ".join(values))
    for warning in find_warnings(settings):
        logger.warning(warning)
    for warning in find_unmet_requirements():
        logger.warning(warning)
    for warning in _find_low_limits(settings):
        logger.warning(warning)


def _find_low_limits(settings: Settings) -> Iterator[str]:
    connections = raise_file_limit()
    if connections < MIN_CONNECTIONS:
        yield (
            f"Open files: low limit. Expected enough for {MIN_CONNECTIONS} connections per worker"
            f" and protocol, got {connections}. Increase the hard limit: ulimit -Hn, LimitNOFILE"
            " (systemd) or --ulimit nofile (Docker)."
        )

    max_workers = MAX_WORKERS_PER_CORE * usable_cores()
    if settings.workers > max_workers:
        yield (
            f"WORKERS: more than the CPU cores can use. Expected at most {max_workers}"
            f" ({MAX_WORKERS_PER_CORE} per core), got {settings.workers}. Decrease WORKERS, or"
            " increase the CPU limit."
        )
