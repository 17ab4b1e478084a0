"""Large JSON bodies of numbers: pysimdjson makes arrays of them without one Python object per number.

Only the plainest form is read here: each input has one flat list as `data`. The lists are cut out of the body, and
the remaining JSON is small. Everything else, and every error, is left to `read_json`, which accepts the same bodies.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

import numpy as np

from app.protocol.errors import InvalidInput
from app.protocol.http_body import read_json

try:
    simdjson: Any = import_module("simdjson")
except ImportError:  # no wheel exists for this platform
    simdjson = None

# Below these sizes in bytes, of a body and of its lists on average, orjson is as fast.
MIN_BODY, MIN_LIST = 2**15, 2**10
BUFFERS = {"F": ("d", "<f8"), "I": ("i", "<i8"), "U": ("u", "<u8")}  # simdjson's and NumPy's names, by a first letter
DATA = b'"data"'
# The text after a member's name. The group matches only if a flat list follows.
LIST = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*(\[[ \t\r\n]*[^\[ \t\r\n])?")


def read_numbers(text: bytes) -> Any:
    """Return the JSON value with arrays as `data`, or None if the body needs `read_json`."""
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
    """Return the text with 0, 1 and so on in place of each list that is `data`, and these lists.

    Raise ValueError if the remaining text has a backslash, because a string could then look like data. A nested
    list is cut too early, so that parsing it fails.
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
    """Return the list in `text`, as an array if its datatype is numeric. Raise ValueError or TypeError if invalid."""
    if datatype[:1] not in BUFFERS:
        return read_json(text)
    letter, dtype = BUFFERS[datatype[:1]]
    return np.frombuffer(simdjson.Parser().parse(text).as_buffer(of_type=letter), dtype)
