"""A short fuzzing run with the command of conformance/fuzz/README.md."""

from __future__ import annotations

import sys

from tests.template.environments import ROOT, run

KINDS = ["schemathesis", "JSON", "binary", "protobuf", "paths", "octets"]


def test_short_fuzzing_run() -> None:
    """Thousands of generated requests get valid responses in time, and no worker exits, grows or logs an error."""
    output = run(sys.executable, "-m", "conformance.fuzz", "--requests", "3000", "--seed", "1", PYTHONPATH=str(ROOT))
    summary = output[output.index("kind ") :].splitlines()
    assert {line.split()[0] for line in summary} >= {*KINDS, "all"}
    assert "workers: 2, lost: 0" in summary
    assert summary[-1] == "faults: 0"
