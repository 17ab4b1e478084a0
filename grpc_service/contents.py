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

# So many are an array sooner by way of a list.
FEW = 32
# Fields whose packed form on the wire is the array's own bytes.
PACKED = {name: number_of(InferTensorContents, name) for name in ("bool_contents", "fp32_contents", "fp64_contents")}


def from_contents(contents: Any, datatype: Datatype, shape: Sequence[int]) -> np.ndarray:
    """The tensor of `shape` in `contents`; InvalidInput for another field or count than it needs (G3)."""
    if datatype.contents is None:
        raise InvalidInput(f"{datatype.name} has no contents", subject="data", remedy="use raw_input_contents")
    values: Any = []
    for sent, values in contents.ListFields():  # noqa: B007 - there is one, or none
        if sent.name != datatype.contents:
            raise InvalidInput(subject="data", expected=f"{datatype.contents} for {datatype.name}", got=sent.name)
    check_count(shape, len(values))
    if datatype.kind == "O":
        return reshape(object_array(values), shape)
    if len(values) <= FEW:
        values = values[:]
    elif datatype.contents in PACKED and not hasattr(values, "__array__"):  # protobuf before 7 gives them one by one
        contents.DiscardUnknownFields()  # or they would follow
        packed = contents.SerializeToString()
        array = np.frombuffer(packed, datatype.dtype, offset=len(packed) - len(values) * datatype.dtype.itemsize)
        return reshape(array.copy(), shape)
    array = np.asarray(values, CONTENTS_DTYPES.get(datatype.contents, datatype.dtype))
    if array.dtype != datatype.dtype:
        array = narrow(array, datatype)
    return reshape(array, shape)


# The fields that serve several datatypes, in 32 bits.
CONTENTS_DTYPES = {"int_contents": np.dtype("<i4"), "uint_contents": np.dtype("<u4")}


def to_contents(array: np.ndarray, datatype: Datatype) -> Sequence[Buffer]:
    """The contents message of `array`, in parts. Raises InvalidInput for a None."""
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
