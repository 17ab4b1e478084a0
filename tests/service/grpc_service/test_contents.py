"""The data of tensors in a message: contents and raw entries."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.protocol.types import MetadataTensor
from oip_conformance.wires import CONTENTS, NUMPY, pack
from tests.kit import models
from tests.service.grpc_service.requests import UNKNOWN, check_invalid_argument, request, x

FIELDS = sorted(set(CONTENTS.values()))


@pytest.fixture(autouse=True)
def check_valid_request_afterward(service):
    """R20: check after each test that a valid call succeeds."""
    yield
    assert service.grpc.infer([("a", "FP32", [1, 2], [1, 2])], ["sum"]).outputs == {
        "sum": ("FP32", [1], [3])
    }


@pytest.mark.parametrize("count", [1, 3])
def test_rejects_wrong_number_of_raw_entries(service, count: int) -> None:
    """G2: raw_input_contents must have exactly one entry per input."""
    inputs = [
        {"name": "a", "datatype": "FP32", "shape": [1, 2]},
        {"name": "b", "datatype": "INT64", "shape": [1]},
    ]
    response = service.grpc.send(request(*inputs, raw_input_contents=[bytes(8)] * count))
    text = f"Invalid raw_input_contents. Expected one entry per input, got {count} (inputs: 2)."
    check_invalid_argument(response, text)


def test_rejects_raw_entries_without_inputs(service) -> None:
    """G2: raw_input_contents without inputs is rejected."""
    check_invalid_argument(
        service.grpc.send(request(raw_input_contents=[b""])), "Invalid raw_input_contents. "
    )


@pytest.mark.parametrize(
    ("size", "datatype"), [(7, "FP32"), (9, "FP32"), (0, "FP32"), (16, "FP32"), (4, "FP64")]
)
def test_rejects_raw_entry_of_wrong_size(echoes, size: int, datatype: str) -> None:
    """G2: the size of a raw entry must match the shape and datatype of its tensor."""
    client = echoes(datatype).grpc
    response = client.send(request(x(datatype, [2]), raw_input_contents=[bytes(size)]))
    text = f"wrong number of bytes. Expected the size that the shape requires, got {size} for {datatype} [2] ("
    check_invalid_argument(response, f'Input "x": {text}{len(pack(datatype, [0, 0]))} bytes)')


def test_rejects_raw_entries_with_contents(service) -> None:
    """G2: raw entries and contents exclude each other, in one input and across inputs."""
    a = {"name": "a", "datatype": "FP32", "shape": [1, 2], "contents": {"fp32_contents": [1, 2]}}
    b = {"name": "b", "datatype": "INT64", "shape": [1]}
    text = 'Input "a": invalid data. Expected either contents or raw_input_contents, got both'
    check_invalid_argument(service.grpc.send(request(a, raw_input_contents=[bytes(8)])), text)
    check_invalid_argument(
        service.grpc.send(request(a, b, raw_input_contents=[bytes(8)] * 2)), text
    )
    check_invalid_argument(
        service.grpc.send(request(a, b, raw_input_contents=[bytes(8)])),
        "Invalid raw_input_contents. ",
    )


def test_ignores_empty_contents(echoes) -> None:
    """G2: an empty contents message in addition to raw entries is ignored."""
    message = request(x("FP32", [1]), raw_input_contents=[bytes(4)])
    message.inputs[0].contents.SetInParent()
    assert message.inputs[0].HasField("contents")
    assert echoes("FP32").grpc.send(message).outputs == {"y": ("FP32", [1], [0.0])}


@pytest.mark.parametrize("datatype", CONTENTS)
@pytest.mark.parametrize("field", FIELDS)
def test_rejects_contents_in_wrong_field(echoes, datatype: str, field: str) -> None:
    """G3: contents are accepted in the field of the datatype, and the error for any other field names it."""
    value = b"a" if field == "bytes_contents" else 1
    response = echoes(datatype).grpc.send(request(x(datatype, [1], **{field: [value]})))
    if field == CONTENTS[datatype]:
        assert response.outputs == {"y": (datatype, [1], [value])}
    else:
        check_invalid_argument(
            response,
            f'Input "x": invalid data. Expected {CONTENTS[datatype]} for {datatype}, got {field}',
        )


@pytest.mark.parametrize("shape", [[1], [2], [0]])
def test_rejects_second_field_of_contents(echoes, shape: list[int]) -> None:
    """G3: contents in a second field, in addition to the right one, are rejected."""
    response = echoes("INT32").grpc.send(
        request(x("INT32", shape, int_contents=[1] * shape[0], int64_contents=[1]))
    )
    check_invalid_argument(
        response, 'Input "x": invalid data. Expected int_contents for INT32, got int64_contents'
    )


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize("datatype", ["BOOL", "INT64", "FP32"])
def test_ignores_unknown_fields_of_contents(echoes, datatype: str, count: int) -> None:
    """G3: unknown fields of contents are ignored, with few elements and with many."""
    message = request(x(datatype, [count], **{CONTENTS[datatype]: [0, 1] * (count // 2)}))
    message.inputs[0].contents.MergeFromString(UNKNOWN)
    assert echoes(datatype).grpc.send(message).outputs == {
        "y": (datatype, [count], [0, 1] * (count // 2))
    }


@pytest.mark.parametrize("contents", [{}, {"int_contents": []}])
def test_rejects_missing_contents(echoes, contents: dict) -> None:
    """G3: missing or empty contents are rejected if the shape has elements."""
    text = "wrong number of elements. Expected as many as the shape has, got 0 for [1], which has 1"
    check_invalid_argument(
        echoes("INT32").grpc.send(request(x("INT32", [1], **contents))), f'Input "x": {text}'
    )


@pytest.mark.parametrize(
    ("datatype", "field", "low", "high"),
    [
        ("UINT8", "uint_contents", 0, 2**8 - 1),
        ("UINT16", "uint_contents", 0, 2**16 - 1),
        ("UINT32", "uint_contents", 0, 2**32 - 1),
        ("UINT64", "uint64_contents", 0, 2**64 - 1),
        ("INT8", "int_contents", -(2**7), 2**7 - 1),
        ("INT16", "int_contents", -(2**15), 2**15 - 1),
        ("INT32", "int_contents", -(2**31), 2**31 - 1),
        ("INT64", "int64_contents", -(2**63), 2**63 - 1),
    ],
)
def test_integer_ranges(echoes, datatype: str, field: str, low: int, high: int) -> None:
    """G3, R11: the limits of a datatype are accepted, and values beyond them in a wider field are rejected."""
    client = echoes(datatype).grpc
    assert client.send(request(x(datatype, [2], **{field: [low, high]}))).outputs == {
        "y": (datatype, [2], [low, high])
    }
    beyond = {
        "int_contents": [low - 1, high + 1, -(2**31), 2**31 - 1],
        "uint_contents": [high + 1, 2**32 - 1],
    }
    for stray in beyond.get(field, []) if datatype[-2:] != "32" else []:
        text = (
            f'Input "x": value out of range. Expected {datatype} from {low} to {high}, got {stray}'
        )
        check_invalid_argument(
            client.send(request(x(datatype, [3], **{field: [0, stray, 1]}))), text
        )


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
@pytest.mark.parametrize("field", FIELDS)
def test_rejects_contents_of_raw_datatypes(echoes, datatype: str, field: str) -> None:
    """G3, R23: contents of FP16 and BF16 are rejected, because they have only a raw form."""
    value = b"ab" if field == "bytes_contents" else 1
    response = echoes(datatype).grpc.send(request(x(datatype, [1], **{field: [value]})))
    check_invalid_argument(
        response, f'Input "x": contents cannot represent {datatype}. Use raw_input_contents.'
    )


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_raw_datatypes(echoes, datatype: str) -> None:
    """G2, G4, R23: FP16 and BF16 are accepted and returned in raw form."""
    response = echoes(datatype).forms["grpc raw"].infer([("x", datatype, [2], [1.5, math.inf])])
    assert response.outputs == {"y": (datatype, [2], [1.5, math.inf])}


@pytest.mark.parametrize(
    ("requested", "form", "raw"),
    [
        (["single"], "grpc typed", False),
        (["half"], "grpc typed", True),
        (["bfloat"], "grpc typed", True),
        (["single", "half"], "grpc typed", True),
        (None, "grpc typed", True),
        (["single"], "grpc raw", True),
        (None, "grpc raw", True),
    ],
)
def test_response_has_form_of_request(
    serve, requested: list[str] | None, form: str, raw: bool
) -> None:
    """G4: the response is raw or typed like the request, but always raw if a requested output is FP16 or BF16."""
    response = serve(models.halves()).forms[form].infer([("x", "FP32", [2], [1.0, 3.0])], requested)
    assert len(response.raw.raw_output_contents) == (len(response.outputs) if raw else 0)
    assert [each.HasField("contents") for each in response.raw.outputs] == [not raw] * len(
        response.outputs
    )
    assert [values for _, _, values in response.outputs.values()] == [[0.5, 1.5]] * len(
        response.outputs
    )


def test_response_without_inputs_is_raw(serve) -> None:
    """G4: the response to a request without inputs is raw."""
    module = models.model(
        [], [MetadataTensor("y", "INT32", [-1])], lambda _: np.array([1, 2], "i4")
    )
    response = serve(module).grpc.infer([])
    assert list(response.raw.raw_output_contents) == [b"\1\0\0\0\2\0\0\0"]


@pytest.mark.parametrize("datatype", NUMPY)
def test_zero_size_tensors(echoes, datatype: str) -> None:
    """G4, G5: an empty raw tensor has an empty raw entry, and an empty typed one has no contents."""
    raw = echoes(datatype, -1, -1).forms["grpc raw"].infer([("x", datatype, [0, 2], [])])
    assert list(raw.raw.raw_output_contents) == [b""]
    assert raw.outputs == {"y": (datatype, [0, 2], [])}
    if datatype in CONTENTS:
        typed = echoes(datatype, -1, -1).grpc.infer([("x", datatype, [2, 0], [])])
        assert list(typed.raw.raw_output_contents) == []
        assert typed.outputs == {"y": (datatype, [2, 0], [])}
