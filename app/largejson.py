"""Large JSON bodies of numbers: to arrays without a Python object for each number, where pysimdjson is installed.

The lists that are `data` are cut out of the body, in the plainest form alone: flat, one in each input. What is left is
small. Whatever else a body holds, and all that is wrong with it, is for `read_json`, which says the same of the same
body.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from app.envelope import read_json
from app.errors import InvalidInput

try:
    simdjson: Any = import_module("simdjson")
except ImportError:  # no wheel for this platform
    simdjson = None

# Below these, for a body and for each of its lists, a parser of Python objects is as quick.
LARGE, LARGE_LIST = 2**15, 2**10
# So much of a list is parsed at once, since a parser needs four times its text, and keeps it.
PIECE = 2**16
# What simdjson calls the numbers of a datatype, by its first letter.
BUFFERS = {"F": ("d", "<f8"), "I": ("i", "<i8"), "U": ("u", "<u8")}
DATA = b'"data"'
# What follows a member's name; the group is missing where that is no flat list.
LIST = re.compile(rb"[ \t\r\n]*:[ \t\r\n]*(\[[ \t\r\n]*[^\[ \t\r\n])?")

parsers: deque[Any] = deque(maxlen=1)


def read_numbers(text: bytes) -> Any:
    """The JSON value of `text`, `data` of numbers as arrays; None where this is not for such a body."""
    if simdjson is None or len(text) < LARGE or text[:1] != b"{":
        return None
    try:
        rest, lists = cut_lists(text)
        value = read_json(rest)
        inputs = value["inputs"]
        if len(inputs) != len(lists):
            return None
        for tensor in inputs:
            start, end = lists[tensor["data"]]
            tensor["data"] = read_list(text, start, end, tensor["datatype"])
    except (InvalidInput, ValueError, RuntimeError, TypeError, LookupError, AttributeError):
        return None
    return value


def cut_lists(text: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    """The text with 0, 1 and so on, between spaces, in the place of each list that is `data`, and where these were.

    Without a backslash in what is left, strings start and end at its quotes, so none of them looks like data. A list
    that does not end at its first bracket is no JSON up to there. ValueError where the text is not so plain.
    """
    parts: list[bytes] = []
    lists: list[tuple[int, int]] = []
    kept, found, looks = 0, text.find(DATA), 0
    while found >= 0:
        end, looks = found + len(DATA), looks + 1
        if member := LIST.match(text, end):
            if not member[1]:
                raise ValueError("data that is no flat list")
            start, end = member.start(1), text.index(b"]", end) + 1
            parts += text[kept:start], b" %d " % len(lists)
            lists.append((start, end))
            kept = end
        if looks * LARGE_LIST > len(text):
            raise ValueError("many short lists")
        found = text.find(DATA, end)
    rest = b"".join([*parts, text[kept:]])
    if b"\\" in rest:
        raise ValueError("a backslash")
    return rest, lists


def read_list(text: bytes, start: int, end: int, datatype: str) -> Any:
    """The list `text[start:end]`, an array where its datatype is of numbers; ValueError or TypeError if it is none."""
    if datatype[:1] not in BUFFERS:
        return read_json(text[start:end])
    letter, dtype = BUFFERS[datatype[:1]]
    try:
        parser = parsers.pop()
    except IndexError:
        parser = simdjson.Parser()
    buffers = [parser.parse(piece).as_buffer(of_type=letter) for piece in pieces(text, start, end)]
    parsers.append(parser)
    arrays = [np.frombuffer(each, dtype) for each in buffers]
    if len(arrays) == 1:
        return arrays[0]
    if not all(map(len, arrays)):
        raise ValueError("a comma that ends the list")
    return np.concatenate(arrays)


def pieces(text: bytes, start: int, end: int) -> Iterator[bytes]:
    """The list `text[start:end]` as several, cut at commas."""
    view, start, last = memoryview(text), start + 1, end - 1
    while (comma := text.find(b",", start + PIECE, last)) >= 0:
        yield b"".join((b"[", view[start:comma], b"]"))
        start = comma + 1
    yield b"".join((b"[", view[start:last], b"]"))
