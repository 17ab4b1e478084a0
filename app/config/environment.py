"""The environment of a service: changed settings, packages and limits of the machine.

The log of a start contains them, because they explain how the service behaves. Problems that stop
the service, such as an invalid setting or a port in use, are errors elsewhere.
"""

import logging
import os
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

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
    for warning in _find_exposed_files(settings):
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


def _find_exposed_files(settings: Settings) -> Iterator[str]:
    """Yield a warning for each file with secrets that all users can read, and for a directory in
    which others could replace the files of captured requests.
    """
    secrets = {"API_KEYS_FILE": settings.api_keys_file, "TLS_KEY_FILE": settings.tls_key_file}
    for variable, path in secrets.items():
        if path is None or _is_on_read_only_volume(path):
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & stat.S_IROTH:
            yield (
                f"{variable}: all users can read the file, mode {mode:04o}."
                f" Run chmod o-r {shlex.quote(str(path))}"
            )

    folder = settings.capture_dir
    if folder is not None:
        mode = stat.S_IMODE(folder.stat().st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            yield (
                f"CAPTURE_DIR: other users can write to the directory, mode {mode:04o}."
                f" Run chmod go-w {shlex.quote(str(folder))}"
            )


def _is_on_read_only_volume(path: Path) -> bool:
    """Return True for a file that is mounted into a container, such as a Secret of Kubernetes.

    It often has the mode 0644, because it belongs to another user than that of the service. Only
    the processes of the container can read it.
    """
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
