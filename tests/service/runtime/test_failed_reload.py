"""A reload that fails in one of two workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.processes import gunicorn, wait_for, workers
from tests.kit.waiting_client import ROOT
from tests.service.runtime.test_preload import APP, Served

FAILED = (
    "New worker failed to start: load() failed: RuntimeError: broken. Keeping the current workers"
)
ENDED = "New worker failed to start: A worker ended before it was ready"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Yield a service with two workers and the model "first". load() does not wait."""
    (tmp_path / "model").write_text("first")
    with ExitStack() as stack:
        service = stack.enter_context(gunicorn(ROOT, APP, FOLDER=tmp_path, WORKERS=2))
        wait_for(lambda: service.ready_count() == 2)
        yield Served(service, tmp_path, stack)


def reload(served: Served, word: str) -> None:
    (served.folder / "model").write_text(word)
    served.service.process.send_signal(signal.SIGHUP)


def reload_half(served: Served) -> None:
    """Start a reload that has one new worker ready, and one that still loads."""
    reload(served, "half")
    (served.folder / "pass").touch()
    wait_for(lambda: served.service.ready_count() == 3)


def check_old_workers(served: Served, before: set[int]) -> None:
    """Check that only the old workers serve, and that a good reload replaces them."""
    wait_for(lambda: workers(served.service) == before)
    assert served.model_words() == {"first"}
    reload(served, "second")
    served.wait_for_others(before)
    assert served.model_words() == {"second"}


def test_failed_reload_stops_loading_worker(served: Served) -> None:
    """If load() fails in one new worker, another that is still loading ends, and the old workers keep serving."""
    before = workers(served.service)
    reload(served, "half")
    wait_for(lambda: served.loads() == 4)
    (served.folder / "fail").touch()
    wait_for(lambda: FAILED in served.service.log())
    (served.folder / "pass").touch()
    check_old_workers(served, before)


def test_killed_new_worker_stops_loading_worker(served: Served) -> None:
    """If a new worker is killed, another that is still loading ends, and the old workers keep serving."""
    before = workers(served.service)
    served.reload_model("killed")
    wait_for(lambda: served.loads() == 4)
    os.kill(max(workers(served.service) - before), signal.SIGKILL)
    wait_for(lambda: ENDED in served.service.log())
    served.finish_load()
    check_old_workers(served, before)


def test_failed_reload_stops_ready_new_worker(served: Served) -> None:
    """If load() fails in one new worker, another that is already ready ends, and the old workers keep serving."""
    before = workers(served.service)
    reload_half(served)
    (served.folder / "fail").touch()
    check_old_workers(served, before)


def test_failed_second_reload_stops_workers_of_first(served: Served) -> None:
    """If a second reload fails during the first, no new worker stays, not even one that was ready."""
    before = workers(served.service)
    reload_half(served)
    reload(served, "broken")
    wait_for(lambda: FAILED in served.service.log())
    check_old_workers(served, before)


def test_reload_is_retried_after_loss_of_old_worker(served: Served) -> None:
    """If an old worker was lost, the new ones stay, and the reload is retried until all of them are ready."""
    before = workers(served.service)
    reload_half(served)
    os.kill(min(before), signal.SIGKILL)
    wait_for(lambda: min(before) not in workers(served.service))
    (served.folder / "fail").touch()
    served.wait_for_others(before)
    assert served.model_words() == {"half"}
    assert served.service.ready_count() == 4
