"""Watcher for serve --reload: a process that sends SIGHUP to the service when code or the model changes.

On SIGHUP, the service starts new workers and replaces the old workers when the new ones are ready. If the start fails,
the service logs the file and the line and keeps the old workers.
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
QUIET_MS, LONGEST_MS = 250, 60_000
# Interval for checks that the service is running.
CHECK_MS = 500

logger = logging.getLogger("app.watch")


def start_watching(settings: Settings) -> None:
    """Fork the watcher. It exits when its parent process, which becomes gunicorn, exits."""
    try:
        from watchfiles import DefaultFilter, watch
    except ImportError:
        raise Failure(
            f"--reload needs watchfiles. Run {sys.executable} -m pip install watchfiles", BROKEN
        ) from None
    master = os.getpid()
    if os.fork():
        return
    for each in (
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
    ):  # a terminal also sends these to gunicorn
        signal.signal(each, signal.SIG_IGN)
    log.configure(settings.log_format, settings.log_level)
    directories = [settings.model_dir, ROOT / "app", ROOT / "grpc_service"]
    logger.info("Watching %s", ", ".join(map(os.path.relpath, directories)))
    visible = DefaultFilter(ignore_entity_patterns=[*DefaultFilter.ignore_entity_patterns, r"^\."])
    timing = {"step": QUIET_MS, "debounce": LONGEST_MS, "rust_timeout": CHECK_MS}
    for changes in watch(*directories, watch_filter=visible, yield_on_timeout=True, **timing):  # type: ignore[arg-type]
        if os.getppid() != master:
            os._exit(0)
        if changes:
            logger.info(
                "%s changed. Reloading",
                ", ".join(sorted({os.path.relpath(path) for _, path in changes})),
            )
            with suppress(ProcessLookupError):  # the master has exited
                os.kill(master, signal.SIGHUP)
