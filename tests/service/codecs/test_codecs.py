"""The built-in codecs: values of each content type, encoded and decoded."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ml_dtypes import bfloat16

from app.codecs import (
    Base64Codec,
    DatetimeCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    PandasJsonCodec,
    StringCodec,
    StringRequestCodec,
)
from app.protocol.datatypes import DATATYPES
from app.protocol.errors import InvalidInput
from app.protocol.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput
from tests.service.codecs.values import texts, utc

FIRST_CODECS = [(NumpyRequestCodec, NumpyCodec), (StringRequestCodec, StringCodec)]
MOMENT = datetime(2024, 2, 29, 12, 30, 15)


def offset(hours: float) -> timezone:
    return timezone(timedelta(hours=hours))


@pytest.mark.parametrize(
    ("codec", "payload", "datatype", "shape", "data"),
    [
        (NumpyCodec, np.array([1.5, 2.5], "f4"), "FP32", [2, 1], [[1.5], [2.5]]),
        (NumpyCodec, np.array([[1, 2], [3, 4]], "i2"), "INT16", [2, 2], [[1, 2], [3, 4]]),
        (NumpyCodec, np.array(7, "u8"), "UINT64", [1], [7]),
        (NumpyCodec, np.float16(0.5), "FP16", [1], [0.5]),
        (NumpyCodec, np.array([1.5, -2], bfloat16), "BF16", [2, 1], [[1.5], [-2]]),
        (NumpyCodec, [bfloat16(0.5)], "BF16", [1, 1], [[0.5]]),
        (NumpyCodec, 2.5, "FP64", [1], [2.5]),
        (NumpyCodec, True, "BOOL", [1], [True]),
        (NumpyCodec, [True, False], "BOOL", [2, 1], [[True], [False]]),
        (NumpyCodec, np.empty(0, "i1"), "INT8", [0, 1], []),
        (NumpyCodec, np.empty((3, 0), "f8"), "FP64", [3, 0], [[], [], []]),
        (NumpyCodec, np.ones((1, 2, 1), ">i4"), "INT32", [1, 2, 1], [[[1], [1]]]),
        (NumpyCodec, np.array(["a", "é"]), "BYTES", [2, 1], [["a"], ["é"]]),
        (
            NumpyCodec,
            np.array([b"a", b"\xff\x00"], object),
            "BYTES",
            [2, 1],
            [[b"a"], [b"\xff\x00"]],
        ),
        (NumpyCodec, b"abc", "BYTES", [1], [b"abc"]),
        (NumpyCodec, [b"a\0", b"bb"], "BYTES", [2, 1], [[b"a\0"], [b"bb"]]),
        (NumpyCodec, [2**64 - 1, 0], "UINT64", [2, 1], [[2**64 - 1], [0]]),
        (StringCodec, ["a", "é🌷", ""], "BYTES", [3, 1], [[b"a"], ["é🌷".encode()], [b""]]),
        (StringCodec, ["a", None], "BYTES", [2, 1], [[b"a"], [None]]),
        (StringCodec, [b"a", "b"], "BYTES", [2, 1], [[b"a"], [b"b"]]),
        (StringCodec, "abc", "BYTES", [1, 1], [[b"abc"]]),
        (StringCodec, [], "BYTES", [0, 1], []),
        (StringCodec, np.array(["a", "b"]), "BYTES", [2, 1], [[b"a"], [b"b"]]),
        (Base64Codec, [b"\xff\x00", b""], "BYTES", [2, 1], [[b"/wA="], [b""]]),
        (Base64Codec, ["a"], "BYTES", [1, 1], [[b"YQ=="]]),
        (Base64Codec, b"a", "BYTES", [1, 1], [[b"YQ=="]]),
        (Base64Codec, [], "BYTES", [0, 1], []),
        (DatetimeCodec, [MOMENT], "BYTES", [1, 1], [[b"2024-02-29T12:30:15"]]),
        (DatetimeCodec, MOMENT, "BYTES", [1, 1], [[b"2024-02-29T12:30:15"]]),
        (DatetimeCodec, [utc(2024, 1, 2)], "BYTES", [1, 1], [[b"2024-01-02T00:00:00+00:00"]]),
        (DatetimeCodec, [date(2024, 1, 2)], "BYTES", [1, 1], [[b"2024-01-02"]]),
        (DatetimeCodec, "2024-01-02T03:04Z", "BYTES", [1, 1], [[b"2024-01-02T03:04Z"]]),
        (DatetimeCodec, [b"2024-01-02"], "BYTES", [1, 1], [[b"2024-01-02"]]),
        (DatetimeCodec, [], "BYTES", [0, 1], []),
        (
            DatetimeCodec,
            np.array(["2024-01-02T03"], "M8[s]"),
            "BYTES",
            [1, 1],
            [[b"2024-01-02T03:00:00"]],
        ),
        (DatetimeCodec, [pd.Timestamp(2024, 1, 2)], "BYTES", [1, 1], [[b"2024-01-02T00:00:00"]]),
        (PandasJsonCodec, [[1, "é"], None], "BYTES", [2, 1], [['[1,"é"]'.encode()], [b"null"]]),
        (PandasJsonCodec, [{"a": [True, 1.5]}], "BYTES", [1, 1], [[b'{"a":[true,1.5]}']]),
        (
            PandasJsonCodec,
            [np.array([1, 2]), np.float32(0.5)],
            "BYTES",
            [2, 1],
            [[b"[1,2]"], [b"0.5"]],
        ),
        (PandasJsonCodec, "abc", "BYTES", [1, 1], [[b'"abc"']]),
        (PandasJsonCodec, 5, "BYTES", [1, 1], [[b"5"]]),
        (PandasJsonCodec, [2**70], "BYTES", [1, 1], [[b"1180591620717411303424"]]),
    ],
)
def test_encodes_inputs_and_outputs(
    codec: Any, payload: Any, datatype: str, shape: list[int], data: list
) -> None:
    """C5, C7, C9: encoding sets the datatype, shape, data and content type of inputs and outputs. [N] becomes [N,1]."""
    input_tensor, output_tensor = (
        codec.encode_input("x", payload),
        codec.encode_output("x", payload),
    )
    assert isinstance(input_tensor, RequestInput)
    assert isinstance(output_tensor, ResponseOutput)
    for tensor in (input_tensor, output_tensor):
        assert (tensor.name, tensor.datatype, tensor.shape) == ("x", datatype, shape)
        assert tensor.parameters == {"content_type": codec.ContentType}
        assert tensor.data.tolist() == data


@pytest.mark.parametrize(
    ("codec", "data", "expected"),
    [
        (StringCodec, [b"a", "é".encode(), "b", None], ["a", "é", "b", None]),
        (StringCodec, [[b"a"], [b"b"]], ["a", "b"]),
        (StringCodec, [], []),
        (StringCodec, b"a", ["a"]),
        (Base64Codec, [b"/wA=", "YQ==", b""], [b"\xff\x00", b"a", b""]),
        (Base64Codec, [[b"YQ=="]], [b"a"]),
        (Base64Codec, [], []),
        (DatetimeCodec, ["2024-02-29T12:30:15"], [MOMENT]),
        (DatetimeCodec, [b"2024-02-29 12:30:15"], [MOMENT]),
        (DatetimeCodec, ["2024-02-29"], [datetime(2024, 2, 29)]),
        (DatetimeCodec, ["2024-02-29T12:30"], [datetime(2024, 2, 29, 12, 30)]),
        (DatetimeCodec, ["2024-02-29T12:30:15Z"], [MOMENT.replace(tzinfo=UTC)]),
        (DatetimeCodec, ["2024-02-29T12:30:15z"], [MOMENT.replace(tzinfo=UTC)]),
        (DatetimeCodec, ["2024-02-29T12:30:15+00:00"], [MOMENT.replace(tzinfo=UTC)]),
        (DatetimeCodec, ["2024-02-29T12:30:15-05:30"], [MOMENT.replace(tzinfo=offset(-5.5))]),
        (DatetimeCodec, ["2024-02-29T12:30:15.5+14:00"], [MOMENT.replace(microsecond=500000, tzinfo=offset(14))]),
        (DatetimeCodec, ["2024-02-29T12:30:15.1"], [MOMENT.replace(microsecond=100000)]),
        (DatetimeCodec, ["2024-02-29T12:30:15.000001"], [MOMENT.replace(microsecond=1)]),
        (DatetimeCodec, ["2024-02-29T12:30:15.123456000Z"], [MOMENT.replace(microsecond=123456, tzinfo=UTC)]),
        (DatetimeCodec, ["0001-01-01", "9999-12-31T23:59:59.999999"], [datetime.min, datetime.max]),
        (DatetimeCodec, [["2024-02-29"], ["2024-03-01"]], [datetime(2024, 2, 29), datetime(2024, 3, 1)]),
        (PandasJsonCodec, ['[1,"é"]', b"null", "1.5", '{"a":[]}', "1180591620717411303424"],
         [[1, "é"], None, 1.5, {"a": []}, 2**70]),
        (PandasJsonCodec, [], []),
    ],
)  # fmt: skip
def test_decodes_inputs_and_outputs(codec: Any, data: Any, expected: list) -> None:
    """C7: BYTES of any rank decode to a list, for inputs and outputs."""
    for decoded in (
        codec.decode_input(RequestInput("x", "BYTES", data=data)),
        codec.decode_output(ResponseOutput("x", "BYTES", data=data)),
    ):
        assert decoded == expected
        assert [type(each) for each in decoded] == [type(each) for each in expected]
        assert [offset_of(each) for each in decoded] == [offset_of(each) for each in expected]


def offset_of(value: Any) -> timedelta | None:
    return value.utcoffset() if isinstance(value, datetime) else None


@pytest.mark.parametrize("codec", [StringCodec, Base64Codec, DatetimeCodec, PandasJsonCodec])
def test_use_bytes_false_encodes_str(codec: Any) -> None:
    """C7: use_bytes=False encodes the same text as str, which decodes to the same payload."""
    payload: list = {
        StringCodec: ["é"],
        Base64Codec: [b"\xff"],
        DatetimeCodec: [MOMENT],
        PandasJsonCodec: [["é"]],
    }[codec]
    (text,) = codec.encode_input("x", payload, use_bytes=False).data.ravel()
    (octets,) = codec.encode_input("x", payload).data.ravel()
    assert isinstance(text, str)
    assert text.encode() == octets
    assert codec.decode_input(codec.encode_input("x", payload, use_bytes=False)) == payload
    assert codec.decode_output(codec.encode_output("x", payload, use_bytes=False)) == payload


def test_request_codecs_pass_use_bytes_on() -> None:
    """C7: a request codec passes use_bytes=False to the input codec."""
    assert StringRequestCodec.encode_request(["a"], use_bytes=False).inputs[0].data.tolist() == [
        ["a"]
    ]
    assert StringRequestCodec.encode_response("m", ["a"], use_bytes=False).outputs[
        0
    ].data.tolist() == [["a"]]


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


def test_nan_is_null_in_json() -> None:
    """C5, R12: NaN becomes null in JSON, and null becomes NaN."""
    response = NumpyRequestCodec.encode_response("m", np.array([1.5, np.nan]))
    assert response.to_dict()["outputs"][0]["data"] == [1.5, None]
    array = NumpyRequestCodec.decode_response(InferenceResponse.from_dict(response.to_dict()))
    assert array[0, 0] == 1.5
    assert np.isnan(array[1, 0])


@pytest.mark.parametrize(
    ("codec", "payload", "can"),
    [
        (NumpyCodec, np.zeros(1), True),
        (NumpyCodec, [0.0], False),
        (NumpyCodec, None, False),
        (NumpyRequestCodec, np.zeros(1), True),
        (NumpyRequestCodec, "a", False),
        (StringCodec, ["a", ""], True),
        (StringCodec, [b"a"], False),
        (StringCodec, ["a", 1], False),
        (StringCodec, "a", False),
        (StringCodec, {"a": "b"}, False),
        (StringRequestCodec, ["a"], True),
        (StringRequestCodec, np.array(["a"]), False),
        (Base64Codec, [b"a"], True),
        (Base64Codec, ["a"], False),
        (DatetimeCodec, [MOMENT, utc(2024, 1, 1)], True),
        (DatetimeCodec, ["2024-01-01"], False),
        (DatetimeCodec, [MOMENT, None], False),
        (PandasJsonCodec, [[1], {"a": 1}], True),
        (PandasJsonCodec, {"a": 1}, False),
        (PandasCodec, pd.DataFrame({"a": [1]}), True),
        (PandasCodec, pd.DataFrame(), True),
        (PandasCodec, pd.Series([1]), False),
        (PandasCodec, {"a": [1]}, False),
        (PandasCodec, None, False),
    ],
)
def test_can_encode_accepts_only_matching_types(codec: Any, payload: Any, can: bool) -> None:
    """C4: can_encode is true only for payloads of the codec's type."""
    assert codec.can_encode(payload) is can


@pytest.mark.parametrize(("codec", "inner"), FIRST_CODECS)
def test_np_and_str_request_codecs_encode_one_tensor(codec: Any, inner: Any) -> None:
    """C4, C9: the tensors are `input-1` and `output-1`, and both the request and the tensor have the content type."""
    payload = np.array([1, 2]) if codec is NumpyRequestCodec else ["a", "b"]
    request = codec.encode_request(payload)
    assert isinstance(request, InferenceRequest)
    assert [each.name for each in request.inputs] == ["input-1"]
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
    assert [each.name for each in response.outputs] == ["output-1"]
    assert (
        response.outputs[0].parameters == response.parameters == {"content_type": inner.ContentType}
    )
    for decoded in (codec.decode_request(request), codec.decode_response(response)):
        np.testing.assert_array_equal(
            decoded, payload if inner is StringCodec else np.array([[1], [2]])
        )


@pytest.mark.parametrize(
    ("codec", "payload"), [(NumpyRequestCodec, 2.5), (StringRequestCodec, "abc")]
)
def test_request_codecs_encode_a_scalar_as_a_list_of_one(codec: Any, payload: Any) -> None:
    """C5, C7: request codecs encode a bare scalar as a list of one element."""
    assert list(codec.decode_request(codec.encode_request(payload))) == [payload]
    assert list(codec.decode_response(codec.encode_response("m", payload))) == [payload]


@pytest.mark.parametrize(("codec", "inner"), FIRST_CODECS)
def test_request_codecs_use_only_the_first_tensor(codec: Any, inner: Any) -> None:
    """C8: request-level np and str ignore a second tensor, even if its content type is unknown."""
    first = inner.encode_input("x", ["a"])
    second = RequestInput("y", "FP32", data=[1], parameters={"content_type": "nonsense"})
    assert list(codec.decode_request(InferenceRequest([first, second]))) in (["a"], [[b"a"]])


@pytest.mark.parametrize(("codec", "inner"), FIRST_CODECS)
def test_request_codecs_reject_requests_without_tensors(codec: Any, inner: Any) -> None:
    """C8: request-level np and str reject a request or response without tensors."""
    with pytest.raises(InvalidInput, match="Expected a tensor for"):
        codec.decode_request(InferenceRequest([]))
    with pytest.raises(InvalidInput, match="Expected a tensor for"):
        codec.decode_response(InferenceResponse([]))


@pytest.mark.parametrize(("codec", "_"), FIRST_CODECS)
def test_request_codecs_decode_by_the_tensors_content_type(codec: Any, _: Any) -> None:
    """C1: request-level np and str decode the first tensor with the content type that it names."""
    named = texts("YQ==", content_type="base64")
    assert codec.decode_request(InferenceRequest([named])) == [b"a"]
    response = ResponseOutput("y", "BYTES", data=["YQ=="], parameters={"content_type": "base64"})
    assert codec.decode_response(InferenceResponse([response])) == [b"a"]


def test_base64_is_compatible_with_the_standard_library() -> None:
    """C7: the base64 codec reads what the base64 module writes, and the reverse."""
    payload = [bytes(range(n)) for n in range(5)]
    input_tensor = texts(*[base64.b64encode(each).decode() for each in payload])
    assert Base64Codec.decode_input(input_tensor) == payload
    assert [
        base64.b64decode(each) for each in Base64Codec.encode_input("x", payload).data.ravel()
    ] == payload
