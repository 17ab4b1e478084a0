"""The one table of datatypes, and the arithmetic of shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from app.errors import InvalidInput, shorten

# numpy's limit
MAX_RANK = 64
TEXT_TYPES = {bytes, str, type(None)}
# numpy's own text, by what it is to Python: as bytes it would be UTF-32.
SCALARS: dict[type, type] = {np.str_: str, np.bytes_: bytes}


@dataclass(frozen=True)
class Datatype:
    """A V2 datatype: its numpy dtype (little-endian, B1), and its field of InferTensorContents.

    `contents` is None where the typed form has no field (FP16, G3). A BYTES tensor is an object array of bytes
    or str, with None where JSON had null (R12), and its elements have no fixed size.
    """

    name: str
    dtype: np.dtype
    contents: str | None

    @cached_property
    def kind(self) -> str:
        """numpy's letter of the kind: b(ool), i(nt), u(int), f(loat), O(bject: BYTES)."""
        return self.dtype.kind

    @cached_property
    def largest(self) -> float:
        """The largest of its fractions."""
        return float(np.finfo(self.dtype).max)

    @cached_property
    def size(self) -> int | None:
        """Bytes an element takes on the wire; None for BYTES."""
        return None if self.kind == "O" else self.dtype.itemsize


DATATYPES: dict[str, Datatype] = {
    name: Datatype(name, np.dtype(dtype), contents)
    for name, dtype, contents in [
        ("BOOL", "?", "bool_contents"),
        ("UINT8", "u1", "uint_contents"),
        ("UINT16", "<u2", "uint_contents"),
        ("UINT32", "<u4", "uint_contents"),
        ("UINT64", "<u8", "uint64_contents"),
        ("INT8", "i1", "int_contents"),
        ("INT16", "<i2", "int_contents"),
        ("INT32", "<i4", "int_contents"),
        ("INT64", "<i8", "int64_contents"),
        ("FP16", "<f2", None),
        ("FP32", "<f4", "fp32_contents"),
        ("FP64", "<f8", "fp64_contents"),
        ("BYTES", "O", "bytes_contents"),
    ]
}


def datatype_of(name: str) -> Datatype:
    """The datatype called `name`, case-sensitively (R1); InvalidInput where there is none."""
    try:
        return DATATYPES[name]
    except (KeyError, TypeError):
        raise InvalidInput(f"datatype: expected one of {', '.join(DATATYPES)}; got {shorten(repr(name))}") from None


def check_shape(shape: Sequence[int]) -> Sequence[int]:
    """`shape` itself, if it is a list of integers of at least 0 (R9); else InvalidInput."""
    if not isinstance(shape, (list, tuple)):
        raise InvalidInput(f"shape: expected a list of integers, got {shorten(repr(shape))}")
    if len(shape) > MAX_RANK:
        raise InvalidInput(f"shape: expected at most {MAX_RANK} dimensions, got {len(shape)}")
    for dimension in shape:
        if type(dimension) is not int or dimension < 0:
            raise InvalidInput(f"shape: expected integers of at least 0, got {shorten(repr(dimension))}")
    return shape


def check_count(shape: Sequence[int], count: int) -> None:
    """InvalidInput unless a tensor of `shape` has `count` elements."""
    expected = math.prod(shape)
    if count != expected:
        raise InvalidInput(f"data: shape {shape_text(shape)} has {shorten(str(expected))} elements, got {count}")


def reshape(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """`array` in `shape`, which has as many elements; InvalidInput where numpy cannot hold it (R9)."""
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):
        raise InvalidInput(f"shape: {shape_text(shape)} is more than an array can have") from None


def object_array(elements: Sequence) -> np.ndarray:
    """A flat object array; numpy left to itself would look into the elements."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


# By numpy's letter of the kind.
WORDS = {"U": "strings", "S": "bytes", "O": "objects", "M": "datetimes", "m": "timedeltas"}

# What an array may be to become one of a datatype, by the datatype's kind.
CASTABLE = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}


def as_array(data: Any, datatype: Datatype) -> np.ndarray:
    """`data`, an array or what numpy makes one of, as an array of `datatype`; itself where it is one.

    Raises InvalidInput where more than rounding would be lost.
    """
    if datatype.kind == "O":
        return text_array(data)
    array = plain_array(data)
    if array.dtype == datatype.dtype:
        return array
    if array.dtype.kind == "f" and datatype.kind in "iu" and isinstance(data, list | tuple):
        array = integers(data, array)
    if array.size and array.dtype.kind not in CASTABLE[datatype.kind]:
        raise InvalidInput(f"datatype: expected {datatype.name}, got {kinds_text(array)}")
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(datatype.dtype)
    if not array.size:
        return result
    if datatype.kind == "f":
        lost = np.isinf(result) & np.isfinite(array)
    else:
        lost = (result != array) | ((result < 0) != (array < 0))
    if lost.any():
        raise InvalidInput(f"data: {datatype.name} cannot hold {array.reshape(-1)[int(np.argmax(lost))]}")
    return result


def integers(data: list | tuple, array: np.ndarray) -> np.ndarray:
    """`array` again, or where numpy made floats of integers, since some are beyond INT64, those of `data`."""
    exact = plain_array(data, object)
    elements = exact.ravel().tolist()
    if not all(isinstance(each, int | np.integer) for each in elements):
        return array
    return plain_array([int(each) for each in elements], np.uint64).reshape(exact.shape)


def plain_array(data: Any, dtype: Any = None) -> np.ndarray:
    """What numpy makes of `data`; InvalidInput where that is no array, or some elements have no value."""
    if type(data) is not np.ndarray and has_masked(data):
        raise InvalidInput("data: masked elements have no value; filled() gives them one")
    try:
        return np.asarray(data, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        if "inhomogeneous" in str(error):
            raise InvalidInput("data: rows of different lengths; pad them") from None
        raise InvalidInput(f"data: not an array: {error}") from None


def has_masked(data: Any) -> bool:
    """Whether elements of `data`, or of an array in a list of them, have no value."""
    while isinstance(data, list | tuple) and len(data):
        kinds = set(map(type, data))
        if any(issubclass(each, np.ma.MaskedArray) for each in kinds):
            return any(map(np.ma.is_masked, data))
        data = list(chain.from_iterable(data)) if kinds <= {list, tuple} else ()
    return np.ma.is_masked(data)


def narrow(array: np.ndarray, datatype: Datatype) -> np.ndarray:
    """Integers as those of `datatype`; InvalidInput where one is beyond it (R11)."""
    limits = np.iinfo(datatype.dtype)
    strays = (array < limits.min) | (array > limits.max)
    if strays.any():
        stray = array[int(np.argmax(strays))]
        raise InvalidInput(f"data: {datatype.name} takes {limits.min} to {limits.max}, got {stray}")
    return array.astype(datatype.dtype)


def text_array(data: Any) -> np.ndarray:
    """`data` as the object array that a BYTES tensor is: of bytes, str and None.

    Raises InvalidInput for an element of another type.
    """
    array = plain_array(data, object)
    elements = array.ravel().tolist()
    types = set(map(type, elements))
    if not types.isdisjoint(SCALARS):
        elements = [SCALARS[type(each)](each) if type(each) in SCALARS else each for each in elements]
        array, types = object_array(elements).reshape(array.shape), set(map(type, elements))
    if strangers := types - TEXT_TYPES:
        names = ", ".join(sorted(each.__name__ for each in strangers))
        hint = "; None is a missing text" if names == "float" else ""  # as NaN is pandas' own
        if "date" in names or "Timestamp" in names:
            hint = '; write ISO text, "2024-05-01T12:00:00Z"; of outputs content type "datetime" makes it'
        raise InvalidInput(f"data: an element of BYTES is a string or bytes, got {names}{hint}")
    return array


def bytes_array(data: Any) -> np.ndarray:
    """The same with every str encoded as UTF-8."""
    array = text_array(data)
    elements = array.ravel().tolist()
    made = octets(elements)
    return array if made is elements else object_array(made).reshape(array.shape)


# Elements are mostly of one kind, which takes no loop of Python's.


def octets(elements: list[bytes | str | None]) -> list[bytes | None]:
    """`elements` with every str encoded as UTF-8; InvalidInput where one is no Unicode text."""
    types = set(map(type, elements))
    try:
        if types == {str}:
            return list(map(str.encode, elements))  # type: ignore[arg-type]
        if str not in types:
            return elements  # type: ignore[return-value]
        return [each.encode() if isinstance(each, str) else each for each in elements]
    except UnicodeEncodeError as error:
        raise InvalidInput(f"data: a string is not Unicode text: {error.reason}") from None


def texts(elements: list[bytes | str | None]) -> list[str | None]:
    """`elements` with all bytes decoded as UTF-8; UnicodeDecodeError where some are not."""
    types = set(map(type, elements))
    if types == {bytes}:
        return list(map(bytes.decode, elements))  # type: ignore[arg-type]
    if types <= {str, type(None)}:
        return elements  # type: ignore[return-value]
    return [each.decode() if isinstance(each, bytes) else each for each in elements]


def dtype_text(dtype: np.dtype) -> str:
    """`dtype` in a person's words, where numpy has letters for it."""
    return WORDS.get(dtype.kind, str(dtype))


def kinds_text(array: np.ndarray) -> str:
    """What `array` is of, in the same words; of objects also which, and what to do about None."""
    if array.dtype.kind != "O":
        return dtype_text(array.dtype)
    kinds = {type(each) for each in array.ravel().tolist()}
    hint = "; a number that is missing is NaN, in a float" if type(None) in kinds else ""
    return f"objects: {', '.join(sorted(each.__name__ for each in kinds))}{hint}"


def shape_text(shape: Sequence[int]) -> str:
    """`shape` as an error text shows it."""
    return shorten(f"[{','.join(map(str, shape))}]")
