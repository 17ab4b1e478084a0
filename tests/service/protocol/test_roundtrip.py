"""Round trips: a value that is encoded, sent and decoded is unchanged on each of the four transports, or rejected."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

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
from app.rest.body import read_request
from grpc_service import converters, messages
from tests.service.conftest import FORMS

LENGTH = "Inference-Header-Content-Length"
UTC = UTC
NO_JSON = ["rest binary", "grpc typed", "grpc raw"]
NUMBERS = [name for name in DATATYPES if name != "BYTES"]
FLOATS = ["FP16", "FP32", "FP64"]

check = settings(
    max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)


def sent(form: str, request: InferenceRequest) -> InferenceRequest:
    """Return `request` as the service reads it."""
    if form.startswith("rest"):
        body, headers = request.to_http(binary=form == "rest binary")
        return read_request(body, int(headers[LENGTH]) if LENGTH in headers else None)
    octets = converters.write_request(request, raw=form == "grpc raw")
    return converters.read_request(*converters.parse_request(octets))


def answered(form: str, response: InferenceResponse) -> InferenceResponse:
    """Return `response` as a client reads it."""
    if form.startswith("rest"):
        return InferenceResponse.from_http(*response.to_http(binary=form == "rest binary"))
    octets = converters.write_response(response, raw=form == "grpc raw")
    return converters.read_response(octets)


def there(form: str, codec: Any, payload: Any) -> Any:
    """Encode `payload` with a request codec, send it as a request and decode it."""
    return codec.decode_request(sent(form, codec.encode_request(payload)))


def back(form: str, codec: Any, payload: Any) -> Any:
    """Encode `payload` with a request codec, send it as a response and decode it."""
    return codec.decode_response(answered(form, codec.encode_response("m", payload)))


def one_there(form: str, codec: Any, payload: Any, **options: Any) -> Any:
    """Encode `payload` with an input codec, send it as one input and decode it."""
    request = InferenceRequest([codec.encode_input("x", payload, **options)])
    return codec.decode_input(sent(form, request).inputs[0])


def one_back(form: str, codec: Any, payload: Any, **options: Any) -> Any:
    """Encode `payload` with an input codec, send it as one output and decode it."""
    response = InferenceResponse([codec.encode_output("y", payload, **options)])
    return codec.decode_output(answered(form, response).outputs[0])


WAYS = [there, back]
ONE_WAYS = [one_there, one_back]


def bits(array: np.ndarray) -> tuple[Any, ...]:
    """Return the dtype, the shape and the bytes of an array, with one bit pattern for every NaN."""
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
        odd = [limits.max, limits.min, limits.tiny, limits.smallest_subnormal, 0.0, -0.0, np.nan, np.inf, -np.inf]  # type: ignore[attr-defined]
        elements = elements | st.sampled_from([float(each) for each in odd])
    array = draw(arrays.arrays(dtype, shape, elements=elements))
    return draw(st.sampled_from(LAYOUTS))(array).reshape(shape)


def fits_json(array: np.ndarray) -> bool:
    """Return true if JSON can represent the array (R12, R14)."""
    if array.dtype.kind == "f":
        return not np.isinf(array).any()
    if array.dtype.kind == "O":
        return all(is_text(each) for each in array.ravel())
    return True


def is_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
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
                with pytest.raises(InvalidInput, match="ask for binary output"):
                    way(form, NumpyRequestCodec, array)
            else:
                assert bits(way(form, NumpyRequestCodec, array)) == expected, (form, way)


@pytest.mark.parametrize("datatype", DATATYPES)
@check
@given(data=st.data())
def test_tensors_keep_shape_name_and_parameters(datatype: str, data: st.DataObject) -> None:
    """R8, C5: a tensor created without a codec keeps its shape, name and parameters."""
    array = data.draw(arrays_of(datatype))
    name, parameters = data.draw(st.text(max_size=5)), data.draw(parameter_sets)
    request = InferenceRequest([RequestInput(name, datatype, data=array, parameters=parameters)], id="7")
    for form in FORMS if fits_json(array) else NO_JSON:
        (tensor,) = sent(form, request).inputs
        assert (tensor.name, tensor.datatype) == (name, datatype)
        assert {key: each for key, each in tensor.parameters.items() if key != "binary_data_size"} == parameters
        assert bits(NumpyCodec.decode_input(tensor)) == bits(array), form


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
        request = sent(form, InferenceRequest([], parameters=parameters))
        response = answered(form, InferenceResponse([], "m", "1", "7", parameters))
        kept = {name: value for name, value in request.parameters.items() if name != "binary_data_output"}
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
            assert there(form, StringRequestCodec, values) == values
            assert back(form, StringRequestCodec, values) == values


@check
@given(values=st.lists(st.none() | st.text(max_size=3)).filter(lambda each: None in each))
def test_missing_strings_need_json(values: list[str | None]) -> None:
    """R12: None is null in JSON, and is rejected on the other transports."""
    for way in ONE_WAYS:
        assert way("rest json", StringCodec, values) == values
        for form in NO_JSON:
            with pytest.raises(InvalidInput, match="null"):
                way(form, StringCodec, values)


@check
@given(values=st.lists(st.binary(max_size=6)), use_bytes=st.booleans())
def test_base64_bytes_are_unchanged(values: list[bytes], use_bytes: bool) -> None:
    """C7: arbitrary bytes are unchanged as base64 on every transport."""
    for form in FORMS:
        for way in ONE_WAYS:
            assert way(form, Base64Codec, values, use_bytes=use_bytes) == values, (form, way)


offsets = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(
    lambda each: timezone(timedelta(minutes=each // timedelta(minutes=1)))
)
near_datetimes = st.datetimes(datetime(1990, 1, 1), datetime(2040, 1, 1), timezones=st.none() | st.just(UTC) | offsets)


@check
@given(values=st.lists(st.datetimes(timezones=st.none() | offsets | st.just(UTC))), use_bytes=st.booleans())
def test_datetimes_are_unchanged(values: list[datetime], use_bytes: bool) -> None:
    """C7: datetimes keep their microseconds and their offset."""
    for form in FORMS:
        for way in ONE_WAYS:
            got = way(form, DatetimeCodec, values, use_bytes=use_bytes)
            assert got == values, (form, way)
            assert [each.utcoffset() for each in got] == [each.utcoffset() for each in values]


json_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
)
json_values = st.recursive(
    json_leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@check
@given(values=st.lists(json_values), use_bytes=st.booleans())
def test_pd_json_cells_are_unchanged(values: list, use_bytes: bool) -> None:
    """C3: lists, dicts and missing cells are unchanged on every transport, and numbers keep their type."""
    for form in FORMS:
        for way in ONE_WAYS:
            assert repr(way(form, PandasJsonCodec, values, use_bytes=use_bytes)) == repr(values), (form, way)


def missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value))


def same(got: Any, expected: Any) -> bool:
    """Return true if two cells are equal. Missing values are equal, and datetimes must both be naive or both aware."""
    if missing(expected) or missing(got):
        return missing(expected) and missing(got)
    got, expected = (each.item() if isinstance(each, np.generic) else each for each in (got, expected))
    if isinstance(expected, datetime):
        return isinstance(got, datetime) and (got.tzinfo is None) == (expected.tzinfo is None) and got == expected
    if isinstance(expected, bool | str | bytes | list | dict):
        return type(got) is type(expected) and repr(got) == repr(expected)
    return type(got) in (int, float) and got == expected and math.copysign(1, got) == math.copysign(1, expected)


@st.composite
def gaps(draw: st.DrawFn, values: st.SearchStrategy[Any], rows: int, gap: Any = None) -> list:
    """Generate `rows` values, any of which may be missing."""
    return draw(st.lists(st.just(gap) | values, min_size=rows, max_size=rows))


def integers_of(name: str) -> st.SearchStrategy[int]:
    limits = np.iinfo(name.lower())
    near = [
        limits.min,
        limits.max,
        *(each for each in (2**53, 2**53 + 1, -(2**53) - 1, 0) if limits.min <= each <= limits.max),
    ]
    return st.integers(limits.min, limits.max) | st.sampled_from(near)


ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "+05:30", "-11:00"]
# Daylight saving changes in Berlin and New York.
CHANGES = [
    int(datetime(*each, tzinfo=UTC).timestamp()) for each in [(2024, 3, 31, 1), (2024, 10, 27, 1), (2024, 11, 3, 6)]
]  # type: ignore[arg-type, misc]
BOUNDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@st.composite
def moments(draw: st.DrawFn, rows: int, zone: str | None) -> pd.Series:
    """Generate datetimes of any resolution: the full range without a time zone, and from 1950 on with one."""
    unit = draw(st.sampled_from(list(BOUNDS)))
    step = BOUNDS[unit]
    if zone is not None:
        first, last = -631_152_000 * step, 4_000_000_000 * step
    elif unit == "ns":
        first, last = -(2**63) + 10**9, 2**63 - 1
    else:
        first, last = -62_135_596_800 * step, 253_402_300_799 * step
    ticks = (
        st.integers(first, last)
        | st.sampled_from([first, last])
        | st.sampled_from(CHANGES).flatmap(lambda each: st.integers(each * step - 2, each * step + 2))
    )
    values = draw(gaps(ticks, rows, gap=np.iinfo("i8").min))
    series = pd.Series(np.array(values, "i8").view(f"M8[{unit}]"))
    if zone is None:
        return series
    return series.dt.tz_localize("UTC").dt.tz_convert(timezone_of(zone))


def timezone_of(zone: str) -> Any:
    if zone[0] not in "+-":
        return zone
    minutes = int(zone[1:3]) * 60 + int(zone[4:])
    return timezone(timedelta(minutes=-minutes if zone[0] == "-" else minutes))


def plain_column(name: str) -> Callable[[int], st.SearchStrategy[pd.Series]]:
    dtype = DATATYPES[name].dtype
    elements = arrays.from_dtype(dtype, allow_infinity=False) if dtype.kind == "f" else arrays.from_dtype(dtype)
    return lambda rows: st.sampled_from("<>").flatmap(
        lambda order: arrays.arrays(dtype.newbyteorder(order), rows, elements=elements).map(pd.Series)
    )


def listed_column(dtype: str, values: st.SearchStrategy[Any]) -> Callable[[int], st.SearchStrategy[pd.Series]]:
    return lambda rows: gaps(values, rows).map(lambda each: pd.Series(each, dtype=dtype))


def category(values: st.SearchStrategy[Any]) -> Callable[[int], st.SearchStrategy[pd.Series]]:
    return listed_column("category", values)


@st.composite
def codes(draw: st.DrawFn, rows: int) -> pd.Series:
    """Generate categories of NumPy integers, with missing values."""
    drawn = draw(st.lists(st.integers(-1, 2), min_size=rows, max_size=rows))
    return pd.Series(pd.Categorical.from_codes(drawn, categories=np.array([5, -7, 2**53 + 1])))


@st.composite
def objects(draw: st.DrawFn, rows: int, values: st.SearchStrategy[Any]) -> pd.Series:
    array = np.empty(rows, object)
    for index in range(rows):
        array[index] = draw(values)
    return pd.Series(array)


COLUMNS: dict[str, Callable[[int], st.SearchStrategy[pd.Series]]] = {
    **{f"numpy {name}": plain_column(name) for name in NUMBERS},
    **{
        f"nullable {name}": listed_column(name, integers_of(name))
        for name in ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64")
    },
    "nullable boolean": listed_column("boolean", st.booleans()),
    "nullable Float32": listed_column("Float32", st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "nullable Float64": listed_column("Float64", st.floats(allow_nan=False, allow_infinity=False)),
    "text in objects": lambda rows: objects(rows, st.none() | st.text(max_size=4)),
    "text": listed_column("string", st.text(max_size=4)),
    "text and NUL": listed_column("string", st.sampled_from(["\0", "🌷\0", "é", "NaN", "None", "null", ""])),
    "categories of text": category(st.sampled_from(["a", "🌷", ""])),
    "categories of integers": category(st.sampled_from([1, -2, 2**53 + 1])),
    "categories of fractions": category(st.sampled_from([1.5, -0.0])),
    "categories of booleans": category(st.booleans()),
    "categories by code": codes,
    "moments": lambda rows: moments(rows, None),
    **{f"moments in {zone}": (lambda rows, zone=zone: moments(rows, zone)) for zone in ZONES},
    "lists": lambda rows: objects(rows, st.lists(json_values, max_size=3)),
    "lists of one length": lambda rows: objects(rows, st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    "dicts": lambda rows: objects(rows, st.dictionaries(st.text(max_size=3), json_values, max_size=3)),
    "lists and gaps": lambda rows: objects(rows, st.none() | st.lists(json_leaves, max_size=3)),
    "bytes": lambda rows: objects(rows, st.text(max_size=4).map(str.encode)),
    "anything": lambda rows: objects(rows, json_values),
    "scalars": lambda rows: objects(rows, st.sampled_from([None, 1, 1.5, "a", True, np.nan, np.int8(5), 2**64])),
    "gaps": lambda rows: objects(rows, st.sampled_from([None, np.nan, pd.NA, pd.NaT])),
}  # fmt: skip


def agree(got: pd.DataFrame, expected: pd.DataFrame, about: Any) -> None:
    assert list(got.columns) == list(expected.columns)
    assert len(got) == len(expected) or not len(expected.columns)
    for name in expected.columns:
        for one, other in zip(got[name].tolist(), expected[name].tolist(), strict=True):
            assert same(one, other), (about, name, one, other)


@pytest.mark.parametrize("kind", COLUMNS)
@settings(check, max_examples=30)
@given(data=st.data())
def test_columns_keep_values(kind: str, data: st.DataObject) -> None:
    """C6: a column keeps its values and missing values on every transport."""
    rows = data.draw(st.integers(0, 5))
    frame = pd.DataFrame({"x": data.draw(COLUMNS[kind](rows))})
    for form in FORMS:
        for way in WAYS:
            got = way(form, PandasCodec, frame)
            agree(got, frame, (form, way))
            if kind.startswith("numpy"):
                assert got["x"].dtype == frame["x"].dtype.newbyteorder("<")


@check
@given(data=st.data())
def test_frames_keep_columns_and_order(data: st.DataObject) -> None:
    """C6: a DataFrame keeps its columns, their order and their values, in requests and responses."""
    rows = data.draw(st.integers(0, 4))
    kinds = data.draw(st.dictionaries(st.text(max_size=4), st.sampled_from(PORTABLE), max_size=5))
    frame = pd.DataFrame({name: data.draw(COLUMNS[kind](rows)) for name, kind in kinds.items()})
    for form in FORMS:
        for way in WAYS:
            agree(way(form, PandasCodec, frame), frame, (form, way, kinds))


PORTABLE = [kind for kind in COLUMNS if "moments in" not in kind and not kind.startswith("categories")]


def test_pyarrow_columns_keep_values() -> None:
    """C6: columns with pyarrow dtypes keep their values on every transport."""
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {
            "int": pd.Series([1, None, 2**53 + 1], dtype="int64[pyarrow]"),
            "uint": pd.Series([1, None, 255], dtype="uint8[pyarrow]"),
            "bool": pd.Series([True, None, False], dtype="bool[pyarrow]"),
            "float": pd.Series([0.1, None, -0.0], dtype="double[pyarrow]"),
            "text": pd.Series(["é", None, "\0"], dtype="string[pyarrow]"),
            "moment": pd.Series(pd.to_datetime(["2024-01-01", None, "2024-01-02"]), dtype="timestamp[us][pyarrow]"),
        }
    )
    for form in FORMS:
        for way in WAYS:
            agree(way(form, PandasCodec, frame), frame, (form, way))


@pytest.mark.parametrize("rows", [0, 3])
def test_frames_without_columns(rows: int) -> None:
    """C6: a DataFrame without columns is encoded and decoded on every transport."""
    for form in FORMS:
        assert there(form, PandasCodec, pd.DataFrame(index=range(rows))).columns.tolist() == []


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("year", [1700, 1880, 1892])
def test_historic_datetimes_are_unchanged_or_rejected(zone: str, year: int) -> None:
    """C6: a datetime whose offset includes seconds keeps its value or is rejected."""
    frame = pd.DataFrame({"x": pd.Series([pd.Timestamp(year, 6, 1)]).dt.tz_localize(zone)})
    for form in FORMS:
        try:
            got = there(form, PandasCodec, frame)
        except InvalidInput:
            continue
        agree(got, frame, form)


def test_historic_datetimes_are_unchanged_in_json() -> None:
    """C6: a datetime before standard time keeps its value in JSON."""
    frame = pd.DataFrame({"x": pd.Series([pd.Timestamp(1880, 6, 1)]).dt.tz_localize("Europe/Berlin")})
    agree(there("rest json", PandasCodec, frame), frame, "rest json")


@check
@given(values=st.lists(st.none() | near_datetimes, min_size=1, max_size=4))
def test_object_columns_of_datetimes_are_unchanged_or_rejected(values: list) -> None:
    """C6: datetimes in an object column keep their values or are rejected."""
    array = np.empty(len(values), object)
    array[:] = values
    frame = pd.DataFrame({"x": pd.Series(array, dtype=object)})
    try:
        got = there("grpc raw", PandasCodec, frame)
    except InvalidInput:
        return
    agree(got, frame, values)


@check
@given(values=st.lists(st.binary(max_size=3), min_size=1).filter(lambda each: not all(map(is_text, each))))
def test_bytes_columns_stay_bytes(values: list[bytes]) -> None:
    """C6, R14: a column of bytes stays bytes, and JSON rejects bytes that are not UTF-8."""
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    for way in WAYS:
        for form in NO_JSON:
            assert way(form, PandasCodec, frame)["x"].tolist() == values
        with pytest.raises(InvalidInput, match='"x": data: JSON carries UTF-8 text only'):
            way("rest json", PandasCodec, frame)


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


@pytest.mark.parametrize("datatype", ["FP16"])
def test_fp16_is_raw_on_grpc(datatype: str) -> None:
    """G3, G4: a message with FP16 is sent raw, and FP16 in typed contents is rejected."""
    tensors = [RequestInput("h", datatype, data=[0.5]), RequestInput("x", "FP32", data=[1.5])]
    message, raws = converters.parse_request(converters.write_request(InferenceRequest(tensors), raw=False))
    assert len(message.inputs) == len(raws) == 2
    typed = messages.ModelInferRequest(
        inputs=[{"name": "h", "datatype": datatype, "shape": [1], "contents": {"fp32_contents": [0.5]}}]
    )
    with pytest.raises(InvalidInput, match="FP16 has no contents; use raw_input_contents"):
        converters.read_request(typed, [])


@pytest.mark.parametrize("form", ["grpc typed", "grpc raw"])
@pytest.mark.parametrize(
    "request_",
    [
        InferenceRequest([RequestInput("\ud800", "FP32", data=[1])]),
        InferenceRequest([], id="\ud800"),
        InferenceRequest([], parameters={"a": "\ud800"}),
        InferenceRequest([], parameters={"a": 2**64}),
        InferenceRequest([], parameters={"a": -(2**63) - 1}),
        InferenceRequest([], parameters={"a": None}),
        InferenceRequest([], parameters={"a": [1]}),
    ],
    ids=["name", "id", "text", "large", "small", "none", "list"],
)
def test_rejects_fields_that_a_message_cannot_hold(form: str, request_: InferenceRequest) -> None:
    """R17: a name, id or parameter that a gRPC message cannot represent is rejected."""
    with pytest.raises(InvalidInput):
        sent(form, request_)


@pytest.mark.parametrize("form", FORMS)
def test_requests_with_every_datatype(form: str) -> None:
    """B3, G2: a request with tensors of every datatype keeps their order and values."""
    tensors = [
        RequestInput(name, name, data=np.full((2, 1), b"a" if name == "BYTES" else 1, DATATYPES[name].dtype))
        for name in DATATYPES
    ]
    got = sent(form, InferenceRequest(tensors)).inputs
    outputs = [ResponseOutput(each.name, each.datatype, data=each.data) for each in tensors]
    for read in (got, answered(form, InferenceResponse(outputs)).outputs):
        assert [each.name for each in read] == list(DATATYPES)
        for one, other in zip(read, tensors, strict=True):
            assert bits(NumpyCodec.decode(one)) == bits(other.data)


@check
@given(octets=st.binary(max_size=60), json=st.booleans())
def test_rejects_arbitrary_response_bytes(octets: bytes, json: bool) -> None:
    """R8: arbitrary bytes as a response raise only InvalidInput or DecodeError in a client."""
    with contextlib.suppress(InvalidInput, DecodeError):
        if json:
            InferenceResponse.from_http(octets, {})
        else:
            converters.read_response(octets)
