"""Large JSON bodies of numbers: to arrays without a Python object for each number, where pysimdjson is installed.

It takes the plainest form alone: an object whose inputs hold flat numbers. Whatever else a body holds, and all that is
wrong with it, is for `read_json`, which says the same of the same body.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from app.envelope import count

try:
    import simdjson
except ImportError:  # no wheel for this platform
    simdjson = None  # type: ignore[assignment]

# Below this a parser of Python objects is as quick.
LARGE = 2**15
# Enough for some twenty flat inputs; a body with more may be nested, and deep.
BRACKETS_AT_MOST = 64
# A parser holds four times its largest text; one is kept, of texts below this, and larger ones have their own.
KEPT = 2**22
# What simdjson calls the numbers of a datatype, by its first letter.
BUFFERS = {"F": ("d", "<f8"), "I": ("i", "<i8"), "U": ("u", "<u8")}

parsers: deque[Any] = deque(maxlen=1)


def read_numbers(text: bytes) -> Any:
    """The JSON value of `text`, `data` of numbers as arrays; None where this is not for such a body."""
    if simdjson is None or len(text) < LARGE or text[:1] != b"{":
        return None
    brackets = count(text, b"[", BRACKETS_AT_MOST)
    if brackets + count(text, b"{", BRACKETS_AT_MOST) > BRACKETS_AT_MOST:
        return None
    try:
        parser = parsers.pop()
    except IndexError:
        parser = simdjson.Parser()
    try:
        return envelope(parser.parse(text), brackets)
    except (ValueError, RuntimeError, TypeError, KeyError, AttributeError):
        return None
    finally:
        if len(text) < KEPT:
            parsers.append(parser)


def envelope(document: Any, brackets: int) -> dict[str, Any] | None:
    """The members of the document; None unless all its lists are `inputs`, `outputs`, shapes and flat data."""
    found = members(document)
    inputs = [members(each) for each in found.pop("inputs")]
    outputs = isinstance(found.get("outputs"), simdjson.Array)
    if brackets != 1 + 2 * len(inputs) + outputs:
        return None
    made = {name: plain(value) for name, value in found.items()}
    made["inputs"] = [{name: member(name, each) for name in each} for each in inputs]
    return made


def members(value: Any) -> dict[str, Any]:
    """The members of an object as simdjson has them; ValueError where a name comes twice."""
    names = list(value.keys())
    if len(set(names)) < len(names):
        raise ValueError("a name comes twice")
    return {name: value[name] for name in names}


def member(name: str, tensor: dict[str, Any]) -> Any:
    """A member of the tensor; an array where it is data of a numeric datatype."""
    letter, dtype = BUFFERS.get(tensor["datatype"][:1], (None, None))
    if name != "data" or letter is None:
        return plain(tensor[name])
    if not isinstance(tensor["shape"], simdjson.Array):
        raise TypeError("a bracket that is not the shape's")
    return np.frombuffer(tensor[name].as_buffer(of_type=letter), dtype)


def plain(value: Any) -> Any:
    if isinstance(value, simdjson.Array):
        return value.as_list()
    return value.as_dict() if isinstance(value, simdjson.Object) else value
