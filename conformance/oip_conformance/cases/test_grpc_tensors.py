"""Group G: tensors in contents and in raw entries."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from oip_conformance import messages
from oip_conformance.grpc_requests import check_invalid_argument, grpc_input
from oip_conformance.inputs import SMALL_INPUT, SMALL_OUTPUTS, outputs_of, vector
from oip_conformance.model import DATATYPES, output_of
from oip_conformance.outcomes import describe, expect_success
from oip_conformance.skips import skip_not_run
from oip_conformance.target import Target
from oip_conformance.values import RANGES
from oip_conformance.wires import CONTENTS_FIELDS, RAW_ONLY_DATATYPES, Grpc, Response, pack

ALL_CONTENTS_FIELDS = sorted(set(CONTENTS_FIELDS.values()))
# Datatypes with a field for typed contents.
TYPED_DATATYPES = list(CONTENTS_FIELDS)
# Integers whose field has 32 bits.
UP_TO_32_BITS = ["INT8", "INT16", "INT32", "UINT8", "UINT16", "UINT32"]
FP32_INPUT = grpc_input("fp32", "FP32", [1])
INT32_INPUT = grpc_input("int32", "INT32", [1])
TYPED_FP32_INPUT = grpc_input("fp32", "FP32", [1], fp32_contents=[1.5])


@pytest.fixture(autouse=True)
def check_valid_call_afterward(target: Target, rpc: Grpc) -> Iterator[None]:
    """G1: after any request, the channel accepts the next call."""
    yield
    response = target.infer_successfully("grpc raw", [SMALL_INPUT])
    assert response.outputs == SMALL_OUTPUTS


def typed_input(datatype: str, values: list, shape: list[int] | None = None) -> dict[str, Any]:
    """Return the input of one dimension with this datatype, with contents in the right field."""
    contents = {CONTENTS_FIELDS[datatype]: values}
    if shape is None:
        shape = [len(values)]
    return grpc_input(datatype.lower(), datatype, shape, **contents)


def input_in_field(datatype: str, field: str, value: Any) -> dict[str, Any]:
    """Return the input of one dimension with this datatype, with one element in any field."""
    contents = {field: [value]}
    return grpc_input(datatype.lower(), datatype, [1], **contents)


def input_without_contents(datatype: str, count: int) -> dict[str, Any]:
    """Return the input of one dimension with this datatype, without contents."""
    return grpc_input(datatype.lower(), datatype, [count])


def send(rpc: Grpc, *tensors: dict[str, Any], raw: list[bytes] | None = None) -> Response:
    """Send a request for the outputs of its inputs, and return the response."""
    names = [output_of(fields["name"]) for fields in tensors]
    return send_for_outputs(rpc, names, *tensors, raw=raw)


def send_for_outputs(
    rpc: Grpc, outputs: list[str], *tensors: dict[str, Any], raw: list[bytes] | None = None
) -> Response:
    """Send a request for some outputs, and return the response."""
    request = messages.ModelInferRequest(model_name=rpc.model, inputs=tensors)
    for name in outputs:
        request.outputs.add(name=name)
    if raw is not None:
        request.raw_input_contents.extend(raw)
    return rpc.send(request)


@pytest.mark.parametrize("count", [0, 1, 3, 100])
def test_number_of_raw_entries(rpc: Grpc, count: int) -> None:
    """G2: raw_input_contents must have one entry per input.

    Without entries, the inputs are typed and lack contents.
    """
    response = send(rpc, FP32_INPUT, INT32_INPUT, raw=[bytes(4)] * count)
    check_invalid_argument(response)


def test_raw_entries_without_inputs(rpc: Grpc) -> None:
    """G2: raw_input_contents without inputs is rejected."""
    response = send(rpc, raw=[b""])
    check_invalid_argument(response)


@pytest.mark.parametrize("size", [0, 7, 9, 16, 10_000])
@pytest.mark.parametrize("datatype", ["FP32", "INT32", "UINT32"])
def test_raw_entry_of_wrong_size(rpc: Grpc, size: int, datatype: str) -> None:
    """G2: a raw entry whose size differs from its tensor's is rejected."""
    response = send(rpc, input_without_contents(datatype, 2), raw=[bytes(size)])
    check_invalid_argument(response)


def test_raw_entries_right_in_sum_only(rpc: Grpc) -> None:
    """G2: entries with incorrect sizes are rejected, even if the sum of the sizes is correct."""
    response = send(rpc, FP32_INPUT, INT32_INPUT, raw=[bytes(8), b""])
    check_invalid_argument(response)


@pytest.mark.parametrize(
    "blob", ["", "01", "01000000", "ffffffff", "0200000061", "0100000061000000", "0000000100"]
)
def test_malformed_raw_bytes(rpc: Grpc, blob: str) -> None:
    """G2: elements of BYTES must fill their entry exactly, and match the number in the shape."""
    response = send(rpc, input_without_contents("BYTES", 1), raw=[bytes.fromhex(blob)])
    check_invalid_argument(response)


@pytest.mark.parametrize("octet", [2, 128, 255])
def test_raw_bool_is_0_or_1(rpc: Grpc, octet: int) -> None:
    """G2, B1: a BOOL byte other than 0 and 1 is rejected."""
    response = send(rpc, input_without_contents("BOOL", 2), raw=[bytes([1, octet])])
    check_invalid_argument(response)


@pytest.mark.parametrize("raw", [[bytes(4)], [bytes(4), bytes(4)]])
@pytest.mark.parametrize("typed_index", [0, 1])
def test_raw_and_contents(rpc: Grpc, typed_index: int, raw: list[bytes]) -> None:
    """G2: raw entries and contents exclude each other, within an input and across inputs."""
    if len(raw) == 1:
        tensors = [typed_input("FP32", [1])]
    elif typed_index == 0:
        tensors = [typed_input("FP32", [1]), INT32_INPUT]
    else:
        tensors = [FP32_INPUT, typed_input("INT32", [1])]
    response = send(rpc, *tensors, raw=raw)
    check_invalid_argument(response)


def test_empty_contents_with_raw_entries(rpc: Grpc) -> None:
    """G2: an empty contents message is allowed together with raw entries."""
    empty_contents = grpc_input("fp32", "FP32", [1], fp32_contents=[])
    message = messages.ModelInferRequest(
        model_name=rpc.model, inputs=[empty_contents], raw_input_contents=[bytes(4)]
    )
    assert message.inputs[0].HasField("contents")
    response = rpc.send(message)
    expect_success(response)
    assert response.outputs["fp32_out"] == ("FP32", [1], [0.0])


@pytest.mark.parametrize("datatype", TYPED_DATATYPES)
def test_contents_field_of_datatype(rpc: Grpc, datatype: str) -> None:
    """G3: contents must be in the field of the datatype, and any other field is rejected."""
    for field in ALL_CONTENTS_FIELDS:
        value = b"a" if field == "bytes_contents" else 1
        tensor = input_in_field(datatype, field, value)
        response = send(rpc, tensor)
        if field == CONTENTS_FIELDS[datatype]:
            expect_success(response)
            assert response.outputs == outputs_of(vector(datatype, [value]))
        else:
            check_invalid_argument(response)


@pytest.mark.parametrize("shape", [[1], [2], [0]])
def test_two_contents_fields(rpc: Grpc, shape: list[int]) -> None:
    """G3: a second field in addition to the right one is rejected."""
    (count,) = shape
    contents = {"int_contents": [1] * count, "int64_contents": [1]}
    tensor = grpc_input("int32", "INT32", shape, **contents)
    response = send(rpc, tensor)
    check_invalid_argument(response)


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize("datatype", ["BOOL", "INT64", "FP32"])
def test_unknown_fields_of_contents(rpc: Grpc, datatype: str, count: int) -> None:
    """G3: unknown fields of contents, as of a later version of the protocol, are ignored."""
    values = [0, 1] * (count // 2)
    tensor = typed_input(datatype, values)
    output = {"name": f"{datatype.lower()}_out"}
    message = messages.ModelInferRequest(model_name=rpc.model, inputs=[tensor], outputs=[output])
    message.inputs[0].contents.MergeFromString(b"\xfa\x7f\x03abc")
    response = rpc.send(message)
    expect_success(response)
    assert response.outputs == outputs_of(vector(datatype, values))


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("datatype", ["INT32", "FP64", "BYTES", "BOOL"])
def test_wrong_number_of_elements(rpc: Grpc, datatype: str, count: int) -> None:
    """G3: contents must have as many elements as the shape."""
    value = b"a" if datatype == "BYTES" else 1
    tensor = typed_input(datatype, [value] * count, shape=[2])
    response = send(rpc, tensor)
    check_invalid_argument(response)


@pytest.mark.parametrize("datatype", RAW_ONLY_DATATYPES)
def test_datatype_without_contents_field(rpc: Grpc, datatype: str) -> None:
    """G3, R23: FP16 and BF16 require raw contents, and any typed contents are rejected."""
    for field in ALL_CONTENTS_FIELDS:
        value = b"\0\0" if field == "bytes_contents" else 1
        tensor = input_in_field(datatype, field, value)
        response = send(rpc, tensor)
        check_invalid_argument(response)


@pytest.mark.parametrize(
    ("name", "datatype", "contents", "raw"),
    [
        ("fp32", "FP32", {}, [bytes(7)]),
        ("bytes", "BYTES", {}, [b"\x02\0\0\0a"]),
        ("bool", "BOOL", {}, [b"\x02"]),
        ("int32", "INT32", {"int_contents": [1, 2]}, []),
        ("int32", "INT32", {"int64_contents": [1]}, []),
        ("int8", "INT8", {"int_contents": [300]}, []),
        ("fp16", "FP16", {"fp32_contents": [1.5]}, []),
    ],
)
def test_error_names_input(
    rpc: Grpc, name: str, datatype: str, contents: dict[str, list], raw: list[bytes]
) -> None:
    """R19, G2, G3: an error message about invalid contents names the input."""
    tensor = grpc_input(name, datatype, [1], **contents)
    response = send(rpc, tensor, raw=raw)
    if response.kind != "INVALID_ARGUMENT":
        skip_not_run("the request is not rejected, which G2 and G3 check")
    assert f"{name}_in" in response.text, (
        f"expected a text with {name}_in, got {describe(response)}"
    )


@pytest.mark.parametrize("datatype", UP_TO_32_BITS)
def test_limits_of_contents(rpc: Grpc, datatype: str) -> None:
    """G3: a field wider than the datatype accepts the datatype's limits, and values beyond them are
    rejected.
    """
    low, high = RANGES[datatype]
    limits = [low, high]
    response = send(rpc, typed_input(datatype, limits))
    expect_success(response)
    assert response.outputs == outputs_of(vector(datatype, limits))

    # The field of a 32-bit integer has 32 bits, and cannot carry a value beyond the limits.
    beyond = []
    if datatype in ("INT8", "INT16"):
        beyond = [low - 1, high + 1]
    elif datatype in ("UINT8", "UINT16"):
        beyond = [high + 1]
    for value in beyond:
        response = send(rpc, typed_input(datatype, [1, value]))
        check_invalid_argument(response)


def two_elements(datatype: str) -> list:
    return [b"a\xff", b""] if datatype == "BYTES" else [1, 0]


@pytest.mark.parametrize("datatype", DATATYPES)
def test_raw_request_gets_raw_response(target: Target, datatype: str) -> None:
    """G4: the response to a raw request is raw and equal byte for byte."""
    blob = pack(datatype, two_elements(datatype))
    rpc = target.forms["grpc raw"]
    response = send(rpc, input_without_contents(datatype, 2), raw=[blob])
    expect_success(response)
    message = response.raw
    assert list(message.raw_output_contents) == [blob]
    assert not message.outputs[0].contents.ByteSize()


@pytest.mark.parametrize("datatype", TYPED_DATATYPES)
def test_typed_request_gets_typed_response(rpc: Grpc, datatype: str) -> None:
    """G4: the response to a typed request is typed."""
    values = two_elements(datatype)
    response = send(rpc, typed_input(datatype, values))
    expect_success(response)
    message = response.raw
    assert list(message.raw_output_contents) == []
    contents = message.outputs[0].contents
    assert list(getattr(contents, CONTENTS_FIELDS[datatype])) == values


@pytest.mark.parametrize("datatype", RAW_ONLY_DATATYPES)
@pytest.mark.parametrize("is_last", [False, True])
def test_output_without_contents_field_makes_response_raw(
    rpc: Grpc, datatype: str, is_last: bool
) -> None:
    """G4, R23: a requested FP16 or BF16 output makes the whole response raw."""
    raw_only_output = f"{datatype.lower()}_out"
    outputs = ["fp32_out", raw_only_output]
    if not is_last:
        outputs.reverse()
    response = send_for_outputs(rpc, outputs, TYPED_FP32_INPUT)
    if len(response.outputs) < len(outputs):
        # The server leaves out the output of an absent input. It gets an input without elements.
        empty = input_without_contents(datatype, 0)
        response = send_for_outputs(rpc, outputs, TYPED_FP32_INPUT, empty)
        expect_success(response)

    entry_of_output = {"fp32_out": struct.pack("<f", 1.5), raw_only_output: b""}
    entries = [entry_of_output[name] for name in outputs]
    assert list(response.raw.raw_output_contents) == entries


def test_request_without_inputs(rpc: Grpc) -> None:
    """G4: the response to a request without inputs is raw."""
    response = send_for_outputs(rpc, ["fp32_out"])
    expect_success(response)
    message = response.raw
    assert len(message.raw_output_contents) == len(message.outputs)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, 5e-324])
@pytest.mark.parametrize("form", ["grpc typed", "grpc raw"], indirect=True)
def test_float_bits_are_preserved(target: Target, form: str, value: float) -> None:
    """G4: every float is preserved, including NaN and infinities."""
    response = target.infer_successfully(form, [vector("FP64", [value])])
    (element,) = response.outputs["fp64_out"].values
    assert struct.pack("<d", element) == struct.pack("<d", value)


@pytest.mark.parametrize("datatype", TYPED_DATATYPES)
def test_typed_empty_tensor(rpc: Grpc, datatype: str) -> None:
    """G5: a tensor without elements is valid, with and without a contents message."""
    outputs = outputs_of(vector(datatype, []))
    without_contents = input_without_contents(datatype, 0)
    with_empty_contents = typed_input(datatype, [])
    for tensor in (without_contents, with_empty_contents):
        response = send(rpc, tensor)
        expect_success(response)
        assert response.outputs == outputs


@pytest.mark.parametrize("datatype", DATATYPES)
def test_raw_empty_tensor(rpc: Grpc, datatype: str) -> None:
    """G5: a tensor without elements has an empty raw entry, in requests and responses."""
    response = send(rpc, input_without_contents(datatype, 0), raw=[b""])
    expect_success(response)
    assert list(response.raw.raw_output_contents) == [b""]
