"""Inputs and outputs: named arrays with a datatype, independent of the transport."""

from base64 import b64encode
from typing import Any, Self

import numpy as np

from app.protocol.datatypes import (
    Shape,
    as_array,
    check_count,
    check_shape,
    datatype_of,
    object_array,
    reshape,
)
from app.protocol.envelope import JsonObject, to_parameters
from app.protocol.errors import InvalidInput
from app.protocol.json_tensors import RAW, from_base64


class Tensor:
    """A named array with a datatype.

    `data` is required. It is an ndarray, or a value that NumPy can convert to one, such as a list.
    `shape` defaults to the shape of `data`. The elements of a BYTES tensor are bytes, str, or None
    for null in JSON. `missing` is a text that stands for null in binary form. It is not sent itself
    (C13). Raise InvalidInput if the datatype is unknown, or if the shape does not match the data.
    """

    __slots__ = ("data", "datatype", "missing", "name", "parameters")
    # The noun in error messages, as in `Input "x": invalid shape`.
    kind = "tensor"

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: Shape | None = None,
        data: Any = ...,
        parameters: JsonObject | None = None,
        missing: str | None = None,
    ):
        if data is ...:
            error = InvalidInput(
                "missing data", remedy="use data=..., because the third argument is the shape"
            )
            raise error.about(self.kind, name)
        array = as_array(data, datatype_of(datatype))
        if shape is not None and array.shape != tuple(shape):
            check_count(check_shape(shape), array.size)
            array = reshape(array, shape)
        self.name = name
        self.datatype = datatype
        self.data = array
        self.parameters: JsonObject = to_parameters(parameters)
        self.missing = missing

    @classmethod
    def of(
        cls,
        name: str,
        datatype: str,
        array: np.ndarray,
        parameters: JsonObject,
        missing: str | None = None,
    ) -> Self:
        """Create a tensor without validation. `array` must have the dtype of `datatype`."""
        tensor = cls.__new__(cls)
        tensor.name = name
        tensor.datatype = datatype
        tensor.data = array
        tensor.parameters = parameters
        tensor.missing = missing
        return tensor

    def elements(self) -> list[Any]:
        """Return the elements in row-major order, with None for missing values (C13)."""
        elements: list[Any] = self.data.ravel().tolist()
        if self.missing is None:
            return elements
        missing_values = (self.missing, self.missing.encode())
        return [None if element in missing_values else element for element in elements]

    def wire_data(self, is_binary: bool) -> np.ndarray:
        """Return the array in binary or JSON form, which differ for content type `bytes` (C12) and
        for null (C13).
        """
        is_base64_in_json = self.datatype == "BYTES" and self.parameters.get("content_type") == RAW
        if self.missing is None and not is_base64_in_json:
            return self.data

        elements = self.elements()
        if is_base64_in_json:
            convert = _from_base64_text if is_binary else _to_base64_text
            elements = [convert(element) for element in elements]
        if is_binary:
            elements = [self.missing if element is None else element for element in elements]
        return object_array(elements).reshape(self.data.shape)

    @property
    def shape(self) -> list[int]:
        return list(self.data.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.datatype!r}, {self.shape}, ...)"


class RequestInput(Tensor):
    """An input of a request."""

    __slots__ = ()
    kind = "input"


class ResponseOutput(Tensor):
    """An output of a response."""

    __slots__ = ()
    kind = "output"


def _to_base64_text(element: Any) -> Any:
    """Return bytes as base64 text. Other elements are base64 text already, or None."""
    if isinstance(element, bytes):
        return b64encode(element).decode()
    return element


def _from_base64_text(element: Any) -> Any:
    """Return the bytes of base64 text. Other elements are bytes already, or None."""
    if isinstance(element, str):
        return from_base64(element)
    return element
