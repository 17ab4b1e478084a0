"""The envelope of a request and of its answer (R7, R8, R15-R17), and the texts of what is refused (R19, G1)."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.model import ECHOED
from conformance.target import SMALL, Target, expect, got, head, refusal, success
from tests.service.cases import VALUES
from tests.service.wires import Rest, Sent, exact

NUMBERS: Sent = ("int32_in", "INT32", [2], [5, -6])
GOOD = head(*SMALL)


def changed(**members: Any) -> dict[str, Any]:
    """The good request, its input with other members; without those that are ...."""
    return {"inputs": [{name: value for name, value in {**GOOD, **members}.items() if value is not ...}]}


@pytest.mark.parametrize(
    "members",
    [
        {"model_name": "other", "model_version": 5, "extra": [None]},
        {"parameters": None, "outputs": None, "id": None},
        {"parameters": {}, "outputs": []},
        {"inputs": [{**GOOD, "parameters": None}]},
        {"outputs": [{"name": "fp32_out", "parameters": None}]},
    ],
)
def test_members_that_mean_nothing(rest: Rest, members: dict[str, Any]) -> None:
    """R7: unknown members of the request are ignored, and null is the same as none."""
    reply = success(rest.post({"inputs": [GOOD], **members}))
    assert [1.5, -2.0] in [each["data"] for each in reply.json["outputs"]]


@pytest.mark.parametrize(
    "envelope",
    [
        {},
        {"inputs": None},
        {"inputs": {}},
        {"inputs": "fp32_in"},
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
def test_members_that_are_missing_or_odd(rest: Rest, envelope: dict[str, Any]) -> None:
    """R7: a member that is missing, or of another type than the protocol's, is refused."""
    refusal(rest.post(envelope), 400)


@pytest.mark.parametrize("request_id", ["42", "ü 🌷", " ", "x" * 1000, None])
def test_id(target: Target, form: str, request_id: str | None) -> None:
    """R8, G5: the id comes back as it was, and none where there was none."""
    assert expect(target.infer(form, [SMALL], request_id=request_id)).id == request_id


@pytest.mark.parametrize("members", [{}, {"id": None}, {"id": ""}, {"id": '"\\\n\0'}])
def test_id_as_json(rest: Rest, members: dict[str, Any]) -> None:
    """R8: an empty id comes back too; where the request has none, or null, the answer has no such member."""
    body = success(rest.post({"inputs": [GOOD], **members})).json
    assert body.get("id") == members.get("id")
    assert ("id" in body) == (members.get("id") is not None)


@pytest.mark.parametrize("request_id", [5, 1.5, True, [], {}, ["42"]])
def test_an_id_that_is_no_string(rest: Rest, request_id: Any) -> None:
    """R8: an id that is no string is refused."""
    refusal(rest.post({"inputs": [GOOD], "id": request_id}), 400)


def test_the_members_of_an_answer(target: Target, rest: Rest) -> None:
    """R8: the answer names model and version, and each output its name, datatype, shape and flat data."""
    envelope = {"inputs": [head("grid_in", "INT32", [2, 1], [5, 6])], "outputs": [{"name": "grid_out"}]}
    body = success(rest.post(envelope)).json
    assert set(body) - {"parameters", "id"} == {"model_name", "model_version", "outputs"}
    assert body["model_name"] == target.model
    (output,) = body["outputs"]
    output.pop("parameters", None)
    assert output == {"name": "grid_out", "datatype": "INT32", "shape": [2, 1], "data": [5, 6]}


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype(target: Target, form: str, datatype: str) -> None:
    """R8: a tensor of any datatype comes out as it went in, in every form."""
    form = target.takes(form, datatype)
    name, values = datatype.lower(), VALUES[datatype]
    answer = expect(target.infer(form, [(f"{name}_in", datatype, [2], values)]))
    assert answer.outputs[f"{name}_out"][:2] == (datatype, [2])
    assert exact(datatype, answer.outputs[f"{name}_out"][2]) == exact(datatype, values)


def test_inputs_in_any_order(target: Target, form: str) -> None:
    """R15: inputs are known by their names, in any order."""
    for inputs in ([SMALL, NUMBERS], [NUMBERS, SMALL]):
        answer = expect(target.infer(form, inputs))
        assert answer.outputs == {"fp32_out": SMALL[1:], "int32_out": NUMBERS[1:]}


# Requests that do not fit the model, by their rule: inputs, outputs, and what the text of the refusal must name.
FAULTS = [
    pytest.param([("no_such_in", "FP32", [1], [1.0]), SMALL], [], ["no_such_in"], id="an unknown input"),
    pytest.param([("", "FP32", [1], [1.0]), SMALL], [], ["fp32_in"], id="an input without a name"),
    pytest.param([SMALL, SMALL], [], ["fp32_in"], id="an input sent twice"),
    pytest.param([SMALL, ("fp32_in", "FP32", [0], [])], [], ["fp32_in"], id="an input sent twice, once empty"),
    pytest.param([("fp32_in", "FP64", [1], [1.0])], [], ["fp32_in", "FP32", "FP64"], id="another datatype"),
    pytest.param([("fp32_in", "INT32", [0], [])], [], ["fp32_in", "FP32", "INT32"], id="another datatype, empty"),
    pytest.param([("fp32_in", "FP33", [0], [])], [], ["fp32_in", "FP32", "FP33"], id="a datatype that is none"),
    pytest.param([("fp32_in", "FP32", [1, 2], [1.0, 2.0])], [], ["fp32_in", "[1,2]"], id="a rank too many"),
    pytest.param([("fp32_in", "FP32", [], [1.0])], [], ["fp32_in", "[]"], id="a rank too few"),
    pytest.param([("pairs_in", "FP32", [2], [1.0, 2.0])], [], ["pairs_in", "[2]"], id="a vector for a matrix"),
    pytest.param([("pairs_in", "FP32", [1, 3], [1.0] * 3)], [], ["pairs_in", "2", "[1,3]"], id="another dimension"),
    pytest.param([("pairs_in", "FP32", [0, 3], [])], [], ["pairs_in", "[0,3]"], id="another dimension, empty"),
    pytest.param([("cube_in", "INT32", [2, 2], [1] * 4)], [], ["cube_in", "[2,2]"], id="a matrix for a cube"),
]  # fmt: skip
OUTPUT_FAULTS = [
    pytest.param([SMALL], ["no_such_out"], ["no_such_out"], id="an unknown output"),
    pytest.param([SMALL], ["fp32_out", ""], ["fp32_out"], id="an output without a name"),
    pytest.param([SMALL], ["fp32_out", "fp32_out"], ["fp32_out"], id="an output asked for twice"),
    pytest.param([SMALL], ["fp32_in"], ["fp32_in"], id="an input asked for"),
]
DATA_FAULTS = [
    pytest.param([("fp32_in", "FP32", [3], [1.0])], [], ["fp32_in", "3"], id="too few elements"),
    pytest.param([("fp32_in", "FP32", [1], [1.0, 2.0])], [], ["fp32_in", "1"], id="too many elements"),
    pytest.param([("fp32_in", "FP32", [-1], [1.0])], [], ["fp32_in", "-1"], id="a negative dimension"),
    pytest.param([("grid_in", "INT32", [2**32, 2**32], [])], [], ["grid_in"], id="a product beyond 64 bits"),
    pytest.param([("bytes_in", "BYTES", [3], [b"a"])], [], ["bytes_in", "3", "1"], id="too few elements of BYTES"),
]


@pytest.mark.parametrize(("inputs", "outputs", "named"), FAULTS)
def test_inputs_that_do_not_fit(
    target: Target, form: str, inputs: list[Sent], outputs: list[str], named: list[str]
) -> None:
    """R15: an input that is unknown, sent twice, or of another datatype, rank or size than declared is refused."""
    expect(target.infer(form, inputs, outputs), "INVALID_ARGUMENT")
    expect(target.infer(form, [SMALL]))


@pytest.mark.parametrize(("declared", "shape", "got"), [("int32", [3, 1], [3]), ("column", [3], [3, 1])])
def test_columns_and_vectors(target: Target, form: str, declared: str, shape: list[int], got: list[int]) -> None:
    """R15: [N,1] fits a declared [-1], and [N] a declared [-1,1], since MLServer's codecs send columns so."""
    answer = expect(target.infer(form, [(f"{declared}_in", "INT32", shape, [1, 2, 3])]))
    assert answer.outputs == {f"{declared}_out": ("INT32", got, [1, 2, 3])}


@pytest.mark.parametrize(("inputs", "outputs", "named"), OUTPUT_FAULTS)
def test_outputs_that_cannot_be_had(
    target: Target, form: str, inputs: list[Sent], outputs: list[str], named: list[str]
) -> None:
    """R16: an output that is unknown, or asked for twice, is refused."""
    expect(target.infer(form, inputs, outputs), "INVALID_ARGUMENT")


@pytest.mark.parametrize("wanted", [["int32_out"], ["fp32_out"], ["int32_out", "fp32_out"], ["fp32_out", "int32_out"]])
def test_outputs_as_asked(target: Target, form: str, wanted: list[str]) -> None:
    """R16: just the outputs that are asked for come, in that order."""
    answer = expect(target.infer(form, [SMALL, NUMBERS], wanted))
    assert list(answer.outputs) == wanted


def test_all_outputs(target: Target, form: str) -> None:
    """R16: where none is asked for all come, in the metadata's order."""
    if form == "grpc typed":
        form = "grpc raw"  # FP16 is among them
    sent: list[Sent] = [
        (f"{name}_in", datatype, [0 if size == -1 else size for size in shape], []) for name, datatype, shape in ECHOED
    ]
    answer = expect(target.infer(form, sent[::-1], []))
    assert list(answer.outputs) == [f"{name}_out" for name, _, _ in ECHOED]


def test_parameters_of_every_type(target: Target, form: str) -> None:
    """R17: parameters may be strings, numbers and booleans; those that mean nothing are ignored."""
    parameters: dict[str, Any] = {"a": "text", "b": 3, "c": 0.5, "d": True, "": "", "🌷": -(2**62)}
    answer = expect(target.infer(form, [SMALL], parameters=parameters))
    assert answer.outputs == {"fp32_out": SMALL[1:]}


@pytest.mark.parametrize("parameters", [[], "a", 5, True, {"a": None}, {"a": [1]}, {"a": {}}])
@pytest.mark.parametrize("place", ["request", "input", "output"])
def test_parameters_that_are_none(rest: Rest, place: str, parameters: Any) -> None:
    """R17: parameters are an object of strings, numbers and booleans; null is the same as none."""
    held = {"parameters": parameters}
    envelope: dict[str, Any] = {"inputs": [GOOD], "outputs": [{"name": "fp32_out"}]}
    if place == "request":
        envelope |= held
    else:
        envelope[f"{place}s"][0] = {**envelope[f"{place}s"][0], **held}
    refusal(rest.post(envelope), 400)


@pytest.mark.parametrize(("inputs", "outputs", "named"), [*FAULTS, *OUTPUT_FAULTS, *DATA_FAULTS])
def test_what_a_refusal_says(
    target: Target, form: str, inputs: list[Sent], outputs: list[str], named: list[str]
) -> None:
    """R19: the text of a refusal names what is wrong, and what was expected and got, without a traceback."""
    answer = target.infer(form, inputs, outputs)
    if answer.kind != "INVALID_ARGUMENT":
        pytest.skip("not run: it is not refused, which R9, R15 and R16 have")
    missing = [word for word in named if word not in answer.text.replace(", ", ",")]
    assert not missing, f"expected a text with {', '.join(missing)}, got {got(answer)}"
    assert "Traceback" not in answer.text, f"expected no traceback, got {got(answer)}"


@pytest.mark.parametrize(("inputs", "outputs", "named"), [*FAULTS, *OUTPUT_FAULTS, *DATA_FAULTS])
def test_the_same_refusal(target: Target, rpc: Any, inputs: list[Sent], outputs: list[str], named: list[str]) -> None:
    """G1: the text over gRPC is the one REST gives for the same fault."""
    pairs = [("rest json", "grpc typed"), *([] if target.lacks("binary") else [("rest binary", "grpc raw")])]
    for pair in pairs:
        rest, rpc = (target.infer(form, inputs, outputs) for form in pair)
        if "ok" in (rest.kind, rpc.kind):
            pytest.skip("not run: it is not refused, which R9, R15 and R16 have")
        same = (rest.kind, rest.text) == (rpc.kind, rpc.text)
        assert same, f"expected the same of both, got {got(rest)} over REST, and {got(rpc)} over gRPC"


def test_a_model_that_raises(target: Target, form: str) -> None:
    """R19, G1: what the model raises is a 500 or INTERNAL with its message, and no traceback."""
    answer = target.infer(form, [("fail_in", "BYTES", [1], [b"the cat is on the roof"])], [])
    expect(answer, "INTERNAL", "the cat is on the roof")
    assert "File " not in answer.text
    expect(target.infer(form, [SMALL]))
