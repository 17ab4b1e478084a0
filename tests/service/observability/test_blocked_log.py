"""A log without a reader does not block the service."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from app.inference.call import INFER, Call
from app.observability.observer_queue import CHUNK, ObserverQueue
from tests.kit.log_lines import ROOT, Client, parse
from tests.kit.processes import Running, local_settings, wait_for
from tests.kit.scrapes import scrape


def pair(kind: str) -> tuple[int, int]:
    """Return the file descriptors of the read end and the write end."""
    if kind == "pipe":
        return os.pipe()
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_blocked_log_does_not_block_the_service(kind: str) -> None:
    """If nothing reads the log, the service still handles requests, serves metrics and stops."""
    settings = local_settings(WORKERS=1, LOG_FORMAT="json")
    environment = os.environ | {name: str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "gunicorn", "tests.service.apps:echoing()"]
    ours, theirs = pair(kind)
    with (
        open(ours, "rb", buffering=0) as reader,
        subprocess.Popen(command, cwd=ROOT, env=environment, stderr=theirs) as process,
    ):
        os.close(theirs)
        service = Running(process, settings["HTTP_PORT"], settings["GRPC_PORT"], Path(os.devnull))
        try:
            wait_for(service.ready)
            with grpc.insecure_channel(service.grpc_address) as channel:
                for _ in range(
                    1000
                ):  # 300 KB of log, more than a pipe (64 KB) or a socket (200 KB) holds
                    assert Client(service, channel).infer("grpc")[0] == "OK"
            assert scrape(service)("inference_requests_total", operation="infer") == 1000
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        lines = parse(reader.readall().decode(), "json")
    assert 0 < sum(line["logger"] == "app.requests" for line in lines) < 1000


MANY = """
import logging
from app.observability import log
log.configure("json")
log.handler.start()
for number in range(%d):
    logging.getLogger("app").info("%%d", number, extra={"filling": "x" * 300})
print(flush=True)
input()
"""

LONG = """
import logging
from app.observability import log
log.configure("json")
print(flush=True)
logging.getLogger("app").info("x" * 1_000_000)
logging.getLogger("app").info("next")
"""


def read_log(kind: str, code: str, is_late: bool) -> list[str]:
    """Return the lines that `code` logs to a pipe or socket. A late reader begins after they are logged."""
    ours, theirs = pair(kind)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": theirs}
    with (
        open(ours, "rb", buffering=0) as reader,
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, **pipes) as process,
    ):
        os.close(theirs)
        if is_late:
            process.stdout.read(1)
        process.stdin.write(b"\n")
        process.stdin.flush()
        return reader.readall().decode().splitlines()


def messages_of(lines: list[str]) -> list[str]:
    return [line["message"] for line in parse("\n".join([*lines, ""]), "json")]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_drops_lines_without_a_reader(kind: str) -> None:
    """Logging does not wait for a reader: lines that the queue has no room for are dropped, counted and reported."""
    messages = messages_of(read_log(kind, MANY % 20_000, is_late=True))
    dropped = [int(message.split()[1]) for message in messages if message.startswith("Dropped ")]
    assert sum(dropped) > 0
    assert sum(dropped) + len(messages) - len(dropped) == 20_000


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_keeps_all_lines_with_a_reader(kind: str) -> None:
    """A reader gets every line, in order, even if they are more than a pipe holds."""
    assert messages_of(read_log(kind, MANY % 3000, is_late=False)) == [
        str(number) for number in range(3000)
    ]


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_writes_long_lines_completely(kind: str) -> None:
    """A line that is longer than the reader takes at once is written completely."""
    assert messages_of(read_log(kind, LONG, is_late=True)) == ["x" * 1_000_000, "next"]


def test_blocked_log_does_not_block_metrics() -> None:
    """A blocked log does not delay metrics, and settle() returns even if requests keep arriving."""
    counted: list[Call] = []
    written: list[Call] = []
    may_write, is_over = threading.Event(), threading.Event()

    def write(calls: list[Call]) -> None:
        may_write.wait(60)
        written.extend(calls)
        if not is_over.is_set():
            observer_queue.add(Call(INFER))

    observer_queue = ObserverQueue()
    observer_queue.add_observer(counted.extend)
    observer_queue.add_observer(write)
    observer_queue.start()
    for _ in range(CHUNK + 1):
        observer_queue.add(Call(INFER))
    wait_for(lambda: len(counted) == CHUNK + 1)
    assert not written
    may_write.set()
    observer_queue.wait_for_workers()  # Each write adds another call.
    is_over.set()
    assert len(written) > CHUNK
