"""Datatypes, and validation and conversion of arrays and shapes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.protocol.errors import InvalidInput, format_value, shorten

Shape = Sequence[int]
MAX_RANK = 64  # NumPy's limit
TEXT_TYPES = {bytes, str, type(None)}
SCALARS: dict[type, type] = {
    np.str_: str,
    np.bytes_: bytes,
}  # NumPy's text scalars. The buffer of str_ is UTF-32
# Names for NumPy's kinds whose dtypes are hard to read.
WORDS = {"U": "strings", "S": "bytes", "O": "objects", "M": "datetimes", "m": "timedeltas"}
CASTABLE = {
    "b": "b",
    "i": "iu",
    "u": "iu",
    "f": "iuf",
}  # kinds of arrays that can be converted, by the target's kind


@dataclass(frozen=True)
class Datatype:
    """A datatype of the protocol. BYTES tensors are object arrays of bytes or str, with None for null in JSON (R12)."""

    name: str
    dtype: np.dtype  # little-endian (B1)
    contents: str | None  # field of InferTensorContents, or None for FP16 and BF16 (G3)
    kind: str  # NumPy's letter: b(ool), i(nt), u(int), f(loat), O(bject: BYTES)
    size: int | None  # bytes per element in binary form, or None for BYTES
    largest: float  # largest finite value of a floating-point datatype
    is_bf16: bool = False

    def round(self, array: np.ndarray) -> np.ndarray:
        """Round numbers to the nearest values of this floating-point datatype, ties to even. Overflow is infinity."""
        if not self.is_bf16:
            return array.astype(self.dtype, copy=False)
        single = array.astype(self.dtype)
        bits = single.view("<u4")
        if (
            array.dtype != self.dtype
        ):  # truncate, and set the last bit of inexact values, to round only once
            bits -= np.abs(single) > np.abs(array)
            bits |= single != array
        bits += (bits >> 16 & 1) + 0x7FFF
        bits &= 0xFFFF0000
        single[np.isnan(array) & ~np.isnan(single)] = np.nan
        return single


def _datatype(name: str, code: str, contents: str | None) -> Datatype:
    dtype = np.dtype(code)
    largest = float(np.finfo(dtype).max) if dtype.kind == "f" else math.inf
    return Datatype(
        name, dtype, contents, dtype.kind, None if code == "O" else dtype.itemsize, largest
    )


DATATYPES: dict[str, Datatype] = {
    row[0]: _datatype(*row)
    for row in [
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
        ("BF16", "<f4", None),
        ("FP32", "<f4", "fp32_contents"),
        ("FP64", "<f8", "fp64_contents"),
        ("BYTES", "O", "bytes_contents"),
    ]
}
# The upper half of an FP32 (R23). NumPy has no BF16, so arrays are FP32. They contain only values that BF16 represents.
DATATYPES["BF16"] = replace(DATATYPES["BF16"], size=2, largest=(2 - 2**-7) * 2.0**127, is_bf16=True)


def datatype_of(name: Any) -> Datatype:
    """Return the datatype with the case-sensitive `name` (R1). Raise InvalidInput if it is unknown."""
    try:
        return DATATYPES[name]
    except (KeyError, TypeError):
        raise InvalidInput(
            subject="datatype", expected=f"one of {', '.join(DATATYPES)}", got=name
        ) from None


def check_shape(shape: Any, show: Callable[[object], str] = format_value) -> Shape:
    """Return a list of integers ≥ 0 (R9). Raise InvalidInput for other values, which `show` writes in the message."""
    if not isinstance(shape, (list, tuple)):
        raise InvalidInput(subject="shape", expected="a list of integers", got=show(shape))
    if len(shape) > MAX_RANK:
        raise InvalidInput(
            subject="shape", expected=f"at most {MAX_RANK} dimensions", got=len(shape)
        )
    for dimension in shape:
        if type(dimension) is not int or dimension < 0:
            raise InvalidInput(
                subject="shape", expected="integers of at least 0", got=show(dimension)
            )
    return shape


def check_count(shape: Shape, count: int) -> None:
    """Raise InvalidInput if a tensor of `shape` does not have `count` elements."""
    expected = math.prod(shape)
    if count != expected:
        got = f"{count} for {format_shape(shape)}, which has {shorten(str(expected))}"
        raise InvalidInput("wrong number of elements", expected="as many as the shape has", got=got)


def reshape(array: np.ndarray, shape: Shape) -> np.ndarray:
    """Reshape `array` to `shape`, which has the same size. Raise InvalidInput if NumPy does not support it (R9)."""
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):
        raise InvalidInput("shape too large for an array", got=format_shape(shape)) from None


def object_array(elements: Sequence[Any]) -> np.ndarray:
    """Return a flat object array. np.array() would convert nested sequences."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def as_array(data: Any, datatype: Datatype) -> np.ndarray:
    """Return `data` as an array of `datatype`, without a copy if the type matches.

    Raise InvalidInput if the conversion changes values by more than rounding.
    """
    if datatype.kind == "O":
        return text_array(data)
    array = plain_array(data)
    if array.dtype == datatype.dtype and not datatype.is_bf16:
        return array
    if is_bfloat16(array.dtype):
        array = array.astype("<f4")
    if array.dtype.kind == "f" and datatype.kind in "iu" and isinstance(data, list | tuple):
        array = restore_integers(data, array)
    if not array.size:
        return array.astype(datatype.dtype)
    if array.dtype.kind not in CASTABLE[datatype.kind]:
        raise InvalidInput(subject="datatype", expected=datatype.name, got=format_types(array))
    if datatype.kind in "iu":
        return cast_in_range(array, datatype)
    with np.errstate(over="ignore", invalid="ignore"):
        result = datatype.round(array)
    lost = np.isinf(result) & np.isfinite(array)
    if lost.any():
        raise out_of_range(datatype, array.flat[int(np.argmax(lost))])
    return result


def is_bfloat16(dtype: np.dtype) -> bool:
    """Return True for bfloat16 of ml_dtypes, which may not be installed."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def restore_integers(data: list[Any] | tuple[Any, ...], array: np.ndarray) -> np.ndarray:
    """Return `data` as UINT64 if NumPy converted its integers to floats in `array`. Otherwise, return `array`."""
    exact = plain_array(data, object)
    elements = exact.ravel().tolist()
    if not all(isinstance(each, int | np.integer) for each in elements):
        return array
    return plain_array([int(each) for each in elements], np.uint64).reshape(exact.shape)


def plain_array(data: Any, dtype: Any = None) -> np.ndarray:
    """Return np.asarray(data, dtype). Raise InvalidInput if the conversion fails, or for a masked array."""
    if type(data) is not np.ndarray and np.ma.is_masked(data):
        raise InvalidInput("data has masked elements, which have no value", remedy="use filled()")
    try:
        return np.asarray(data, dtype)
    except Exception as error:
        # __array__() of another library can raise any exception. For example, torch raises RuntimeError for a tensor
        # that requires gradients, and TypeError for one on a GPU.
        is_numpys = isinstance(error, TypeError | ValueError | OverflowError)
        if is_numpys and not hasattr(data, "__array__"):
            raise InvalidInput(
                "data is not an array", got=str(error), remedy="pad rows to the same length"
            ) from None
        raise InvalidInput(
            f"cannot convert {type(data).__name__} to an array ({type(error).__name__})",
            got=str(error),
        ) from error


def cast_in_range(array: np.ndarray, datatype: Datatype) -> np.ndarray:
    """Convert integers to the integer `datatype`. Raise InvalidInput if one is out of range (R11)."""
    limits = np.iinfo(datatype.dtype)
    outside = (array < limits.min) | (array > limits.max)
    if outside.any():
        raise out_of_range(datatype, array.flat[int(np.argmax(outside))])
    return array.astype(datatype.dtype)


def out_of_range(datatype: Datatype, got: Any) -> InvalidInput:
    limits = None if datatype.kind == "f" else np.iinfo(datatype.dtype)
    expected = f"from {limits.min} to {limits.max}" if limits else f"within ±{datatype.largest}"
    return InvalidInput("value out of range", expected=f"{datatype.name} {expected}", got=str(got))


def text_array(data: Any) -> np.ndarray:
    """Convert `data` to the object array of a BYTES tensor. Raise InvalidInput if an element has an invalid type."""
    array = plain_array(data, object)
    elements = array.ravel().tolist()
    types = set(map(type, elements))
    if not types.isdisjoint(SCALARS):
        elements = [
            SCALARS[type(each)](each) if type(each) in SCALARS else each for each in elements
        ]
        array, types = object_array(elements).reshape(array.shape), set(map(type, elements))
    if others := types - TEXT_TYPES:
        names = ", ".join(sorted(each.__name__ for each in others))
        remedy = 'use None for a missing text, and ISO text or content type "datetime" for dates'
        raise InvalidInput(
            subject="data", expected="strings or bytes for BYTES", got=names, remedy=remedy
        )
    return array


def bytes_array(data: Any) -> np.ndarray:
    """Return text_array(data) with str elements encoded as UTF-8."""
    array = text_array(data)
    elements = array.ravel().tolist()
    made = as_bytes(elements)
    return array if made is elements else object_array(made).reshape(array.shape)


def as_bytes(elements: list[bytes | str | None]) -> list[bytes | None]:
    """Encode str elements as UTF-8. Raise InvalidInput if one is not valid Unicode."""
    types = set(map(type, elements))
    try:
        if types == {str}:  # map() avoids a loop in Python
            return list(map(str.encode, elements))  # type: ignore[arg-type]
        if str not in types:
            return elements  # type: ignore[return-value]
        return [each.encode() if isinstance(each, str) else each for each in elements]
    except UnicodeEncodeError as error:
        raise InvalidInput(f"invalid Unicode in a string: {error.reason}") from None


def as_texts(elements: list[bytes | str | None]) -> list[str | None]:
    """Decode bytes elements as UTF-8. Raise UnicodeDecodeError if one is not valid UTF-8."""
    types = set(map(type, elements))
    if types == {bytes}:
        return list(map(bytes.decode, elements))  # type: ignore[arg-type]
    if types <= {str, type(None)}:
        return elements  # type: ignore[return-value]
    return [each.decode() if isinstance(each, bytes) else each for each in elements]


def format_types(array: np.ndarray) -> str:
    """Describe the dtype for an error message. For objects, list the types of the elements, with a hint for None."""
    if array.dtype.kind != "O":
        return WORDS.get(array.dtype.kind, str(array.dtype))
    kinds = {type(each) for each in array.ravel().tolist()}
    hint = " (a missing number is NaN in a float)" if type(None) in kinds else ""
    return f"objects: {', '.join(sorted(each.__name__ for each in kinds))}{hint}"


def format_shape(shape: Shape) -> str:
    """Format `shape` for an error message."""
    return shorten(f"[{','.join(map(str, shape))}]")
