"""Generated columns and frames keep their values on every transport."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.codecs import (
    PandasCodec,
)
from app.protocol.datatypes import DATATYPES
from app.protocol.errors import InvalidInput
from oip_conformance.wires import FORMS
from tests.service.protocol.roundtrips import (
    NO_JSON,
    WAYS,
    check,
    is_text,
    json_leaves,
    json_values,
    offsets,
    through_request,
)

NUMBERS = [name for name in DATATYPES if name not in ("BF16", "BYTES")]  # pandas has no bfloat16
near_datetimes = st.datetimes(
    datetime(1990, 1, 1), datetime(2040, 1, 1), timezones=st.none() | st.just(UTC) | offsets
)


def missing(value: Any) -> bool:
    return (
        value is None
        or value is pd.NA
        or value is pd.NaT
        or (isinstance(value, float) and math.isnan(value))
    )


def is_same_cell(got: Any, expected: Any) -> bool:
    """Return true if two cells are equal. Missing values are equal, and datetimes must both be naive or both aware."""
    if missing(expected) or missing(got):
        return missing(expected) and missing(got)
    got, expected = (
        value.item() if isinstance(value, np.generic) else value for value in (got, expected)
    )
    if isinstance(expected, datetime):
        return (
            isinstance(got, datetime)
            and (got.tzinfo is None) == (expected.tzinfo is None)
            and got == expected
        )
    if isinstance(expected, bool | str | bytes | list | dict):
        return type(got) is type(expected) and repr(got) == repr(expected)
    return (
        type(got) in (int, float)
        and got == expected
        and math.copysign(1, got) == math.copysign(1, expected)
    )


@st.composite
def gaps(draw: st.DrawFn, values: st.SearchStrategy[Any], rows: int, gap: Any = None) -> list:
    """Generate `rows` values, any of which may be missing."""
    return draw(st.lists(st.just(gap) | values, min_size=rows, max_size=rows))


def integers_of(name: str) -> st.SearchStrategy[int]:
    limits = np.iinfo(name.lower())
    near = [
        limits.min,
        limits.max,
        *(
            integer
            for integer in (2**53, 2**53 + 1, -(2**53) - 1, 0)
            if limits.min <= integer <= limits.max
        ),
    ]
    return st.integers(limits.min, limits.max) | st.sampled_from(near)


ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "+05:30",
    "-11:00",
]
# Daylight saving changes in Berlin and New York.
CHANGES = [
    int(datetime(*hour, tzinfo=UTC).timestamp())
    for hour in [(2024, 3, 31, 1), (2024, 10, 27, 1), (2024, 11, 3, 6)]
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
        | st.sampled_from(CHANGES).flatmap(
            lambda multiple: st.integers(multiple * step - 2, multiple * step + 2)
        )
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
    elements = (
        arrays.from_dtype(dtype, allow_infinity=False)
        if dtype.kind == "f"
        else arrays.from_dtype(dtype)
    )
    return lambda rows: st.sampled_from("<>").flatmap(
        lambda order: arrays.arrays(dtype.newbyteorder(order), rows, elements=elements).map(
            pd.Series
        )
    )


def listed_column(
    dtype: str, values: st.SearchStrategy[Any]
) -> Callable[[int], st.SearchStrategy[pd.Series]]:
    return lambda rows: gaps(values, rows).map(lambda elements: pd.Series(elements, dtype=dtype))


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
            assert is_same_cell(one, other), (about, name, one, other)


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


PORTABLE = [
    kind for kind in COLUMNS if "moments in" not in kind and not kind.startswith("categories")
]


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
            "moment": pd.Series(
                pd.to_datetime(["2024-01-01", None, "2024-01-02"]), dtype="timestamp[us][pyarrow]"
            ),
        }
    )
    for form in FORMS:
        for way in WAYS:
            agree(way(form, PandasCodec, frame), frame, (form, way))


@pytest.mark.parametrize("rows", [0, 3])
def test_frames_without_columns(rows: int) -> None:
    """C6: a DataFrame without columns is encoded and decoded on every transport."""
    for form in FORMS:
        assert (
            through_request(form, PandasCodec, pd.DataFrame(index=range(rows))).columns.tolist()
            == []
        )


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("year", [1700, 1880, 1892])
def test_historic_datetimes_are_unchanged_or_rejected(zone: str, year: int) -> None:
    """C6: a datetime whose offset includes seconds keeps its value or is rejected."""
    frame = pd.DataFrame({"x": pd.Series([pd.Timestamp(year, 6, 1)]).dt.tz_localize(zone)})
    for form in FORMS:
        try:
            got = through_request(form, PandasCodec, frame)
        except InvalidInput:
            continue
        agree(got, frame, form)


@check
@given(values=st.lists(st.none() | near_datetimes, min_size=1, max_size=4))
def test_object_columns_of_datetimes_are_unchanged_or_rejected(values: list) -> None:
    """C6: datetimes in an object column keep their values or are rejected."""
    array = np.empty(len(values), object)
    array[:] = values
    frame = pd.DataFrame({"x": pd.Series(array, dtype=object)})
    try:
        got = through_request("grpc raw", PandasCodec, frame)
    except InvalidInput:
        return
    agree(got, frame, values)


@check
@given(
    values=st.lists(st.binary(max_size=3), min_size=1).filter(
        lambda elements: not all(map(is_text, elements))
    )
)
def test_bytes_columns_stay_bytes(values: list[bytes]) -> None:
    """C6, R14: a column of bytes stays bytes, and JSON rejects bytes that are not UTF-8."""
    frame = pd.DataFrame({"x": pd.Series(values, dtype=object)})
    for way in WAYS:
        for form in NO_JSON:
            assert way(form, PandasCodec, frame)["x"].tolist() == values
        with pytest.raises(InvalidInput, match='"x": JSON cannot represent bytes'):
            way("rest json", PandasCodec, frame)
