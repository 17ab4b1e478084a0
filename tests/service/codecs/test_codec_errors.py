"""Tensors, values and content types that the codecs reject."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

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
from app.protocol.errors import InvalidInput
from app.protocol.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput
from tests.service.codecs.values import texts


@pytest.mark.parametrize(
    ("codec", "datatype", "data", "text"),
    [
        (
            StringCodec,
            "FP32",
            [1],
            "Invalid datatype. Expected BYTES for content type str, got FP32",
        ),
        (
            Base64Codec,
            "INT8",
            [1],
            "Invalid datatype. Expected BYTES for content type base64, got INT8",
        ),
        (
            DatetimeCodec,
            "INT64",
            [1],
            "Invalid datatype. Expected BYTES for content type datetime, got INT64",
        ),
        (
            PandasJsonCodec,
            "BOOL",
            [True],
            "Invalid datatype. Expected BYTES for content type pd_json, got BOOL",
        ),
        (StringCodec, "BYTES", [b"\xff"], "Invalid data. Expected UTF-8 text, got "),
        (Base64Codec, "BYTES", ["YQ="], "Invalid base64. Send "),
        (Base64Codec, "BYTES", ["Y Q=="], "Invalid base64. Send "),
        (Base64Codec, "BYTES", ["YQ==\n"], "Invalid base64. Send "),
        (Base64Codec, "BYTES", ["é"], "Invalid base64. Send "),
        (Base64Codec, "BYTES", [b"\xff"], "Invalid base64. Send "),
        (Base64Codec, "BYTES", ["_-=="], "Invalid base64. Send "),
        (Base64Codec, "BYTES", [None], "Invalid base64. Send "),
        (DatetimeCodec, "BYTES", [""], 'Expected a datetime in ISO 8601, got ""'),
        (DatetimeCodec, "BYTES", ["now"], 'Expected a datetime in ISO 8601, got "now"'),
        (DatetimeCodec, "BYTES", ["2024-02-30"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["29/02/2024"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-02-29T12:30:15ZZ"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["Z"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01T12:30.5Z"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01T12.5"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01-05:00"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01+05:00"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01Z"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01x12:00"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["2024-01-01\n12:00"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["20240101T123000123456789"], "Expected a datetime in ISO 8601"),
        (DatetimeCodec, "BYTES", ["1709209815"], "Expected a datetime in ISO 8601"),
        (
            DatetimeCodec,
            "BYTES",
            ["2024-02-29T12:30:15.0000001"],
            "Expected at most 6 decimal places, got 2024",
        ),
        (DatetimeCodec, "BYTES", [b"\xff"], "Invalid data. Expected UTF-8 text, got "),
        (PandasJsonCodec, "BYTES", ["{"], "Invalid JSON. Got "),
        (PandasJsonCodec, "BYTES", [""], "Invalid JSON. Got "),
        (PandasJsonCodec, "BYTES", [None], "Invalid JSON. Got "),
        (PandasJsonCodec, "BYTES", ["'a'"], "Invalid JSON. Got "),
        (PandasJsonCodec, "BYTES", [b"\xff"], "Invalid data. Expected UTF-8 text, got "),
        (PandasJsonCodec, "BYTES", ["1" * 5000], "Invalid JSON. Got "),
        (NumpyCodec, "BYTES", [b"a", None], "null"),
    ],
)
def test_rejects_tensors_that_do_not_match_the_codec(
    codec: Any, datatype: str, data: list, text: str
) -> None:
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


@pytest.mark.parametrize("codec", [NumpyRequestCodec, StringRequestCodec, PandasCodec])
@pytest.mark.parametrize("named", ["nonsense", "pd", "NP", "", 5, True])
def test_rejects_unknown_content_types_on_tensors(codec: Any, named: Any) -> None:
    """C2: an unknown content type on a tensor is rejected. The error names the tensor and the known content types."""
    tensor = RequestInput("x", "BYTES", data=["a"], parameters={"content_type": named})
    with pytest.raises(InvalidInput, match=r'Input "x".*base64, bytes, datetime, np, pd_json, str'):
        codec.decode_request(InferenceRequest([tensor]))
    output = ResponseOutput("y", "BYTES", data=["a"], parameters={"content_type": named})
    with pytest.raises(
        InvalidInput, match=r'Output "y".*base64, bytes, datetime, np, pd_json, str'
    ):
        codec.decode_response(InferenceResponse([output]))
