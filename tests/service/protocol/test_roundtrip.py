"""Round trips: a value that is encoded, sent and decoded is unchanged on each of the four transports, or rejected."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from ml_dtypes import bfloat16

from app.codecs import (
    Base64Codec,
    BytesCodec,
    DatetimeCodec,
    NumpyRequestCodec,
    PandasJsonCodec,
    StringCodec,
    StringRequestCodec,
)
from app.protocol.datatypes import DATATYPES
from app.protocol.errors import InvalidInput
from app.protocol.messages import InferenceRequest, InferenceResponse, RequestOutput
from app.protocol.tensors import RequestInput
from grpc_service import converters
from oip_conformance.wires import FORMS
from tests.service.protocol.roundtrips import (
    NO_JSON,
    WAYS,
    check,
    is_text,
    json_values,
    offsets,
    send_request,
    send_response,
    through_request,
    through_response,
)


def through_input(form: str, codec: Any, payload: Any, **options: Any) -> Any:
    """Encode `payload` with an input codec, send it as one input and decode it."""
    request = InferenceRequest([codec.encode_input("x", payload, **options)])
    return codec.decode_input(send_request(form, request).inputs[0])


def through_output(form: str, codec: Any, payload: Any, **options: Any) -> Any:
    """Encode `payload` with an input codec, send it as one output and decode it."""
    response = InferenceResponse([codec.encode_output("y", payload, **options)])
    return codec.decode_output(send_response(form, response).outputs[0])


ONE_WAYS = [through_input, through_output]


def decoded(array: np.ndarray) -> np.ndarray:
    """Return `array` as it is decoded: bfloat16 as float32."""
    return array.astype("<f4") if array.dtype.name == "bfloat16" else array


def bits(array: np.ndarray) -> tuple[Any, ...]:
    """Return the dtype, the shape and the bytes of an array, with one bit pattern for every NaN."""
    array = decoded(array)
    if array.dtype.kind == "O":
        return array.dtype, array.shape, array.ravel().tolist()
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape).copy()
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.dtype, array.shape, array.tobytes()


def batched(array: np.ndarray) -> np.ndarray:
    """Reshape an array as C5 encodes it: [N] to [N,1], and a scalar to [1]."""
    return array.reshape({0: (1,), 1: (-1, 1)}.get(array.ndim, array.shape)) if array.size else (
        array.reshape(0, 1) if array.ndim == 1 else array
    )  # fmt: skip


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.setflags(write=False)
    return array


def strided(array: np.ndarray) -> np.ndarray:
    """Return a non-contiguous view with the same elements."""
    if not array.ndim:
        return array
    larger = np.zeros([2 * side for side in array.shape], array.dtype)
    view = larger[(slice(None, None, 2),) * array.ndim]
    view[...] = array
    return view


LAYOUTS: list[Callable[[np.ndarray], np.ndarray]] = [
    np.ascontiguousarray,
    np.asfortranarray,
    lambda array: array.astype(array.dtype.newbyteorder(">")),
    read_only,
    strided,
    lambda array: np.flip(np.flip(array).copy()),
    lambda array: np.broadcast_to(array, array.shape),
]

shapes = st.one_of(st.just(()), arrays.array_shapes(min_dims=1, max_dims=5, min_side=0, max_side=3))


@st.composite
def arrays_of(draw: st.DrawFn, datatype: str) -> np.ndarray:
    """Generate arrays of any shape and layout, with every kind of value, including infinities and limits."""
    shape, dtype = draw(shapes), DATATYPES[datatype].dtype
    if datatype == "BYTES":
        elements: Any = st.binary(max_size=6) | st.text(max_size=6).map(str.encode)
        array = np.empty(shape, object)
        array.reshape(-1)[:] = draw(st.lists(elements, min_size=array.size, max_size=array.size))
        return draw(st.sampled_from([np.asfortranarray, read_only, strided]))(array).reshape(shape)
    elements = arrays.from_dtype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        elements = elements | st.sampled_from([limits.min, limits.max, 0])
    elif dtype.kind == "f":
        limits = np.finfo(dtype)  # type: ignore[assignment]
        odd = [
            limits.max,
            limits.min,
            limits.tiny,
            limits.smallest_subnormal,
            0.0,
            -0.0,
            np.nan,
            np.inf,
            -np.inf,
        ]  # type: ignore[attr-defined]
        elements = elements | st.sampled_from([float(number) for number in odd])
    array = draw(arrays.arrays(dtype, shape, elements=elements))
    if datatype == "BF16":
        with np.errstate(over="ignore"):
            array = array.astype(bfloat16)
    return draw(st.sampled_from(LAYOUTS))(array).reshape(shape)


def fits_json(array: np.ndarray) -> bool:
    """Return true if JSON can represent the array (R12, R14)."""
    if decoded(array).dtype.kind == "f":
        return not np.isinf(decoded(array)).any()
    if array.dtype.kind == "O":
        return all(is_text(element) for element in array.ravel())
    return True


@pytest.mark.parametrize("datatype", DATATYPES)
@check
@given(data=st.data())
def test_arrays_are_unchanged(datatype: str, data: st.DataObject) -> None:
    """C5, R11-R14, B1: an array of any layout is unchanged bit by bit on every transport, or JSON rejects it."""
    array = data.draw(arrays_of(datatype))
    expected = bits(batched(array))
    for form in FORMS:
        for way in WAYS:
            if form == "rest json" and not fits_json(array):
                with pytest.raises(InvalidInput, match="equest binary output"):
                    way(form, NumpyRequestCodec, array)
            else:
                assert bits(way(form, NumpyRequestCodec, array)) == expected, (form, way)


parameter_sets = st.dictionaries(
    st.text(max_size=5).map("p{}".format),
    st.text(max_size=5)
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False),
    max_size=3,
)


@check
@given(parameters=parameter_sets)
def test_parameters_keep_their_type(parameters: dict[str, Any]) -> None:
    """R17: parameters that are strings, numbers or booleans keep their value and type on every transport."""
    for form in FORMS:
        request = send_request(form, InferenceRequest([], parameters=parameters))
        response = send_response(form, InferenceResponse([], "m", "1", "7", parameters))
        kept = {
            name: value
            for name, value in request.parameters.items()
            if name != "binary_data_output"
        }
        for got in (kept, response.parameters):
            assert got == parameters
            assert {name: type(value) for name, value in got.items()} == {
                name: type(value) for name, value in parameters.items()
            }
        assert (response.model_name, response.model_version, response.id) == ("m", "1", "7")


@check
@given(values=st.lists(st.text(max_size=6)), use_bytes=st.booleans())
def test_strings_are_unchanged(values: list[str], use_bytes: bool) -> None:
    """C7: text is unchanged on every transport, encoded as str or as bytes."""
    for form in FORMS:
        for way in ONE_WAYS:
            assert way(form, StringCodec, values, use_bytes=use_bytes) == values, (form, way)
        if values:
            assert through_request(form, StringRequestCodec, values) == values
            assert through_response(form, StringRequestCodec, values) == values


@check
@given(values=st.lists(st.none() | st.text(max_size=3)).filter(lambda elements: None in elements))
def test_missing_strings_need_json(values: list[str | None]) -> None:
    """R12: None is null in JSON, and is rejected on the other transports."""
    for way in ONE_WAYS:
        assert way("rest json", StringCodec, values) == values
        for form in NO_JSON:
            with pytest.raises(InvalidInput, match="null"):
                way(form, StringCodec, values)


@pytest.mark.parametrize("codec", [Base64Codec, BytesCodec])
@check
@given(values=st.lists(st.binary(max_size=6)), use_bytes=st.booleans())
def test_bytes_are_unchanged(codec: Any, values: list[bytes], use_bytes: bool) -> None:
    """C7, C12: arbitrary bytes are unchanged as base64 and as raw bytes on every transport."""
    for form in FORMS:
        for way in ONE_WAYS:
            assert way(form, codec, values, use_bytes=use_bytes) == values, (form, way)


@check
@given(
    values=st.lists(st.datetimes(timezones=st.none() | offsets | st.just(UTC))),
    use_bytes=st.booleans(),
)
def test_datetimes_are_unchanged(values: list[datetime], use_bytes: bool) -> None:
    """C7: datetimes keep their microseconds and their offset."""
    for form in FORMS:
        for way in ONE_WAYS:
            got = way(form, DatetimeCodec, values, use_bytes=use_bytes)
            assert got == values, (form, way)
            assert [moment.utcoffset() for moment in got] == [
                moment.utcoffset() for moment in values
            ]


@check
@given(values=st.lists(json_values), use_bytes=st.booleans())
def test_pd_json_cells_are_unchanged(values: list, use_bytes: bool) -> None:
    """C3: lists, dicts and missing cells are unchanged on every transport, and numbers keep their type."""
    for form in FORMS:
        for way in ONE_WAYS:
            assert repr(way(form, PandasJsonCodec, values, use_bytes=use_bytes)) == repr(values), (
                form,
                way,
            )


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
        InferenceRequest([], outputs=[RequestOutput("\ud800")]),
        InferenceRequest([], outputs=[RequestOutput("y", {"a": 2**64})]),
    ],
    ids=["name", "id", "text", "large", "small", "list", "output", "output parameter"],
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
