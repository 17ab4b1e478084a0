"""The rolling arbiter with a worker class without the rest of the project."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from tests.kit.processes import wait_for, workers
from tests.kit.standalone import ROOT, exchange, read_replies, start


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
        before = workers(service)
        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(now := workers(service)) == 2 and not before & now)
        [reply] = read_replies(exchange(service.http_port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert reply.body == b"Hello\n"
    assert "SIGKILL" not in service.last_words
