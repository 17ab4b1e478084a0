"""Datatypes, and validation and conversion of arrays and shapes.

`dtype.kind` is NumPy's letter for the kind of an array's elements: b(ool), i(nt), u(nsigned int),
f(loat), O(bject), U (str), S (bytes), M (datetime), m (timedelta), V (others, such as bfloat16 of
ml_dtypes).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from app.protocol.errors import InvalidInput, format_value, shorten

Shape = Sequence[int]
MAX_RANK = 64  # NumPy's limit
INTEGER_KINDS = "iu"
TEXT_TYPES = {bytes, str, type(None)}
# NumPy's scalars for text, and the equivalent types. The buffer of np.str_ is UTF-32, not UTF-8.
SCALARS: dict[type, type] = {np.str_: str, np.bytes_: bytes}
# Words for NumPy's kinds whose dtypes are hard to read in an error message.
_WORDS = {"U": "strings", "S": "bytes", "O": "objects", "M": "datetimes", "m": "timedeltas"}


@dataclass(frozen=True)
class Datatype:
    """A datatype of the protocol. Exactly one of is_boolean, is_integer, is_float and is_text is
    True.

    - dtype: the dtype of the arrays, little-endian (B1). Those of BF16 are float32.
    - contents_field: the field of gRPC's InferTensorContents for the elements, or None for FP16 and
      BF16, which have only the raw form (G3).
    - size: bytes per element in binary form, or None for BYTES, whose elements have different
      lengths.
    - largest: the largest finite value of a floating-point datatype, or infinity for others.
    - is_text: True for BYTES. Its arrays contain bytes or str, and None for null in JSON (R12).
    """

    name: str
    dtype: np.dtype
    contents_field: str | None
    size: int | None
    largest: float
    is_boolean: bool
    is_integer: bool
    is_float: bool
    is_text: bool
    is_bf16: bool = False

    def round(self, array: np.ndarray) -> np.ndarray:
        """Round numbers to the nearest values of this floating-point datatype, ties to even.

        Overflow is infinity.
        """
        if self.is_bf16:
            return self._round_to_bf16(array)
        return array.astype(self.dtype, copy=False)

    def _round_to_bf16(self, array: np.ndarray) -> np.ndarray:
        """Return float32 values whose lower 16 bits are 0.

        Values of a wider type are rounded twice: to float32, and then to BF16. To get the same
        result as with one step, the first step truncates, and sets the last bit of inexact values
        ("round to odd").
        """
        single = array.astype(self.dtype)
        bits = single.view("<u4")
        if array.dtype != self.dtype:
            bits -= np.abs(single) > np.abs(array)
            bits |= single != array

        # Round half to even: add just less than half of the last remaining bit, plus one if that
        # bit is set.
        bits += (bits >> 16 & 1) + 0x7FFF
        bits &= 0xFFFF0000

        # The addition can turn a NaN into another number.
        single[np.isnan(array) & ~np.isnan(single)] = np.nan
        return single


def _datatype(name: str, type_code: str, contents_field: str | None) -> Datatype:
    dtype = np.dtype(type_code)
    is_float = dtype.kind == "f"
    is_text = dtype.kind == "O"
    largest = math.inf
    if is_float:
        largest = float(np.finfo(dtype).max)
    return Datatype(
        name,
        dtype,
        contents_field,
        size=None if is_text else dtype.itemsize,
        largest=largest,
        is_boolean=dtype.kind == "b",
        is_integer=dtype.kind in INTEGER_KINDS,
        is_float=is_float,
        is_text=is_text,
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
# The upper half of an FP32 (R23). NumPy has no BF16, so arrays are FP32. They contain only values
# that BF16 represents.
DATATYPES["BF16"] = replace(DATATYPES["BF16"], size=2, largest=(2 - 2**-7) * 2.0**127, is_bf16=True)


def datatype_of(name: Any) -> Datatype:
    """Return the datatype with the case-sensitive `name` (R1).

    Raise InvalidInput if it is unknown.
    """
    try:
        return DATATYPES[name]
    except (KeyError, TypeError):
        raise InvalidInput(
            subject="datatype", expected=f"one of {', '.join(DATATYPES)}", got=name
        ) from None


# Shapes


def check_shape(
    shape: Any, format_got: Callable[[object], str] = format_value, remedy: str = ""
) -> Shape:
    """Return a list of integers ≥ 0 (R9).

    Raise InvalidInput for another value, which `format_got` formats for the message, with the
    `remedy`.
    """
    if not isinstance(shape, (list, tuple)):
        raise _invalid_shape("a list of integers", format_got(shape), remedy)
    if len(shape) > MAX_RANK:
        raise _invalid_shape(f"at most {MAX_RANK} dimensions", len(shape), remedy)
    for dimension in shape:
        if type(dimension) is not int or dimension < 0:
            raise _invalid_shape("integers of at least 0", format_got(dimension), remedy)
    return shape


def _invalid_shape(expected: str, got: object, remedy: str) -> InvalidInput:
    return InvalidInput(subject="shape", expected=expected, got=got, remedy=remedy)


def check_count(shape: Shape, count: int) -> None:
    """Raise InvalidInput if a tensor of `shape` does not have `count` elements."""
    expected = math.prod(shape)
    if count != expected:
        got = f"{count} for {format_shape(shape)}, which has {shorten(str(expected))}"
        raise InvalidInput("wrong number of elements", expected="as many as the shape has", got=got)


def reshape(array: np.ndarray, shape: Shape) -> np.ndarray:
    """Reshape `array` to `shape`, which has the same size.

    Raise InvalidInput if NumPy does not support it (R9).
    """
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):
        raise InvalidInput("shape too large for an array", got=format_shape(shape)) from None


def format_shape(shape: Shape) -> str:
    """Format `shape` for an error message."""
    return shorten(f"[{','.join(map(str, shape))}]")


# Arrays


def object_array(elements: Sequence[Any]) -> np.ndarray:
    """Return a flat object array. np.array() would convert nested sequences."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array


def plain_array(data: Any, dtype: Any = None) -> np.ndarray:
    """Return np.asarray(data, dtype).

    Raise InvalidInput if the conversion fails, or for a masked array.
    """
    if type(data) is not np.ndarray and np.ma.is_masked(data):
        raise InvalidInput("data has masked elements, which have no value", remedy="use filled()")
    try:
        return np.asarray(data, dtype)
    except Exception as error:
        # __array__() of another library can raise any exception. For example, torch raises
        # RuntimeError for a tensor that requires gradients, and TypeError for one on a GPU.
        is_numpys = isinstance(error, TypeError | ValueError | OverflowError)
        if is_numpys and not hasattr(data, "__array__"):
            raise InvalidInput(
                "data is not an array", got=str(error), remedy="pad rows to the same length"
            ) from None
        raise InvalidInput(
            f"cannot convert {type(data).__name__} to an array ({type(error).__name__})",
            got=str(error),
        ) from error


def as_array(data: Any, datatype: Datatype) -> np.ndarray:
    """Return `data` as an array of `datatype`, without a copy if the type matches.

    Raise InvalidInput if the conversion changes values by more than rounding.
    """
    if datatype.is_text:
        return text_array(data)
    array = plain_array(data)
    if array.dtype == datatype.dtype and not datatype.is_bf16:
        return array
    if is_bfloat16(array.dtype):
        array = array.astype("<f4")
    if datatype.is_integer and array.dtype.kind == "f" and isinstance(data, list | tuple):
        array = restore_integers(data, array)

    if not array.size:
        return array.astype(datatype.dtype)
    if not _is_convertible(array.dtype, datatype):
        raise InvalidInput(subject="datatype", expected=datatype.name, got=format_types(array))
    if datatype.is_integer:
        return cast_in_range(array, datatype)

    with np.errstate(over="ignore", invalid="ignore"):
        result = datatype.round(array)
    overflows = np.isinf(result) & np.isfinite(array)
    if overflows.any():
        raise out_of_range(datatype, array.flat[int(np.argmax(overflows))])
    return result


def _is_convertible(dtype: np.dtype, datatype: Datatype) -> bool:
    """Return True if elements of `dtype` can have values of `datatype`: booleans and numbers are
    not mixed.
    """
    if datatype.is_boolean:
        return dtype.kind == "b"
    if datatype.is_integer:
        return dtype.kind in INTEGER_KINDS
    return dtype.kind == "f" or dtype.kind in INTEGER_KINDS


def is_bfloat16(dtype: np.dtype) -> bool:
    """Return True for bfloat16 of ml_dtypes, which may not be installed."""
    return dtype.kind == "V" and dtype.name == "bfloat16"


def restore_integers(data: list[Any] | tuple[Any, ...], array: np.ndarray) -> np.ndarray:
    """Return `data` as UINT64 if NumPy converted its integers to floats in `array`. Otherwise,
    return `array`.

    NumPy does so if a list contains integers from 2**63 on and smaller ones.
    """
    exact = plain_array(data, object)
    elements = exact.ravel().tolist()
    if not all(isinstance(element, int | np.integer) for element in elements):
        return array
    integers = [int(element) for element in elements]
    return plain_array(integers, np.uint64).reshape(exact.shape)


def cast_in_range(array: np.ndarray, datatype: Datatype) -> np.ndarray:
    """Convert integers to the integer `datatype`.

    Raise InvalidInput if one is out of range (R11).
    """
    limits = np.iinfo(datatype.dtype)
    outside = (array < limits.min) | (array > limits.max)
    if outside.any():
        raise out_of_range(datatype, array.flat[int(np.argmax(outside))])
    return array.astype(datatype.dtype)


def out_of_range(datatype: Datatype, got: Any) -> InvalidInput:
    """Return the error for the number `got`, which `datatype` cannot represent."""
    if datatype.is_float:
        limits = f"within ±{datatype.largest}"
    else:
        info = np.iinfo(datatype.dtype)
        limits = f"from {info.min} to {info.max}"
    return InvalidInput("value out of range", expected=f"{datatype.name} {limits}", got=str(got))


# Elements of BYTES tensors


def text_array(data: Any) -> np.ndarray:
    """Convert `data` to the object array of a BYTES tensor.

    Raise InvalidInput if an element has an invalid type.
    """
    array = plain_array(data, object)
    elements = array.ravel().tolist()
    types = set(map(type, elements))

    if not types.isdisjoint(SCALARS):
        elements = [_plain_text(element) for element in elements]
        array = object_array(elements).reshape(array.shape)
        types = set(map(type, elements))

    invalid_types = types - TEXT_TYPES
    if invalid_types:
        raise InvalidInput(
            subject="data",
            expected="strings or bytes for BYTES",
            got=", ".join(sorted(invalid.__name__ for invalid in invalid_types)),
            remedy='use None for a missing text, and ISO text or content type "datetime" for dates',
        )
    return array


def _plain_text(element: Any) -> Any:
    """Convert a NumPy scalar for text to str or bytes. Return other elements unchanged."""
    plain_type = SCALARS.get(type(element))
    if plain_type is None:
        return element
    return plain_type(element)


def bytes_array(data: Any) -> np.ndarray:
    """Return text_array(data) with str elements encoded as UTF-8."""
    array = text_array(data)
    elements = array.ravel().tolist()
    encoded_elements = as_bytes(elements)
    if encoded_elements is elements:  # there was no str
        return array
    return object_array(encoded_elements).reshape(array.shape)


def as_bytes(elements: list[bytes | str | None]) -> list[bytes | None]:
    """Encode str elements as UTF-8. Return `elements` itself if there are none.

    Raise InvalidInput if a str is not valid Unicode.
    """
    types = set(map(type, elements))
    try:
        if types == {str}:  # map() avoids a loop in Python
            return list(map(str.encode, elements))  # type: ignore[arg-type]
        if str not in types:
            return elements  # type: ignore[return-value]
        return [element.encode() if isinstance(element, str) else element for element in elements]
    except UnicodeEncodeError as error:
        raise InvalidInput(f"invalid Unicode in a string: {error.reason}") from None


def as_texts(elements: list[bytes | str | None]) -> list[str | None]:
    """Decode bytes elements as UTF-8. Return `elements` itself if there are none.

    Raise UnicodeDecodeError if bytes are not valid UTF-8.
    """
    types = set(map(type, elements))
    if types == {bytes}:
        return list(map(bytes.decode, elements))  # type: ignore[arg-type]
    if types <= {str, type(None)}:
        return elements  # type: ignore[return-value]
    return [element.decode() if isinstance(element, bytes) else element for element in elements]


def format_types(array: np.ndarray) -> str:
    """Describe the elements for an error message: by the dtype, or for objects, by the types of the
    elements.
    """
    if array.dtype.kind != "O":
        return _WORDS.get(array.dtype.kind, str(array.dtype))
    types = {type(element) for element in array.ravel().tolist()}
    names = ", ".join(sorted(element_type.__name__ for element_type in types))
    if type(None) in types:
        return f"objects: {names} (a missing number is NaN in a float)"
    return f"objects: {names}"
