"""The serve command, and serve --reload while requests arrive."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kit.processes import (
    Running,
    local_settings,
    started,
    stop_other_master,
    wait_for,
    workers,
)
from tests.kit.projects import PREDICT, command, edit, make_project

LAST_LINE = len(PREDICT.splitlines())


@contextmanager
def serving(
    project: Path, *options: str, folder: Path | None = None, **environment: Any
) -> Iterator[Running]:
    """Run `serve` with the options. It exits with 0 on SIGTERM."""
    settings = local_settings(**environment, PYTHONPATH=project)
    with started(
        [sys.executable, "-m", "app", "serve", *options], folder or project, settings
    ) as running:
        yield running
    assert running.process.returncode == 0, running.log()


def send_request(running: Running) -> float | None:
    """Return the output for 1, or None if the service is not ready."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]})
    try:
        with closing(http.client.HTTPConnection(running.http_address, timeout=180)) as connection:
            connection.request("POST", "/v2/models/adder/infer", body)
            response = connection.getresponse()
            document = json.loads(response.read())
    except ConnectionRefusedError:
        return None
    assert response.status in (200, 503), document
    return document["outputs"][0]["data"][0] if response.status == 200 else None


class RequestThread(threading.Thread):
    """A thread that sends requests until it is stopped, and stores the results."""

    def __init__(self, running: Running):
        super().__init__()
        self.running, self.ends = running, threading.Event()
        self.results: list[Any] = []

    def run(self) -> None:
        while not self.ends.wait(0.002):
            try:
                self.results.append(send_request(self.running))
            except Exception as error:
                self.results.append(error)

    def __enter__(self) -> RequestThread:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ends.set()
        self.join()


def test_reload_serves_edited_files(tmp_path: Path) -> None:
    """New code and a new model are served, broken code is logged and not served, and no request is lost."""
    project = make_project(tmp_path)
    with serving(project, "--reload", WORKERS=2) as running, RequestThread(running) as requests:
        wait_for(lambda: 1.5 in requests.results)
        edit(project, "x + model", "x - model")
        wait_for(lambda: 0.5 in requests.results)
        edit(project, "x - model", "x - (model")
        wait_for(lambda: f"app/predict.py, line {LAST_LINE}: " in running.log())
        edit(project, "import numpy as np\n", "import numpy as np\nimport nosuchpackage\n")
        edit(project, "x - (model", "x - model")
        wait_for(lambda: "No module named 'nosuchpackage'" in running.log())
        (project / "app/predict.py").write_text(PREDICT.replace("x + model", "x + model + 8"))
        wait_for(lambda: 9.5 in requests.results)
        (project / "model/term.txt").write_text("4")
        wait_for(lambda: 13 in requests.results)
    assert set(requests.results) == {1.5, 0.5, 9.5, 13}


def test_reload_ignores_hidden_and_compiled_files(tmp_path: Path) -> None:
    """Files that editors and Python write next to the code do not trigger a reload."""
    project = make_project(tmp_path)
    with serving(project, "--reload", WORKERS=1) as running:
        for name in (
            "app/.predict.py.swp",
            "app/predict.py~",
            "app/__pycache__/predict.pyc",
            "model/.term.txt.part",
        ):
            (project / name).parent.mkdir(exist_ok=True)
            (project / name).write_bytes(b"x")
        (project / "model/term.txt").write_text("4")
        wait_for(lambda: send_request(running) == 5)
        (line,) = re.findall(".*changed. Reloading", running.log())
        assert "INFO app.watch: model/term.txt changed" in line


def test_watcher_exits_with_the_service(tmp_path: Path) -> None:
    """No process is left after the service has stopped."""
    with serving(make_project(tmp_path), "--reload", WORKERS=1) as running:
        group = running.process.pid  # The service runs in its own session.
    wait_for(lambda: not is_group_alive(group))


def is_group_alive(group: int) -> bool:
    with suppress(ProcessLookupError):
        os.killpg(group, 0)
        return True
    return False


def test_reload_without_watchfiles(tmp_path: Path) -> None:
    """If watchfiles is not installed, the error has the command that installs it."""
    (tmp_path / "watchfiles.py").write_text("raise ModuleNotFoundError('watchfiles')")
    done = command("serve", "--reload", PYTHONPATH=tmp_path)
    expected = f"Error: --reload needs watchfiles. Run {sys.executable} -m pip install watchfiles\n"
    assert (done.returncode, done.stderr) == (4, expected)


def test_serve_from_another_directory(tmp_path: Path) -> None:
    """Options override the environment, paths are relative to the working directory, and gunicorn gets the rest."""
    (tmp_path / "project").mkdir()
    project = make_project(tmp_path / "project")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/term.txt").write_text("7")
    options = ["--model-name", "adder", "--", "--pid", str(tmp_path / "pid")]
    with serving(
        project, *options, folder=tmp_path, WORKERS=1, MODEL_DIR="other", MODEL_NAME="none"
    ) as running:
        assert send_request(running) == 8
        assert int((tmp_path / "pid").read_text()) == running.process.pid
    done = command(
        "serve",
        folder=project,
        MODEL_DIR=tmp_path,
        WORKERS=1,
        HTTP_PORT=running.http_port,
        GRPC_PORT=running.grpc_port,
    )
    assert done.returncode == 3


def test_usr2_starts_a_second_master(tmp_path: Path) -> None:
    """On SIGUSR2, a second master starts, as with the gunicorn command."""
    with serving(make_project(tmp_path), WORKERS=1) as running:
        before = workers(running)
        running.process.send_signal(signal.SIGUSR2)
        wait_for(lambda: running.ready_count() == 2)
        (new_service,) = workers(running) - before
        stop_other_master(new_service)
