"""A reload that fails in one of two workers."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from oip_conformance.wires import Grpc, Response
from tests.kit.processes import Running, gunicorn, wait_for, workers
from tests.kit.waiting_client import BOTH, ROOT

APP = "tests.service.apps:versioned()"
REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
FAILED = (
    "New worker failed to start: load() failed: RuntimeError: broken. Keeping the current workers"
)
ENDED = "New worker failed to start: A worker ended before it was ready"


class Served:
    """A service of `tests.service.apps:versioned`, and the directory that its load() reads."""

    def __init__(self, service: Running, folder: Path):
        self.service = service
        self.folder = folder

    def send_request(self, protocol: str) -> tuple[str, int]:
        """Send a request over a new connection, and return the word of the model and the PID of the worker."""
        if protocol == "grpc":
            while (
                response := self.send_grpc_request()
            ).kind == "UNAVAILABLE":  # the worker is stopping: clients retry
                pass
            assert response.is_success, response
            return response.outputs["word"][2][0].decode(), response.outputs["pid"][2][0]
        with closing(
            http.client.HTTPConnection(self.service.http_address, timeout=180)
        ) as connection:
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


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """Yield a service with two workers and the model "first". load() does not wait."""
    (tmp_path / "model").write_text("first")
    with gunicorn(ROOT, APP, FOLDER=tmp_path, WORKERS=2) as service:
        wait_for(lambda: service.ready_count() == 2)
        yield Served(service, tmp_path)


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
