"""serve --reload: a process beside the service that has its workers replaced when code or the model changes.

It sends HUP, on which the service has new workers take over when they are ready, and keeps the old where they fail.
"""

from __future__ import annotations

import ast
import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from app import logs
from app.changes import Mark, differing, files_below, marks
from app.cli.common import Failure
from app.config import ROOT, read_settings
from app.errors import SetupError

# Between two looks; where a look takes long, it is not to be a tenth of the time.
PAUSE_SECONDS, PAUSE_SHARE = 0.25, 10

logger = logging.getLogger("app.watch")


def watch_beside(environ: Mapping[str, str]) -> None:
    """Starts the process, which ends with this one, whatever this one becomes."""
    try:
        settings = read_settings(environ)
    except SetupError as error:
        raise Failure(str(error)) from None
    model_dir = Path(environ.get("MODEL_DIR", "").strip() or settings.model_dir)  # which may be a link that moves
    watch = Watch(model_dir, {*code()} if settings.preload else of_master())
    master = os.getpid()
    if os.fork():
        return
    for each in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # of the terminal, to all: the master heeds them
        signal.signal(each, signal.SIG_IGN)
    logs.configure(settings.log_format, settings.log_level)
    logger.info("watching app/, grpc_service/ and %s/", named(model_dir))
    if settings.preload:
        logger.warning("PRELOAD=on: a change of the model is loaded, and one of code needs a restart, or PRELOAD=off")
    while os.getppid() == master:
        begun = time.monotonic()
        if watch.look():
            with suppress(ProcessLookupError):
                os.kill(master, signal.SIGHUP)
        time.sleep(max(PAUSE_SECONDS, PAUSE_SHARE * (time.monotonic() - begun)))
    os._exit(0)


class Watch:
    """Code and the files of `model_dir`; `held` is the code that no new worker reads again."""

    def __init__(self, model_dir: Path, held: set[Path]):
        self.model_dir, self.held = model_dir, held
        self.seen = self.marks()
        self.changed: set[Path] = set()
        self.is_quiet = True

    def look(self) -> bool:
        """Whether to load again: something changed, no more does, and nothing of it is broken."""
        found = self.marks()
        if fresh := differing(found, self.seen):
            self.seen, self.is_quiet = found, False
            self.changed |= fresh
            return False
        if self.is_quiet:
            return False
        self.is_quiet = True
        for path in sorted(self.changed & self.held):
            logger.warning("%s has changed, which only a restart reads", named(path))
        self.changed -= self.held
        faults = [fault for path in sorted(self.changed) if (fault := fault_of(path))]
        for fault in faults:
            logger.error("%s; the workers stay as they are", fault)
        if faults or not self.changed:
            return False
        logger.info(
            "%s changed; new workers take over when they are ready", ", ".join(map(named, sorted(self.changed)))
        )
        self.changed.clear()
        return True

    def marks(self) -> dict[Path, Mark]:
        return marks((*code(), *files_below(self.model_dir)))


def code() -> Iterator[Path]:
    yield ROOT / "gunicorn.conf.py"
    for package in ("app", "grpc_service"):
        yield from (path for path in files_below(ROOT / package) if path.suffix == ".py")


def fault_of(path: Path) -> str | None:
    """What keeps the code at `path` from being read, in a line; None for what is no code, or is gone."""
    if path.suffix != ".py" or not path.exists():
        return None
    try:
        compile(path.read_bytes(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"{named(path)}, line {error.lineno}: {error.msg}"
    except (OSError, ValueError) as error:
        return f"{named(path)}: {error}"
    return None


def of_master() -> set[Path]:
    """The modules that gunicorn's master has read, which its workers have from it: what its configuration imports."""
    found: set[Path] = set()
    left = [ROOT / "gunicorn.conf.py", ROOT / "app/worker.py"]
    while left:
        path = left.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
                left += [source_of(name) for name in names]
    return found - {ROOT / "gunicorn.conf.py"}


def source_of(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def named(path: Path) -> str:
    """The path as seen from the project."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
