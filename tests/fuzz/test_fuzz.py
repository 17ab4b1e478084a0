"""A short fuzzing run with the command of README.md."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from app.inference import predict_adapter
from app.observability.log import TextFormatter
from oip_conformance.model import NAME
from tests import conformance_model
from tests.fuzz.judge import log_faults
from tests.fuzz.openapi import run_schemathesis
from tests.kit.environments import ROOT, run
from tests.kit.processes import gunicorn

KINDS = ["schemathesis", "JSON", "binary", "protobuf", "paths", "octets"]


@pytest.mark.slow
def test_short_fuzzing_run() -> None:
    """Thousands of generated requests get valid responses in time, and no worker exits, grows or logs an error."""
    options = ["--requests", "6000", "--clients", "2", "--seed", "1"]
    output = run(sys.executable, "-m", "tests.fuzz", *options, PYTHONPATH=str(ROOT))
    summary = output[output.index("kind ") :].splitlines()
    assert {line.split()[0] for line in summary} >= {*KINDS, "all"}
    assert {"500 of the model", "INTERNAL of the model"} <= set(
        re.findall(r"\w+ of the model", output)
    )
    assert "workers: 2, lost: 0" in summary
    assert summary[-1] == "faults: 0"


def log_of_failed_request() -> str:
    """Return the service's log of a request for which the model raises an exception."""
    client, log = conformance_model.create_service().test_client(), io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(TextFormatter())
    predict_adapter.logger.addHandler(handler)
    try:
        body = {
            "inputs": [{"name": "fail_in", "datatype": "BYTES", "shape": [1], "data": ["as asked"]}]
        }
        response = client.post(f"/v2/models/{NAME}/infer", json=body)
        assert response.status_code == 500, response.text
    finally:
        predict_adapter.logger.removeHandler(handler)
    return log.getvalue()


def test_log_faults_are_tracebacks_of_the_service() -> None:
    """A traceback of the model is not a fault. The same traceback of another logger is one, and so is a lost worker."""
    log = log_of_failed_request()
    assert "Traceback (most recent call last)" in log
    assert not log_faults(log)
    head, _, traceback = log.partition("\n")
    other = head.replace(predict_adapter.logger.name, "app.rest")
    assert other != head
    assert log_faults(f"{other}\n{traceback}") == [f"a traceback below: {other}"]
    lost = "[2026-11-25 12:00:00 +0000] [1] [CRITICAL] WORKER TIMEOUT (pid:7)"
    assert log_faults(f"{log}{lost}\n") == [lost]


@pytest.mark.slow
def test_schemathesis_finds_nothing() -> None:
    """schemathesis finds no response that contradicts the description of the repository's own model."""
    with gunicorn(ROOT) as running:
        result = run_schemathesis(running.http_address, examples=2, seed=1, of="/v2/models/iris")
    assert not result.fault, result.request
    assert result.statuses["200"] > 10
    assert result.statuses["400"] > 10
