"""Estimates of the memory that a request needs, in bytes.

A request has three stages. An estimate is an upper bound for hostile requests, too:

    decoding    the body, and the objects that a parser makes of it
    predict()   the decoded tensors, and the values that predict() gets
    encoding    the same, the outputs, and the body of the response

The memory depends less on the size of a body than on the number of values in it. Python needs about
60 bytes for each short text or list, and 30 for each number. So the estimates count values. In
JSON, they count characters instead, because that needs no parser: numbers are separated by commas,
texts have two quotes, and lists have a bracket. Such characters inside texts are counted, too.

`python -m dev.benchmarks.factors` measures what requests need.
"""

from collections.abc import Iterable

import numpy as np

from app.codecs import PandasJsonCodec
from app.protocol.messages import Binary
from app.protocol.tensors import ResponseOutput, Tensor

# JSON: of each byte, comma, pair of quotes and bracket. A character that is not ASCII can have four
# bytes in Python, and makes all others of its text as large.
_JSON_BYTE = 6
_UNICODE_JSON_BYTE = 12
_COMMA = 64
_JSON_TEXT = 150
_BRACKET = 100

_ESCAPE = b"\\u"

# Binary data, for each byte. Elements of BYTES have at least a length of four bytes and a character
# or two, of which Python makes an object.
_BINARY_BYTE = 2
_BYTES_TENSOR_BYTE = 12

# Messages of gRPC, for each byte. In the typed form, a byte can be a number of eight bytes.
_RAW_BYTE = 4
_TYPED_BYTE = 30

# Decoded tensors. Codecs such as `pd` and `str` make a second value of each.
_TENSOR_BYTE = 2
_DECODED_TEXT = 140
# Each text of `pd_json` is JSON, which can contain many lists.
_PD_JSON_BYTE = 28

# Outputs: the response is a copy. In JSON, each number is an object and a text.
_OUTPUT_BYTE = 2
_NUMBER_IN_JSON = 32


def json_cost(text: bytes) -> int:
    """Return the memory for decoding JSON."""
    byte_cost = _JSON_BYTE
    if not text.isascii() or _ESCAPE in text:
        byte_cost = _UNICODE_JSON_BYTE
    texts = text.count(b'"') // 2
    brackets = text.count(b"[") + text.count(b"{")
    return (
        byte_cost * len(text) + _COMMA * text.count(b",") + _JSON_TEXT * texts + _BRACKET * brackets
    )


def binary_cost(size: int, json: bytes) -> int:
    """Return the memory for decoding `size` bytes of binary data that `json` describes."""
    can_have_texts = b"BYTES" in json or _ESCAPE in json  # an escape can hide the datatype
    return (_BYTES_TENSOR_BYTE if can_have_texts else _BINARY_BYTE) * size


def message_cost(raw_bytes: int, other_bytes: int) -> int:
    """Return the memory for decoding a message of gRPC.

    raw_bytes: the size of its raw contents
    other_bytes: the size of the rest, which contains the typed contents
    """
    return _RAW_BYTE * raw_bytes + _TYPED_BYTE * other_bytes


def inputs_cost(tensors: Iterable[Tensor]) -> int:
    """Return the memory of decoded inputs, and of the values that predict() gets."""
    cost = 0
    for tensor in tensors:
        size = _size(tensor.data)
        cost += _TENSOR_BYTE * size
        if tensor.data.dtype == object:
            cost += _DECODED_TEXT * tensor.data.size
        if tensor.parameters.get("content_type") == PandasJsonCodec.ContentType:
            cost += _PD_JSON_BYTE * size
    return cost


def outputs_cost(outputs: Iterable[ResponseOutput], binary: Binary) -> int:
    """Return the memory of outputs and of their response.

    `binary` is True if all of them will have the binary form, or the names of those.
    """
    cost = 0
    for output in outputs:
        cost += _OUTPUT_BYTE * _size(output.data)
        if output.data.dtype == object:
            cost += _DECODED_TEXT * output.data.size
        elif not _has_binary_form(binary, output.name):
            cost += _NUMBER_IN_JSON * output.data.size
    return cost


def _has_binary_form(binary: Binary, name: str) -> bool:
    return binary is True or bool(binary and name in binary)


def _size(data: np.ndarray) -> int:
    """Return the size of an array. That of an array of objects includes the texts in it."""
    if data.dtype != object:
        return data.nbytes
    return data.nbytes + sum(len(element) for element in data.flat if element is not None)
