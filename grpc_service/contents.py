"""The typed form of a tensor: InferTensorContents ↔ ndarray, each datatype in its own field (G3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from app.binary import Buffer, to_bytes
from app.datatypes import Datatype, check_count, narrow, object_array, octets, reshape
from app.errors import InvalidInput, NoBinaryForm
from grpc_service.messages import InferTensorContents, number_of
from grpc_service.wire import field

# Up to this number of elements, a list is faster than protobuf's array.
FEW = 32
# Fields with the same bytes in a message as in an array.
PACKED = {name: number_of(InferTensorContents, name) for name in ("bool_contents", "fp32_contents", "fp64_contents")}
# Fields of several datatypes have 32 bits.
CONTENTS_DTYPES = {"int_contents": np.dtype("<i4"), "uint_contents": np.dtype("<u4")}


def from_contents(contents: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """Return the tensor of `shape`. Raise InvalidInput for the field of another datatype, or a wrong count (G3)."""
    if datatype.contents is None:
        raise InvalidInput(f"{datatype.name} has no contents", subject="data", remedy="use raw_input_contents")
    values: Any = []
    for sent, values in contents.ListFields():  # noqa: B007 - at most one
        if sent.name != datatype.contents:
            raise InvalidInput(subject="data", expected=f"{datatype.contents} for {datatype.name}", got=sent.name)
    check_count(shape, len(values))
    if datatype.kind == "O":
        return reshape(object_array(values), shape)
    if len(values) <= FEW or not hasattr(values, "__array__"):  # protobuf before 7 has no arrays
        values = values[:]
    array = np.asarray(values, CONTENTS_DTYPES.get(datatype.contents, datatype.dtype))
    return reshape(array if array.dtype == datatype.dtype else narrow(array, datatype), shape)


def to_contents(array: np.ndarray, datatype: Datatype) -> Sequence[Buffer]:
    """Return the contents message of `array`, in parts. Raise InvalidInput for None."""
    if not array.size:
        return ()
    if datatype.contents in PACKED:
        return field(PACKED[datatype.contents], to_bytes(array, datatype))
    elements = array.ravel().tolist()
    if datatype.kind == "O":
        elements = octets(elements)
        if None in elements:
            raise NoBinaryForm
    return (InferTensorContents(**{str(datatype.contents): elements}).SerializeToString(),)
