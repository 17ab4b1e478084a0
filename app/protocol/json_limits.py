"""Limits for JSON, which are checked in its text before a parser creates objects (R20).

An empty list has two characters in JSON, and 56 bytes in memory. A parser would need gigabytes for
a body of MAX_REQUEST_BYTES that consists of empty lists. Valid requests need only few objects and
lists:

    objects    the request and its parameters, and each input and output and its parameters
    lists      the inputs and the outputs, and for each input, the shape and the data

Nested `data` can have millions of lists, one for each row. json_rows.py flattens rows of numbers
before the lists are counted. Rows of texts, which it does not flatten, are limited.

The check reads only brackets outside strings:

    text        {"inputs": [{"name": "a[b", "shape": [2, 1], "data": [[1], [2]]}]}
    brackets    {[{[][[][]]}]}

The text may be malformed. Up to the first error, the check and a parser agree on what is a string,
so that no more objects are created than were counted.
"""

import numpy as np

from app.protocol.envelope import MAX_TENSORS
from app.protocol.errors import InvalidInput

MAX_DEPTH = 64
# As many as a request with MAX_TENSORS inputs and MAX_TENSORS outputs has.
MAX_OBJECTS = 2 + 4 * MAX_TENSORS
# Four times as many as such a request has. Nested lists of this number need 54 MiB.
MAX_LISTS = 2**19

# Below this size, bytes.count() is as fast as a search with find().
_MIN_SEARCHED_SIZE = 2**12
# Up to this number of brackets and quotes, bytes.split() is faster than NumPy.
_MAX_SPLIT_LENGTH = 2**12
# Bytes that NumPy processes at a time, which limits its memory.
_BLOCK_SIZE = 2**16

_ALL_BUT_QUOTES_AND_BRACKETS = bytes(set(range(256)) - set(b'"[]{}'))
_BRACES_TO_BRACKETS = bytes.maketrans(b"{}", b"[]")
_QUOTE = ord('"')


def check_limits(text: bytes) -> None:
    """Raise InvalidInput if the JSON has too many levels, objects or lists."""
    # Most requests have so few brackets, even with those in strings, that they exceed no limit.
    brackets = _count(text, b"[", limit=MAX_DEPTH) + _count(text, b"{", limit=MAX_DEPTH)
    if brackets <= MAX_DEPTH:
        return

    structure = _brackets_outside_strings(text)
    _check_structure_depth(structure)
    if structure.count(b"{") > MAX_OBJECTS:
        raise InvalidInput("too many objects in the JSON", expected=f"at most {MAX_OBJECTS}")
    if structure.count(b"[") > MAX_LISTS:
        raise InvalidInput(
            "too many lists in the JSON",
            expected=f"at most {MAX_LISTS}",
            remedy="send data as a flat list, or as binary tensors",
        )


def check_depth(text: bytes) -> None:
    """Raise InvalidInput if the JSON has too many levels."""
    _check_structure_depth(_brackets_outside_strings(text))


def _check_structure_depth(structure: bytes) -> None:
    if _depth(structure) > MAX_DEPTH:
        raise InvalidInput("JSON nested too deeply", expected=f"at most {MAX_DEPTH} levels")


def _count(text: bytes, octet: bytes, limit: int) -> int:
    """Count an octet in `text`. Stop at limit + 1.

    For long texts, find() is 20 times as fast as bytes.count().
    """
    if len(text) < _MIN_SEARCHED_SIZE:
        return text.count(octet)
    count = 0
    position = text.find(octet)
    while position >= 0 and count <= limit:
        count += 1
        position = text.find(octet, position + 1)
    return count


def _brackets_outside_strings(text: bytes) -> bytes:
    """Return the brackets and braces of JSON, without those in strings."""
    if b"\\" in text:
        # Remove escaped backslashes first: in `\\"`, the quote is not escaped.
        text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = text.translate(None, _ALL_BUT_QUOTES_AND_BRACKETS)
    if len(marks) <= _MAX_SPLIT_LENGTH:
        return b"".join(marks.split(b'"')[::2])

    parts = []
    is_in_string = False
    for start in range(0, len(marks), _BLOCK_SIZE):
        block = np.frombuffer(marks[start : start + _BLOCK_SIZE], np.uint8)
        # True from each opening quote to the character before its closing quote.
        in_string = np.logical_xor.accumulate(block == _QUOTE) ^ is_in_string
        is_in_string = bool(in_string[-1])
        parts.append(block[~in_string].tobytes())
    return b"".join(parts).translate(None, b'"')


def _depth(structure: bytes) -> int:
    """Return the nesting depth: the maximum number of open brackets."""
    depth = 0
    level = 0
    brackets = structure.translate(_BRACES_TO_BRACKETS)
    for start in range(0, len(brackets), _BLOCK_SIZE):
        block = np.frombuffer(brackets[start : start + _BLOCK_SIZE], np.uint8)
        levels = level + np.where(block == ord("["), 1, -1).cumsum()
        depth = max(depth, int(levels.max()))
        level = int(levels[-1])
    return depth
