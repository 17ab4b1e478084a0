"""JSON parsers: orjson, and pysimdjson for large lists of numbers.

pysimdjson writes numbers to arrays without a Python object per number. It is used only if the
`data` of each input is a flat list. `read_numbers` cuts these lists out of the body, and orjson
parses the small remainder, in which a number stands for each list:

    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data": [1.5, 2, 3]}]}
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [3], "data":  0 }]}

For all other bodies and for errors, it returns None, and `read_json` parses the whole body.
"""

import re
from importlib import import_module
from typing import Any

import numpy as np
import orjson

from app.protocol.errors import InvalidInput
from app.protocol.json_limits import check_limits

try:
    simdjson: Any = import_module("simdjson")
except ImportError:  # no wheel for this platform
    simdjson = None

# Minimum size of a body and minimum average size of its lists, in bytes. Below them, orjson is as
# fast as pysimdjson.
MIN_BODY = 2**15
MIN_LIST = 2**10

# The type code of pysimdjson and NumPy's dtype, by the first two letters of the datatype.
_NUMBER_FORMATS = {
    "FP": ("d", "<f8"),
    "BF": ("d", "<f8"),
    "IN": ("i", "<i8"),
    "UI": ("u", "<u8"),
}
_DATA_NAME = b'"data"'
# What follows the name of the member `data`. The group matches only the start of a flat list.
_DATA_VALUE = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*(\[[ \t\r\n]*[^\[ \t\r\n])?")
# A piece of a list. It ends before a comma, so each piece but the first starts with one.
# simdjson needs memory of eight times the size of its text, so it parses one piece at a time.
_LIST_PIECE = re.compile(rb"(?s).{1,65536}[^,]*")


def read_json(text: bytes) -> Any:
    """Parse JSON. Raise InvalidInput if it is malformed, or if it exceeds a limit (R20)."""
    if not text:
        raise InvalidInput("empty body", expected="a JSON object")
    check_limits(text)
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _syntax_error(error) from None


def _syntax_error(error: orjson.JSONDecodeError) -> InvalidInput:
    if not error.doc:  # orjson could not decode the text, and has no position
        remedy = "send a file as base64 text, or with Inference-Header-Content-Length: 0"
        return InvalidInput("Invalid JSON: not UTF-8.", remedy=remedy)
    if error.doc.startswith("NaN", error.pos):
        return InvalidInput(f"Invalid JSON: {error}.", remedy="use null for NaN")
    return InvalidInput(f"Invalid JSON: {error}.")


def read_numbers(text: bytes) -> Any:
    """Return the JSON value with arrays as `data`, or None if `read_json` must parse the body."""
    if simdjson is None or len(text) < MIN_BODY or text[:1] != b"{":
        return None
    try:
        rest, lists = _cut_lists(text)
        value = read_json(rest)
        inputs = value["inputs"]
        if len(inputs) != len(lists):
            return None
        for tensor in inputs:
            list_text = lists[tensor["data"]]
            tensor["data"] = _read_list(list_text, tensor["datatype"])
    # The JSON value is not validated yet, so any of these operations can fail.
    except (InvalidInput, ValueError, RuntimeError, TypeError, LookupError, AttributeError):
        return None
    return value


def _cut_lists(text: bytes) -> tuple[bytes, list[bytes]]:
    """Replace each list in `data` with 0, 1 and so on. Return the remaining text and the lists.

    A nested list is truncated, so that parsing it fails. Raise ValueError if `data` is not a list,
    or if the lists are short. Also raise it if the remaining text contains a backslash, because
    a string could then contain the name of the member.
    """
    rest_parts: list[bytes] = []
    lists: list[bytes] = []
    rest_start = 0  # of the text that is not in rest_parts yet
    occurrences = 0
    position = text.find(_DATA_NAME)
    while position >= 0:
        occurrences += 1
        end = position + len(_DATA_NAME)
        value = _DATA_VALUE.match(text, end)
        if value:  # otherwise, "data" is a value, not a name
            if value[1] is None:
                raise ValueError("data that is not a flat list")
            list_start = value.start(1)
            end = text.index(b"]", list_start) + 1
            rest_parts.append(text[rest_start:list_start])
            rest_parts.append(b" %d " % len(lists))
            lists.append(text[list_start:end])
            rest_start = end
        if occurrences * MIN_LIST > len(text):
            raise ValueError("many short lists")
        position = text.find(_DATA_NAME, end)

    rest_parts.append(text[rest_start:])
    rest = b"".join(rest_parts)
    if b"\\" in rest:
        raise ValueError("a backslash")
    return rest, lists


def _read_list(text: bytes, datatype: str) -> Any:
    """Parse a list. Return an array if the datatype is numeric.

    Raise ValueError or TypeError if the list is invalid.
    """
    number_format = _NUMBER_FORMATS.get(datatype[:2])
    if number_format is None:
        return read_json(text)

    type_code, dtype = number_format
    parser = simdjson.Parser()
    arrays = []
    for piece in _LIST_PIECE.finditer(text, 0, len(text) - 1):
        # The first piece starts with the bracket of the list, and the others with a comma.
        piece_list = b"[%b]" % piece[0][1:]
        # A variable for the result of parse() would keep the parser from parsing the next piece.
        buffer = parser.parse(piece_list).as_buffer(of_type=type_code)
        arrays.append(np.frombuffer(buffer, dtype))
    if len(arrays) > 1 and not all(map(len, arrays)):
        raise ValueError("two commas")
    return np.concatenate(arrays)
