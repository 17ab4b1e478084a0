"""`str`, `bytes` and `base64`: lists of str and of bytes (C7, C12)."""

import typing
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from app.codecs.base import (
    FirstTensorCodec,
    InputCodec,
    register_input_codec,
    register_request_codec,
    to_tensor_shape,
)
from app.protocol.datatypes import as_texts, bytes_array, object_array
from app.protocol.errors import InvalidInput
from app.protocol.json_tensors import RAW, from_base64
from app.protocol.tensors import Tensor


def as_list(payload: Any) -> list[Any]:
    """Return the elements of a sequence, iterator, array or pandas column.

    Another value, such as a str or a dict, is a list of one element (C7).
    """
    if isinstance(payload, np.ndarray):
        return payload.ravel().tolist()
    if isinstance(payload, str | bytes):
        return [payload]
    if isinstance(payload, Sequence | Iterator):
        return list(payload)

    is_column = hasattr(payload, "dtype") and isinstance(payload, Iterable)
    if is_column:
        return list(payload)
    return [payload]


def text_list(elements: list[bytes | str | None]) -> list[str | None]:
    """Decode bytes elements as UTF-8. Raise InvalidInput if one is not valid UTF-8."""
    try:
        return as_texts(elements)
    except UnicodeDecodeError as error:
        raise InvalidInput(subject="data", expected="UTF-8 text", got=error.object) from None


def text_tensor(elements: list[Any], use_bytes: bool) -> tuple[str, np.ndarray]:
    """Return the datatype BYTES and an array [N,1] of bytes, or of str if `use_bytes` is False."""
    if not use_bytes:
        return "BYTES", to_tensor_shape(object_array(text_list(elements)))
    return "BYTES", to_tensor_shape(bytes_array(object_array(elements)))


class TextCodec(InputCodec):
    """Base class for codecs between a BYTES tensor and a list with one value per element.

    TypeHint is the type of the list, such as list[str].
    """

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        if not isinstance(payload, list):
            return False
        element_types = typing.get_args(cls.TypeHint)
        if not element_types:  # `list`, which can have any elements
            return True
        return all(isinstance(element, element_types) for element in payload)

    @classmethod
    def elements(cls, tensor: Tensor) -> list[bytes | str | None]:
        """Return the elements, with None for missing values.

        Raise InvalidInput if the datatype is not BYTES.
        """
        if tensor.datatype != "BYTES":
            expected = f"BYTES for content type {cls.ContentType}"
            raise InvalidInput(subject="datatype", expected=expected, got=tensor.datatype)
        return tensor.elements()

    @classmethod
    def texts(cls, tensor: Tensor) -> list[str | None]:
        """Return the elements of `tensor` as str, with None for missing values."""
        return text_list(cls.elements(tensor))


@register_input_codec
class StringCodec(TextCodec):
    """Lists of str. None is null in JSON."""

    ContentType = "str"
    TypeHint = list[str]

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        return text_tensor(text_list(as_list(payload)), use_bytes)

    @classmethod
    def decode(cls, tensor: Tensor) -> list[str | None]:
        return cls.texts(tensor)


@register_request_codec
class StringRequestCodec(FirstTensorCodec):
    """The first tensor as a list of str."""

    InputCodec = StringCodec
    ContentType = StringCodec.ContentType
    TypeHint = list[str]


@register_input_codec
class BytesCodec(TextCodec):
    """Lists of bytes. Their JSON form is base64 text: str elements of a tensor."""

    ContentType = RAW
    TypeHint = list[bytes]

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        """Encode bytes, or the UTF-8 encoding of str.

        The array contains bytes even if `use_bytes` is False: the JSON form of the tensor encodes
        them as base64 text.
        """
        array = bytes_array(object_array(as_list(payload)))
        if None in array.tolist():
            raise InvalidInput(
                subject="data", expected=f"bytes or text for {cls.ContentType}", got="None"
            )
        return "BYTES", to_tensor_shape(array)

    @classmethod
    def decode(cls, tensor: Tensor) -> list[bytes]:
        values = []
        for element in cls.elements(tensor):
            if isinstance(element, bytes):
                values.append(element)
            else:  # base64 text from JSON, or None, which from_base64() rejects
                values.append(from_base64(element))
        return values


@register_input_codec
class Base64Codec(BytesCodec):
    """Lists of bytes, encoded as base64 text in JSON and in binary form."""

    ContentType = "base64"
    REMEDY = 'send base64 text, or declare content_type="bytes" in METADATA for raw bytes'

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        _, array = super().encode(payload)
        texts = [b64encode(element) for element in array.ravel().tolist()]
        return text_tensor(texts, use_bytes)

    @classmethod
    def decode(cls, tensor: Tensor) -> list[bytes]:
        return [from_base64(element, cls.REMEDY) for element in cls.elements(tensor)]
