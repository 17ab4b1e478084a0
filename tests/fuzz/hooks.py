"""Hooks for schemathesis: send valid inputs more often, detect tracebacks, and count responses."""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st

from tests.fuzz.judge import TRACEBACK

COUNTS = "FUZZ_COUNTS"  # environment variable with the path of the file for the counts
INPUTS: list[list[dict[str, Any]]] = [
    [],
    [{"name": "fp32_in", "shape": [2], "datatype": "FP32", "data": [25.12, None]}],
    [
        {
            "name": "bytes_in",
            "shape": [1],
            "datatype": "BYTES",
            "data": ["naïve"],
            "parameters": {"content_type": "str"},
        }
    ],
]
statuses: Counter[str] = Counter()
slowest = 0.0


@schemathesis.hook
def flatmap_body(context: Any, body: Any) -> st.SearchStrategy[Any]:
    """Replace inputs with an empty list or valid inputs, which schemathesis rarely generates. Keep other bodies."""
    if not isinstance(body, dict) or body.get("inputs") != []:
        return st.just(body)
    return st.sampled_from(INPUTS).map(lambda inputs: {**body, "inputs": inputs})


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    global slowest
    statuses[str(response.status_code)] += 1
    slowest = max(slowest, response.elapsed)


@schemathesis.check
def no_traceback(context: Any, response: Any, case: Any) -> None:
    """R19: no response contains a traceback."""
    assert TRACEBACK.encode() not in response.content


@atexit.register
def write_counts() -> None:
    if path := os.environ.get(COUNTS):
        Path(path).write_text(json.dumps({"statuses": statuses, "slowest": slowest}))
