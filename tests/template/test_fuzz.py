"""The service under generated requests: a short run of the command that conformance/fuzz/README.md is about."""

from __future__ import annotations

import sys

from tests.template.environments import ROOT, run

KINDS = ["schemathesis", "JSON", "binary", "protobuf", "paths", "octets"]


def test_a_short_run() -> None:
    """Thousands of generated requests are answered or refused in time, and no worker is lost, grows or logs a fault."""
    said = run(sys.executable, "-m", "conformance.fuzz", "--requests", "3000", "--seed", "1", PYTHONPATH=str(ROOT))
    summary = said[said.index("kind ") :].splitlines()
    assert {line.split()[0] for line in summary} >= {*KINDS, "all"}
    assert "workers: 2, lost: 0" in summary
    assert summary[-1] == "faults: 0"
