"""JSON parsers: orjson, and pysimdjson for large lists of numbers.

pysimdjson writes numbers to arrays without a Python object per number. It is used only if the `data` of each input is a
flat list. `read_numbers` extracts these lists from the body, and orjson parses the small remainder. For all other
bodies and for errors, it returns None, and `read_json` parses the whole body.
"""

import re
from importlib import import_module
from typing import Any

import numpy as np
import orjson

from app.protocol.errors import InvalidInput

try:
    simdjson: Any = import_module("simdjson")
except ImportError:  # no wheel for this platform
    simdjson = None

MAX_DEPTH = 64
SHORT, BLOCK = 2**12, 2**20
STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
TO_SQUARE = bytes.maketrans(b"{}", b"[]")
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# Minimum size of a body and minimum average size of its lists in bytes. Below them, orjson is as fast.
MIN_BODY, MIN_LIST = 2**15, 2**10
# Types of simdjson and NumPy, by the first two letters of the datatype.
BUFFERS = {"FP": ("d", "<f8"), "BF": ("d", "<f8"), "IN": ("i", "<i8"), "UI": ("u", "<u8")}
DATA = b'"data"'
# The text after the name of the member `data`. The group matches only the start of a flat list.
LIST = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*(\[[ \t\r\n]*[^\[ \t\r\n])?")
PIECE = re.compile(
    rb"(?s).{1,65536}[^,]*"
)  # of a list, because simdjson needs memory of eight times its size


def read_json(text: bytes) -> Any:
    """Parse JSON. Raise InvalidInput if it is malformed, or nested deeper than 64 levels (R20)."""
    if not text:
        raise InvalidInput("empty body", expected="a JSON object")
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not error.doc:  # orjson reports no position
            remedy = "send a file as base64 text, or with Inference-Header-Content-Length: 0"
            raise InvalidInput("Invalid JSON: not UTF-8.", remedy=remedy) from None
        remedy = "use null for NaN" if error.doc[error.pos : error.pos + 3] == "NaN" else ""
        raise InvalidInput(f"Invalid JSON: {error}.", remedy=remedy) from None
    if (
        count(text, b"[", MAX_DEPTH) + count(text, b"{", MAX_DEPTH) > MAX_DEPTH
        and json_depth(text) > MAX_DEPTH
    ):
        raise InvalidInput("JSON nested too deeply", expected=f"at most {MAX_DEPTH} levels")
    return value


def count(text: bytes, octet: bytes, limit: int) -> int:
    """Count `octet` up to limit + 1. For long texts, find() is 20 times as fast as bytes.count()."""
    if len(text) < SHORT:
        return text.count(octet)
    found, position = 0, text.find(octet)
    while position >= 0 and found <= limit:
        found, position = found + 1, text.find(octet, position + 1)
    return found


def json_depth(text: bytes) -> int:
    """Return the nesting depth of valid JSON: the maximum number of open brackets."""
    is_plain = (
        len(text) < BLOCK and b"\\" not in text
    )  # for long texts, split() needs too much memory
    outside = b"".join(text.split(b'"')[::2]) if is_plain else STRING.sub(b"", text)
    brackets = outside.translate(TO_SQUARE, NO_BRACKETS)
    deepest = level = 0
    for start in range(0, len(brackets), BLOCK):
        opens = np.frombuffer(brackets[start : start + BLOCK], np.uint8) == ord("[")
        levels = level + np.where(opens, 1, -1).cumsum()
        deepest, level = max(deepest, int(levels.max())), int(levels[-1])
    return deepest


def read_numbers(text: bytes) -> Any:
    """Return the JSON value with arrays as `data`, or None if `read_json` must parse the body."""
    if simdjson is None or len(text) < MIN_BODY or text[:1] != b"{":
        return None
    try:
        rest, lists = cut_lists(text)
        value = read_json(rest)
        inputs = value["inputs"]
        if len(inputs) != len(lists):
            return None
        for tensor in inputs:
            tensor["data"] = read_list(lists[tensor["data"]], tensor["datatype"])
    except (InvalidInput, ValueError, RuntimeError, TypeError, LookupError, AttributeError):
        return None
    return value


def cut_lists(text: bytes) -> tuple[bytes, list[bytes]]:
    """Replace each list in `data` with 0, 1 and so on. Return the remaining text and the lists.

    Raise ValueError if the remaining text contains a backslash, because a string could then match DATA. A nested list
    is truncated, so that parsing it fails.
    """
    parts: list[bytes] = []
    lists: list[bytes] = []
    kept, found, looks = 0, text.find(DATA), 0
    while found >= 0:
        end, looks = found + len(DATA), looks + 1
        if member := LIST.match(text, end):
            if not member[1]:
                raise ValueError("data that is not a flat list")
            start, end = member.start(1), text.index(b"]", end) + 1
            parts += text[kept:start], b" %d " % len(lists)
            lists.append(text[start:end])
            kept = end
        if looks * MIN_LIST > len(text):
            raise ValueError("many short lists")
        found = text.find(DATA, end)
    rest = b"".join([*parts, text[kept:]])
    if b"\\" in rest:
        raise ValueError("a backslash")
    return rest, lists


def read_list(text: bytes, datatype: str) -> Any:
    """Parse a list. Return an array if the datatype is numeric. Raise ValueError or TypeError if it is invalid."""
    if datatype[:2] not in BUFFERS:
        return read_json(text)
    letter, dtype = BUFFERS[datatype[:2]]
    parser, arrays = simdjson.Parser(), []
    for piece in PIECE.finditer(
        text, 0, len(text) - 1
    ):  # the first one starts with "[", and the others with ","
        arrays.append(
            np.frombuffer(parser.parse(b"[%b]" % piece[0][1:]).as_buffer(of_type=letter), dtype)
        )
    if len(arrays) > 1 and not all(map(len, arrays)):
        raise ValueError("two commas")
    return np.concatenate(arrays)
