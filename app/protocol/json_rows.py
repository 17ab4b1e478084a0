"""Rows of numbers in JSON, which are flattened in its text before it is parsed.

`data` of a tensor may be nested (R10). A parser creates a list for each row, which takes far more
memory and time than the numbers. The order of the elements remains the same without these lists:

    "data": [[1, 2], [3, 4]]    →    "data": [1, 2, 3, 4]

Data is flattened only if it is rectangular, and if no element is a string or an object. So no
quotes or braces precede its last bracket. If the data is not flattened, the parser finds the
errors in it.

The structure of data shows whether it is rectangular. It consists of brackets and commas, and is
compared with the repetition of its first row:

    data         [[1, 2], [3, 4], [5, 6]]
    structure    [[,],[,],[,]]
    first row     [,]
"""

import re

from app.protocol.envelope import MAX_TENSORS
from app.protocol.json_limits import MAX_DEPTH, check_depth

# For smaller bodies, flattening saves no time.
MIN_BODY = 2**15

_NESTED_DATA = re.compile(rb'"data"[ \t\r\n]*:[ \t\r\n]*(\[[ \t\r\n]*\[)')
_WHITESPACE = b" \t\r\n"
_BRACKETS = b"[]"
# Translates each octet of an element to 0.
_ELEMENTS_TO_ZEROS = bytes(octet if octet in b"[]," else ord("0") for octet in range(256))


def flatten_rows(text: bytes) -> bytes:
    """Return JSON with flat lists instead of rectangular nested lists in `data`.

    Return `text` itself if there are none, or if it is small. Raise InvalidInput if flattened text
    was nested too deeply (R20), because read_json() cannot detect this afterwards.
    """
    if len(text) < MIN_BODY:
        return text

    parts = []
    end = 0
    for index, match in enumerate(_NESTED_DATA.finditer(text)):
        if index == MAX_TENSORS:  # the request is invalid
            return text
        start = match.start(1)
        stop = _end_of_rows(text, start)
        rows = text[start:stop]
        if _is_rectangular(rows):
            parts.append(text[end:start])
            parts.append(b"[%b]" % rows.translate(None, _BRACKETS))
            end = stop
    if not parts:
        return text

    check_depth(text)
    parts.append(text[end:])
    return b"".join(parts)


def _end_of_rows(text: bytes, start: int) -> int:
    """Return the position after the last closing bracket before a string or the end of an object.

    Return 0 if there is none.
    """
    end = text.find(b'"', start)
    if end < 0:
        end = len(text)
    brace = text.find(b"}", start, end)
    if brace >= 0:
        end = brace
    return text.rfind(b"]", start, end) + 1


def _is_rectangular(data: bytes) -> bool:
    """Return True for nested lists whose lists have equal lengths and are not empty.

    True does not mean that the elements, and the commas between them, are valid.
    """
    tokens = data.translate(_ELEMENTS_TO_ZEROS, _WHITESPACE)
    # A bracket without a comma next to an element, and empty lists.
    if b"]0" in tokens or b"0[" in tokens or b"[]" in tokens:
        return False

    structure = tokens.translate(None, b"0")
    rank = len(structure) - len(structure.lstrip(b"["))
    if not 1 < rank < MAX_DEPTH:
        return False

    # From the first row outwards: each list must be the repetition of its first element.
    end = structure.find(b"]")
    row = structure[rank - 1 : end + 1]
    if b"[" in row[1:]:
        return False
    for level in range(2, rank + 1):
        end = structure.find(b"]" * level)
        rows = structure[rank - level : end + level]
        count = len(rows) // (len(row) + 1)
        repeated_row = (row + b",") * count
        if rows != b"[%b]" % repeated_row[:-1]:
            return False
        row = rows
    return row == structure
