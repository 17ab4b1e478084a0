"""Run schemathesis with the service's OpenAPI description in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.fuzz.rounds import Result
from tests.fuzz.wire import RESPONSE_TIMEOUT_SECONDS

HERE = Path(__file__).parent
COMMAND = Path(sys.executable).with_name("st")
CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
    "allow_header_conformance",
    "no_traceback",
]
ST_RUN: list[str | Path] = [
    COMMAND,
    "run",
    f"--checks={','.join(CHECKS)}",
    f"--max-response-time={RESPONSE_TIMEOUT_SECONDS}",
    f"--request-timeout={RESPONSE_TIMEOUT_SECONDS}",
    "--generation-database=none",
    "--exclude-path=/metrics",  # its response time grows with the metrics of the previous requests
    "--warnings=off",
    "--no-color",
]


def run_schemathesis(address: str, examples: int, seed: int, of: str = "/v2") -> Result:
    """Run schemathesis with the description under the path `of` at `address`, and return the result.

    schemathesis sends up to `examples` requests of each kind per operation.
    """
    with (
        tempfile.TemporaryDirectory() as folder
    ):  # schemathesis leaves files in its working directory
        counts = Path(folder) / "counts.json"
        done = subprocess.run(
            [
                *ST_RUN,
                f"http://{address}{of}/docs/openapi.json",
                f"--max-examples={examples}",
                f"--seed={seed}",
            ],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parents[1]),
                "SCHEMATHESIS_HOOKS": "tests.fuzz.hooks",
                "FUZZ_COUNTS": str(counts),
                "NO_PROXY": "127.0.0.1",  # otherwise, requests would use a proxy that the environment sets
                "no_proxy": "127.0.0.1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        counted: dict[str, Any] = {"statuses": {}, "slowest": 0.0}
        if counts.exists():
            counted = json.loads(counts.read_text())
    result = Result("schemathesis", Counter(counted["statuses"]), counted["slowest"])
    if done.returncode:
        result.record_fault(
            f"schemathesis exited with {done.returncode}", done.stdout + done.stderr
        )
    return result
