"""The members of a request in JSON."""

from __future__ import annotations

from typing import Any

import pytest

from oip_conformance.wires import error_message
from tests.service.rest.requests import GOOD, INFER


@pytest.fixture(autouse=True)
def check_valid_request_afterward(client):
    """R20: check after each test that a valid request succeeds."""
    yield
    assert client.post(INFER, json=GOOD).json["outputs"][0]["data"] == [3.5]


def changed(**members: Any) -> dict[str, Any]:
    """Return the valid request with other members in its input. A member whose value is `...` is removed."""
    tensor = {**GOOD["inputs"][0], **members}
    return {"inputs": [{name: value for name, value in tensor.items() if value is not ...}]}


@pytest.mark.parametrize(
    "members",
    [
        {"model_name": "other", "model_version": 5, "extra": [None]},
        {"parameters": None, "outputs": None, "id": None},
        {"parameters": {}, "outputs": []},
        {"parameters": {"a": "text", "b": 1, "c": 1.5, "d": False, "e": 2**63, "f": -1e308}},
        {"inputs": [{**GOOD["inputs"][0], "parameters": None, "extra": {"a": []}}]},
        {
            "outputs": [
                {"name": "sum", "parameters": None, "extra": 1},
                {"name": "double", "parameters": {"a": 1}},
            ]
        },
        {
            "parameters": {
                "headers": None,
                "content_type": None,
                "binary_data_output": None,
                "timeout": None,
            }
        },
        {
            "inputs": [
                {
                    **GOOD["inputs"][0],
                    "parameters": {"content_type": None, "binary_data_size": None},
                }
            ]
        },
        {
            "outputs": [
                {"name": each, "parameters": {"binary_data": None}} for each in ("sum", "double")
            ]
        },
    ],
)
def test_ignores_unknown_and_null_members(service, members: dict) -> None:
    """R7, R8, R16, R17: unknown members are ignored, and null counts as absent, also as the value of a parameter."""
    response = service.rest.post({**GOOD, **members})
    assert response.status_code == 200
    assert set(response.json) == {"model_name", "model_version", "outputs"}
    assert [each["name"] for each in response.json["outputs"]] == ["sum", "double"]


@pytest.mark.parametrize("request_id", ["", "42", "🌷", '"\\\n\x00'])
def test_id_is_echoed(service, request_id: str) -> None:
    """R8: the response has the id of the request, even an empty one."""
    assert service.rest.post({**GOOD, "id": request_id}).json["id"] == request_id


@pytest.mark.parametrize("request_id", [5, 1.5, True, [], {}, ["42"]])
def test_rejects_id_that_is_not_a_string(service, request_id: Any) -> None:
    """R8: an id that is not a string is rejected."""
    text = error_message(service.rest.post({**GOOD, "id": request_id}), 400)
    assert text.startswith("Invalid id. Expected a string, got ")


@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        ({}, "Missing inputs. Expected a list of tensors with name, shape, datatype and data."),
        (
            {"instances": [[1, 2]]},
            "Missing inputs. Expected a list of tensors with name, shape, datatype and data.",
        ),
        (
            {"inputs": None},
            "Invalid inputs. Expected a list of tensors with name, shape, datatype and data, got null.",
        ),
        ({"inputs": {}}, "Invalid inputs. "),
        ({"inputs": "a"}, "Invalid inputs. "),
        ({"inputs": [5]}, "Invalid inputs[0]. Expected an object"),
        ({"inputs": [None]}, "Invalid inputs[0]. "),
        ({"inputs": [*GOOD["inputs"], []]}, "Invalid inputs[1]. Expected an object"),
        ({**GOOD, "outputs": {}}, "Invalid outputs. "),
        ({**GOOD, "outputs": ["sum"]}, "Invalid outputs[0]. Expected an object"),
        ({**GOOD, "outputs": [{}]}, "Outputs[0]: missing name. Expected a string."),
        ({**GOOD, "outputs": [{"name": 5}]}, "Outputs[0]: invalid name. Expected a string, got 5"),
        (
            {**GOOD, "outputs": [{"name": "sum", "parameters": []}]},
            'Output "sum": invalid parameters. Expected an object',
        ),
        (
            {**GOOD, "outputs": [{"name": "sum", "parameters": {"binary_data": 1}}]},
            '"binary_data". Expected true',
        ),
        ({**GOOD, "parameters": []}, "Invalid parameters. Expected an object, got []"),
        ({**GOOD, "parameters": "a"}, 'Invalid parameters. Expected an object, got "a"'),
        (
            {**GOOD, "parameters": {"a": [1]}},
            'parameter "a". Expected a string, number or boolean, got [1]',
        ),
        (
            {**GOOD, "parameters": {"a": {}}},
            'parameter "a". Expected a string, number or boolean, got {}',
        ),
        (
            {**GOOD, "parameters": {"binary_data_output": "true"}},
            'parameter "binary_data_output". Expected true',
        ),
        (changed(name=...), "Inputs[0]: missing name. Expected a string."),
        (changed(name=None), "Inputs[0]: invalid name. Expected a string, got null."),
        (changed(name=5), "Inputs[0]: invalid name. Expected a string, got 5"),
        (changed(shape=...), 'Input "a": missing shape. Expected a list of integers.'),
        (changed(shape=None), 'Input "a": invalid shape. Expected a list of integers, got null.'),
        (changed(shape=2), 'Input "a": invalid shape. Expected a list of integers, got 2'),
        (changed(shape="12"), 'Input "a": invalid shape. Expected a list of integers, got "12"'),
        (
            changed(shape=[True, 2]),
            'Input "a": invalid shape. Expected integers of at least 0, got true',
        ),
        (
            changed(shape=["1", 2]),
            'Input "a": invalid shape. Expected integers of at least 0, got "1"',
        ),
        (
            changed(shape=[1, 2.0]),
            'Input "a": invalid shape. Expected integers of at least 0, got 2.0',
        ),
        (
            changed(shape=[-1, 2]),
            'Input "a": invalid shape. Expected integers of at least 0, got -1',
        ),
        (
            changed(shape=[None, 2]),
            'Input "a": invalid shape. Expected integers of at least 0, got null',
        ),
        (
            changed(shape=[[1], 2]),
            'Input "a": invalid shape. Expected integers of at least 0, got [1]',
        ),
        (changed(shape=[10**30, 0]), 'Input "a": invalid shape. Expected integers of at least 0'),
        (changed(shape=[2**64 - 1, 0], data=[]), 'Input "a": shape too large for an array. '),
        (changed(datatype=...), 'Input "a": missing datatype. Expected one of BOOL, '),
        (changed(datatype=None), 'Input "a": invalid datatype. '),
        (changed(datatype="fp32"), 'Input "a": invalid datatype. Expected one of BOOL, '),
        (changed(datatype="STRING"), 'Input "a": invalid datatype. Expected one of BOOL, '),
        (changed(datatype=32), 'Input "a": invalid datatype. Expected one of BOOL, '),
        (changed(datatype=["FP32"]), 'Input "a": invalid datatype. Expected one of BOOL, '),
        (changed(datatype={}), 'Input "a": invalid datatype. Expected one of BOOL, '),
        (
            changed(data=...),
            'Input "a": invalid data. Expected either data or binary_data_size, got neither',
        ),
        (
            changed(data=None),
            'Input "a": invalid data. Expected either data or binary_data_size, got neither',
        ),
        (changed(parameters=[]), 'Input "a": invalid parameters. Expected an object, got []'),
        (
            changed(parameters={"a": []}),
            'Input "a": invalid parameter "a". Expected a string, number or boolean, got [].',
        ),
    ],
)
def test_rejects_missing_or_invalid_members(service, envelope: Any, text: str) -> None:
    """R7, R9, R17, R19: the error for a missing member, or one of another type, names the member and its input."""
    assert text in error_message(service.rest.post(envelope), 400)


def test_reports_all_invalid_members(service) -> None:
    """R19: one error message reports all invalid members of a request."""
    envelope = {
        "id": 5,
        "inputs": [{"name": "a", "datatype": "x", "shape": [-1]}, {"shape": []}],
        "outputs": 1,
    }
    text = error_message(service.rest.post(envelope), 400)
    for part in [
        "Invalid id",
        'Input "a": invalid datatype',
        'Input "a": invalid shape',
        "Inputs[1]: missing name",
        "Invalid outputs",
    ]:
        assert part in text
