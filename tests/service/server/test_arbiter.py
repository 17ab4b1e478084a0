"""The rolling arbiter with a worker class without the rest of the project."""

from __future__ import annotations

import http.client
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.kit.processes import Running, wait_for, workers
from tests.kit.standalone import ROOT, SECONDS, exchange, read_replies, start


@pytest.fixture
def service() -> Iterator[Running]:
    with start("-c", "python:tests.service.server.rolling") as service:
        wait_for(lambda: len(workers(service)) == 2)
        yield service


def replace_workers(service: Running) -> None:
    before = workers(service)
    service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: len(now := workers(service)) == 2 and not before & now)


def test_sigterm(service: Running) -> None:
    """SIGTERM ends the workers before gunicorn has to kill them."""
    service.process.terminate()
    assert service.process.wait(SECONDS) == 0
    assert service.log().count("Worker exiting") == 2
    assert "SIGKILL" not in service.log()


def test_sighup(service: Running) -> None:
    """SIGHUP replaces all workers, and every request under load gets its response."""
    has_stopped, replies = threading.Event(), Counter[str]()

    def send_requests() -> None:
        with closing(http.client.HTTPConnection(service.http, timeout=SECONDS)) as connection:
            while not has_stopped.is_set():
                try:
                    connection.request("GET", "/seen")
                    response = connection.getresponse()
                    response.read()
                    replies[str(response.status)] += 1
                except (OSError, http.client.HTTPException) as error:
                    replies[repr(error)] += 1
                    connection.close()

    threads = [threading.Thread(target=send_requests) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(2):
            replace_workers(service)
    finally:
        has_stopped.set()
        for thread in threads:
            thread.join()
    assert replies.keys() == {"200"}, replies
    assert "SIGKILL" not in service.log()


def test_readme_examples(tmp_path: Path) -> None:
    """The modules in the README serve requests, also after a reload."""
    text = (ROOT / "app" / "server" / "README.md").read_text()
    for name, content in zip(
        ("my_module", "my_config"),
        re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL),
        strict=True,
    ):
        (tmp_path / f"{name}.py").write_text(content)
    options = ["-c", "python:my_config", "-k", "my_module.MyWorker", "--workers", "2"]
    path = os.pathsep.join(map(str, (tmp_path, ROOT)))
    with start(*options, app="my_module:application", PYTHONPATH=path) as service:
        wait_for(lambda: len(workers(service)) == 2)
        replace_workers(service)
        [reply] = read_replies(exchange(service.http_port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert reply.body == b"Hello\n"
