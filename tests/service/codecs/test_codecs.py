"""The built-in codecs: values of each content type, encoded and decoded."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ml_dtypes import bfloat16

from app.codecs import (
    Base64Codec,
    BytesCodec,
    DatetimeCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    PandasJsonCodec,
    StringCodec,
    StringRequestCodec,
)
from app.protocol.datatypes import DATATYPES
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.tensors import RequestInput, ResponseOutput
from tests.service.codecs.values import texts, utc

FIRST_CODECS = [(NumpyRequestCodec, NumpyCodec), (StringRequestCodec, StringCodec)]
MOMENT = datetime(2024, 2, 29, 12, 30, 15)


def offset(hours: float) -> timezone:
    return timezone(timedelta(hours=hours))


# Payload, and the datatype, shape and data of its tensor.
ARRAYS: list[tuple[Any, str, list[int], list]] = [
    (np.array([1.5, 2.5], "f4"), "FP32", [2, 1], [[1.5], [2.5]]),
    (np.array([[1, 2], [3, 4]], "i2"), "INT16", [2, 2], [[1, 2], [3, 4]]),
    (np.array(7, "u8"), "UINT64", [1], [7]),
    (np.float16(0.5), "FP16", [1], [0.5]),
    ([bfloat16(0.5)], "BF16", [1, 1], [[0.5]]),
    (True, "BOOL", [1], [True]),
    (np.empty(0, "i1"), "INT8", [0, 1], []),
    (np.empty((3, 0), "f8"), "FP64", [3, 0], [[], [], []]),
    (np.ones((1, 2, 1), ">i4"), "INT32", [1, 2, 1], [[[1], [1]]]),
    (np.array(["a", "é"]), "BYTES", [2, 1], [["a"], ["é"]]),
    (np.array([b"a", b"\xff\x00"], object), "BYTES", [2, 1], [[b"a"], [b"\xff\x00"]]),
    (b"abc", "BYTES", [1], [b"abc"]),
    ([b"a\0", b"bb"], "BYTES", [2, 1], [[b"a\0"], [b"bb"]]),
    ([2**64 - 1, 0], "UINT64", [2, 1], [[2**64 - 1], [0]]),
]
# Payload, and the elements of its tensor, whose shape is [N,1].
TEXTS: dict[Any, list[tuple[Any, list]]] = {
    StringCodec: [
        (["a", "é🌷", "", None], [b"a", "é🌷".encode(), b"", None]),
        ([b"a", "b"], [b"a", b"b"]),
        ("abc", [b"abc"]),
        ([], []),
        (np.array(["a", "b"]), [b"a", b"b"]),
    ],
    Base64Codec: [
        ([b"\xff\x00", b""], [b"/wA=", b""]),
        (["a"], [b"YQ=="]),
        (b"a", [b"YQ=="]),
    ],
    BytesCodec: [
        ([b"\xff\x00", b""], [b"\xff\x00", b""]),
        ("é", ["é".encode()]),
        (np.array(["a", "b"]), [b"a", b"b"]),
    ],
    DatetimeCodec: [
        (MOMENT, [b"2024-02-29T12:30:15"]),
        ([MOMENT, utc(2024, 1, 2)], [b"2024-02-29T12:30:15", b"2024-01-02T00:00:00+00:00"]),
        ([date(2024, 1, 2), b"2024-01-02"], [b"2024-01-02", b"2024-01-02"]),
        ("2024-01-02T03:04Z", [b"2024-01-02T03:04Z"]),
        (np.array(["2024-01-02T03"], "M8[s]"), [b"2024-01-02T03:00:00"]),
        ([pd.Timestamp(2024, 1, 2)], [b"2024-01-02T00:00:00"]),
    ],
    PandasJsonCodec: [
        ([[1, "é"], None], ['[1,"é"]'.encode(), b"null"]),
        ([{"a": [True, 1.5]}, 2**70], [b'{"a":[true,1.5]}', b"1180591620717411303424"]),
        ([np.array([1, 2]), np.float32(0.5)], [b"[1,2]", b"0.5"]),
        ("abc", [b'"abc"']),
        (5, [b"5"]),
    ],
}
ENCODED = [
    *((NumpyCodec, *case) for case in ARRAYS),
    *(
        (codec, payload, "BYTES", [len(elements), 1], [[element] for element in elements])
        for codec, cases in TEXTS.items()
        for payload, elements in cases
    ),
]


@pytest.mark.parametrize(("codec", "payload", "datatype", "shape", "data"), ENCODED)
def test_encodes_inputs_and_outputs(
    codec: Any, payload: Any, datatype: str, shape: list[int], data: list
) -> None:
    """C5, C7, C9: encoding sets the datatype, shape, data and content type of inputs and outputs. [N] becomes [N,1]."""
    for encode, kind in ((codec.encode_input, RequestInput), (codec.encode_output, ResponseOutput)):
        tensor = encode("x", payload)
        assert isinstance(tensor, kind)
        assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, shape)
        assert tensor.parameters == {"content_type": codec.ContentType}
        assert tensor.data.tolist() == data


# Text of ISO 8601, and the datetime.
DATETIMES: dict[str, datetime] = {
    "2024-02-29T12:30:15": MOMENT,
    "2024-02-29 12:30:15": MOMENT,
    "2024-02-29": datetime(2024, 2, 29),
    "2024-02-29T12:30": datetime(2024, 2, 29, 12, 30),
    "2024-02-29T12:30:15Z": MOMENT.replace(tzinfo=UTC),
    "2024-02-29T12:30:15z": MOMENT.replace(tzinfo=UTC),
    "2024-02-29T12:30:15+00:00": MOMENT.replace(tzinfo=UTC),
    "2024-02-29T12:30:15-05:30": MOMENT.replace(tzinfo=offset(-5.5)),
    "2024-02-29T12:30:15.5+14:00": MOMENT.replace(microsecond=500000, tzinfo=offset(14)),
    "2024-02-29T12:30:15.1": MOMENT.replace(microsecond=100000),
    "2024-02-29T12:30:15.000001": MOMENT.replace(microsecond=1),
    "2024-02-29T12:30:15.123456000Z": MOMENT.replace(microsecond=123456, tzinfo=UTC),
    "0001-01-01": datetime.min,
    "9999-12-31T23:59:59.999999": datetime.max,
}


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        (StringCodec, [b"a", "é".encode(), "b", None], ["a", "é", "b", None]),
        (StringCodec, [[b"a"], [b"b"]], ["a", "b"]),
        (StringCodec, b"a", ["a"]),
        (StringCodec, [], []),
        (Base64Codec, [b"/wA=", "YQ==", b""], [b"\xff\x00", b"a", b""]),
        (Base64Codec, [[b"YQ=="]], [b"a"]),
        (DatetimeCodec, list(DATETIMES), list(DATETIMES.values())),
        (DatetimeCodec, [["2024-02-29"], [b"0001-01-01"]], [datetime(2024, 2, 29), datetime.min]),
        (PandasJsonCodec, ['[1,"é"]', b"null", '{"a":[]}'], [[1, "é"], None, {"a": []}]),
        (PandasJsonCodec, ["1.5", "1180591620717411303424"], [1.5, 2**70]),
    ],
)
def test_decodes_inputs_and_outputs(codec: Any, data: Any, expected: list) -> None:
    """C7: BYTES of any rank decode to a list, for inputs and outputs."""
    for decoded in (
        codec.decode_input(RequestInput("x", "BYTES", data=data)),
        codec.decode_output(ResponseOutput("x", "BYTES", data=data)),
    ):
        assert decoded == expected
        assert [type(element) for element in decoded] == [type(element) for element in expected]
        assert [offset_of(element) for element in decoded] == [
            offset_of(element) for element in expected
        ]


def offset_of(value: Any) -> timedelta | None:
    return value.utcoffset() if isinstance(value, datetime) else None


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (StringCodec, "é"),
        (Base64Codec, b"\xff"),
        (DatetimeCodec, MOMENT),
        (PandasJsonCodec, ["é"]),
    ],
)
def test_use_bytes_false_encodes_str(codec: Any, payload: Any) -> None:
    """C7: use_bytes=False encodes the same text as str."""
    (text,) = codec.encode_input("x", [payload], use_bytes=False).data.ravel()
    (octets,) = codec.encode_input("x", [payload]).data.ravel()
    assert isinstance(text, str)
    assert text.encode() == octets


def test_request_codecs_pass_use_bytes_on() -> None:
    """C7: a request codec passes use_bytes=False to the input codec."""
    request = StringRequestCodec.encode_request(["a"], use_bytes=False)
    response = StringRequestCodec.encode_response("m", ["a"], use_bytes=False)
    for tensor in (*request.inputs, *response.outputs):
        assert tensor.data.tolist() == [["a"]]


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("shape", [(2,), (2, 1), (1, 2), (2, 1, 1), (0,), ()])
def test_np_decodes_to_the_shape_in_the_request(datatype: str, shape: tuple[int, ...]) -> None:
    """C5: the dtype follows the datatype, and decoding reshapes the data to the shape in the request."""
    dtype = DATATYPES[datatype].dtype
    data = np.full(shape, b"a" if datatype == "BYTES" else 1, dtype)
    array = NumpyCodec.decode_input(RequestInput("x", datatype, data=data))
    assert (array.dtype, array.shape) == (dtype, shape)
    assert array.tolist() == data.tolist()
    assert array.flags.carray


def test_np_decodes_to_a_writable_copy() -> None:
    """C5: decoding a read-only, unaligned view returns a writable array."""
    view = np.frombuffer(bytes(9), "<i4", 2, 1)
    array = NumpyCodec.decode_input(RequestInput("x", "INT32", data=view))
    array[0] = 5
    assert view.tolist() == [0, 0]


# Payloads that a codec can encode, and others.
ENCODABLE: dict[Any, tuple[list, list]] = {
    NumpyCodec: ([np.zeros(1)], [[0.0], None]),
    NumpyRequestCodec: ([np.zeros(1)], ["a"]),
    StringCodec: ([["a", ""]], [[b"a"], ["a", 1], "a", {"a": "b"}]),
    StringRequestCodec: ([["a"]], [np.array(["a"])]),
    Base64Codec: ([[b"a"]], [["a"]]),
    BytesCodec: ([[b"a"]], [[None], None, [1], {b"a"}]),
    DatetimeCodec: ([[MOMENT, utc(2024, 1, 1)]], [["2024-01-01"], [MOMENT, None]]),
    PandasJsonCodec: ([[[1], {"a": 1}]], [{"a": 1}]),
    PandasCodec: ([pd.DataFrame({"a": [1]}), pd.DataFrame()], [pd.Series([1]), {"a": [1]}, None]),
}


@pytest.mark.parametrize("codec", ENCODABLE)
def test_can_encode_accepts_only_matching_types(codec: Any) -> None:
    """C4: can_encode is true only for payloads of the codec's type."""
    encodable, others = ENCODABLE[codec]
    assert all(codec.can_encode(payload) for payload in encodable)
    assert not any(codec.can_encode(payload) for payload in others)


@pytest.mark.parametrize(("codec", "inner"), FIRST_CODECS)
def test_np_and_str_request_codecs_encode_one_tensor(codec: Any, inner: Any) -> None:
    """C4, C9: the tensors are `input-1` and `output-1`, and both the request and the tensor have the content type."""
    payload = np.array([1, 2]) if codec is NumpyRequestCodec else ["a", "b"]
    request = codec.encode_request(payload)
    assert isinstance(request, InferenceRequest)
    assert [tensor.name for tensor in request.inputs] == ["input-1"]
    assert request.inputs[0].parameters == request.parameters == {"content_type": inner.ContentType}
    assert request.inputs[0].shape == [2, 1]
    response = codec.encode_response("m", payload)
    assert isinstance(response, InferenceResponse)
    assert (response.model_name, response.model_version) == ("m", None)
    assert codec.encode_response("m", payload, "v10").model_version == "v10"
    assert (
        codec.encode_response(model_name="m", payload=payload, model_version="3").model_version
        == "3"
    )
    assert [tensor.name for tensor in response.outputs] == ["output-1"]
    assert (
        response.outputs[0].parameters == response.parameters == {"content_type": inner.ContentType}
    )
    for decoded in (codec.decode_request(request), codec.decode_response(response)):
        np.testing.assert_array_equal(
            decoded, payload if inner is StringCodec else np.array([[1], [2]])
        )


@pytest.mark.parametrize(("codec", "inner"), FIRST_CODECS)
def test_request_codecs_use_only_the_first_tensor(codec: Any, inner: Any) -> None:
    """C8: request-level np and str ignore a second tensor, even if its content type is unknown."""
    first = inner.encode_input("x", ["a"])
    second = RequestInput("y", "FP32", data=[1], parameters={"content_type": "nonsense"})
    assert list(codec.decode_request(InferenceRequest([first, second]))) in (["a"], [[b"a"]])


@pytest.mark.parametrize(("codec", "_"), FIRST_CODECS)
def test_request_codecs_decode_by_the_tensors_content_type(codec: Any, _: Any) -> None:
    """C1: request-level np and str decode the first tensor with the content type that it names."""
    named = texts("YQ==", content_type="base64")
    assert codec.decode_request(InferenceRequest([named])) == [b"a"]
    response = ResponseOutput("y", "BYTES", data=["YQ=="], parameters={"content_type": "base64"})
    assert codec.decode_response(InferenceResponse([response])) == [b"a"]
