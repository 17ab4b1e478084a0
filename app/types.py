"""The protocol's own nouns: what a request, a response and a model are, whichever way they travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.datatypes import bytes_array, check_count, check_shape, datatype_of, reshape
from app.errors import InvalidInput, SetupError

Parameters = dict[str, Any]


class Tensor:
    """A named array. Its shape is the array's.

    `data` is an ndarray of the datatype's dtype, or anything numpy makes one of; `shape` may be left out where
    `data` has the wanted one. A BYTES tensor is an object array of bytes, made from str or bytes; None is JSON's null.
    Raises InvalidInput where the datatype is unknown or the shape does not fit the data.
    """

    __slots__ = ("data", "datatype", "name", "parameters")

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: Sequence[int] | None = None,
        data: Any = (),
        parameters: Parameters | None = None,
    ):
        dtype = datatype_of(datatype).dtype
        array = bytes_array(data) if dtype.hasobject else np.asarray(data, dtype)
        if shape is not None and array.shape != tuple(shape):
            check_count(check_shape(shape), array.size)
            array = reshape(array, shape)
        self.name = name
        self.datatype = datatype
        self.data = array
        self.parameters = parameters or {}

    @property
    def shape(self) -> list[int]:
        return list(self.data.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.datatype!r}, {self.shape}, ...)"


class RequestInput(Tensor):
    """A tensor on its way to the model."""


class ResponseOutput(Tensor):
    """A tensor on its way back."""


@dataclass(slots=True)
class RequestOutput:
    """An output that the client asks for."""

    name: str
    parameters: Parameters = field(default_factory=dict)


@dataclass(slots=True)
class InferenceRequest:
    """What a client asks; no `outputs` means all of them."""

    inputs: list[RequestInput]
    model_name: str | None = None
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)
    outputs: list[RequestOutput] = field(default_factory=list)


@dataclass(slots=True)
class InferenceResponse:
    """What the model answers."""

    outputs: list[ResponseOutput]
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)


@dataclass(slots=True)
class MetadataTensor:
    """An input or output that a model declares; -1 in `shape` is a dimension of any size."""

    name: str
    datatype: str
    shape: list[int]
    content_type: str | None = None

    def __post_init__(self) -> None:
        try:
            datatype_of(self.datatype)
            check_shape([0 if dimension == -1 else dimension for dimension in self.shape])
        except InvalidInput as error:
            raise SetupError(f'METADATA, tensor "{self.name}": {error}') from None

    @property
    def parameters(self) -> Parameters:
        return {"content_type": self.content_type} if self.content_type else {}


@dataclass(slots=True)
class ModelMetadata:
    """What a model says of itself."""

    name: str
    version: str
    platform: str
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]
    content_type: str | None = None
