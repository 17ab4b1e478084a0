"""Codecs: conversion between tensors or requests and Python values, by content type.

They are independent of the transports (C4).
"""

from app.codecs.arrays import NumpyCodec, NumpyRequestCodec
from app.codecs.base import (
    InputCodec,
    RequestCodec,
    find_input_codec,
    find_request_codec,
    input_codecs,
    register_input_codec,
    register_request_codec,
    request_codecs,
)
from app.codecs.datetimes import DatetimeCodec
from app.codecs.frames import PandasCodec, PandasJsonCodec
from app.codecs.strings import Base64Codec, BytesCodec, StringCodec, StringRequestCodec

# Built-in content types. Projects can register others.
SHIPPED = frozenset(input_codecs) | frozenset(request_codecs)

__all__ = [
    "SHIPPED",
    "Base64Codec",
    "BytesCodec",
    "DatetimeCodec",
    "InputCodec",
    "NumpyCodec",
    "NumpyRequestCodec",
    "PandasCodec",
    "PandasJsonCodec",
    "RequestCodec",
    "StringCodec",
    "StringRequestCodec",
    "find_input_codec",
    "find_request_codec",
    "register_input_codec",
    "register_request_codec",
]
