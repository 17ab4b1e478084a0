"""Requests and responses as HTTP bodies: a JSON envelope, blobs behind it (B3), and the headers that go with them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from typing import Any

import numpy as np
import orjson

from app.binary import Buffer, from_bytes, to_bytes
from app.datatypes import DATATYPES, Datatype
from app.errors import InvalidInput, shorten
from app.jsontensor import from_json, to_json

HEADER_LENGTH = "Inference-Header-Content-Length"
DEEPEST = 64
SHORT, BLOCK = 2**12, 2**20
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
TO_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
JSON = "application/json"
OCTETS = "application/octet-stream"


class Everything:
    """Contains whatever is asked for."""

    def __contains__(self, name: object) -> bool:
        return True


class Envelope:
    """What InferenceRequest and InferenceResponse do alike."""

    __slots__ = ()

    def head(self) -> dict[str, Any]:
        """The members before the tensors."""
        raise NotImplementedError

    def tensors(self) -> tuple[str, list[Any]]:
        """The tensors' member and the tensors."""
        raise NotImplementedError

    def to_http(self, binary: bool | Container[str] = True, nonfinite: str = "error") -> tuple[bytes, dict[str, str]]:
        """The body and its headers. `binary` says which tensors are blobs: all, none, or those it contains by name.

        `nonfinite` is the setting JSON_NONFINITE. Raises InvalidInput where a tensor has no such form (R12, R14).
        """
        if isinstance(binary, bool):
            binary = Everything() if binary else ()
        member, tensors = self.tensors()
        heads, blobs = write_tensors(tensors, binary, nonfinite)
        json = write_json({**self.head(), member: heads})
        if not blobs:
            return json, {"Content-Type": JSON}
        return b"".join([json, *blobs]), {"Content-Type": OCTETS, HEADER_LENGTH: str(len(json))}

    def to_json(self) -> bytes:
        """All of it as JSON; InvalidInput where a tensor has no JSON form."""
        return self.to_http(binary=False)[0]

    def to_dict(self) -> dict[str, Any]:
        """What `to_json` says, in Python's own types."""
        return orjson.loads(self.to_json())


def write_tensors(
    tensors: Iterable[Any], binary: Container[str], nonfinite: str
) -> tuple[list[dict[str, Any]], list[Buffer]]:
    """The members of the tensors, and the blobs of those that `binary` contains by name."""
    heads, blobs = [], []
    for tensor in tensors:
        head, datatype = tensor_head(tensor), DATATYPES[tensor.datatype]
        try:
            if tensor.name in binary:
                blobs.append(to_bytes(tensor.data, datatype))
                head["parameters"] = {**tensor.parameters, "binary_data_size": len(blobs[-1])}
            else:
                head["data"] = to_json(tensor.data, datatype, nonfinite)
        except InvalidInput as error:
            raise error.about(f'{tensor.kind} "{tensor.name}"') from None
        heads.append(head)
    return heads, blobs


def tensor_head(tensor: Any) -> dict[str, Any]:
    """All of a tensor, or of a MetadataTensor, but data."""
    head = {"name": tensor.name, "shape": tensor.shape, "datatype": tensor.datatype}
    if tensor.parameters:
        head["parameters"] = tensor.parameters
    return head


def read_tensors(heads: Iterable[dict[str, Any]], blobs: Buffer, make: Any) -> list[Any]:
    """The tensors, of the class `make`, whose members are checked already: `datatype` is a Datatype.

    `blobs` is what follows the JSON. Raises InvalidInput, led by the tensor's kind and name (B2, B5, R9-R12).
    """
    tensors, position = [], 0
    for head in heads:
        parameters = dict(head["parameters"] or {})
        size = parameters.pop("binary_data_size", None)  # of the body that came, not of the tensor
        try:
            data = read_data(
                head["datatype"], head["shape"], head["data"], size, blobs[position : position + (size or 0)]
            )
        except InvalidInput as error:
            raise error.about(f'{make.kind} "{head["name"]}"') from None
        position += size or 0
        tensors.append(make.of(head["name"], head["datatype"].name, data, parameters))
    if position != len(blobs):
        raise InvalidInput(f"{len(blobs) - position} bytes follow the last {make.kind}'s data")
    return tensors


def read_data(datatype: Datatype, shape: list[int], data: Any, size: int | None, blob: Buffer) -> Any:
    """The array in `data`, or in `blob` where binary_data_size says `size` (B2)."""
    if size is None:
        if data is None:
            raise InvalidInput("data: missing, and so is binary_data_size")
        return from_json(data, datatype, shape)
    if data is not None:
        raise InvalidInput("data: expected none beside binary_data_size")
    if len(blob) != size:
        raise InvalidInput(f"data: binary_data_size is {size}, and {len(blob)} bytes are left of the body")
    return from_bytes(blob, datatype, shape)


def split_body(body: bytes, header_length: int | None) -> tuple[bytes, Buffer]:
    """The JSON of a body and the blobs behind it; all is JSON where no length is stated (B4)."""
    if header_length is None:
        return body, b""
    return body[:header_length], memoryview(body)[header_length:]


def read_json(text: bytes) -> Any:
    """The JSON value of `text`; InvalidInput where it is none, or nested deeper than 64 (R20)."""
    if not text:
        raise InvalidInput("the body is empty; expected a JSON object")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"the body is not JSON: {fault(text, error)}") from None
    if count(text, b"[", DEEPEST) + count(text, b"{", DEEPEST) > DEEPEST and depth(text) > DEEPEST:
        raise InvalidInput(f"the body is nested deeper than {DEEPEST}")
    return value


def fault(text: bytes, error: orjson.JSONDecodeError) -> str:
    """What orjson says is wrong, and what it does not say; it has no document of what is not UTF-8."""
    if not error.doc:
        try:
            text.decode()
        except UnicodeDecodeError as wrong:
            return f"byte {wrong.start}, 0x{text[wrong.start]:02x}, is not UTF-8"
    return f"{error}; JSON has null for NaN" if error.doc[error.pos : error.pos + 3] == "NaN" else str(error)


def count(text: bytes, octet: bytes, most: int) -> int:
    """How often `octet` comes; more than `most` times is one more. find() is twenty times as quick as bytes.count()."""
    if len(text) < SHORT:
        return text.count(octet)
    found, position = 0, text.find(octet)
    while position >= 0 and found <= most:
        found, position = found + 1, text.find(octet, position + 1)
    return found


def depth(text: bytes) -> int:
    """How deep valid JSON is nested: how many brackets are open at once, at most."""
    is_plain = len(text) < BLOCK and b"\\" not in text  # a list of pieces takes many times the text's memory
    outside = b"".join(text.split(b'"')[::2]) if is_plain else STRING.sub(b"", text)
    brackets = outside.translate(TO_SQUARE, NO_BRACKETS)
    deepest = level = 0
    for start in range(0, len(brackets), BLOCK):
        opens = np.frombuffer(brackets[start : start + BLOCK], np.uint8) == ord("[")
        levels = level + np.where(opens, 1, -1).cumsum()
        deepest, level = max(deepest, int(levels.max())), int(levels[-1])
    return deepest


def write_json(value: Any) -> bytes:
    """`value` as JSON; InvalidInput where it holds what is no Unicode text."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError as error:
        raise InvalidInput(f"no JSON can say it: {error}") from None


def stated_length(text: str | None, body_length: int) -> int | None:
    """The JSON's length as the header's `text` states it; None where there is no header (B4).

    Raises InvalidInput for what is no length within the body.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= body_length):
        raise InvalidInput(
            f"{HEADER_LENGTH}: expected the length of the JSON, 0 to {body_length}; got {shorten(repr(text))}"
        )
    return int(text)
