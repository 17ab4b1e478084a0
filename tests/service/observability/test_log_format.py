"""The format of log lines, outside of requests too."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from typing import Any

import grpc
import pytest

from app.inference.call import INFER, Call, current_calls
from app.observability import log
from oip_conformance.wires import Grpc
from tests.kit.log_lines import FORMATS, ROOT, parse
from tests.kit.processes import free_ports, wait_for
from tests.service.runtime.commands import start


@pytest.mark.parametrize(
    ("command", "environment", "text"),
    [
        (
            ("gunicorn", "tests.service.apps:load_error()"),
            {},
            "load() failed. The service does not start",
        ),
        (
            ("gunicorn", "tests.service.apps:signature_mismatch()"),
            {},
            "Cannot start: tests/service/apps.py, line ",
        ),
        (("gunicorn", "app:create_app()"), {"HOST": "192.0.2.1"}, "Cannot start: HOST=192.0.2.1"),
        (
            ("gunicorn", "app:create_app()"),
            {"WORKERS": "two"},
            "Cannot start: WORKERS: invalid value",
        ),
        (("grpc_service",), {"HOST": "192.0.2.1"}, "Cannot start: GRPC_PORT="),
    ],
)
def test_failed_startup_uses_the_format(
    command: tuple[str, ...], environment: dict[str, str], text: str
) -> None:
    """The error of a failed startup, and every line before it, use the configured format."""
    done = start(*command, LOG_FORMAT="JSON", **environment)
    assert done.returncode != 0
    lines = parse(done.stdout + done.stderr, "json")
    (line, *_) = (line for line in lines if line["message"].startswith(text))
    assert line["level"] in ("ERROR", "CRITICAL")
    assert ("stacktrace" in line) == ("load()" in text)


def test_grpc_service_uses_the_format() -> None:
    """`python -m grpc_service` logs in the same format, including its last request."""
    (port,) = free_ports(1)
    settings = {
        "HOST": "127.0.0.1",
        "GRPC_PORT": str(port),
        "SHUTDOWN_DELAY_SECONDS": "0",
        "LOG_FORMAT": "json",
    }
    command = [sys.executable, "-m", "grpc_service"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **settings}, stderr=subprocess.PIPE
    ) as process:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(60)
                wait_for(lambda: Grpc(channel).call("ServerReady").ready)
                channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")(
                    b"", metadata=[("x-request-id", "last")], timeout=180
                )
        finally:
            process.send_signal(signal.SIGTERM)
        _, written = process.communicate(timeout=180)
    assert process.returncode == 0
    *others, last = parse(written.decode(), "json")
    assert any("is ready on" in line["message"] for line in others)
    assert (last["request_id"], last["message"]) == ("last", "gRPC ServerMetadata OK")


class WithoutText:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize(
    ("message", "extra", "expected"),
    [
        ("half a pair: \udcff", {}, "half a pair: "),
        ("many digits", {"n": 2**70, "\n": [2**70, "\udcff"]}, "many digits"),
        ("not a number", {"n": float("nan"), "o": object()}, "not a number"),
        (WithoutText(), {}, "Cannot write a record of "),
        ("cannot be said", {"o": WithoutText()}, "Cannot write a record of "),
        ("%s and %s", {}, "%s and %s"),
    ],
)
def test_any_record_is_one_line(
    log_format: str, message: Any, extra: dict[str, Any], expected: str
) -> None:
    """Every record, with any message and extra fields, is one line in the format."""
    record = logging.makeLogRecord({"name": "model", "msg": message, "levelname": "INFO", **extra})
    writer = log.LogHandler()
    writer.setFormatter(log.FORMATTERS[log_format]())
    (parsed,) = parse(writer.prepare(record), log_format)
    assert parsed["message"].startswith(expected)


def test_batch_lines_name_all_requests() -> None:
    """A line that predict() logs for a batch has the ids of all its requests."""
    token = current_calls.set((Call(INFER, "a"), Call(INFER, "b")))
    try:
        record = logging.makeLogRecord({"name": "model", "msg": "hello", "levelname": "INFO"})
        assert " INFO model [a,b]: hello" in log.TextFormatter().format(record)
    finally:
        current_calls.reset(token)
