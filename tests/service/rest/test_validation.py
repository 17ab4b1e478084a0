"""The envelope of a request: marshmallow's validation on the plain route, and the fast check on the fast path."""

from __future__ import annotations

import copy
import json
from collections import Counter
from itertools import product
from typing import Any

import pytest

from oip_conformance.wires import error_message
from tests.kit import models

INFER = "/v2/models/test/infer"
GOOD: dict[str, Any] = {
    "id": "1",
    "parameters": {"binary_data_output": False},
    "inputs": [
        {
            "name": "a",
            "datatype": "FP32",
            "shape": [1, 2],
            "data": [1.5, 2],
            "parameters": {"content_type": "np"},
        },
        {"name": "b", "datatype": "INT64", "shape": [1], "data": [3]},
    ],
    "outputs": [{"name": "sum", "parameters": {"binary_data": False}}, {"name": "double"}],
}
# The members of GOOD that a mutation replaces, by their path.
MEMBERS: list[tuple[Any, ...]] = [
    ("id",),
    ("parameters",),
    ("parameters", "binary_data_output"),
    ("parameters", "other"),
    ("inputs",),
    ("inputs", 0),
    ("inputs", 0, "name"),
    ("inputs", 0, "shape"),
    ("inputs", 0, "shape", 0),
    ("inputs", 1, "datatype"),
    ("inputs", 0, "data"),
    ("inputs", 0, "parameters"),
    ("inputs", 0, "parameters", "binary_data_size"),
    ("outputs",),
    ("outputs", 1),
    ("outputs", 1, "name"),
    ("outputs", 0, "parameters"),
    ("outputs", 0, "parameters", "binary_data"),
    ("unknown",),
]
ABSENT = object()
VALUES = [ABSENT, None, True, 0, -1, 1.5, "", "sum", "FP32", [], {}, [None], {"name": 5, "a": None}]
SWITCHES = ["fast_validation", "fast_path"]


def mutate(changes: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    """Return GOOD with other values at the paths in `changes`."""
    body = copy.deepcopy(GOOD)
    for path, value in changes.items():
        target: Any = body
        for step in path[:-1]:
            target = target[step]
        if value is not ABSENT:
            target[path[-1]] = value
        elif isinstance(target, list) or path[-1] in target:
            del target[path[-1]]
    return body


def bodies() -> list[bytes]:
    """Return different bodies: GOOD with one mutation, with several, and JSON that is not a request."""
    single = [mutate({member: value}) for member, value in product(MEMBERS, VALUES)]
    several = [
        mutate(
            {
                ("id",): value,
                ("inputs", 0, "shape"): value,
                ("inputs", 1, "name"): value,
                ("outputs",): value,
            }
        )
        for value in VALUES
    ]
    others = [
        None,
        [],
        "text",
        5,
        {},
        {"inputs": [1] * 100},
        {**GOOD, "inputs": GOOD["inputs"] * 2},
    ]
    return list(
        dict.fromkeys(json.dumps(each).encode() for each in [GOOD, *single, *several, *others])
    )


@pytest.mark.parametrize("switch", SWITCHES)
def test_fast_check_agrees_with_marshmallow(serve, switch: str) -> None:
    """R7, R9, R17, R19: over 200 bodies have the same status and message with and without the optimization."""
    fast = serve(models.two_by_two()).client
    plain = serve(models.two_by_two(), disable_optimizations=(switch,)).client
    for client in (fast, plain):
        assert client.post(INFER, json=GOOD).status_code == 200
    statuses = Counter[int]()
    for body in bodies():
        one, other = fast.post(INFER, data=body), plain.post(INFER, data=body)
        assert (one.status_code, one.data) == (other.status_code, other.data), body
        statuses[one.status_code] += 1
    assert statuses.total() >= 200
    assert set(statuses) == {200, 400}
    assert min(statuses.values()) >= 40


def test_limit_of_errors(serve) -> None:
    """R19: a body with thousands of errors gets a short message, which starts with the first of them."""
    response = serve(models.two_by_two()).client.post(INFER, json={"inputs": [5] * 20_000})
    assert response.status_code == 400
    assert response.json["error"].startswith(
        "Invalid inputs[0]. Expected an object, got 5. Invalid inputs[1]. "
    )
    assert len(response.data) < 1000


def test_reports_all_invalid_members(serve) -> None:
    """R19: one error message reports all invalid members of a request."""
    envelope = {
        "id": 5,
        "inputs": [{"name": "a", "datatype": "x", "shape": [-1]}, {"shape": []}],
        "outputs": 1,
    }
    text = error_message(serve(models.two_by_two()).rest.post(envelope), 400)
    for part in [
        "Invalid id",
        'Input "a": invalid datatype',
        'Input "a": invalid shape',
        "Inputs[1]: missing name",
        "Invalid outputs",
    ]:
        assert part in text
