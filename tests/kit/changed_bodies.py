"""Bodies of requests that differ from a valid one in one or several members."""

import copy
import json
from itertools import product
from typing import Any

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
