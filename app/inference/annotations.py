"""The annotations that a parameter of predict() for one input can have.

A codec decodes the input first. The annotation then converts the decoded value to the annotated
type:

| Annotation             | Datatype in METADATA | Content type, if nothing else sets one |
|------------------------|----------------------|----------------------------------------|
| np.ndarray             | any                  | np                                     |
| NDArray[bfloat16]      | BF16                 | np                                     |
| list[str]              | BYTES                | str                                    |
| list[bytes]            | BYTES                | np                                     |
| list[datetime]         | BYTES                | datetime                               |
| a class of the project | any                  | the one of METADATA (C10)              |
"""

from collections.abc import Hashable
from datetime import datetime
from typing import Any

import numpy as np

from app.codecs import SHIPPED
from app.codecs.arrays import writable_copy
from app.codecs.base import input_codecs
from app.codecs.datetimes import parse_datetime
from app.codecs.strings import as_list, text_list
from app.protocol.datatypes import as_bytes, object_array
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import Tensor


class Annotation:
    """The base class of the annotations.

    - name: the type in error messages.
    - content_type: applies if neither the request nor METADATA sets one (place 4 of C2).
    - datatype: the datatype that the input must have in METADATA, or None for any.
    """

    name: str
    content_type: str
    datatype: str | None = None

    def convert(self, value: Any, tensor: Tensor) -> Any:
        """Return the argument for the decoded value of `tensor`, or None if the value cannot be
        converted.
        """
        raise NotImplementedError


class ArrayAnnotation(Annotation):
    name = "np.ndarray"
    content_type = "np"

    def convert(self, value: Any, tensor: Tensor) -> np.ndarray | None:
        if isinstance(value, np.ndarray):
            return writable_copy(value)
        if isinstance(value, list) and len(value) == tensor.data.size:
            return object_array(value).reshape(tensor.data.shape)
        return None


class Bfloat16Annotation(Annotation):
    """An array of ml_dtypes.bfloat16. The service itself represents BF16 as float32 (R23)."""

    name = "np.ndarray"
    content_type = "np"
    datatype = "BF16"

    def __init__(self, dtype: np.dtype):
        self._dtype = dtype

    def convert(self, value: Any, tensor: Tensor) -> np.ndarray | None:
        if isinstance(value, np.ndarray):
            return value.astype(self._dtype)
        return None


class TextAnnotation(Annotation):
    name = "list[str]"
    content_type = "str"
    datatype = "BYTES"

    def convert(self, value: Any, tensor: Tensor) -> list[str | None] | None:
        elements = text_list(as_list(value))
        if _types_of(elements) <= {str, type(None)}:
            return elements
        return None


class BytesAnnotation(Annotation):
    name = "list[bytes]"
    # There is no content type for bytes of an unknown encoding. `np` leaves them unchanged.
    content_type = "np"
    datatype = "BYTES"

    def convert(self, value: Any, tensor: Tensor) -> list[bytes | None] | None:
        elements = as_list(value)
        types = _types_of(elements)
        if tensor.missing is not None:
            types.discard(type(None))
        if types <= {str, bytes}:
            return as_bytes(elements)
        return None


class DatetimeAnnotation(Annotation):
    name = "list[datetime]"
    content_type = "datetime"
    datatype = "BYTES"

    def convert(self, value: Any, tensor: Tensor) -> list[datetime | None] | None:
        elements: list[Any] = text_list(as_list(value))
        types = _types_of(elements)
        if tensor.missing is not None:
            types.discard(type(None))
        if types <= {str}:
            return [None if text is None else parse_datetime(text) for text in elements]
        if all(issubclass(element_type, datetime) for element_type in types):
            return elements
        return None


class CustomAnnotation(Annotation):
    """A class of the project.

    The project's codec for the input's content type returns its instances.
    """

    def __init__(self, value_class: type, content_type: str):
        self.name = value_class.__name__
        self.content_type = content_type
        self._value_class = value_class

    def convert(self, value: Any, tensor: Tensor) -> Any:
        if isinstance(value, self._value_class):
            return value
        return None


ANNOTATIONS: dict[Any, Annotation] = {
    np.ndarray: ArrayAnnotation(),
    list[str]: TextAnnotation(),
    list[bytes]: BytesAnnotation(),
    list[datetime]: DatetimeAnnotation(),
}


def find_annotation(annotation: Any, tensor: MetadataTensor) -> Annotation | None:
    """Return the annotation for one input, as simplify_annotation() returns it.

    None: it is not supported.
    """
    if isinstance(annotation, np.dtype):  # bfloat16
        return Bfloat16Annotation(annotation)
    if isinstance(annotation, Hashable) and annotation in ANNOTATIONS:
        return ANNOTATIONS[annotation]

    content_type = tensor.content_type
    is_custom = content_type not in SHIPPED and content_type in input_codecs
    if content_type is not None and is_custom and isinstance(annotation, type):
        return CustomAnnotation(annotation, content_type)
    return None


def _types_of(elements: list[Any]) -> set[type]:
    return set(map(type, elements))
