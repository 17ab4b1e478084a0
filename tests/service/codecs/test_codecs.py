"""The codecs as clients use them: conversion of Python values to tensors and back."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.codecs import (
    Base64Codec,
    DatetimeCodec,
    InputCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    PandasJsonCodec,
    RequestCodec,
    StringCodec,
    StringRequestCodec,
    find_input_codec,
    find_request_codec,
    register_input_codec,
    register_request_codec,
)
from app.codecs.base import input_codecs, request_codecs
from app.protocol.datatypes import DATATYPES, object_array
from app.protocol.errors import InferenceError, InvalidInput
from app.protocol.types import InferenceRequest, InferenceResponse, RequestInput, RequestOutput, ResponseOutput

INPUT_CODECS = [NumpyCodec, StringCodec, Base64Codec, DatetimeCodec, PandasJsonCodec]
FIRST_CODECS = [(NumpyRequestCodec, NumpyCodec), (StringRequestCodec, StringCodec)]
LENGTH = "Inference-Header-Content-Length"
UTC = UTC
MOMENT = datetime(2024, 2, 29, 12, 30, 15)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def offset(hours: float) -> timezone:
    return timezone(timedelta(hours=hours))


def texts(*elements: Any, content_type: str | None = None) -> RequestInput:
    """Return a BYTES input with `elements` as its rows."""
    parameters = {"content_type": content_type} if content_type else {}
    array = np.empty(len(elements), object)
    array[:] = elements
    return RequestInput("a", "BYTES", data=array, parameters=parameters)


def column(*tensors: RequestInput) -> pd.Series:
    """Return the first column of the DataFrame that the pd codec decodes from `tensors`."""
    return PandasCodec.decode_request(InferenceRequest(list(tensors))).iloc[:, 0]


def frame(values: Any, dtype: Any = None) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series(values, dtype=dtype)})


def listed(series: pd.Series) -> list:
    """Return the values of a column, with None for every missing value."""
    return [None if gap else each for each, gap in zip(series, series.isna(), strict=True)]


def encoded(payload: pd.DataFrame) -> RequestInput:
    (tensor,) = PandasCodec.encode_request(payload).inputs
    return tensor


@pytest.fixture
def registries() -> Iterator[None]:
    """Remove the codecs that a test registers."""
    kept = dict(input_codecs), dict(request_codecs)
    yield
    for registry, codecs in zip((input_codecs, request_codecs), kept, strict=True):
        registry.clear()
        registry.update(codecs)


@pytest.mark.parametrize(
    ("codec", "payload", "datatype", "shape", "data"),
    [
        (NumpyCodec, np.array([1.5, 2.5], "f4"), "FP32", [2, 1], [[1.5], [2.5]]),
        (NumpyCodec, np.array([[1, 2], [3, 4]], "i2"), "INT16", [2, 2], [[1, 2], [3, 4]]),
        (NumpyCodec, np.array(7, "u8"), "UINT64", [1], [7]),
        (NumpyCodec, np.float16(0.5), "FP16", [1], [0.5]),
        (NumpyCodec, 2.5, "FP64", [1], [2.5]),
        (NumpyCodec, True, "BOOL", [1], [True]),
        (NumpyCodec, [True, False], "BOOL", [2, 1], [[True], [False]]),
        (NumpyCodec, np.empty(0, "i1"), "INT8", [0, 1], []),
        (NumpyCodec, np.empty((3, 0), "f8"), "FP64", [3, 0], [[], [], []]),
        (NumpyCodec, np.ones((1, 2, 1), ">i4"), "INT32", [1, 2, 1], [[[1], [1]]]),
        (NumpyCodec, np.array(["a", "é"]), "BYTES", [2, 1], [["a"], ["é"]]),
        (NumpyCodec, np.array([b"a", b"\xff\x00"], object), "BYTES", [2, 1], [[b"a"], [b"\xff\x00"]]),
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
        (DatetimeCodec, np.array(["2024-01-02T03"], "M8[s]"), "BYTES", [1, 1], [[b"2024-01-02T03:00:00"]]),
        (DatetimeCodec, [pd.Timestamp(2024, 1, 2)], "BYTES", [1, 1], [[b"2024-01-02T00:00:00"]]),
        (PandasJsonCodec, [[1, "é"], None], "BYTES", [2, 1], [['[1,"é"]'.encode()], [b"null"]]),
        (PandasJsonCodec, [{"a": [True, 1.5]}], "BYTES", [1, 1], [[b'{"a":[true,1.5]}']]),
        (PandasJsonCodec, [np.array([1, 2]), np.float32(0.5)], "BYTES", [2, 1], [[b"[1,2]"], [b"0.5"]]),
        (PandasJsonCodec, "abc", "BYTES", [1, 1], [[b'"abc"']]),
        (PandasJsonCodec, 5, "BYTES", [1, 1], [[b"5"]]),
        (PandasJsonCodec, [2**70], "BYTES", [1, 1], [[b"1180591620717411303424"]]),
    ],
)
def test_encodes_inputs_and_outputs(codec: Any, payload: Any, datatype: str, shape: list[int], data: list) -> None:
    """C5, C7, C9: encoding sets the datatype, shape, data and content type of inputs and outputs. [N] becomes [N,1]."""
    sent, answered = codec.encode_input("x", payload), codec.encode_output("x", payload)
    assert isinstance(sent, RequestInput)
    assert isinstance(answered, ResponseOutput)
    for tensor in (sent, answered):
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


@pytest.mark.parametrize(
    ("codec", "datatype", "data", "text"),
    [
        (StringCodec, "FP32", [1], "datatype: expected BYTES for str, got FP32"),
        (Base64Codec, "INT8", [1], "datatype: expected BYTES for base64, got INT8"),
        (DatetimeCodec, "INT64", [1], "datatype: expected BYTES for datetime, got INT64"),
        (PandasJsonCodec, "BOOL", [True], "datatype: expected BYTES for pd_json, got BOOL"),
        (StringCodec, "BYTES", [b"\xff"], "data: expected UTF-8 text, got "),
        (Base64Codec, "BYTES", ["YQ="], "not base64"),
        (Base64Codec, "BYTES", ["Y Q=="], "not base64"),
        (Base64Codec, "BYTES", ["YQ==\n"], "not base64"),
        (Base64Codec, "BYTES", ["é"], "not base64"),
        (Base64Codec, "BYTES", [b"\xff"], "not base64"),
        (Base64Codec, "BYTES", ["_-=="], "not base64"),
        (Base64Codec, "BYTES", [None], "not base64"),
        (DatetimeCodec, "BYTES", [None], "null"),
        (DatetimeCodec, "BYTES", [""], "expected a datetime in ISO 8601, got ''"),
        (DatetimeCodec, "BYTES", ["now"], "expected a datetime in ISO 8601, got 'now'"),
        (DatetimeCodec, "BYTES", ["2024-02-30"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["29/02/2024"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-02-29T12:30:15ZZ"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["Z"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01T12:30.5Z"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01T12.5"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01-05:00"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01+05:00"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01Z"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01x12:00"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01\n12:00"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["20240101T123000123456789"], "expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["1709209815"], "expected a datetime in ISO 8601"),
        (
            DatetimeCodec,
            "BYTES",
            ["2024-02-29T12:30:15.0000001"],
            "expected at most microseconds, got 2024",
        ),
        (DatetimeCodec, "BYTES", [b"\xff"], "data: expected UTF-8 text, got "),
        (PandasJsonCodec, "BYTES", ["{"], "not JSON"),
        (PandasJsonCodec, "BYTES", [""], "not JSON"),
        (PandasJsonCodec, "BYTES", [None], "not JSON"),
        (PandasJsonCodec, "BYTES", ["'a'"], "not JSON"),
        (PandasJsonCodec, "BYTES", [b"\xff"], "data: expected UTF-8 text, got "),
        (PandasJsonCodec, "BYTES", ["1" * 5000], "not JSON"),
        (NumpyCodec, "BYTES", [b"a", None], "null"),
    ],
)
def test_rejects_tensors_that_do_not_match_the_codec(codec: Any, datatype: str, data: list, text: str) -> None:
    """C7, R12, R14: decoding rejects another datatype and data that is invalid for the content type."""
    with pytest.raises(InvalidInput, match=text):
        codec.decode_input(RequestInput("x", datatype, data=data))
    with pytest.raises(InvalidInput, match=text):
        codec.decode_output(ResponseOutput("x", datatype, data=data))


@pytest.mark.parametrize("literal", ["NaN", "[Infinity]", '{"a":-Infinity}'])
def test_pd_json_rejects_nonfinite_literals(literal: str) -> None:
    """R12: pd_json rejects NaN and Infinity literals in a cell."""
    with pytest.raises(InvalidInput):
        PandasJsonCodec.decode_input(texts(literal))


def test_pd_json_rejects_deeply_nested_cells() -> None:
    """R20: pd_json rejects a cell with too deeply nested JSON."""
    with pytest.raises(InvalidInput):
        PandasJsonCodec.decode_input(texts("[" * 100_000))


@pytest.mark.parametrize(
    ("codec", "payload"),
    [
        (NumpyCodec, np.array(["2024"], "M8[s]")),
        (NumpyCodec, np.array([1], "m8[s]")),
        (NumpyCodec, np.array([1j])),
        (NumpyCodec, np.array([1], np.longdouble)),
        (NumpyCodec, np.array([(1, 2)], "i4,i4")),
        (NumpyCodec, [{"a": 1}]),
        (NumpyCodec, ["a", 1]),
        (NumpyCodec, [1, object()]),
        (StringCodec, [1]),
        (StringCodec, 1.5),
        (StringCodec, [b"\xff"]),
        (StringCodec, ["\ud800"]),
        (StringCodec, [["a"]]),
        (Base64Codec, [1]),
        (Base64Codec, [None]),
        (Base64Codec, None),
        (DatetimeCodec, [None]),
        (DatetimeCodec, None),
        (DatetimeCodec, [1]),
        (DatetimeCodec, ["yesterday"]),
        (DatetimeCodec, [b"\xff"]),
        (DatetimeCodec, [pd.NaT]),
        (DatetimeCodec, np.array(["NaT"], "M8[s]")),
        (DatetimeCodec, np.array(["20240-01-01"], "M8[s]")),
        (DatetimeCodec, np.array(["-0001-01-01"], "M8[D]")),
        (DatetimeCodec, [timedelta(1)]),
        (PandasJsonCodec, [float("nan")]),
        (PandasJsonCodec, [[np.float32("inf")]]),
        (PandasJsonCodec, [{1: 2}]),
        (PandasJsonCodec, {1, 2}),
        (PandasJsonCodec, pd.DataFrame({"a": [1]})),
        (Base64Codec, {b"a", b"b"}),
        (Base64Codec, pd.DataFrame({"a": [b"b"]})),
        (DatetimeCodec, list(pd.Series(np.array(["10000-01-01"], "M8[s]")))),
        (PandasJsonCodec, [{1}]),
        (PandasJsonCodec, [object()]),
        (PandasJsonCodec, [b"a"]),
        (PandasJsonCodec, [datetime.min]),
        (PandasJsonCodec, [timedelta(1)]),
        (PandasJsonCodec, [np.timedelta64(1, "ns")]),
        (PandasJsonCodec, [np.datetime64(1, "ns")]),
        (PandasJsonCodec, [[np.array([1], "M8[ns]")]]),
        (PandasJsonCodec, [10**5000]),
        (PandasJsonCodec, ["\ud800"]),
    ],
)
def test_rejects_payloads_that_cannot_be_encoded(codec: Any, payload: Any) -> None:
    """C5, C7: encoding rejects a payload that the codec cannot represent, and never changes its value."""
    for encode in (codec.encode_input, codec.encode_output):
        with pytest.raises(InvalidInput):
            encode("x", payload)


@pytest.mark.parametrize("codec", [StringCodec, Base64Codec, DatetimeCodec, PandasJsonCodec])
def test_use_bytes_false_encodes_str(codec: Any) -> None:
    """C7: use_bytes=False encodes the same text as str, which decodes to the same payload."""
    payload: list = {StringCodec: ["é"], Base64Codec: [b"\xff"], DatetimeCodec: [MOMENT], PandasJsonCodec: [["é"]]}[
        codec
    ]
    (text,) = codec.encode_input("x", payload, use_bytes=False).data.ravel()
    (octets,) = codec.encode_input("x", payload).data.ravel()
    assert isinstance(text, str)
    assert text.encode() == octets
    assert codec.decode_input(codec.encode_input("x", payload, use_bytes=False)) == payload
    assert codec.decode_output(codec.encode_output("x", payload, use_bytes=False)) == payload


def test_request_codecs_pass_use_bytes_on() -> None:
    """C7: a request codec passes use_bytes=False to the input codec."""
    assert StringRequestCodec.encode_request(["a"], use_bytes=False).inputs[0].data.tolist() == [["a"]]
    assert StringRequestCodec.encode_response("m", ["a"], use_bytes=False).outputs[0].data.tolist() == [["a"]]


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
    answer = NumpyRequestCodec.encode_response("m", np.array([1.5, np.nan]))
    assert answer.to_dict()["outputs"][0]["data"] == [1.5, None]
    array = NumpyRequestCodec.decode_response(InferenceResponse.from_dict(answer.to_dict()))
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
    sent = codec.encode_request(payload)
    assert isinstance(sent, InferenceRequest)
    assert [each.name for each in sent.inputs] == ["input-1"]
    assert sent.inputs[0].parameters == sent.parameters == {"content_type": inner.ContentType}
    assert sent.inputs[0].shape == [2, 1]
    answer = codec.encode_response("m", payload)
    assert isinstance(answer, InferenceResponse)
    assert (answer.model_name, answer.model_version) == ("m", None)
    assert codec.encode_response("m", payload, "v10").model_version == "v10"
    assert codec.encode_response(model_name="m", payload=payload, model_version="3").model_version == "3"
    assert [each.name for each in answer.outputs] == ["output-1"]
    assert answer.outputs[0].parameters == answer.parameters == {"content_type": inner.ContentType}
    for decoded in (codec.decode_request(sent), codec.decode_response(answer)):
        np.testing.assert_array_equal(decoded, payload if inner is StringCodec else np.array([[1], [2]]))


@pytest.mark.parametrize(("codec", "payload"), [(NumpyRequestCodec, 2.5), (StringRequestCodec, "abc")])
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
    with pytest.raises(InvalidInput, match="expected a tensor for"):
        codec.decode_request(InferenceRequest([]))
    with pytest.raises(InvalidInput, match="expected a tensor for"):
        codec.decode_response(InferenceResponse([]))


@pytest.mark.parametrize(("codec", "_"), FIRST_CODECS)
def test_request_codecs_decode_by_the_tensors_content_type(codec: Any, _: Any) -> None:
    """C1: request-level np and str decode the first tensor with the content type that it names."""
    named = texts("YQ==", content_type="base64")
    assert codec.decode_request(InferenceRequest([named])) == [b"a"]
    answer = ResponseOutput("y", "BYTES", data=["YQ=="], parameters={"content_type": "base64"})
    assert codec.decode_response(InferenceResponse([answer])) == [b"a"]


@pytest.mark.parametrize("codec", [NumpyRequestCodec, StringRequestCodec, PandasCodec])
@pytest.mark.parametrize("named", ["nonsense", "pd", "NP", "", 5, True])
def test_rejects_unknown_content_types_on_tensors(codec: Any, named: Any) -> None:
    """C2: an unknown content type on a tensor is rejected. The error names the tensor and the known content types."""
    tensor = RequestInput("x", "BYTES", data=["a"], parameters={"content_type": named})
    with pytest.raises(InvalidInput, match=r'input "x".*base64, datetime, np, pd_json, str'):
        codec.decode_request(InferenceRequest([tensor]))
    output = ResponseOutput("y", "BYTES", data=["a"], parameters={"content_type": named})
    with pytest.raises(InvalidInput, match=r'output "y".*base64, datetime, np, pd_json, str'):
        codec.decode_response(InferenceResponse([output]))


@pytest.mark.parametrize("named", ["nonsense", "", None, 5, [], {}])
def test_find_codec_rejects_unknown_content_types(named: Any) -> None:
    """C2, C3: the error for an unknown content type lists the known content types of that level."""
    with pytest.raises(InvalidInput, match="base64, datetime, np, pd_json, str on an input or output"):
        find_input_codec(named)
    with pytest.raises(InvalidInput, match="np, pd, str on a request"):
        find_request_codec(named)


def test_finds_built_in_codecs() -> None:
    """C3: each built-in codec is found by its content type, at its level."""
    assert [find_input_codec(each.ContentType) for each in INPUT_CODECS] == INPUT_CODECS
    for name, codec in {"np": NumpyRequestCodec, "str": StringRequestCodec, "pd": PandasCodec}.items():
        assert codec.ContentType == name
        assert find_request_codec(name) is codec


def test_registers_input_codecs(registries: None) -> None:
    """C10: register_input_codec works as a class decorator and as a call. The codec is found by its content type."""

    @register_input_codec
    class Upper(InputCodec):
        ContentType = "upper"
        TypeHint = str

        @classmethod
        def encode(cls, payload: str, **options: Any) -> tuple[str, np.ndarray]:
            return "BYTES", np.array([payload.lower()], object)

        @classmethod
        def decode(cls, tensor: Any) -> str:
            return StringCodec.decode(tensor)[0].upper()  # type: ignore[union-attr]

    class Lower(Upper):
        ContentType = "lower"

    assert Upper.__name__ == "Upper"
    assert register_input_codec(Lower) is Lower
    assert find_input_codec("upper") is Upper
    assert find_input_codec("lower") is Lower
    sent = Upper.encode_input("x", "ABC")
    assert (sent.shape, sent.parameters) == ([1], {"content_type": "upper"})
    assert NumpyRequestCodec.decode_request(InferenceRequest([sent])) == "ABC"
    assert Upper.can_encode("a")
    assert not Upper.can_encode(b"a")
    with pytest.raises(InvalidInput, match="base64, datetime, lower, np, pd_json, str, upper on an input or output"):
        find_input_codec("other")
    with pytest.raises(InvalidInput, match="np, pd, str on a request"):
        find_request_codec("upper")


def test_registers_mlserver_style_codecs(registries: None) -> None:
    """C10: an input codec needs no base class if it defines MLServer's four encode and decode methods."""

    @register_input_codec
    class Length:
        ContentType = "length"

        @classmethod
        def can_encode(cls, payload: Any) -> bool:
            return isinstance(payload, int)

        @classmethod
        def encode_input(cls, name: str, payload: int, **options: Any) -> RequestInput:
            parameters = {"content_type": cls.ContentType}
            return RequestInput(name=name, datatype="BYTES", shape=[1], data=["a" * payload], parameters=parameters)

        @classmethod
        def decode_input(cls, request_input: RequestInput) -> int:
            return len(request_input.data[0])

        @classmethod
        def encode_output(cls, name: str, payload: int, **options: Any) -> ResponseOutput:
            parameters = {"content_type": cls.ContentType}
            return ResponseOutput(name=name, datatype="BYTES", shape=[1], data=["b" * payload], parameters=parameters)

        @classmethod
        def decode_output(cls, response_output: ResponseOutput) -> int:
            return -len(response_output.data[0])

    sent, answered = Length.encode_input("x", 3), Length.encode_output("y", 4)
    assert StringRequestCodec.decode_request(InferenceRequest([sent])) == 3
    assert NumpyRequestCodec.decode_response(InferenceResponse([answered])) == -4
    assert find_input_codec("length").can_encode(3)


def test_registers_request_codecs(registries: None) -> None:
    """C10: register_request_codec works as a class decorator and as a call, for classes and instances."""

    @register_request_codec
    class Sum(RequestCodec):
        ContentType = "sum"
        TypeHint = float

        @classmethod
        def decode_request(cls, request: InferenceRequest) -> float:
            return sum(float(each.data.sum()) for each in request.inputs)

    class Instance(Sum):
        ContentType = "instance"

    codec = Instance()
    assert register_request_codec(codec) is codec
    assert find_request_codec("instance") is codec
    tensors = [RequestInput("a", "FP32", data=[1, 2]), RequestInput("b", "FP32", data=[3])]
    assert find_request_codec("sum").decode_request(InferenceRequest(tensors)) == 6
    assert Sum.can_encode(1.5)
    assert not Sum.can_encode("a")
    with pytest.raises(InvalidInput, match="instance, np, pd, str, sum on a request"):
        find_request_codec("other")


def test_fixture_removes_registered_codecs() -> None:
    """C10: the registries fixture has removed the codecs that the previous tests registered."""
    assert sorted(input_codecs) == ["base64", "datetime", "np", "pd_json", "str"]
    assert sorted(request_codecs) == ["np", "pd", "str"]


IMPORTED = """
import sys
from app.codecs import PandasCodec
import app.codecs, app.protocol.types
print(*sorted({"flask", "grpc", "werkzeug", "marshmallow", "pandas", "google.protobuf"} & set(sys.modules)))
"""


def test_codecs_import_without_server_packages() -> None:
    """C4: importing the codecs does not import Flask, grpc or pandas."""
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_codecs_work_without_pandas() -> None:
    """C4: the np and str request codecs work if pandas is not installed."""
    script = """
import sys
sys.modules["pandas"] = None
import numpy as np
from app.codecs import NumpyRequestCodec, PandasCodec, StringRequestCodec
assert NumpyRequestCodec.decode_request(NumpyRequestCodec.encode_request(np.array([1]))).tolist() == [[1]]
assert StringRequestCodec.decode_request(StringRequestCodec.encode_request(["a"])) == ["a"]
assert not PandasCodec.can_encode([1])
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    ("values", "dtype", "datatype", "content_type", "back"),
    [
        ([1, 2], "int32", "INT32", None, "int32"),
        ([1, 2], ">i8", "INT64", None, "int64"),
        ([1, 2], "uint8", "UINT8", None, "uint8"),
        ([True, False], "bool", "BOOL", None, "bool"),
        ([1.5, np.nan], "float16", "FP16", None, "float16"),
        ([1.5, np.inf], "float32", "FP32", None, "float32"),
        ([1, 2], "Int16", "INT16", None, "int16"),
        ([1, None], "Int16", "FP64", None, "float64"),
        ([1, None, 2**53], "Int64", "FP64", None, "float64"),
        ([1, None, 2**53 + 1], "Int64", "BYTES", "pd_json", "object"),
        ([-(2**63), None], "Int64", "BYTES", "pd_json", "object"),
        ([2**64 - 1, 1], "UInt64", "UINT64", None, "uint64"),
        ([2**64 - 1, None], "UInt64", "BYTES", "pd_json", "object"),
        ([True, False], "boolean", "BOOL", None, "bool"),
        ([True, None], "boolean", "BYTES", "pd_json", "object"),
        ([0.1, None], "Float32", "FP32", None, "float32"),
        ([0.1, None], "Float64", "FP64", None, "float64"),
        ([], "Int8", "INT8", None, "int8"),
        ([b"a", b"\xff"], "object", "BYTES", None, "object"),
        ([[1], [2, 3]], "object", "BYTES", "pd_json", "object"),
        ([{"a": 1}, None], "object", "BYTES", "pd_json", "object"),
        ([1, "a", None, [1]], "object", "BYTES", "pd_json", "object"),
        ([np.bytes_(b"a"), b"\xff"], "object", "BYTES", None, "object"),
    ],
)
def test_pd_column_datatype_follows_the_dtype(
    values: list, dtype: str, datatype: str, content_type: str | None, back: str
) -> None:
    """C6: a column's datatype and content type follow its dtype. Its values and missing values survive a round trip."""
    payload = frame(values, dtype)
    tensor = encoded(payload)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("a", datatype, [len(values), 1])
    assert tensor.parameters == ({"content_type": content_type} if content_type else {})
    decoded = column(tensor)
    assert decoded.dtype == np.dtype(back)
    assert listed(decoded) == listed(payload["a"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", None, "b"], ["a", None, "b"]),
        ([1, None, 2], [1, None, 2]),
        ([1, 2, 1], [1, 2, 1]),
        ([1.5, None], [1.5, None]),
        ([True, None], [True, None]),
        ([None, None], [None, None]),
        ([utc(2024, 1, 1), None], [utc(2024, 1, 1), None]),
    ],
)
def test_pd_keeps_categorical_values(values: list, expected: list) -> None:
    """C6: a categorical column keeps its values and missing values in a round trip."""
    decoded = column(encoded(frame(values, "category")))
    assert listed(decoded) == expected


def test_pd_encodes_dates_with_none_as_datetime() -> None:
    """C6: an object column of dates or datetimes with None is encoded as datetime, and None becomes NaT."""
    for moment in (date(2024, 1, 2), datetime(2024, 1, 2)):
        tensor = encoded(frame([moment, None], "object"))
        assert tensor.parameters == {"content_type": "datetime"}
        assert listed(column(tensor)) == [pd.Timestamp(2024, 1, 2), None]


@pytest.mark.parametrize("codec", [StringCodec, NumpyCodec, Base64Codec, PandasCodec])
def test_encodes_numpy_strings_like_python_strings(codec: Any) -> None:
    """C7: NumPy strings are encoded like Python strings, in a list and in an object array."""
    for wrap in (list, object_array):
        if codec is PandasCodec:
            of_numpys, of_pythons = (encoded(frame(wrap([kind("aé"), kind("b")]), "object")) for kind in (np.str_, str))
        else:
            of_numpys, of_pythons = (codec.encode_input("x", wrap([kind("aé"), kind("b")])) for kind in (np.str_, str))
        assert of_numpys.data.tolist() == of_pythons.data.tolist()
        assert set(map(type, of_numpys.data.ravel().tolist())) <= {bytes, str}
        assert of_numpys.parameters == of_pythons.parameters


def test_pd_keeps_large_integers_of_arrow_categories() -> None:
    """C6: a missing value does not change categories that are integers beyond the precision of floats."""
    pytest.importorskip("pyarrow")
    series = pd.Series([2**53 + 1, None], dtype="int64[pyarrow]").astype("category")
    assert listed(column(encoded(pd.DataFrame({"a": series})))) == [2**53 + 1, None]


def test_pd_encodes_sparse_columns_as_dense() -> None:
    """C6: a sparse column is encoded as its dense values, with the same dtype."""
    for values in ([2**40 + 1, 0], [0.1, 0.0], [True, False], np.array([255, 0], "u1")):
        sent = encoded(pd.DataFrame({"a": pd.arrays.SparseArray(values)}))
        assert sent.data.dtype == np.asarray(values).dtype
        assert sent.data.ravel().tolist() == list(values)


def test_pd_encodes_missing_values_of_integer_categories() -> None:
    """C6: a missing value in a categorical column of int64 stays missing."""
    series = pd.Series(pd.Categorical.from_codes([0, -1, 1], categories=np.array([1, 2])))
    decoded = column(encoded(pd.DataFrame({"a": series})))
    assert decoded.isna().tolist() == [False, True, False]
    assert decoded.dropna().tolist() == [1, 2]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (RequestInput("a", "INT32", data=[[1], [2]]), [1, 2]),
        (RequestInput("a", "INT32", data=[1, 2]), [1, 2]),
        (RequestInput("a", "FP32", data=[[[1]], [[2]]]), [1, 2]),
        (texts(b"a", "b"), [b"a", b"b"]),
        (texts("a", None, content_type="str"), ["a", None]),
        (texts("YQ==", content_type="base64"), [b"a"]),
        (texts("[1]", "null", content_type="pd_json"), [[1], None]),
        (texts("2024-01-02", content_type="datetime"), [pd.Timestamp(2024, 1, 2)]),
        (texts("2024-01-02T00:00:00Z", content_type="datetime"), [pd.Timestamp(2024, 1, 2, tz="UTC")]),
        (texts("2024-01-02", "NaT", content_type="datetime"), [pd.Timestamp(2024, 1, 2), None]),
        (texts("a", "b", content_type="np"), [b"a", b"b"]),
    ],
)
def test_pd_decodes_columns_by_content_type(sent: RequestInput, expected: list) -> None:
    """C6: a direct call of decode_request decodes each column with its content type and squeezes [N,1]."""
    decoded = column(sent)
    assert listed(decoded) == expected


def test_pd_cells_hold_the_remaining_dimensions() -> None:
    """C6: a column has shape[0] rows, and each cell holds an array of the remaining dimensions."""
    decoded = column(RequestInput("a", "INT8", data=[[1, 2], [3, 4]]))
    assert [each.tolist() for each in decoded] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "text", ["now", "today", "", "nan", " 2024-01-01", "2024-01-01T00:00:00.0000000001", "1/2/2024"]
)
def test_pd_rejects_datetimes_that_are_not_iso_8601(text: str) -> None:
    """C7: a datetime column accepts only ISO 8601, and rejects digits that it would lose."""
    with pytest.raises(InvalidInput, match='input "a"'):
        column(texts(text, content_type="datetime"))


@pytest.mark.parametrize("text", ["2024-01-01T00:00:00z", "2024-01-01T00:00:00.000001Z", "2024-01-01T01:00:00.5+01:00"])
def test_pd_and_datetime_codecs_decode_the_same_values(text: str) -> None:
    """C7: a datetime column accepts what the datetime codec accepts, and decodes it to the same value."""
    (moment,) = DatetimeCodec.decode_input(texts(text))
    assert column(texts(text, content_type="datetime"))[0] == moment


def test_pd_keeps_naive_datetimes_naive() -> None:
    """C6: a column of naive datetimes and datetimes with an offset is rejected, or the naive ones stay naive."""
    values = [datetime(2024, 1, 1), utc(2024, 1, 1)]
    try:
        decoded = list(column(encoded(frame(values, object))))
    except InvalidInput:
        return
    assert [each.tzinfo is None for each in decoded] == [True, False]


def test_pd_keeps_datetimes_across_daylight_saving() -> None:
    """C6: datetimes of a time zone with daylight saving keep their values, converted to UTC if the offsets differ."""
    moments = pd.to_datetime(["2024-03-31T00:59:59Z", "2024-03-31T01:00:01Z", None]).tz_convert("Europe/Berlin")
    decoded = column(encoded(pd.DataFrame({"a": moments})))
    assert decoded.isna().tolist() == [False, False, True]
    assert decoded.tolist()[:2] == moments.tolist()[:2]


def test_pd_keeps_datetimes_outside_the_nanosecond_range() -> None:
    """C6: the years 1 and 9999 keep their values, even in a column with a missing value."""
    decoded = column(texts("9999-12-31T23:59:59.999999", "0001-01-01", "NaT", content_type="datetime"))
    assert decoded.isna().tolist() == [False, False, True]
    assert decoded.tolist()[:2] == [datetime.max, datetime.min]


def test_pd_rejects_columns_of_different_lengths() -> None:
    """C6: inputs with different numbers of rows are rejected."""
    tensors = [RequestInput("a", "FP32", data=[1]), RequestInput("b", "FP32", data=[1, 2])]
    with pytest.raises(InvalidInput, match=r'different numbers of rows: got "a" \[1\], "b" \[2\]'):
        PandasCodec.decode_request(InferenceRequest(tensors))


def test_pd_rejects_a_scalar_column() -> None:
    """C6: a tensor of rank 0 is rejected as a column."""
    with pytest.raises(InvalidInput, match='input "a": shape'):
        column(RequestInput("a", "FP32", data=1.0))


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (pd.DataFrame({0: [1]}), "name of a column: expected a string, got 0"),
        (pd.DataFrame({("a", "b"): [1]}), r"name of a column: expected a string, got \('a', 'b'\)"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "same name"),
        (frame([timedelta(1)]), 'column "a"'),
        (frame([1j]), 'column "a"'),
        (frame([object()]), 'column "a"'),
        (frame([[float("nan")]]), 'column "a"'),
        (frame([{"a": float("inf")}]), 'column "a"'),
        (frame([{1}]), 'column "a"'),
        (frame(["\ud800"], object), 'column "a"'),
        (frame([b"a", None]), 'column "a"'),
        (frame([np.timedelta64(1, "ns"), 1], object), 'column "a"'),
        (frame(pd.period_range("2024", periods=1)), 'column "a"'),
    ],
)
def test_pd_rejects_frames_that_cannot_be_encoded(payload: pd.DataFrame, text: str) -> None:
    """C6: a DataFrame with an invalid column name or cell is rejected, and the error names the column."""
    with pytest.raises(InvalidInput, match=text):
        PandasCodec.encode_request(payload)
    with pytest.raises(InvalidInput, match=text):
        PandasCodec.encode_response("m", payload)


def test_pd_rejects_numpy_datetimes_in_object_columns() -> None:
    """C6: a NumPy datetime in an object column of mixed values is rejected instead of encoded as an integer."""
    payload = frame([np.datetime64("2024-01-01", "ns"), 1], object)
    with pytest.raises(InvalidInput, match='column "a"'):
        PandasCodec.encode_request(payload)


def test_pd_encodes_columns_in_order() -> None:
    """C4, C6, C9: pd encodes one tensor per column in order, sets content_type on the request and drops the index."""
    payload = pd.DataFrame({"b c": [1, 2], "a": ["x", "y"]}, index=[5, 6])
    sent = PandasCodec.encode_request(payload)
    answer = PandasCodec.encode_response("m", payload, "2")
    assert [each.name for each in sent.inputs] == [each.name for each in answer.outputs] == ["b c", "a"]
    assert sent.parameters == answer.parameters == {"content_type": "pd"}
    assert (answer.model_name, answer.model_version) == ("m", "2")
    for decoded in (PandasCodec.decode_request(sent), PandasCodec.decode_response(answer)):
        assert decoded.index.tolist() == [0, 1]
        assert decoded.to_dict("list") == {"b c": [1, 2], "a": ["x", "y"]}


def test_pd_encodes_empty_frames() -> None:
    """C6: a DataFrame without columns or without rows survives a round trip."""
    assert PandasCodec.decode_request(PandasCodec.encode_request(pd.DataFrame())).shape == (0, 0)
    payload = pd.DataFrame({"a": pd.Series([], dtype="int32"), "b": pd.Series([], dtype=object)})
    decoded = PandasCodec.decode_request(PandasCodec.encode_request(payload))
    assert decoded.shape == (0, 2)
    assert decoded["a"].dtype == np.int32


def test_pd_keeps_pyarrow_values() -> None:
    """C6: columns with pyarrow dtypes keep their values."""
    pytest.importorskip("pyarrow")
    payload = pd.DataFrame(
        {
            "int": pd.Series([1, None], dtype="int64[pyarrow]"),
            "text": pd.Series(["a", None], dtype="string[pyarrow]"),
            "float": pd.Series([0.1, None], dtype="double[pyarrow]"),
        }
    )
    decoded = PandasCodec.decode_request(PandasCodec.encode_request(payload))
    assert decoded.isna().to_numpy().tolist() == [[False] * 3, [True] * 3]
    assert decoded.iloc[0].tolist() == [1, "a", 0.1]


REQUEST = InferenceRequest(
    [
        RequestInput("x", "FP32", [2, 1], [1.5, float("nan")], {"content_type": "np"}),
        RequestInput("s", "BYTES", data=["é"]),
    ],
    id="7",
    parameters={"priority": 1},
    outputs=[RequestOutput("y", {"binary_data": False}), RequestOutput("z")],
)
ENVELOPE: dict[str, Any] = {
    "id": "7",
    "parameters": {"priority": 1},
    "outputs": [{"name": "y", "parameters": {"binary_data": False}}, {"name": "z"}],
    "inputs": [
        {"name": "x", "shape": [2, 1], "datatype": "FP32", "parameters": {"content_type": "np"}, "data": [1.5, None]},
        {"name": "s", "shape": [1], "datatype": "BYTES", "data": ["é"]},
    ],
}


def test_to_json_and_to_dict_agree() -> None:
    """R7: to_dict, to_json and to_http without binary data produce the same JSON."""
    assert REQUEST.to_dict() == ENVELOPE
    assert json.loads(REQUEST.to_json()) == ENVELOPE
    assert REQUEST.to_http(binary=False) == (REQUEST.to_json(), {"Content-Type": "application/json"})
    assert InferenceRequest([]).to_dict() == {"inputs": []}
    assert InferenceRequest([], id="").to_dict() == {"id": "", "inputs": []}


def test_to_http_sends_binary_data() -> None:
    """B3, B6: to_http appends binary data to the JSON, sets the length header and requests binary outputs."""
    body, headers = REQUEST.to_http()
    length = int(headers[LENGTH])
    head = json.loads(body[:length])
    assert headers == {"Content-Type": "application/octet-stream", LENGTH: str(length)}
    assert head["parameters"] == {"binary_data_output": True, "priority": 1}
    assert [each["parameters"] for each in head["inputs"]] == [
        {"content_type": "np", "binary_data_size": 8},
        {"binary_data_size": 6},
    ]
    assert body[length:] == np.array([1.5, np.nan], "<f4").tobytes() + b"\x02\0\0\0\xc3\xa9"
    assert REQUEST.parameters == {"priority": 1}
    assert "binary_data_size" not in REQUEST.inputs[0].parameters


def test_to_http_sends_named_tensors_as_binary() -> None:
    """B3, B6: to_http sends only the named tensors as binary data and keeps the request's own binary_data_output."""
    asking = InferenceRequest(REQUEST.inputs, parameters={"binary_data_output": False})
    body, headers = asking.to_http({"s"})
    head = json.loads(body[: int(headers[LENGTH])])
    assert head["parameters"] == {"binary_data_output": False}
    assert head["inputs"][0]["data"] == [1.5, None]
    assert head["inputs"][1]["parameters"] == {"binary_data_size": 6}
    assert len(body) == int(headers[LENGTH]) + 6


@pytest.mark.parametrize(
    ("data", "datatype"),
    [([float("inf")], "FP32"), ([float("-inf")], "FP16"), ([b"\xff"], "BYTES"), (["\ud800"], "BYTES")],
)
def test_json_rejects_infinity_and_invalid_text(data: list, datatype: str) -> None:
    """R12, R14: every JSON form rejects infinity and bytes that are not UTF-8."""
    sent = InferenceRequest([RequestInput("x", datatype, data=data)])
    for write in (sent.to_json, sent.to_dict, lambda: sent.to_http(binary=False)):
        with pytest.raises(InvalidInput):
            write()


RESPONSE = InferenceResponse(
    [
        ResponseOutput("y", "FP32", data=[1.5, float("nan")]),
        ResponseOutput("z", "BYTES", data=["a"], parameters={"k": 1}),
    ],
    "m",
    "3",
    "7",
    {"content_type": "np"},
)


@pytest.mark.parametrize("spell", [str, str.lower, str.upper])
@pytest.mark.parametrize("binary", [True, False, {"z"}])
def test_from_http_reads_what_to_http_writes(spell: Callable[[str], str], binary: Any) -> None:
    """R8, B7: from_http reads the output of to_http, with header names in any case."""
    body, headers = RESPONSE.to_http(binary)
    read = InferenceResponse.from_http(body, {spell(name): value for name, value in headers.items()})
    assert (read.model_name, read.model_version, read.id, read.parameters) == ("m", "3", "7", {"content_type": "np"})
    assert [(each.name, each.datatype, each.shape) for each in read.outputs] == [
        ("y", "FP32", [2]),
        ("z", "BYTES", [1]),
    ]
    np.testing.assert_array_equal(read.outputs[0].data, np.array([1.5, np.nan], "f4"))
    assert StringCodec.decode_output(read.outputs[1]) == ["a"]
    assert read.outputs[1].parameters["k"] == 1
    assert StringCodec.decode_output(InferenceResponse.from_dict(RESPONSE.to_dict()).outputs[1]) == ["a"]


def test_from_dict_needs_only_outputs() -> None:
    """R8: a response needs only `outputs`, and its data may be nested."""
    tensor = {"name": "y", "datatype": "INT8", "shape": [2, 1], "data": [[1], [2]]}
    read = InferenceResponse.from_dict({"outputs": [tensor], "id": None, "parameters": None, "more": 1})
    assert read.outputs[0].data.tolist() == [[1], [2]]
    assert (read.id, read.parameters) == (None, {})


@pytest.mark.parametrize("text", ["no such model", ""])
def test_from_http_raises_the_servers_error(text: str) -> None:
    """R19: an error body raises InferenceError with the server's message, not InvalidInput."""
    with pytest.raises(InferenceError) as caught:
        InferenceResponse.from_http(json.dumps({"error": text}).encode(), {"Content-Type": "application/json"})
    assert (type(caught.value), str(caught.value)) == (InferenceError, text)
    with pytest.raises(InferenceError) as caught:
        InferenceResponse.from_dict({"error": text})
    assert str(caught.value) == text


GOOD: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}


def with_output(**changes: Any) -> Any:
    return {"outputs": [{**GOOD, **changes}]}


@pytest.mark.parametrize(
    "payload",
    [
        None, [], 5, "a", {}, {"outputs": None}, {"outputs": 5}, {"outputs": "a"}, {"outputs": {}},
        {"outputs": {"y": GOOD}}, {"outputs": [None]}, {"outputs": [[]]}, {"outputs": [{}]}, {"outputs": ["y"]},
        *({"outputs": [{key: value for key, value in GOOD.items() if key != missing}]} for missing in GOOD),
        with_output(name=5), with_output(name=None), with_output(name=[]),
        with_output(datatype="fp32"), with_output(datatype=None), with_output(datatype=[]),
        with_output(shape=[2]), with_output(shape=[-1]), with_output(shape=1), with_output(shape=[1.0]),
        with_output(shape=None), with_output(shape=[[1]]), with_output(shape=[0, 2**62], data=[]),
        with_output(data=["a"]), with_output(data=[[1.0], []]), with_output(data={}), with_output(data=[1e39]),
        with_output(parameters=[1]), with_output(parameters="a"), with_output(parameters=5),
        *(with_output(data=None, parameters={"binary_data_size": size}) for size in ("4", 4.0, -4, True, 4, [4])),
        with_output(parameters={"binary_data_size": 0}),
        {"outputs": [], "parameters": [1]},
    ],
    ids=lambda payload: json.dumps(payload)[:100],
)  # fmt: skip
def test_rejects_malformed_responses(payload: Any) -> None:
    """R8, R9, B2: a malformed response raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_dict(payload)
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(json.dumps(payload).encode(), {})


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"NaN", b"<html>", b"[" * 70 + b"]" * 70])
def test_rejects_response_bodies_that_are_not_json(body: bytes) -> None:
    """R12, R20: a response body that is not JSON raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(body, {})


@pytest.mark.parametrize("stated", ["abc", "", "5.0", "-1", "5", "0", "9999", "+5", "1e2"])
def test_rejects_invalid_length_headers(stated: str) -> None:
    """B4: an Inference-Header-Content-Length that is invalid or does not match the body raises InvalidInput."""
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(RESPONSE.to_json(), {LENGTH: stated})


@pytest.mark.parametrize(("cut", "more"), [(1, b""), (4, b""), (0, b"\0"), (0, bytes(8))])
def test_rejects_short_and_trailing_binary_data(cut: int, more: bytes) -> None:
    """B5: binary data that is too short or too long raises InvalidInput."""
    body, headers = RESPONSE.to_http()
    with pytest.raises(InvalidInput):
        InferenceResponse.from_http(body[: len(body) - cut] + more, headers)


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("UINT8", [300]),
        ("UINT8", np.array([300])),
        ("INT32", [1.5]),
        ("INT32", np.array([1.5])),
        ("BOOL", ["False"]),
        ("FP32", ["a"]),
        ("FP32", np.array([1e39])),
        ("FP32", [[1], [1, 2]]),
        ("INT64", [None]),
        ("BYTES", [1]),
    ],
)
def test_rejects_values_outside_the_datatype(datatype: str, data: Any) -> None:
    """R11: creating an input raises InvalidInput if the datatype cannot represent a value exactly."""
    with pytest.raises(InvalidInput):
        RequestInput("x", datatype, data=data)


@pytest.mark.parametrize(
    ("datatype", "shape", "data"),
    [("FP32", [3], [1, 2]), ("FP32", [-1], [1]), ("FP32", [2.0, 1], [1]), ("fp32", [1], [1]), ("FP32", [0, 2**62], [])],
)
def test_rejects_invalid_shapes_and_datatypes(datatype: str, shape: list, data: list) -> None:
    """R1, R9: creating an input raises InvalidInput if the datatype is unknown or the shape does not match the data."""
    with pytest.raises(InvalidInput):
        RequestInput("x", datatype, shape, data)


def test_base64_is_compatible_with_the_standard_library() -> None:
    """C7: the base64 codec reads what the base64 module writes, and the reverse."""
    payload = [bytes(range(n)) for n in range(5)]
    sent = texts(*[base64.b64encode(each).decode() for each in payload])
    assert Base64Codec.decode_input(sent) == payload
    assert [base64.b64decode(each) for each in Base64Codec.encode_input("x", payload).data.ravel()] == payload
