"""serve, and serve --reload: workers replaced by what was edited, while clients ask."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from app.changes import Changes
from app.cli.watch import Watch, named, of_master
from tests.service.processes import Running, free_ports, started, wait_for, workers
from tests.service.projects import PREDICT, ROOT, command, edit, make_project
from tests.service.runtime.test_lifecycle import stop_heir

LAST_LINE = len(PREDICT.splitlines())


@contextmanager
def serving(project: Path, *options: str, folder: Path | None = None, **environment: Any) -> Iterator[Running]:
    """`serve` with the options, ready; it exits with 0 on SIGTERM."""
    http_port, grpc_port = free_ports(2)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": http_port, "GRPC_PORT": grpc_port, "DRAIN_SECONDS": 0, **environment}
    settings["PYTHONPATH"] = project
    with started([sys.executable, "-m", "app", "serve", *options], folder or project, settings) as running:
        yield running
    assert running.process.returncode == 0, running.log()


def ask(running: Running) -> float | None:
    """What the model makes of 1; None where the service says that it cannot be asked now."""
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]})
    try:
        with closing(http.client.HTTPConnection(running.http, timeout=30)) as connection:
            connection.request("POST", "/v2/models/adder/infer", body)
            response = connection.getresponse()
            answer = json.loads(response.read())
    except ConnectionRefusedError:
        return None
    assert response.status in (200, 503), answer
    return answer["outputs"][0]["data"][0] if response.status == 200 else None


class Asking(threading.Thread):
    """Asks all the time; what came of it is in `answers`."""

    def __init__(self, running: Running):
        super().__init__()
        self.running, self.ends = running, threading.Event()
        self.answers: list[Any] = []

    def run(self) -> None:
        while not self.ends.wait(0.002):
            try:
                self.answers.append(ask(self.running))
            except Exception as error:
                self.answers.append(error)

    def __enter__(self) -> Asking:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ends.set()
        self.join()


def test_what_is_edited_is_served(tmp_path: Path) -> None:
    """New code and a new model come in, what is broken does not and is told in a line, and no request is lost."""
    project = make_project(tmp_path)
    with serving(project, "--reload", WORKERS=2) as running, Asking(running) as asking:
        wait_for(lambda: ask(running) == 1.5)
        edit(project, "x + model", "x - model")
        wait_for(lambda: ask(running) == 0.5)
        edit(project, "x - model", "x - (model")
        wait_for(lambda: f"ERROR app.watch: app/predict.py, line {LAST_LINE}: " in running.log())
        edit(project, "import numpy as np\n", "import numpy as np\nimport nosuchpackage\n")
        edit(project, "x - (model", "x - model")
        wait_for(lambda: "No module named 'nosuchpackage'" in running.log())
        (project / "app/predict.py").write_text(PREDICT.replace("x + model", "x + model + 8"))
        wait_for(lambda: ask(running) == 9.5)
        (project / "model/term.txt").write_text("4")
        wait_for(lambda: ask(running) == 13)
        os.utime(project / "app/config.py")
        wait_for(lambda: "app/config.py has changed, which only a restart reads" in running.log())
    assert set(asking.answers) == {1.5, 0.5, 9.5, 13}


def test_with_preload_the_model_is_loaded_again(tmp_path: Path) -> None:
    """With PRELOAD=on a new model comes in; a change of code is told to need a restart."""
    project = make_project(tmp_path)
    with serving(project, "--reload", "--preload", "on", WORKERS=1) as running:
        edit(project, "x + model", "x - model")
        wait_for(lambda: "app/predict.py has changed, which only a restart reads" in running.log())
        (project / "model/term.txt").write_text("2")
        wait_for(lambda: ask(running) == 3)


def test_serve_from_another_folder(tmp_path: Path) -> None:
    """The environment counts, its paths are of the folder one is in, an option is before it, the rest is gunicorn's."""
    (tmp_path / "project").mkdir()
    project = make_project(tmp_path / "project")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/term.txt").write_text("7")
    options = ["--model-name", "adder", "--", "--pid", str(tmp_path / "pid")]
    with serving(project, *options, folder=tmp_path, WORKERS=1, MODEL_DIR="other", MODEL_NAME="none") as running:
        assert ask(running) == 8
        assert int((tmp_path / "pid").read_text()) == running.process.pid
    done = command(
        "serve", folder=project, MODEL_DIR=tmp_path, WORKERS=1, HTTP_PORT=running.http_port, GRPC_PORT=running.grpc_port
    )
    assert done.returncode == 3


def test_an_upgrade_in_place(tmp_path: Path) -> None:
    """On USR2 a second master comes, as where gunicorn itself is the command."""
    with serving(make_project(tmp_path), WORKERS=1) as running:
        before = workers(running)
        running.process.send_signal(signal.SIGUSR2)
        wait_for(lambda: running.ever_ready() == 2)
        (heir,) = workers(running) - before
        stop_heir(heir)


def test_what_changed_since_workers_loaded(tmp_path: Path) -> None:
    """It is known of the latest workers, and of the first, which serve on where those fail; others take no memory."""
    for index in range(1000):
        (tmp_path / f"{index}.bin").touch()
    changes, model = Changes(tmp_path, []), tmp_path / "0.bin"
    tracemalloc.start()
    try:
        assert changes.since(0) == []
        begun = tracemalloc.get_traced_memory()[0]
        for generation in range(1, 21):
            model.write_bytes(b"1" * generation)
            assert changes.since(generation) == changes.since(generation) == []
            if generation % 3 == 0:
                assert changes.since(0) == [model]
        assert tracemalloc.get_traced_memory()[0] < 4 * begun  # two of 21
    finally:
        tracemalloc.stop()
    model.unlink()
    assert changes.since(20) == changes.since(0) == [model]


def test_half_a_file_is_waited_for(tmp_path: Path) -> None:
    """What goes on changing is not loaded yet; what has changed is loaded once; hidden files are none."""
    model = tmp_path / "model.bin"
    model.write_bytes(b"1")
    watch = Watch(tmp_path, set())
    assert not watch.look()
    for size in (2, 3, 4):
        model.write_bytes(b"1" * size)
        assert not watch.look()
    assert watch.look()
    assert not watch.look()
    (tmp_path / ".model.bin.part").write_bytes(b"1")
    assert not watch.look()
    assert not watch.look()
    model.unlink()
    assert not watch.look()
    assert watch.look()


@pytest.mark.parametrize(("code", "fault"), [("def f(:", "line 1"), ("a\0b", "null bytes"), ("\xff", "line 1")])
def test_code_that_cannot_be_read_holds_back_the_rest(tmp_path: Path, code: str, fault: str, caplog: Any) -> None:
    """Nothing is loaded while a changed module is broken, and then all of it is."""
    module = tmp_path / "module.py"
    module.write_text(PREDICT)
    watch = Watch(tmp_path, set())
    module.write_bytes(code.encode("latin-1"))
    (tmp_path / "model.bin").write_bytes(b"1")
    assert [watch.look() for _ in range(3)] == [False] * 3
    (line,) = [record.message for record in caplog.records]
    assert "module.py" in line
    assert fault in line
    module.write_text(PREDICT)
    assert [watch.look() for _ in range(3)] == [False, True, False]


def test_what_the_master_holds() -> None:
    """The modules that are told to need a restart are those that gunicorn's master has imported."""
    code = (
        "import runpy, sys; runpy.run_path('gunicorn.conf.py'); import app.worker; "
        "print(*[each.__file__ for each in sys.modules.values() if getattr(each, '__file__', None)], sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    held = {path for line in done.stdout.splitlines() if (path := Path(line)).is_relative_to(ROOT)}
    held -= {path for path in held if "site-packages" in path.parts}  # of an environment in the project
    assert {named(path) for path in of_master()} == {named(path) for path in held}
