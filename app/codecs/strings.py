"""`str` and `base64`: lists of text and of bytes (C7)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import numpy as np

from app.codecs.base import (
    FirstTensorCodec,
    InputCodec,
    batch,
    need_bytes,
    register_input_codec,
    register_request_codec,
)
from app.datatypes import bytes_array, object_array
from app.errors import InvalidInput, shorten
from app.types import Tensor


def as_list(payload: Any) -> list:
    """`payload` flat; a bare scalar is a list of one."""
    if isinstance(payload, np.ndarray):
        return payload.ravel().tolist()
    if isinstance(payload, str | bytes) or not isinstance(payload, Iterable):
        return [payload]
    return list(payload)


def is_list_of(payload: Any, kind: type) -> bool:
    return isinstance(payload, list) and all(isinstance(each, kind) for each in payload)


def text_list(elements: list[bytes | str | None]) -> list[str | None]:
    """`elements` as str, bytes being UTF-8; InvalidInput where they are not."""
    try:
        return [each.decode() if isinstance(each, bytes) else each for each in elements]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"data: not UTF-8 text: {shorten(repr(error.object))}") from None


@register_input_codec
class StringCodec(InputCodec):
    """A list of str, None among them where JSON has null."""

    ContentType = "str"
    TypeHint = list[str]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_list_of(payload, str)

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        """[N,1]; with `use_bytes` off, the array's elements are str."""
        array = object_array(text_list(as_list(payload)))
        return "BYTES", batch(bytes_array(array) if use_bytes else array)

    @classmethod
    def decode(cls, tensor: Tensor) -> list[str | None]:
        need_bytes(tensor, cls.ContentType)
        return text_list(tensor.data.ravel().tolist())


@register_request_codec
class StringRequestCodec(FirstTensorCodec):
    """The first tensor's strings."""

    InputCodec = StringCodec
    ContentType = StringCodec.ContentType
    TypeHint = list[str]


@register_input_codec
class Base64Codec(InputCodec):
    """A list of bytes, in base64 on the wire."""

    ContentType = "base64"
    TypeHint = list[bytes]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return is_list_of(payload, bytes)

    @classmethod
    def encode(cls, payload: Any, use_bytes: bool = True, **options: Any) -> tuple[str, np.ndarray]:
        """[N,1]; str elements stand for their ASCII bytes."""
        elements = bytes_array(object_array(as_list(payload))).tolist()
        if None in elements:
            raise InvalidInput("data: base64 has no form of None")
        texts = [base64.b64encode(each) for each in elements]
        return "BYTES", batch(object_array(texts if use_bytes else [each.decode() for each in texts]))

    @classmethod
    def decode(cls, tensor: Tensor) -> list[bytes]:
        need_bytes(tensor, cls.ContentType)
        try:
            return [base64.b64decode(each, validate=True) for each in tensor.data.ravel().tolist()]
        except (binascii.Error, ValueError, TypeError) as error:
            raise InvalidInput(f"data: not base64: {error}") from None
