"""`np`: ndarrays (C5)."""

from typing import Any

import numpy as np

from app.codecs.base import (
    FirstTensorCodec,
    InputCodec,
    batch,
    register_input_codec,
    register_request_codec,
)
from app.protocol.datatypes import (
    DATATYPES,
    bytes_array,
    is_bfloat16,
    plain_array,
    restore_integers,
)
from app.protocol.errors import InvalidInput
from app.protocol.tensors import Tensor

BY_KIND = {(each.dtype.kind, each.dtype.itemsize): name for name, each in DATATYPES.items()}
TEXT_KINDS = "OSU"


def writable_copy(array: np.ndarray) -> np.ndarray:
    """Return `array`, or a copy if it is not aligned, contiguous and writable, such as a view of a request body."""
    return array if array.flags.carray else array.copy()


def datatype_name(dtype: np.dtype) -> str:
    """Return the datatype for `dtype`. Raise InvalidInput if no datatype matches."""
    if dtype.kind in TEXT_KINDS:
        return "BYTES"
    try:
        return BY_KIND[dtype.kind, dtype.itemsize]
    except KeyError:
        if is_bfloat16(dtype):
            return "BF16"
        raise InvalidInput(
            subject="data", expected="numbers, booleans, text or bytes", got=str(dtype)
        ) from None


@register_input_codec
class NumpyCodec(InputCodec):
    """Arrays of any datatype. A BYTES tensor is an object array of bytes."""

    ContentType = "np"
    TypeHint = np.ndarray

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> tuple[str, np.ndarray]:
        array = plain_array(payload)
        if isinstance(payload, list | tuple):
            if (
                array.dtype.kind in "SU"
            ):  # NumPy's text types strip trailing zero bytes and convert numbers to text
                array = plain_array(payload, object)
            elif array.dtype.kind == "f":
                array = restore_integers(payload, array)
        return datatype_name(array.dtype), batch(array)

    @classmethod
    def decode(cls, tensor: Tensor) -> np.ndarray:
        if tensor.datatype != "BYTES":
            return writable_copy(tensor.data)
        array = bytes_array(tensor.wire_data(is_binary=True))
        if None in array.ravel().tolist():
            raise InvalidInput(
                subject="data", expected="bytes", got="null", remedy="use content type str"
            )
        return writable_copy(array)


@register_request_codec
class NumpyRequestCodec(FirstTensorCodec):
    """The first tensor as an array."""

    InputCodec = NumpyCodec
    ContentType = NumpyCodec.ContentType
    TypeHint = np.ndarray
