"""Values that a transport cannot carry, and responses that are not valid."""

from __future__ import annotations

import contextlib
import math
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from app.codecs import (
    PandasCodec,
)
from app.protocol.errors import InvalidInput
from app.protocol.types import InferenceRequest, InferenceResponse, RequestInput
from grpc_service import converters
from oip_conformance.wires import FORMS
from tests.service.protocol.roundtrips import NO_JSON, WAYS, check, send_request


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "Float32", "Float64"])
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_values_need_binary_data(dtype: str, value: float) -> None:
    """R12: infinities are unchanged in binary data and on gRPC, and JSON rejects them."""
    frame = pd.DataFrame({"x": pd.Series([value, 1.5], dtype=dtype)})
    for way in WAYS:
        for form in NO_JSON:
            assert way(form, PandasCodec, frame)["x"].tolist() == [value, 1.5]
        with pytest.raises(InvalidInput, match="Infinity"):
            way("rest json", PandasCodec, frame)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "values",
    [
        [timedelta(1)],
        [1j],
        [object()],
        [[math.nan]],
        [{"a": [math.inf]}],
        [{1: 2}],
        [{"a": {1}}],
        [np.timedelta64(5, "ns"), "a"],
        [[np.timedelta64(5, "ns")]],
        [[np.datetime64(5, "ns")]],
        [{"a": timedelta(1)}],
        [b"a", "a"],
        [math.inf, "a"],
        ["\ud800"],
        [["\udfff"]],
    ],
)
def test_rejects_cells_that_cannot_be_encoded(form: str, values: list) -> None:
    """C6, R12, R14: a cell that cannot be encoded is rejected and never sent as another value."""
    array = np.empty(len(values), object)
    for index, value in enumerate(values):
        array[index] = value
    for way in WAYS:
        with pytest.raises(InvalidInput):
            way(form, PandasCodec, pd.DataFrame({"x": pd.Series(array, dtype=object)}))


@pytest.mark.parametrize("form", ["grpc typed", "grpc raw"])
@pytest.mark.parametrize(
    "request_",
    [
        InferenceRequest([RequestInput("\ud800", "FP32", data=[1])]),
        InferenceRequest([], id="\ud800"),
        InferenceRequest([], parameters={"a": "\ud800"}),
        InferenceRequest([], parameters={"a": 2**64}),
        InferenceRequest([], parameters={"a": -(2**63) - 1}),
        InferenceRequest([], parameters={"a": [1]}),
    ],
    ids=["name", "id", "text", "large", "small", "list"],
)
def test_rejects_fields_that_a_message_cannot_hold(form: str, request_: InferenceRequest) -> None:
    """R17: a name, id or parameter that a gRPC message cannot represent is rejected."""
    with pytest.raises(InvalidInput):
        send_request(form, request_)


@check
@given(octets=st.binary(max_size=60), json=st.booleans())
def test_rejects_arbitrary_response_bytes(octets: bytes, json: bool) -> None:
    """R8: arbitrary bytes as a response raise only InvalidInput or DecodeError in a client."""
    with contextlib.suppress(InvalidInput, DecodeError):
        if json:
            InferenceResponse.from_http(octets, {})
        else:
            converters.read_response(octets)
