"""Requests for the tests of the routes."""

from __future__ import annotations

import json
from typing import Any

INFER = "/v2/models/test/infer"
GOOD: dict[str, Any] = {
    "inputs": [{"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]}]
}
LIMIT = 100_000


BODY = json.dumps(GOOD).encode()
