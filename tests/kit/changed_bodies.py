"""Bodies of requests that differ from a valid one in one or several members.

A member is a path: ("inputs", 0, "name") is the name of the first input.
"""

import copy
import json
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
# The members of GOOD that a mutation replaces or adds.
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
# The value of a member that is removed.
ABSENT = object()
VALUES = [ABSENT, None, True, 0, -1, 1.5, "", "sum", "FP32", [], {}, [None], {"name": 5, "a": None}]


def mutate(changes: dict[tuple[Any, ...], Any]) -> dict[str, Any]:
    """Return GOOD with other values at the paths in `changes`."""
    body = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *parents, key = path
        container: Any = body
        for parent in parents:
            container = container[parent]

        if value is not ABSENT:
            container[key] = value
        elif isinstance(container, list) or key in container:
            del container[key]
    return body


def bodies() -> list[bytes]:
    """Return different bodies.

    They are GOOD, GOOD with one mutation or several, and JSON that is not a request.
    """
    values: list[Any] = [GOOD]
    for member in MEMBERS:
        for value in VALUES:
            values.append(mutate({member: value}))

    for value in VALUES:
        changes = {
            ("id",): value,
            ("inputs", 0, "shape"): value,
            ("inputs", 1, "name"): value,
            ("outputs",): value,
        }
        values.append(mutate(changes))

    values += [None, [], "text", 5, {}]
    values.append({"inputs": [1] * 100})
    values.append({**GOOD, "inputs": GOOD["inputs"] * 2})

    # Without duplicates, in this order.
    documents = [json.dumps(value).encode() for value in values]
    return list(dict.fromkeys(documents))
