"""Conversion between the `data` of JSON tensors and arrays, without Python loops over numbers (R10
to R14).

from_json() flattens nested lists, collects the Python types of the elements, and selects the
conversion of the datatype:

| Datatype      | Types of elements      | Conversion                                           |
|---------------|------------------------|------------------------------------------------------|
| BOOL          | bool, int              | 0 and 1 are booleans                                 |
| INT*, UINT*   | int, float             | a float must be a whole number, and exact            |
| FP*, BF16     | int, float, None       | rounds, None is NaN                                  |
| BYTES         | str, None              | none: the array contains the elements                |

In JSON, 1 can be written as 1.0 for an integer. A large list of numbers is already a float or
integer array, because json_parser.py parses it without Python objects.
"""

from base64 import b64decode
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from app.protocol.datatypes import (
    Datatype,
    as_texts,
    cast_in_range,
    check_count,
    object_array,
    out_of_range,
    reshape,
)
from app.protocol.errors import InvalidInput, format_value

RAW = "bytes"  # content type of BYTES tensors whose elements are base64 text in JSON (C12)
# From this value on, a float does not represent every integer exactly.
_FIRST_INEXACT_INTEGER = 2**53
# Up to this number of floats, a comparison in Python is faster than np.errstate.
_MAX_COMPARED_FLOATS = 16


class _Conversion(NamedTuple):
    """The valid elements of a kind of datatypes, and their conversion to an array.

    `convert` takes the elements (a list, or an array of numbers), the set of their types, and the
    datatype.
    """

    expected: str
    types: set[type]
    convert: Callable[[Any, set[type], Datatype], np.ndarray]


def from_json(data: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """Return an array of `shape` from a list, nested lists, a scalar (R10) or an array of numbers.

    Raise InvalidInput for ragged lists, a wrong number of elements, or an element out of range
    (R11, R12).
    """
    elements, types = _flatten(data)
    check_count(shape, len(elements))

    conversion = _conversion_of(datatype)
    invalid_types = types - conversion.types
    if invalid_types:
        index, element = _first_of_types(elements, invalid_types)
        raise InvalidInput(
            subject=f"data[{index}]",
            expected=f"{conversion.expected} for {datatype.name}",
            got=format_value(element),
        )
    return reshape(conversion.convert(elements, types, datatype), shape)


def _flatten(data: Any) -> tuple[Any, set[type]]:
    """Return the elements of nested lists in row-major order, and the set of their types."""
    if isinstance(data, np.ndarray):
        return data, {float}

    elements = data if isinstance(data, list) else [data]
    types = set(map(type, elements))
    while list in types:
        if len(types) > 1 or len(set(map(len, elements))) > 1:
            raise InvalidInput(
                "nested lists of different lengths", expected="lists of equal lengths"
            )
        elements = list(chain.from_iterable(elements))
        types = set(map(type, elements))
    return elements, types


def _first_of_types(elements: list[Any], types: set[type]) -> tuple[int, Any]:
    """Return the index and the value of the first element whose type is one of `types`.

    There must be one.
    """
    for index, element in enumerate(elements):
        if type(element) in types:
            return index, element
    raise LookupError(types)


def _to_booleans(elements: list[Any], types: set[type], datatype: Datatype) -> np.ndarray:
    if int in types and elements and (min(elements) < 0 or max(elements) > 1):
        invalid_value = min(element for element in elements if element not in (0, 1))
        raise InvalidInput(
            subject="data", expected="true, false, 1 or 0 for BOOL", got=invalid_value
        )
    return np.array(elements, bool)


def _to_integers(elements: Any, types: set[type], datatype: Datatype) -> np.ndarray:
    if isinstance(elements, np.ndarray):
        return cast_in_range(elements, datatype)
    if float in types:
        for element in elements:
            if type(element) is float and not _is_exact_integer(element):
                raise InvalidInput(
                    subject="data",
                    expected=f"an integer without fraction or exponent for {datatype.name}",
                    got=element,
                )
    try:
        return np.array(elements, datatype.dtype)
    except OverflowError:
        limits = np.iinfo(datatype.dtype)
        outside = (number for number in elements if not limits.min <= number <= limits.max)
        raise out_of_range(datatype, next(outside)) from None


def _is_exact_integer(number: float) -> bool:
    return number.is_integer() and abs(number) < _FIRST_INEXACT_INTEGER


def _to_floats(elements: Any, types: set[type], datatype: Datatype) -> np.ndarray:
    is_short = 0 < len(elements) <= _MAX_COMPARED_FLOATS
    is_comparable = is_short and type(None) not in types and not datatype.is_bf16
    if is_comparable and -datatype.largest <= min(elements) and max(elements) <= datatype.largest:
        return np.array(elements, datatype.dtype)

    with np.errstate(over="ignore"):
        array = datatype.round(np.asarray(elements, "<f8"))
    # JSON has no infinity, so an infinite value results from a number out of range.
    infinite = np.isinf(array)
    if np.count_nonzero(infinite):  # faster than any() for few elements
        raise out_of_range(datatype, elements[int(np.argmax(infinite))])
    return array


def _to_texts(elements: list[Any], types: set[type], datatype: Datatype) -> np.ndarray:
    return object_array(elements)


_BOOLEANS = _Conversion("a boolean", {bool, int}, _to_booleans)
_INTEGERS = _Conversion("an integer", {int, float}, _to_integers)
_FLOATS = _Conversion("a number", {int, float, type(None)}, _to_floats)
_TEXTS = _Conversion("a string", {str, type(None)}, _to_texts)


def _conversion_of(datatype: Datatype) -> _Conversion:
    if datatype.is_float:
        return _FLOATS
    if datatype.is_integer:
        return _INTEGERS
    if datatype.is_text:
        return _TEXTS
    return _BOOLEANS


def to_json(array: np.ndarray, datatype: Datatype, nonfinite: str = "error") -> Any:
    """Return the flat `data` for orjson: an ndarray of numbers or a list of strings.

    Raise InvalidInput for ±Infinity unless `nonfinite` is "null" (R12), and for BYTES that are not
    UTF-8 text (R14).
    """
    if datatype.is_text:
        try:
            return as_texts(array.ravel().tolist())
        except UnicodeDecodeError:
            raise InvalidInput(
                "JSON cannot represent bytes that are not UTF-8 text",
                remedy='request binary output, or use content type "bytes"',
            ) from None

    if datatype.is_float and nonfinite == "error" and np.count_nonzero(np.isinf(array)):
        raise InvalidInput(
            "JSON cannot represent Infinity",
            remedy="request binary output, or set JSON_NONFINITE=null",
        )
    return np.ascontiguousarray(array).reshape(-1)


def from_base64(
    text: bytes | str | None, remedy: str = "send base64 text without line breaks"
) -> bytes:
    """Decode base64 text. Raise InvalidInput with the `remedy` if it is invalid."""
    try:
        return b64decode(text, validate=True)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        raise InvalidInput("invalid base64", remedy=remedy) from None
