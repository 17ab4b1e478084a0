"""Tensors, values and content types that the codecs reject."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ml_dtypes import float8_e4m3fn

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
from app.protocol.errors import InvalidInput
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.tensors import RequestInput, ResponseOutput
from tests.service.codecs.values import texts

# Elements of BYTES that a codec does not decode, by the start of the error message.
UNDECODABLE: dict[tuple[Any, str], list[Any]] = {
    (StringCodec, "Invalid data. Expected UTF-8 text, got "): [b"\xff"],
    (Base64Codec, "Invalid base64. Send "): [
        *("YQ=", "Y Q==", "YQ==\n", "é", b"\xff", "_-==", None),
    ],
    (DatetimeCodec, "Invalid data. Expected a datetime in ISO 8601, got "): [
        *("", "now", "2024-02-30", "29/02/2024", "2024-02-29T12:30:15ZZ", "Z"),
        *("2024-01-01T12:30.5Z", "2024-01-01T12.5", "2024-01-01-05:00", "2024-01-01+05:00"),
        *("2024-01-01Z", "2024-01-01x12:00", "2024-01-01\n12:00", "20240101T123000123456789"),
        *("1709209815", " 2024-01-01", "2024-13-01"),
    ],
    (DatetimeCodec, "Invalid data. Expected at most 6 decimal places, got 2024"): [
        "2024-02-29T12:30:15.0000001"
    ],
    (DatetimeCodec, "Invalid data. Expected UTF-8 text, got "): [b"\xff"],
    (PandasJsonCodec, "Invalid JSON. Got "): ["{", "", None, "'a'", "1" * 5000],
    (PandasJsonCodec, "Invalid data. Expected UTF-8 text, got "): [b"\xff"],
    # NaN, Infinity, deep nesting and half of a surrogate pair (R12, R20)
    (PandasJsonCodec, "JSON"): ["NaN", "[Infinity]", '{"a":-Infinity}', "[" * 100_000, r'"\ud83c"'],
    (NumpyCodec, "null"): [None],
}


@pytest.mark.parametrize(
    ("codec", "text", "element"),
    [
        (codec, text, element)
        for (codec, text), elements in UNDECODABLE.items()
        for element in elements
    ],
    ids=lambda value: str(value)[:60],
)
def test_rejects_elements_that_do_not_match_the_codec(codec: Any, text: str, element: Any) -> None:
    """C7, R12, R14: decoding rejects data that is invalid for the content type."""
    with pytest.raises(InvalidInput, match=text):
        codec.decode_input(texts(element))
    with pytest.raises(InvalidInput, match=text):
        codec.decode_output(ResponseOutput("x", "BYTES", data=texts(element).data))


@pytest.mark.parametrize("codec", [StringCodec, Base64Codec, DatetimeCodec, PandasJsonCodec])
def test_rejects_numbers(codec: Any) -> None:
    """C7: decoding rejects another datatype than BYTES."""
    text = f"Invalid datatype. Expected BYTES for content type {codec.ContentType}, got INT8"
    with pytest.raises(InvalidInput, match=text):
        codec.decode_input(RequestInput("x", "INT8", data=[1]))


UNENCODABLE: dict[Any, list] = {
    NumpyCodec: [
        np.array(["2024"], "M8[s]"),
        np.array([1], "m8[s]"),
        np.array([1j]),
        np.array([1], np.longdouble),
        np.array([1.5], float8_e4m3fn),
        np.array([(1, 2)], "i4,i4"),
        *([{"a": 1}], ["a", 1], [1, object()]),
    ],
    StringCodec: [[1], 1.5, [b"\xff"], ["\ud800"], [["a"]]],
    BytesCodec: [[None], None, [1], {b"a"}],
    Base64Codec: [[1], [None], None, {b"a", b"b"}, pd.DataFrame({"a": [b"b"]})],
    DatetimeCodec: [
        *([None], None, [1], ["yesterday"], [b"\xff"], [pd.NaT], [timedelta(1)]),
        np.array(["NaT"], "M8[s]"),
        np.array(["20240-01-01"], "M8[s]"),
        np.array(["-0001-01-01"], "M8[D]"),
        list(pd.Series(np.array(["10000-01-01"], "M8[s]"))),
    ],
    PandasJsonCodec: [
        *([float("nan")], [[np.float32("inf")]], [{1: 2}], {1, 2}, pd.DataFrame({"a": [1]})),
        *([{1}], [object()], [b"a"], [datetime.min], [timedelta(1)], [10**5000], ["\ud800"]),
        *([np.timedelta64(1, "ns")], [np.datetime64(1, "ns")], [[np.array([1], "M8[ns]")]]),
    ],
}


@pytest.mark.parametrize(
    ("codec", "payload"),
    [(codec, payload) for codec, payloads in UNENCODABLE.items() for payload in payloads],
    ids=lambda value: getattr(value, "ContentType", str(type(value))),
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
