"""Limits for JSON, which are checked before a parser creates objects (R20)."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.protocol.errors import InvalidInput, format_value
from app.protocol.json_limits import MAX_DEPTH, MAX_LISTS, MAX_OBJECTS
from app.protocol.json_parser import read_json
from app.protocol.json_rows import MIN_BODY, flatten_rows
from app.rest.request_reader import read_request

MIB = 2**20
many = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def repeated(element: str, count: int) -> str:
    return ",".join([element] * count)


def request(data: str, shape: list[int], datatype: str = "FP32") -> bytes:
    tensor = (
        f'{{"name": "x", "datatype": "{datatype}", "shape": {json.dumps(shape)}, "data": {data}}}'
    )
    return f'{{"inputs": [{tensor}]}}'.encode()


def growth(body: bytes) -> float:
    """Return the peak memory of a rejected request, as a multiple of its body."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput):
            read_request(body)
        return tracemalloc.get_traced_memory()[1] / len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("element", ["[]", "{}", '{"":0}', "[[[[[[[[]]]]]]]]", '{"":{"":{"":0}}}'])
def test_hostile_elements_need_little_memory(element: str) -> None:
    """R20: many lists or objects in `data` are rejected before a parser creates them."""
    elements = repeated(element, 8 * MIB // (len(element) + 1))
    assert growth(request(f"[{elements}]", [1])) < 8


@pytest.mark.parametrize("text", ["[]", "{}", "]}", '[{"', '"{[', "[{\\", "\\\\[", '\\"['])
def test_brackets_in_strings_do_not_count(text: str) -> None:
    """R20: texts may contain any number of brackets, also next to quotes and backslashes."""
    count = MAX_LISTS // len(text) + 1
    body = request(f"[{repeated(json.dumps(text), count)}]", [count], "BYTES")
    assert read_request(body).inputs[0].data.tolist() == [text] * count


@pytest.mark.parametrize(
    ("opening", "closing", "limit", "noun"),
    [("[", "]", MAX_LISTS, "lists"), ('{"":', "}", MAX_OBJECTS, "objects")],
)
def test_limits_lists_and_objects(opening: str, closing: str, limit: int, noun: str) -> None:
    """R20: the limits for lists and objects are exact, whatever their nesting."""
    pair = f"{opening}{opening}0{closing}{closing}"
    if noun == "lists":
        # The outer list is one of them, and the last element is another.
        value = f"[{repeated(pair, limit // 2 - 1)},[]]"
    else:
        value = f"[{repeated(pair, limit // 2)}]"
    assert len(read_json(value.encode())) > 0

    value = value.removesuffix("]") + "," + pair + "]"
    with pytest.raises(
        InvalidInput, match=f"Too many {noun} in the JSON. Expected at most {limit}"
    ):
        read_json(value.encode())


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100,
        "[" * 100 + "]" * 200,
        "]" * 200 + "[" * 100,
        '{"' + "[" * 100,
        '{"a": "' + "[" * 100 + '\\"',
        "\\" * 99 + '"' + "[" * 100,
    ],
)
def test_malformed_json_is_rejected(text: str) -> None:
    """R20: malformed JSON with many brackets is rejected, as other malformed JSON."""
    with pytest.raises(InvalidInput):
        read_json(text.encode())


json_values = st.recursive(
    st.none() | st.integers(-9, 9) | st.text('[]{}",\\a', max_size=5),
    lambda values: st.lists(values) | st.dictionaries(st.text('[{"\\', max_size=3), values),
    max_leaves=40,
)


@many
@given(value=json_values, extra_levels=st.integers(0, 70))
def test_depth_is_that_of_the_value(value: Any, extra_levels: int) -> None:
    """R20: JSON is rejected if and only if its lists and objects have more than 64 levels."""
    for _ in range(extra_levels):
        value = [value, "[{"]
    text = orjson.dumps(value)

    def depth(value: Any) -> int:
        children = value.values() if isinstance(value, dict) else value
        is_nested = isinstance(value, dict | list)
        return 1 + max(map(depth, children), default=0) if is_nested else 0

    if depth(value) <= MAX_DEPTH:
        assert read_json(text) == value
    else:
        with pytest.raises(InvalidInput, match="nested too deeply"):
            read_json(text)


# Rows


def padded(body: bytes) -> bytes:
    return body + b" " * MIN_BODY


@pytest.mark.parametrize(
    "row", ["[1,2,3,4]", "[ 1.5 , null, 3, -4e-1 ]", "[[1,2],[3,4]]", "[[[1]]]"]
)
@pytest.mark.parametrize("separator", [",", ", ", "\n,\n"])
def test_accepts_many_rows(row: str, separator: str) -> None:
    """R10: the number of rows of numbers is not limited, whatever their rank and their white space."""
    count = MAX_LISTS + 1
    body = request(f"[{separator.join([row] * count)}]", [count, row.count(",") + 1])
    expected = np.tile(np.array(json.loads(row), "<f4").ravel(), (count, 1))
    np.testing.assert_array_equal(read_request(body).inputs[0].data, expected)


def test_rows_of_texts_are_limited() -> None:
    """R20: rows of texts count as lists. The error recommends a flat list."""
    rows = repeated('["a"]', MAX_LISTS)
    with pytest.raises(InvalidInput, match="flat list, or as binary tensors"):
        read_request(request(f"[{rows}]", [MAX_LISTS, 1], "BYTES"))


@pytest.mark.parametrize(
    "data",
    [
        "[[1,2],[3]]",
        "[[1],[2,3]]",
        "[[1],2]",
        "[1,[2]]",
        "[[1]2]",
        "[[1],2[3]]",
        "[[1,2,[3,4]]",
        "[[1,[2,3]]",
        "[[[1,[2]]]",
        "[[1]2,[3]]",
        "[[1,[2]],[3]]",
        "[[1][2]]",
        "[[1],[2],]",
        "[[1,],[2,]]",
        "[[,1],[,2]]",
        "[,[1],[2]]",
        "[[1 2],[3 4]]",
        "[[1],[2]",
        "[[1],[2]]]",
        "[[1],[2]],[[3],[4]]",
        "[[[1],[2]],[[3]]]",
        "[[[1]],[2]]",
        "[[1],[[2]]]",
        "[[]]",
        "[[],[]]",
        "[[1],[]]",
        "[[],[1]]",
        "[[[]],[[]]]",
        "[[tru],[1]]",
        '[["a"],["b"]]',
        '[[1],["b"]]',
        "[[{}],[1]]",
        "[[1],[2]}",
    ],
)
def test_other_data_has_the_same_result(data: str) -> None:
    """R10, R20: nested data that is not rectangular, empty or malformed has the same result in large bodies."""
    for datatype in ("FP32", "INT8", "BYTES"):
        body = request(data, [2, 1], datatype)
        assert outcome(padded(body)) == outcome(body)


def outcome(body: bytes) -> Any:
    """Return the data of a request, or its error without the position of a JSON error."""
    try:
        return read_request(body).inputs[0].data.tolist()
    except InvalidInput as error:
        return str(error).partition("Invalid JSON")[0]


nested_lists = st.recursive(
    st.sampled_from(["1", "2.5", "null", "true", '"a"', '"\\"data\\":[[1],[2]]"']),
    lambda elements: st.lists(elements, max_size=3).map(lambda parts: f"[{','.join(parts)}]"),
    max_leaves=12,
)


@many
@given(data=nested_lists, spaces=st.sampled_from(["", " ", "\n\t"]))
@example(data="[[1],[2]]", spaces=" ")
def test_flattened_data_has_the_same_elements(data: str, spaces: str) -> None:
    """R10: flattening changes nothing but the nesting of data."""
    if '"' not in data:
        data = data.replace(",", f",{spaces}").replace("]", f"{spaces}]")
    text = request(data, [2])
    original = orjson.loads(text)
    flattened = orjson.loads(flatten_rows(padded(text)))

    def elements_of(value: Any) -> list[Any]:
        if not isinstance(value, list):
            return [value]
        elements = []
        for element in value:
            elements += elements_of(element)
        return elements

    original_data = original["inputs"][0].pop("data")
    assert elements_of(flattened["inputs"][0].pop("data")) == elements_of(original_data)
    assert flattened == original


def test_deep_rows_are_rejected() -> None:
    """R20: rows count as levels, even if they are flattened."""
    for levels, is_valid in ((61, True), (62, False)):
        body = padded(request("[" * levels + "1" + "]" * levels, [1]))
        if is_valid:
            assert read_request(body).inputs[0].data.tolist() == [1]
        else:
            with pytest.raises(InvalidInput, match="nested too deeply"):
                read_request(body)


# Messages


@pytest.mark.parametrize(
    "value",
    [
        [[[1, 2], {"a": "b"}], None, True] * 20,
        {"a": [1.5, {"b": ["c" * 100]}]},
        ["x" * 100],
        "x" * 100,
        [],
        {},
        [[]] * 70,
        b"bytes" * 20,
        {1, 2},
    ],
)
def test_excerpt_equals_the_beginning_of_the_value(value: Any) -> None:
    """A message contains the same text as if the whole value had been formatted."""
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, list | dict):
        text = json.dumps(value)
    else:
        text = repr(value)
    if len(text) > 60 and not isinstance(value, str):
        text = text[:59] + "…"
    assert format_value(value) == text


@pytest.mark.parametrize(
    "value",
    [
        [["a", 1.5]] * MIB,
        {str(index): [index] for index in range(MIB)},
        ["x" * MIB] * 99,
        "x" * 9 * MIB,
    ],
)
def test_excerpt_of_a_large_value_needs_little_memory(value: Any) -> None:
    """A client's value is not formatted as a whole for a message."""
    tracemalloc.start()
    try:
        text = str(InvalidInput(subject="data", expected="a number", got=value))
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()
    assert len(text) <= 500
