"""Payloads that MLServer's codecs and ours exchange, and a common description of values.

Both sides import this file, so it uses only numpy and pandas.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd

# REST uses JSON. gRPC uses raw_input_contents and the typed contents fields.
FORMS = {"json": ".json", "raw": ".raw.pb", "typed": ".typed.pb"}
NUMBERS = [
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
]


@dataclass
class Case:
    """A payload to encode, and `expected`, the decoded result.

    With `content_type`, `payload` is the value for that request codec. Otherwise it maps each input
    name to its input codec and value.
    """

    payload: Any
    expected: Any
    content_type: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    forms: tuple[str, ...] = tuple(FORMS)


def one(content_type: str, payload: Any, expected: Any = None, **options: Any) -> Case:
    """Return a case with one input. Text as str instead of bytes can only be sent as JSON."""
    forms = tuple(FORMS) if options.get("use_bytes", True) else ("json",)
    expected = payload if expected is None else expected
    return Case({"x": (content_type, payload)}, {"x": expected}, options=options, forms=forms)


def whole(content_type: str, payload: Any, expected: Any = None) -> Case:
    """Return a case for a request codec."""
    return Case(payload, payload if expected is None else expected, content_type)


def frame(column: Any, expected: Any = None, dtype: Any = None, expected_dtype: Any = None) -> Case:
    """Return a case with a data frame of one `column`."""
    payload = pd.DataFrame({"x": pd.Series(column, dtype=dtype)})
    if expected is not None:
        expected = pd.DataFrame({"x": pd.Series(expected, dtype=expected_dtype)})
    return whole("pd", payload, expected)


def objects(elements: list) -> np.ndarray:
    """Return a flat object array. np.array() would convert nested elements."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def extremes(dtype: str) -> np.ndarray:
    """Return the lowest, a middle and the highest value of `dtype`."""
    if dtype == "bool":
        return np.array([False, True, True])
    limits = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    return np.array([limits.min, 1, limits.max], dtype)


ZONE = timezone(timedelta(hours=2))
MOMENTS = [datetime(2024, 2, 29, 12, 30), datetime(1969, 12, 31, 23, 59, 59, 999999)]
ZONED = [
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    datetime(2024, 3, 1, 8, 0, 0, 250000, tzinfo=ZONE),
]
TEXTS = ["setosa", "", "naïve ☃", "a\nb"]
OCTETS = [b"\x00\xff\x80", b"", b"plain"]
MATRIX = np.arange(12, dtype="float32").reshape(2, 3, 2) / 8
TABLE = {name: extremes(name) for name in NUMBERS if name not in ("float16", "bool")}

CASES = {
    **{f"np-{name}": one("np", extremes(name), extremes(name).reshape(3, 1)) for name in NUMBERS},
    "np-matrix": one("np", MATRIX),
    "np-fortran": one("np", np.asfortranarray(MATRIX)),
    "np-scalar": one("np", np.array(1.5), np.array([1.5])),
    "np-empty": one("np", np.empty((0, 3), "int32")),
    "np-nan": one("np", np.array([[1.5, np.nan]])),
    "np-infinity": one("np", np.array([[np.inf, -np.inf, 1.5]])),
    "np-objects": one("np", objects([b"ab", b"c"]).reshape(1, 2)),
    "np-fixed-bytes": one("np", np.array([[b"ab", b"cd"]]), objects([b"ab", b"cd"]).reshape(1, 2)),
    "np-text": one("np", np.array([["ab", "cé"]]), objects([b"ab", "cé".encode()]).reshape(1, 2)),
    "str": one("str", TEXTS),
    "str-as-text": one("str", TEXTS, use_bytes=False),
    "str-empty": one("str", []),
    "base64": one("base64", OCTETS),
    "base64-as-text": one("base64", OCTETS, use_bytes=False),
    "datetime": one("datetime", MOMENTS),
    "datetime-as-text": one("datetime", MOMENTS, use_bytes=False),
    "datetime-zone": one("datetime", ZONED),
    "datetime-from-text": one("datetime", [moment.isoformat() for moment in ZONED], ZONED),
    "several-inputs": Case(
        {
            "n": ("np", MATRIX),
            "s": ("str", TEXTS),
            "b": ("base64", OCTETS),
            "d": ("datetime", ZONED),
        },
        {"n": MATRIX, "s": TEXTS, "b": OCTETS, "d": ZONED},
    ),
    "request-np": whole("np", MATRIX),
    "request-np-flat": whole(
        "np", np.array([1, 2, 3], "int16"), np.array([[1], [2], [3]], "int16")
    ),
    "request-str": whole("str", TEXTS),
    "pd-numbers": whole("pd", pd.DataFrame(TABLE)),
    "pd-float16": frame(extremes("float16")),
    "pd-bool": frame([True, False, True]),
    "pd-empty": frame([], dtype="int64"),
    "pd-nan": frame([1.5, np.nan]),
    "pd-infinity": frame([1.5, np.inf]),
    "pd-text": frame(TEXTS, dtype=object),
    "pd-text-gap": frame(["a", None], dtype=object),
    "pd-string": frame(TEXTS, dtype="string"),
    "pd-bytes": frame([b"ab", b"c"], dtype=object),
    "pd-datetime": frame(MOMENTS, dtype="datetime64[ns]"),
    "pd-datetime-zone": frame(pd.to_datetime(["2024-02-29T12:30+02:00", "2024-03-01T08:00+02:00"])),
    "pd-datetime-gap": frame([MOMENTS[0], None], dtype="datetime64[ns]"),
    "pd-datetime-objects": frame(MOMENTS, MOMENTS, dtype=object, expected_dtype="datetime64[ns]"),
    "pd-nullable": frame([1, 2], dtype="Int32", expected=[1, 2], expected_dtype="int32"),
    "pd-nullable-gap": frame(
        [1, None], dtype="Int32", expected=[1, None], expected_dtype="float64"
    ),
    "pd-nullable-gap-large": frame([2**53 + 1, None], [2**53 + 1, None], "Int64", object),
    "pd-nullable-float": frame(
        [1.5, None], dtype="Float32", expected=[1.5, None], expected_dtype="float32"
    ),
    "pd-nullable-bool": frame([True, False], dtype="boolean", expected=[True, False]),
    "pd-nullable-bool-gap": frame([True, None], [True, None], "boolean", object),
    "pd-category": frame(["a", "b", "a"], ["a", "b", "a"], "category", object),
    "pd-lists": frame([[1, 2], [], [[3.5, "é"]]]),
    "pd-dicts": frame([{"a": 1, "b": [True, None]}, {}]),
    "pd-lists-gap": frame([[1, 2], None]),
    "pd-arrays": frame([np.array([1, 2]), np.array([0.5])], [[1, 2], [0.5]]),
    "pd-mixed": frame(["a", 1, 2.5, True], dtype=object),
    "pd-columns": whole(
        "pd",
        pd.DataFrame(
            {
                "n": MATRIX[0, :2, 0],
                "s": pd.Series(["a", "é"], dtype=object),
                "l": [[1], {"k": "v"}],
            }
        ),
    ),
}


def make_request(case: Case, codecs: Any, types: Any) -> Any:
    """Return the request of `case`, encoded with the given side's modules. Both sides use the same names."""
    if case.content_type:
        return codecs.find_request_codec(case.content_type).encode_request(
            case.payload, **case.options
        )
    inputs = [
        codecs.find_input_codec(content_type).encode_input(name, value, **case.options)
        for name, (content_type, value) in case.payload.items()
    ]
    return types.InferenceRequest(inputs=inputs)


def describe(value: Any) -> Any:
    """Describe `value`, or an error class, in JSON types. Equal descriptions mean equal values of the same types.

    The dtype names of text and datetimes differ between library versions, so each has one name
    here. The elements distinguish text from bytes. The index of a data frame is left out.
    """
    if isinstance(value, type):
        return {"kind": "error", "type": value.__name__}
    if isinstance(value, pd.DataFrame):
        return {
            "kind": "DataFrame",
            "columns": [[name, describe_column(value[name])] for name in value.columns],
        }
    if isinstance(value, np.ndarray):
        dtype = "BYTES" if value.dtype.kind in "OSU" else str(value.dtype)
        elements = [repr(element) for element in value.ravel().tolist()]
        return {"kind": "ndarray", "dtype": dtype, "shape": list(value.shape), "values": elements}
    if isinstance(value, dict):
        return {
            "kind": "inputs",
            "inputs": {name: describe(element) for name, element in value.items()},
        }
    return {"kind": type(value).__name__, "values": [describe_cell(cell) for cell in value]}


def describe_column(series: pd.Series) -> dict[str, Any]:
    if isinstance(series.dtype, pd.StringDtype) or series.dtype == object:
        dtype = "object"
    elif series.dtype.kind == "M":
        dtype = "datetime"
    else:
        dtype = str(series.dtype)
    return {"dtype": dtype, "values": [describe_cell(cell) for cell in series.tolist()]}


def describe_cell(value: Any) -> str:
    """Describe `value` as text. All missing values of pandas have the same description."""
    if pd.api.types.is_scalar(value) and pd.isna(value):
        return "missing"
    return value.isoformat() if isinstance(value, datetime) else repr(value)
