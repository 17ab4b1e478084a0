"""BF16 in JSON (R23). Other cases of BF16 are with those of the other datatypes."""

from __future__ import annotations

import json

import pytest

from oip_conformance.binary_requests import binary_output
from oip_conformance.inputs import json_input
from oip_conformance.outcomes import check_success
from oip_conformance.wires import Rest


@pytest.mark.needs("bf16", "bf16 json", "binary")
@pytest.mark.parametrize(
    ("number", "octets"),
    [
        ("1.00390625", "803f"),
        ("1.01171875", "823f"),
        ("-1.00390625000001", "81bf"),
        ("3.396e38", "7f7f"),
        ("1e-40", "0100"),
        ("-1e-46", "0080"),
        ("null", "c07f"),
    ],
)
def test_bf16_is_rounded(rest: Rest, number: str, octets: str) -> None:
    """R23: a JSON number is rounded to the nearest BF16, ties to even, and null is NaN."""
    tensor = json_input("bf16_in", "BF16", [1], [json.loads(number)])
    reply = rest.post({"inputs": [tensor], "outputs": [binary_output("bf16")]})
    check_success(reply)
    assert reply.data[-2:] == bytes.fromhex(octets)
