"""tests/kit: processes and threads end, and an environment is created again if its Python changes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from app.config.settings import Settings
from tests.kit import environments, models, processes
from tests.kit.http_thread import serve_http
from tests.kit.projects import edit, make_project
from tests.kit.service import Service

OTHER_PYTHON = Path("/usr/bin/python3")
IGNORES_SIGTERM = """import signal

signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal = lambda *arguments: None


def load():
"""


def test_standalone_grpc_kills_process_that_ignores_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ignores SIGTERM fails the test. It does not block the test forever."""
    monkeypatch.setattr(processes, "STOP_SECONDS", 0.5)
    edit(make_project(tmp_path), "def load():\n", IGNORES_SIGTERM)

    with pytest.raises(AssertionError), processes.standalone_grpc(tmp_path):
        pass


def test_http_server_stops_before_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The `with` block of serve_http() can end before the server's thread has done anything."""
    monkeypatch.setattr("gunicorn.util.seed", lambda: time.sleep(0.2))  # the first step of a worker
    service = Service(models.echo("FP32", [-1]), Settings())

    with serve_http(service) as port:
        assert port > 0

    service.close()


@pytest.mark.skipif(
    not OTHER_PYTHON.exists() or OTHER_PYTHON.samefile(sys.executable),
    reason="the system has no other Python",
)
def test_environment_of_other_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment stays as long as its requirements and its Python are the same."""
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    requirements = tmp_path / "requirements.txt"
    requirements.touch()
    mark = tmp_path / ".venv-test" / "mark"

    for python in (sys.executable, OTHER_PYTHON):
        environments.make_environment("test", requirements, python)
        assert not mark.exists()
        mark.touch()
        environments.make_environment("test", requirements, python)
        assert mark.exists()
