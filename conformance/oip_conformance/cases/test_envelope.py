"""Members of requests and responses (R7, R8, R15-R17), and error messages (R19, G1)."""

from __future__ import annotations

from typing import Any

import pytest

from oip_conformance.inputs import (
    SMALL_INPUT,
    SMALL_JSON,
    SMALL_OUTPUTS,
    SMALL_VALUES,
    json_input,
    outputs_of,
    vector,
)
from oip_conformance.model import ECHOED_TENSORS, input_of, output_of
from oip_conformance.outcomes import (
    check_error,
    check_error_text,
    check_members,
    check_success,
    check_type,
    describe,
    expect_error,
)
from oip_conformance.skips import require_json, skip_not_run
from oip_conformance.target import Target
from oip_conformance.values import VALUES
from oip_conformance.wires import InputTuple, Response, Rest, canonical_bytes

INT32_INPUT = vector("INT32", [5, -6])
PARAMETER_PLACES = ["request", "input", "output"]


def with_input_members(**members: Any) -> dict[str, Any]:
    """Return the valid request with changed members of its input."""
    return {"inputs": [{**SMALL_JSON, **members}]}


def without_input_member(member: str) -> dict[str, Any]:
    """Return the valid request without a member of its input."""
    tensor = dict(SMALL_JSON)
    del tensor[member]
    return {"inputs": [tensor]}


def with_parameters(place: str, parameters: Any) -> dict[str, Any]:
    """Return the valid request with parameters on the request, its input or its output."""
    tensor = dict(SMALL_JSON)
    output: dict[str, Any] = {"name": "fp32_out"}
    envelope = {"inputs": [tensor], "outputs": [output]}
    holders = {"request": envelope, "input": tensor, "output": output}
    holders[place]["parameters"] = parameters
    return envelope


@pytest.mark.parametrize(
    "members",
    [
        {"model_name": "other", "model_version": 5, "extra": [None]},
        {"parameters": None, "outputs": None, "id": None},
        {"parameters": {}, "outputs": []},
        {"inputs": [{**SMALL_JSON, "parameters": None, "extra": {"a": []}}]},
        {"outputs": [{"name": "fp32_out", "parameters": None, "extra": 1}]},
    ],
)
def test_unknown_and_null_members(rest: Rest, members: dict[str, Any]) -> None:
    """R7: unknown members of the request are ignored, and null equals an absent member."""
    reply = rest.post({"inputs": [SMALL_JSON], **members})
    check_success(reply)
    values = [output["data"] for output in reply.json["outputs"]]
    assert SMALL_VALUES in values


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
        {"inputs": [SMALL_JSON, []]},
        {"inputs": [SMALL_JSON], "outputs": {}},
        {"inputs": [SMALL_JSON], "outputs": ["fp32_out"]},
        {"inputs": [SMALL_JSON], "outputs": [{}]},
        {"inputs": [SMALL_JSON], "outputs": [{"name": 5}]},
        without_input_member("name"),
        with_input_members(name=None),
        with_input_members(name=5),
        without_input_member("shape"),
        with_input_members(shape=None),
        without_input_member("datatype"),
        with_input_members(datatype=None),
        with_input_members(datatype=32),
        with_input_members(datatype=["FP32"]),
        with_input_members(datatype={}),
        with_input_members(datatype="STRING"),
        with_input_members(datatype=""),
        without_input_member("data"),
        with_input_members(data=None),
    ],
)
def test_missing_or_invalid_members(rest: Rest, envelope: dict[str, Any]) -> None:
    """R7: a missing member or a member of the wrong type is rejected."""
    reply = rest.post(envelope)
    check_error(reply, 400)


@pytest.mark.parametrize("request_id", ["42", "ü 🌷", " ", "x" * 1000, None])
def test_id(target: Target, form: str, request_id: str | None) -> None:
    """R8, G5: the response has the request's id, or none if the request has none."""
    response = target.infer_successfully(form, [SMALL_INPUT], request_id=request_id)
    assert response.id == request_id


@pytest.mark.parametrize("members", [{}, {"id": None}, {"id": ""}, {"id": '"\\\n\0'}])
def test_id_in_json(rest: Rest, members: dict[str, Any]) -> None:
    """R8: an empty id is returned.

    If the request's id is null or absent, the response has no id member.
    """
    reply = rest.post({"inputs": [SMALL_JSON], **members})
    check_success(reply)
    request_id = members.get("id")
    if request_id is None:
        assert "id" not in reply.json
    else:
        assert reply.json.get("id") == request_id


@pytest.mark.parametrize("request_id", [5, 1.5, True, [], {}, ["42"]])
def test_id_of_wrong_type(rest: Rest, request_id: Any) -> None:
    """R8: an id that is not a string is rejected."""
    reply = rest.post({"inputs": [SMALL_JSON], "id": request_id})
    check_error(reply, 400)


def test_response_members(target: Target, rest: Rest) -> None:
    """R8: the response names the model and version, and each output has name, datatype, shape and
    flat data.
    """
    tensor = json_input("grid_in", "INT32", [2, 1], [5, 6])
    reply = rest.post({"inputs": [tensor], "outputs": [{"name": "grid_out"}]})
    check_success(reply)
    body = reply.json
    assert body["model_name"] == target.model
    if target.version:
        check_type(body["model_version"], str)
    (output,) = body["outputs"]
    check_members(output, {**tensor, "name": "grid_out"})


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype(target: Target, form: str, datatype: str) -> None:
    """R8: a tensor of any datatype is returned unchanged in every form."""
    form = target.form_for(form, datatype)
    values = VALUES[datatype]
    response = target.infer_successfully(form, [vector(datatype, values)])
    output_name = output_of(input_of(datatype))
    output = response.outputs[output_name]
    assert output.datatype == datatype
    assert output.shape == [2]
    assert canonical_bytes(datatype, output.values) == canonical_bytes(datatype, values)


def test_inputs_in_any_order(target: Target, form: str) -> None:
    """R15: inputs are identified by name, in any order."""
    for inputs in ([SMALL_INPUT, INT32_INPUT], [INT32_INPUT, SMALL_INPUT]):
        response = target.infer_successfully(form, inputs)
        assert response.outputs == outputs_of(SMALL_INPUT, INT32_INPUT)


def case(case_id: str, inputs: list[InputTuple], words: list[str]) -> Any:
    """Return the parameters `inputs`, `outputs` and `words` of a case. It requests no outputs."""
    return pytest.param(inputs, [], words, id=case_id)


# Inputs that do not match the model, and words that the error must contain.
INVALID_INPUTS = [
    case("an unknown input", [("no_such_in", "FP32", [1], [1.0]), SMALL_INPUT], ["no_such_in"]),
    case("an input without a name", [("", "FP32", [1], [1.0]), SMALL_INPUT], ["fp32_in"]),
    case("an input sent twice", [SMALL_INPUT, SMALL_INPUT], ["fp32_in"]),
    case(
        "an input sent twice, once empty", [SMALL_INPUT, ("fp32_in", "FP32", [0], [])], ["fp32_in"]
    ),
    case("another datatype", [("fp32_in", "FP64", [1], [1.0])], ["fp32_in", "FP32", "FP64"]),
    case("another datatype, empty", [("fp32_in", "INT32", [0], [])], ["fp32_in", "FP32", "INT32"]),
    case("an unknown datatype", [("fp32_in", "FP33", [0], [])], ["fp32_in", "FP32", "FP33"]),
    case("a rank too many", [("fp32_in", "FP32", [1, 2], [1.0, 2.0])], ["fp32_in", "[1,2]"]),
    case("a rank too few", [("fp32_in", "FP32", [], [1.0])], ["fp32_in", "[]"]),
    case("a vector for a matrix", [("pairs_in", "FP32", [2], [1.0, 2.0])], ["pairs_in", "[2]"]),
    case(
        "another dimension", [("pairs_in", "FP32", [1, 3], [1.0] * 3)], ["pairs_in", "2", "[1,3]"]
    ),
    case("another dimension, empty", [("pairs_in", "FP32", [0, 3], [])], ["pairs_in", "[0,3]"]),
    case("a matrix for a cube", [("cube_in", "INT32", [2, 2], [1] * 4)], ["cube_in", "[2,2]"]),
    case("an empty datatype", [("fp32_in", "", [0], [])], ["fp32_in", "FP32"]),
    case("65 dimensions", [("fp32_in", "FP32", [1] * 65, [1.0])], ["fp32_in", "65"]),
    case("a long name", [("n" * 9000, "FP32", [0], [])], ["nnn"]),
    case("a name with a line break", [("🌷\n", "FP32", [0], [])], ["🌷"]),
]
INVALID_OUTPUTS = [
    pytest.param([SMALL_INPUT], ["no_such_out"], ["no_such_out"], id="an unknown output"),
    pytest.param([SMALL_INPUT], ["fp32_out", ""], ["fp32_out"], id="an output without a name"),
    pytest.param(
        [SMALL_INPUT], ["fp32_out", "fp32_out"], ["fp32_out"], id="an output asked for twice"
    ),
    pytest.param([SMALL_INPUT], ["fp32_in"], ["fp32_in"], id="an input asked for"),
]
INVALID_DATA = [
    case("too few elements", [("fp32_in", "FP32", [3], [1.0])], ["fp32_in", "3"]),
    case("too many elements", [("fp32_in", "FP32", [1], [1.0, 2.0])], ["fp32_in", "1"]),
    case("a negative dimension", [("fp32_in", "FP32", [-1], [1.0])], ["fp32_in", "-1"]),
    case("a product beyond 64 bits", [("grid_in", "INT32", [2**32, 2**32], [])], ["grid_in"]),
    case("a dimension beyond NumPy", [("grid_in", "INT32", [2**62, 0], [])], ["grid_in"]),
    case("too few elements of BYTES", [("bytes_in", "BYTES", [3], [b"a"])], ["bytes_in", "3", "1"]),
]
INVALID_REQUESTS = [*INVALID_INPUTS, *INVALID_OUTPUTS, *INVALID_DATA]


@pytest.mark.parametrize(("inputs", "outputs", "words"), INVALID_INPUTS)
def test_rejects_invalid_inputs(
    target: Target, form: str, inputs: list[InputTuple], outputs: list[str], words: list[str]
) -> None:
    """R15: an unknown or duplicate input, or one of another datatype, rank or size than declared,
    is rejected.
    """
    response = target.infer(form, inputs, outputs)
    expect_error(response, "INVALID_ARGUMENT")
    target.infer_successfully(form, [SMALL_INPUT])


@pytest.mark.parametrize(
    ("name", "shape", "output_shape"), [("int32", [3, 1], [3]), ("column", [3], [3, 1])]
)
def test_column_matches_vector(
    target: Target, form: str, name: str, shape: list[int], output_shape: list[int]
) -> None:
    """R15: [N,1] matches a declared [-1], and [N] a declared [-1,1], because MLServer's codecs send
    such columns.
    """
    values = [1, 2, 3]
    tensor = (f"{name}_in", "INT32", shape, values)
    response = target.infer_successfully(form, [tensor])
    output = ("INT32", output_shape, values)
    assert response.outputs == {f"{name}_out": output}


@pytest.mark.parametrize(("inputs", "outputs", "words"), INVALID_OUTPUTS)
def test_rejects_invalid_outputs(
    target: Target, form: str, inputs: list[InputTuple], outputs: list[str], words: list[str]
) -> None:
    """R16: an unknown or duplicate output is rejected."""
    response = target.infer(form, inputs, outputs)
    expect_error(response, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "names", [["int32_out"], ["fp32_out"], ["int32_out", "fp32_out"], ["fp32_out", "int32_out"]]
)
def test_requested_outputs(target: Target, form: str, names: list[str]) -> None:
    """R16: the response contains only the requested outputs, in that order."""
    response = target.infer_successfully(form, [SMALL_INPUT, INT32_INPUT], names)
    assert list(response.outputs) == names


def test_all_outputs(target: Target, form: str) -> None:
    """R16: if no output is requested, the response contains all, in the metadata's order."""
    if form == "grpc typed":
        form = "grpc raw"  # FP16 and BF16 are among the outputs
    tensors = target.supported_tensors(ECHOED_TENSORS)
    if form == "rest json":
        for _, datatype, _ in tensors:
            require_json(target, datatype)

    inputs: list[InputTuple] = []
    output_names = []
    for name, datatype, shape in tensors:
        empty_shape = [max(size, 0) for size in shape]
        inputs.append((f"{name}_in", datatype, empty_shape, []))
        output_names.append(f"{name}_out")
    inputs.reverse()
    response = target.infer_successfully(form, inputs, [])
    assert list(response.outputs) == output_names


def test_parameters_of_every_type(target: Target, form: str) -> None:
    """R17: parameters may be strings, numbers and booleans, and unknown ones are ignored."""
    parameters: dict[str, Any] = {"a": "text", "b": 3, "c": 0.5, "d": True, "": "", "🌷": -(2**62)}
    response = target.infer_successfully(form, [SMALL_INPUT], parameters=parameters)
    assert response.outputs == SMALL_OUTPUTS


@pytest.mark.parametrize(
    "parameters",
    [
        {"odd": None},
        {"content_type": None, "headers": None},
        {
            "binary_data_output": None,
            "binary_data": None,
            "binary_data_size": None,
            "timeout": None,
        },
    ],
)
@pytest.mark.parametrize("place", PARAMETER_PLACES)
def test_null_parameters(rest: Rest, place: str, parameters: dict[str, None]) -> None:
    """R17: a parameter whose value is null is ignored."""
    reply = rest.post(with_parameters(place, parameters))
    check_success(reply)


@pytest.mark.parametrize("parameters", [[], "a", 5, True, {"a": [1]}, {"a": {}}])
@pytest.mark.parametrize("place", PARAMETER_PLACES)
def test_invalid_parameters(rest: Rest, place: str, parameters: Any) -> None:
    """R17: parameters other than an object of strings, numbers and booleans are rejected."""
    reply = rest.post(with_parameters(place, parameters))
    check_error(reply, 400)


@pytest.mark.parametrize(("inputs", "outputs", "words"), INVALID_REQUESTS)
def test_error_message(
    target: Target, form: str, inputs: list[InputTuple], outputs: list[str], words: list[str]
) -> None:
    """R19: an error message names the problem, the expected and the received value, without a
    traceback.
    """
    response = target.infer(form, inputs, outputs)
    if response.kind != "INVALID_ARGUMENT":
        skip_not_run("the request is not rejected, which R9, R15 and R16 check")
    check_error_text(response, words)


@pytest.mark.parametrize(("inputs", "outputs", "words"), INVALID_REQUESTS)
def test_same_error_message(
    target: Target, rpc: Any, inputs: list[InputTuple], outputs: list[str], words: list[str]
) -> None:
    """G1: the error message over gRPC equals the one over REST."""
    rest = target.infer("rest json", inputs, outputs)
    typed = target.infer("grpc typed", inputs, outputs)
    check_same_error(rest, typed)

    if target.supports("binary"):
        rest = target.infer("rest binary", inputs, outputs)
        raw = target.infer("grpc raw", inputs, outputs)
        check_same_error(rest, raw)


def check_same_error(rest: Response, rpc: Response) -> None:
    """Check that the responses of both transports are the same error."""
    if rest.is_success or rpc.is_success:
        skip_not_run("the request is not rejected, which R9, R15 and R16 check")
    is_same = rest.kind == rpc.kind and rest.text == rpc.text
    assert is_same, (
        f"expected the same of both, got {describe(rest)} over REST, and {describe(rpc)} over gRPC"
    )


def test_model_error(target: Target, form: str) -> None:
    """R19, G1: an exception of the model results in 500 or INTERNAL with its message and without a
    traceback.
    """
    message = "the cat is on the roof"
    failing_input = ("fail_in", "BYTES", [1], [message.encode()])
    response = target.infer(form, [failing_input], [])
    expect_error(response, "INTERNAL", message)
    assert "File " not in response.text
    target.infer_successfully(form, [SMALL_INPUT])
