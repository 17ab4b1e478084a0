"""Watcher for serve --reload: a process that sends SIGHUP to the service when code or the model
changes.

On SIGHUP, the service starts new workers and replaces the old workers when the new ones are ready.
If the start fails, the service logs the file and the line and keeps the old workers.

The watcher is a child of the process that becomes gunicorn's master. It exits when that process has
exited.
"""

import logging
import os
import signal
import sys
from contextlib import suppress

from app.cli.common import BROKEN, Failure
from app.config.settings import ROOT, Settings
from app.observability import log

# The service reloads after QUIET_MS without changes, or after LONGEST_MS of continuous changes.
QUIET_MS = 250
LONGEST_MS = 60_000
# Interval for checks that the service is running.
CHECK_MS = 500

logger = logging.getLogger("app.watch")


def start_watching(settings: Settings) -> None:
    """Fork the watcher, and return in the parent process.

    Raise Failure if watchfiles is not installed.
    """
    try:
        import watchfiles  # noqa: F401
    except ImportError:
        raise Failure(
            f"--reload needs watchfiles. Run {sys.executable} -m pip install watchfiles", BROKEN
        ) from None
    master = os.getpid()
    is_parent = os.fork() != 0
    if is_parent:
        return

    # A terminal also sends these signals to gunicorn.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    log.configure(settings.log_format, settings.log_level)
    _watch(master, settings)


def _watch(master: int, settings: Settings) -> None:
    """Send SIGHUP to the process `master` after each change.

    Exit when it is not the parent process any more, because it has exited.
    """
    from watchfiles import DefaultFilter, watch

    directories = [settings.model_dir, ROOT / "app", ROOT / "grpc_service"]
    logger.info("Watching %s", ", ".join(map(os.path.relpath, directories)))

    hidden_files = r"^\."
    ignored_patterns = [*DefaultFilter.ignore_entity_patterns, hidden_files]
    batches = watch(
        *directories,
        watch_filter=DefaultFilter(ignore_entity_patterns=ignored_patterns),
        step=QUIET_MS,
        debounce=LONGEST_MS,
        rust_timeout=CHECK_MS,
        yield_on_timeout=True,
    )
    for changes in batches:
        if os.getppid() != master:
            os._exit(0)
        # The set is empty if nothing has changed within CHECK_MS.
        if changes:
            paths = {os.path.relpath(path) for _, path in changes}
            logger.info("%s changed. Reloading", ", ".join(sorted(paths)))
            with suppress(ProcessLookupError):  # the master has exited
                os.kill(master, signal.SIGHUP)
