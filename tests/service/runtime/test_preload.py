"""PRELOAD_MODEL: the master loads the model once, and the workers share it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from oip_conformance.wires import Grpc, Response
from tests.kit.processes import (
    READY_SECONDS,
    Running,
    free_ports,
    gunicorn,
    started,
    wait_for,
    workers,
)
from tests.kit.waiting_client import BOTH, ROOT, Client, Load, is_live

APP = "tests.service.apps:versioned()"
MODEL_BYTES = 64 * 2**20
REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}


class Served:
    """A service of `tests.service.apps:versioned`, and the directory that its load() reads."""

    def __init__(self, service: Running, folder: Path, stack: ExitStack):
        self.service, self.folder, self.client = service, folder, Client(service, folder, stack)

    def send_request(self, protocol: str) -> tuple[str, int]:
        """Send a request over a new connection, and return the word of the model and the PID of the worker."""
        if protocol == "grpc":
            while (
                response := self.send_grpc_request()
            ).kind == "UNAVAILABLE":  # the worker is stopping: clients retry
                pass
            assert response.kind == "ok", response
            return response.outputs["word"][2][0].decode(), response.outputs["pid"][2][0]
        with closing(http.client.HTTPConnection(self.service.http, timeout=60)) as connection:
            connection.request("POST", "/v2/models/test/infer", json.dumps(REQUEST))
            outputs = json.loads(connection.getresponse().read())["outputs"]
            return outputs[1]["data"][0], outputs[2]["data"][0]

    def send_grpc_request(self) -> Response:
        with self.service.own_channel() as channel:
            return Grpc(channel).infer([("x", "FP32", [1], [1.0])])

    def model_words(self) -> set[str]:
        """Return the words of the models of all current workers, by requests over both protocols."""
        words = set()
        for protocol in BOTH:
            waiting = workers(self.service)
            for _ in range(1000):
                word, pid = self.send_request(protocol)
                words.add(word)
                waiting.discard(pid)
                if not waiting & workers(self.service):  # some may have stopped since
                    break
            else:
                raise AssertionError(f"no response over {protocol} of {waiting}")
        return words

    def loads(self) -> int:
        """Return the number of calls of load()."""
        noted = self.folder / "loads"
        return noted.read_text().count("\n") if noted.exists() else 0

    def reload_model(self, word: str) -> None:
        """Reload the model with this word, and return when load() waits for go()."""
        (self.folder / "model").write_text(word)
        (self.folder / "wait").touch()
        before = self.loads()
        self.service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.loads() > before)

    def finish_load(self) -> None:
        (self.folder / "wait").unlink()

    def wait_for_others(self, before: set[int]) -> None:
        """Wait until there are two workers, none of which is in `before`."""
        wait_for(lambda: len(now := workers(self.service)) == 2 and not before & now)


def serve(stack: ExitStack, folder: Path, **options: object) -> Served:
    (folder / "model").write_text("first")
    service = stack.enter_context(
        gunicorn(ROOT, APP, FOLDER=folder, PRELOAD_MODEL="on", WORKERS=2, **options)
    )
    return Served(service, folder, stack)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ExitStack() as stack:
        yield serve(stack, tmp_path_factory.mktemp("served"))


@pytest.fixture
def served(shared: Served) -> Served:
    """Return the shared service when it has two workers, after the reloads of earlier tests."""
    wait_for(lambda: len(workers(shared.service)) == 2)
    return shared


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_service_is_live_but_not_ready_while_loading(stack: ExitStack, tmp_path: Path) -> None:
    """R5: while load() runs once for all workers, the service is live, not ready, and rejects inference requests."""
    (tmp_path / "wait").touch()
    served = serve(stack, tmp_path, is_ready=is_live)
    wait_for(lambda: served.loads() == 1)
    for _ in range(5):
        assert served.client.live()
        assert served.client.ready() == {False}
        assert {served.client.infer(protocol) for protocol in BOTH} == {"UNAVAILABLE"}
    wait_for(lambda: "Still loading the model after 1 s" in served.service.log())
    served.finish_load()
    wait_for(lambda: len(workers(served.service)) == 2 and served.service.ready())
    assert served.model_words() == {"first"}
    assert served.loads() == served.service.log().count("Loaded the model in") == 1
    wait_for(lambda: served.service.log().count("curl") == 1)


def test_workers_share_the_model(served: Served) -> None:
    """A worker that has read the whole model has no private copy of it."""
    served.model_words()
    for pid in workers(served.service):
        assert memory(pid, "Rss") > MODEL_BYTES
        assert memory(pid, "Private_Clean", "Private_Dirty") < MODEL_BYTES


def memory(pid: int, *kinds: str) -> int:
    """Return the memory of the process in bytes, summed over these `kinds` in smaps_rollup."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(
        int(kib) * 2**10
        for kind in kinds
        for kib in re.findall(rf"^{kind}: +(\d+) kB", text, re.MULTILINE)
    )


def test_killed_worker_is_replaced(served: Served) -> None:
    """A killed worker is replaced by one that shares the loaded model, without another load()."""
    (word,), loads = served.model_words(), served.loads()
    lost, *_ = before = workers(served.service)
    os.kill(lost, signal.SIGKILL)
    wait_for(lambda: len(workers(served.service) - before) == 1)
    assert served.model_words() == {word}
    assert served.loads() == loads


def test_reload_loses_no_requests(served: Served, stack: ExitStack) -> None:
    """SIGHUP under load replaces the model without a failed request, and the service stays ready."""
    before, load = workers(served.service), Load(served.client, stack)
    served.reload_model("second")
    assert served.model_words() != {"second"}
    served.finish_load()
    served.wait_for_others(before)
    assert served.model_words() == {"second"}
    kinds = load.stop()
    assert set(kinds) <= {"ok", "refused"}, kinds
    assert kinds["ok"] > 100
    assert set(load.probes) == {200}, load.probes


def test_reload_during_load_loads_latest_model(served: Served) -> None:
    """SIGHUP during a load() causes one more load(), which reads the latest model."""
    before, loads = workers(served.service), served.loads()
    served.reload_model("third")
    (served.folder / "model").write_text("fourth")
    hangs = served.service.log().count("Hang up")
    served.service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: served.service.log().count("Hang up") > hangs)
    served.finish_load()
    served.wait_for_others(before)
    wait_for(lambda: served.model_words() == {"fourth"})
    assert served.loads() == loads + 2


def test_failed_reload_keeps_old_workers(served: Served) -> None:
    """If load() fails after SIGHUP, one error is logged, the old workers stay, and a killed one is replaced."""
    (word,), before, tracebacks = (
        served.model_words(),
        workers(served.service),
        served.service.log().count("Traceback"),
    )
    served.reload_model("broken")
    lost, stays = before
    os.kill(lost, signal.SIGKILL)
    served.finish_load()
    wait_for(lambda: lost not in (now := workers(served.service)) and len(now) == 2)
    assert served.service.log().count("Keeping the current workers") == 1
    assert served.service.log().count("Traceback") == tracebacks + 1
    assert "RuntimeError: broken" in served.service.log()
    assert stays in workers(served.service)
    assert served.model_words() == {word}
    assert served.client.ready() == {True}


def test_load_can_wait_for_child_process(served: Served) -> None:
    """In the master too, load() can start a child process and read its exit status."""
    before = workers(served.service)
    served.reload_model("parent")
    served.finish_load()
    served.wait_for_others(before)
    assert served.model_words() == {"parent"}


def test_failed_first_load_stops_service(tmp_path: Path) -> None:
    """If the first load() fails, the service logs one traceback, exits with status 3, and is never ready."""
    http_port, grpc_port = free_ports(2)
    ports = {"HOST": "127.0.0.1", "HTTP_PORT": http_port, "GRPC_PORT": grpc_port}
    (tmp_path / "model").write_text("broken")
    (tmp_path / "wait").touch()
    settings = {**ports, "FOLDER": tmp_path, "PRELOAD_MODEL": "on", "WORKERS": 2}
    with started([sys.executable, "-m", "gunicorn", APP], ROOT, settings, is_live) as service:
        (tmp_path / "wait").unlink()
        while service.process.poll() is None:
            assert not service.ready()
        assert service.process.returncode == 3
        assert service.log().count("Traceback") == 1
        assert "RuntimeError: broken" in service.log()


@pytest.mark.parametrize("again", [False, True])
def test_sigterm_during_load_stops_service(stack: ExitStack, tmp_path: Path, again: bool) -> None:
    """SIGTERM during the first load(), or during a later one, stops the service with status 0."""
    if not again:
        (tmp_path / "wait").touch()
    served = serve(
        stack, tmp_path, is_ready=Running.ready if again else is_live, SHUTDOWN_DELAY_SECONDS=0
    )
    if again:
        served.reload_model("second")
    wait_for(lambda: served.loads() == 1 + again)
    served.service.process.send_signal(signal.SIGTERM)
    assert served.service.process.wait(READY_SECONDS) == 0
