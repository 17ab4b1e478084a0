"""`np`: ndarrays (C5)."""

from typing import Any

import numpy as np

from app.codecs.base import (
    FirstTensorCodec,
    InputCodec,
    register_input_codec,
    register_request_codec,
    to_tensor_shape,
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

# NumPy's letters for the kinds of dtypes are explained in app/protocol/datatypes.py.
_TEXT_KINDS = "OSU"
_NUMPY_TEXT_KINDS = "SU"
# The datatype for each kind and size of a number or boolean, whatever its byte order. BF16 has no
# dtype of its own: its arrays are float32, like those of FP32.
_DATATYPE_NAMES = {
    (datatype.dtype.kind, datatype.dtype.itemsize): name
    for name, datatype in DATATYPES.items()
    if not datatype.is_bf16
}


def writable_copy(array: np.ndarray) -> np.ndarray:
    """Return `array` itself if it is writable, contiguous and aligned. Otherwise, return a copy.

    The array of a request can be a view of the request's body, which is read-only.
    """
    if array.flags.carray:  # NumPy's word for all three properties
        return array
    return array.copy()


def datatype_name(dtype: np.dtype) -> str:
    """Return the datatype for `dtype`. Raise InvalidInput if no datatype matches."""
    if dtype.kind in _TEXT_KINDS:
        return "BYTES"
    name = _DATATYPE_NAMES.get((dtype.kind, dtype.itemsize))
    if name is not None:
        return name
    if is_bfloat16(dtype):
        return "BF16"
    raise InvalidInput(subject="data", expected="numbers, booleans, text or bytes", got=str(dtype))


@register_input_codec
class NumpyCodec(InputCodec):
    """Arrays of any datatype. A BYTES tensor is an object array of bytes."""

    ContentType = "np"
    TypeHint = np.ndarray

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> tuple[str, np.ndarray]:
        """Encode an array, or a value that NumPy can convert to one. The values of a list are kept:
        NumPy would convert some of them.
        """
        array = plain_array(payload)
        is_list = isinstance(payload, list | tuple)
        if is_list and array.dtype.kind in _NUMPY_TEXT_KINDS:
            # NumPy has removed trailing zero bytes, and has converted numbers to text.
            array = plain_array(payload, object)
        elif is_list and array.dtype.kind == "f":
            # NumPy has converted integers to floats if they need 64 bits without a sign.
            array = restore_integers(payload, array)
        return datatype_name(array.dtype), to_tensor_shape(array)

    @classmethod
    def decode(cls, tensor: Tensor) -> np.ndarray:
        """Return a writable array of the tensor's shape. Raise InvalidInput if a BYTES tensor
        contains null.
        """
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
