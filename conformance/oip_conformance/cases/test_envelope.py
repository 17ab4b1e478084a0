"""Members of requests and responses (R7, R8, R15-R17), and error messages (R19, G1)."""

from __future__ import annotations

from typing import Any

import pytest

from oip_conformance.inputs import SMALL, json_input
from oip_conformance.model import ECHOED
from oip_conformance.outcomes import check_type, describe, error_message, expect, success
from oip_conformance.skips import require_feature, skip_not_run
from oip_conformance.target import Target
from oip_conformance.values import VALUES
from oip_conformance.wires import RAW_ONLY, Rest, Sent, exact

NUMBERS: Sent = ("int32_in", "INT32", [2], [5, -6])
GOOD = json_input(*SMALL)


def changed(**members: Any) -> dict[str, Any]:
    """Return the valid request with changed members of its input. The value ... removes a member."""
    return {
        "inputs": [{name: value for name, value in {**GOOD, **members}.items() if value is not ...}]
    }


def with_parameters(place: str, parameters: Any) -> dict[str, Any]:
    """Return the valid request with parameters on the request, its input or its output."""
    envelope: dict[str, Any] = {"inputs": [GOOD], "outputs": [{"name": "fp32_out"}]}
    holder = {"request": envelope, "input": {**GOOD}, "output": {"name": "fp32_out"}}[place]
    holder["parameters"] = parameters
    return envelope if place == "request" else {**envelope, f"{place}s": [holder]}


@pytest.mark.parametrize(
    "members",
    [
        {"model_name": "other", "model_version": 5, "extra": [None]},
        {"parameters": None, "outputs": None, "id": None},
        {"parameters": {}, "outputs": []},
        {"inputs": [{**GOOD, "parameters": None, "extra": {"a": []}}]},
        {"outputs": [{"name": "fp32_out", "parameters": None, "extra": 1}]},
    ],
)
def test_unknown_and_null_members(rest: Rest, members: dict[str, Any]) -> None:
    """R7: unknown members of the request are ignored, and null equals an absent member."""
    reply = success(rest.post({"inputs": [GOOD], **members}))
    assert [1.5, -2.0] in [each["data"] for each in reply.json["outputs"]]


@pytest.mark.parametrize(
    "envelope",
    [
        {},
        {"inputs": None},
        {"inputs": {}},
        {"inputs": "fp32_in"},
        {"instances": [[1, 2]]},
        {"inputs": [5]},
        {"inputs": [None]},
        {"inputs": [GOOD, []]},
        {"inputs": [GOOD], "outputs": {}},
        {"inputs": [GOOD], "outputs": ["fp32_out"]},
        {"inputs": [GOOD], "outputs": [{}]},
        {"inputs": [GOOD], "outputs": [{"name": 5}]},
        changed(name=...),
        changed(name=None),
        changed(name=5),
        changed(shape=...),
        changed(shape=None),
        changed(datatype=...),
        changed(datatype=None),
        changed(datatype=32),
        changed(datatype=["FP32"]),
        changed(datatype={}),
        changed(datatype="STRING"),
        changed(datatype=""),
        changed(data=...),
        changed(data=None),
    ],
)
def test_missing_or_invalid_members(rest: Rest, envelope: dict[str, Any]) -> None:
    """R7: a missing member or a member of the wrong type is rejected."""
    error_message(rest.post(envelope), 400)


@pytest.mark.parametrize("request_id", ["42", "ü 🌷", " ", "x" * 1000, None])
def test_id(target: Target, form: str, request_id: str | None) -> None:
    """R8, G5: the response has the request's id, or none if the request has none."""
    assert expect(target.infer(form, [SMALL], request_id=request_id)).id == request_id


@pytest.mark.parametrize("members", [{}, {"id": None}, {"id": ""}, {"id": '"\\\n\0'}])
def test_id_in_json(rest: Rest, members: dict[str, Any]) -> None:
    """R8: an empty id is returned. If the request's id is null or absent, the response has no id member."""
    body = success(rest.post({"inputs": [GOOD], **members})).json
    assert body.get("id") == members.get("id")
    assert ("id" in body) == (members.get("id") is not None)


@pytest.mark.parametrize("request_id", [5, 1.5, True, [], {}, ["42"]])
def test_id_of_wrong_type(rest: Rest, request_id: Any) -> None:
    """R8: an id that is not a string is rejected."""
    error_message(rest.post({"inputs": [GOOD], "id": request_id}), 400)


def test_response_members(target: Target, rest: Rest) -> None:
    """R8: the response names the model and version, and each output has name, datatype, shape and flat data."""
    envelope = {
        "inputs": [json_input("grid_in", "INT32", [2, 1], [5, 6])],
        "outputs": [{"name": "grid_out"}],
    }
    body = success(rest.post(envelope)).json
    assert body["model_name"] == target.model
    if target.version:
        check_type(body["model_version"], str)
    (output,) = body["outputs"]
    expected = {"name": "grid_out", "datatype": "INT32", "shape": [2, 1], "data": [5, 6]}
    assert {name: output.get(name) for name in expected} == expected


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype(target: Target, form: str, datatype: str) -> None:
    """R8: a tensor of any datatype is returned unchanged in every form."""
    form = target.form_for(form, datatype)
    name, values = datatype.lower(), VALUES[datatype]
    response = expect(target.infer(form, [(f"{name}_in", datatype, [2], values)]))
    assert response.outputs[f"{name}_out"][:2] == (datatype, [2])
    assert exact(datatype, response.outputs[f"{name}_out"][2]) == exact(datatype, values)


def test_inputs_in_any_order(target: Target, form: str) -> None:
    """R15: inputs are identified by name, in any order."""
    for inputs in ([SMALL, NUMBERS], [NUMBERS, SMALL]):
        response = expect(target.infer(form, inputs))
        assert response.outputs == {"fp32_out": SMALL[1:], "int32_out": NUMBERS[1:]}


# Requests that do not match the model: inputs, outputs, and words that the error must contain.
FAULTS = [
    pytest.param([("no_such_in", "FP32", [1], [1.0]), SMALL], [], ["no_such_in"], id="an unknown input"),
    pytest.param([("", "FP32", [1], [1.0]), SMALL], [], ["fp32_in"], id="an input without a name"),
    pytest.param([SMALL, SMALL], [], ["fp32_in"], id="an input sent twice"),
    pytest.param([SMALL, ("fp32_in", "FP32", [0], [])], [], ["fp32_in"], id="an input sent twice, once empty"),
    pytest.param([("fp32_in", "FP64", [1], [1.0])], [], ["fp32_in", "FP32", "FP64"], id="another datatype"),
    pytest.param([("fp32_in", "INT32", [0], [])], [], ["fp32_in", "FP32", "INT32"], id="another datatype, empty"),
    pytest.param([("fp32_in", "FP33", [0], [])], [], ["fp32_in", "FP32", "FP33"], id="an unknown datatype"),
    pytest.param([("fp32_in", "FP32", [1, 2], [1.0, 2.0])], [], ["fp32_in", "[1,2]"], id="a rank too many"),
    pytest.param([("fp32_in", "FP32", [], [1.0])], [], ["fp32_in", "[]"], id="a rank too few"),
    pytest.param([("pairs_in", "FP32", [2], [1.0, 2.0])], [], ["pairs_in", "[2]"], id="a vector for a matrix"),
    pytest.param([("pairs_in", "FP32", [1, 3], [1.0] * 3)], [], ["pairs_in", "2", "[1,3]"], id="another dimension"),
    pytest.param([("pairs_in", "FP32", [0, 3], [])], [], ["pairs_in", "[0,3]"], id="another dimension, empty"),
    pytest.param([("cube_in", "INT32", [2, 2], [1] * 4)], [], ["cube_in", "[2,2]"], id="a matrix for a cube"),
    pytest.param([("fp32_in", "", [0], [])], [], ["fp32_in", "FP32"], id="an empty datatype"),
    pytest.param([("fp32_in", "FP32", [1] * 65, [1.0])], [], ["fp32_in", "65"], id="65 dimensions"),
    pytest.param([("n" * 9000, "FP32", [0], [])], [], ["nnn"], id="a long name"),
    pytest.param([("🌷\n", "FP32", [0], [])], [], ["🌷"], id="a name with a line break"),
]  # fmt: skip
OUTPUT_FAULTS = [
    pytest.param([SMALL], ["no_such_out"], ["no_such_out"], id="an unknown output"),
    pytest.param([SMALL], ["fp32_out", ""], ["fp32_out"], id="an output without a name"),
    pytest.param([SMALL], ["fp32_out", "fp32_out"], ["fp32_out"], id="an output asked for twice"),
    pytest.param([SMALL], ["fp32_in"], ["fp32_in"], id="an input asked for"),
]
DATA_FAULTS = [
    pytest.param([("fp32_in", "FP32", [3], [1.0])], [], ["fp32_in", "3"], id="too few elements"),
    pytest.param(
        [("fp32_in", "FP32", [1], [1.0, 2.0])], [], ["fp32_in", "1"], id="too many elements"
    ),
    pytest.param(
        [("fp32_in", "FP32", [-1], [1.0])], [], ["fp32_in", "-1"], id="a negative dimension"
    ),
    pytest.param(
        [("grid_in", "INT32", [2**32, 2**32], [])], [], ["grid_in"], id="a product beyond 64 bits"
    ),
    pytest.param(
        [("grid_in", "INT32", [2**62, 0], [])], [], ["grid_in"], id="a dimension beyond NumPy"
    ),
    pytest.param(
        [("bytes_in", "BYTES", [3], [b"a"])],
        [],
        ["bytes_in", "3", "1"],
        id="too few elements of BYTES",
    ),
]


@pytest.mark.parametrize(("inputs", "outputs", "named"), FAULTS)
def test_rejects_invalid_inputs(
    target: Target, form: str, inputs: list[Sent], outputs: list[str], named: list[str]
) -> None:
    """R15: an unknown or duplicate input, or one of another datatype, rank or size than declared, is rejected."""
    expect(target.infer(form, inputs, outputs), "INVALID_ARGUMENT")
    expect(target.infer(form, [SMALL]))


@pytest.mark.parametrize(
    ("declared", "shape", "got"), [("int32", [3, 1], [3]), ("column", [3], [3, 1])]
)
def test_column_matches_vector(
    target: Target, form: str, declared: str, shape: list[int], got: list[int]
) -> None:
    """R15: [N,1] matches a declared [-1], and [N] a declared [-1,1], because MLServer's codecs send such columns."""
    response = expect(target.infer(form, [(f"{declared}_in", "INT32", shape, [1, 2, 3])]))
    assert response.outputs == {f"{declared}_out": ("INT32", got, [1, 2, 3])}


@pytest.mark.parametrize(("inputs", "outputs", "named"), OUTPUT_FAULTS)
def test_rejects_invalid_outputs(
    target: Target, form: str, inputs: list[Sent], outputs: list[str], named: list[str]
) -> None:
    """R16: an unknown or duplicate output is rejected."""
    expect(target.infer(form, inputs, outputs), "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "wanted", [["int32_out"], ["fp32_out"], ["int32_out", "fp32_out"], ["fp32_out", "int32_out"]]
)
def test_requested_outputs(target: Target, form: str, wanted: list[str]) -> None:
    """R16: the response contains only the requested outputs, in that order."""
    response = expect(target.infer(form, [SMALL, NUMBERS], wanted))
    assert list(response.outputs) == wanted


def test_all_outputs(target: Target, form: str) -> None:
    """R16: if no output is requested, the response contains all, in the metadata's order."""
    if form == "grpc typed":
        form = "grpc raw"  # FP16 and BF16 are among the outputs
    echoed = target.supported_tensors(ECHOED)
    if form == "rest json":
        for _, datatype, _ in echoed:
            if datatype in RAW_ONLY:
                require_feature(target, f"{datatype.lower()} json")

    sent: list[Sent] = [
        (f"{name}_in", datatype, [0 if size == -1 else size for size in shape], [])
        for name, datatype, shape in echoed
    ]
    response = expect(target.infer(form, sent[::-1], []))
    assert list(response.outputs) == [f"{name}_out" for name, _, _ in echoed]


def test_parameters_of_every_type(target: Target, form: str) -> None:
    """R17: parameters may be strings, numbers and booleans, and unknown ones are ignored."""
    parameters: dict[str, Any] = {"a": "text", "b": 3, "c": 0.5, "d": True, "": "", "🌷": -(2**62)}
    response = expect(target.infer(form, [SMALL], parameters=parameters))
    assert response.outputs == {"fp32_out": SMALL[1:]}


@pytest.mark.parametrize(
    "parameters",
    [
        {"odd": None},
        {"content_type": None, "headers": None},
        dict.fromkeys(("binary_data_output", "binary_data", "binary_data_size", "timeout")),
    ],
)
@pytest.mark.parametrize("place", ["request", "input", "output"])
def test_null_parameters(rest: Rest, place: str, parameters: dict[str, None]) -> None:
    """R17: a parameter whose value is null is ignored."""
    success(rest.post(with_parameters(place, parameters)))


@pytest.mark.parametrize("parameters", [[], "a", 5, True, {"a": [1]}, {"a": {}}])
@pytest.mark.parametrize("place", ["request", "input", "output"])
def test_invalid_parameters(rest: Rest, place: str, parameters: Any) -> None:
    """R17: parameters other than an object of strings, numbers and booleans are rejected."""
    error_message(rest.post(with_parameters(place, parameters)), 400)


@pytest.mark.parametrize(("inputs", "outputs", "named"), [*FAULTS, *OUTPUT_FAULTS, *DATA_FAULTS])
def test_error_message(
    target: Target, form: str, inputs: list[Sent], outputs: list[str], named: list[str]
) -> None:
    """R19: an error message names the problem, the expected and the received value, without a traceback."""
    response = target.infer(form, inputs, outputs)
    if response.kind != "INVALID_ARGUMENT":
        skip_not_run("the request is not rejected, which R9, R15 and R16 check")
    missing = [word for word in named if word not in response.text.replace(", ", ",")]
    assert not missing, f"expected a text with {', '.join(missing)}, got {describe(response)}"
    assert "Traceback" not in response.text, f"expected no traceback, got {describe(response)}"


@pytest.mark.parametrize(("inputs", "outputs", "named"), [*FAULTS, *OUTPUT_FAULTS, *DATA_FAULTS])
def test_same_error_message(
    target: Target, rpc: Any, inputs: list[Sent], outputs: list[str], named: list[str]
) -> None:
    """G1: the error message over gRPC equals the one over REST."""
    pairs = [("rest json", "grpc typed")]
    if target.supports("binary"):
        pairs.append(("rest binary", "grpc raw"))

    for pair in pairs:
        rest, rpc = (target.infer(form, inputs, outputs) for form in pair)
        if "ok" in (rest.kind, rpc.kind):
            skip_not_run("the request is not rejected, which R9, R15 and R16 check")
        same = (rest.kind, rest.text) == (rpc.kind, rpc.text)
        assert same, (
            f"expected the same of both, got {describe(rest)} over REST, and {describe(rpc)} over gRPC"
        )


def test_model_error(target: Target, form: str) -> None:
    """R19, G1: an exception of the model results in 500 or INTERNAL with its message and without a traceback."""
    response = target.infer(form, [("fail_in", "BYTES", [1], [b"the cat is on the roof"])], [])
    expect(response, "INTERNAL", "the cat is on the roof")
    assert "File " not in response.text
    expect(target.infer(form, [SMALL]))
