"""The model page in a browser: inputs of each kind, and their validation."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from app.protocol.metadata import MetadataTensor
from tests.kit import models

from .page import Open, Serve, check, predict


def grids() -> Any:
    """Return a model that echoes numbers and texts of several dimensions."""
    tensors = [
        MetadataTensor("cube", "FP64", [-1, 2, 3]),
        MetadataTensor("words", "BYTES", [-1, -1], "str"),
        MetadataTensor("open", "INT64", [-1, -1, 2]),
    ]

    def echo(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        return inputs

    module = models.model(tensors, tensors, echo)
    words = [["a, b", 'c "d"'], ["[e", ""]]
    module.EXAMPLE = {
        "cube": np.ones((1, 2, 3)),
        "words": words,
        "open": [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
    }
    return module


@pytest.fixture(scope="module")
def rows(serve: Serve) -> str:
    return serve(grids()).address


def test_table_input(visit: Open, columns: str) -> None:
    """Columns have one field each or are pasted from a spreadsheet, and only the first 200 rows are displayed."""
    page = visit(columns)
    for text, value in (("+09007199254740993", 2**53 + 1), ("-00.50e1", -5), ("", None)):
        page.get_by_label("number").fill(text)
        assert [tensor["data"] for tensor in predict(page)["inputs"]] == [[value], ["one"], [True]]
    expect(page.get_by_role("row", name="number null")).to_be_visible()

    page.get_by_label("Several rows").check()
    expect(page.get_by_label("CSV")).to_have_value("number,word,is it\n1.5,one,true")
    page.get_by_label("CSV").fill('\nword\tNUMBER\tIs It\n"tab\there"\t.5\tTRUE\n\n\t\t0\n \n')
    sent = {tensor["name"]: (tensor["shape"], tensor["data"]) for tensor in predict(page)["inputs"]}
    assert sent == {
        "number": ([2], [0.5, None]),
        "word": ([2], ["tab\there", None]),
        "is it": ([2], [True, 0]),
    }
    expect(page.get_by_role("row", name="1 null null false")).to_be_visible()
    expect(page.locator("#outputs caption")).to_have_text("2 rows.")

    page.get_by_label("CSV").fill("\n".join(["1;x;true"] * 201))
    predict(page)
    expect(page.get_by_text("The first 200 of 201 rows.")).to_be_attached()
    assert page.locator("#outputs tbody tr").count() == 200


@pytest.mark.parametrize(
    ("model", "label", "cases"),
    [
        (
            "columns",
            "CSV",
            [
                ("number,unknown\n1,2", 'The model has no input "unknown".'),
                ("number,word\n1,a\n2,b,c", "Row 2 has 3 cells, expected 2."),
                ("number,word\n1", "Row 1 has 1 cell, expected 2."),
                ("1,a", "Row 1 has 2 cells, expected 3."),
                ('number,word\n1,"a\n2,b', 'A cell that begins with a quote must end with one: "a'),
                ('number,word\n"5,1;3",a', 'number: "5,1;3" in row 1 is not a number.'),
                (
                    "number,word\n1,a\n\n-1e400,b",
                    'number: "-1e400" in row 2 is infinite. JSON has no infinity.',
                ),
                ("is it,word\nmaybe,a", 'is it: "maybe" in row 1 is neither true nor false.'),
                ("number,word\n\n", "The table has no rows."),
                ("\n", "The table is empty."),
            ],
        ),
        (
            "columns",
            "number",
            [
                ("3,5", 'number: "3,5" is not a number.'),
                ("39.1\t18.7", r'number: "39.1\t18.7" is not a number.'),
                ("1 2", 'number: "1 2" is not a number.'),
                ("abc", 'number: "abc" is not a number.'),
            ],
        ),
        (
            "rows",
            "cube",
            [
                ("1 2 3\n4 5 six", 'cube: "six" in row 2, column 3 is not a number.'),
                ("1, inf", 'cube: "inf" in row 1, column 2 is infinite. JSON has no infinity.'),
                ("[[[1, 2, 3], [4, 5, 1e400]]]", "cube: JSON has no infinity."),
                ("1 2\n3 4 5 6", "cube: row 1 has 2 values, expected 3."),
                ("1 2 3\n\n4", "cube: row 2 has 1 value, expected 3."),
                ("[[1,2],[3,4],[5,6]]", "cube: row 1 has 2 values, expected 3."),
                ("[[[1,2,3],[4,5]]]", "cube: row 2 has 2 values, expected 3."),
                ("[[[1,2,3],[4,5,6]],[[7,8,9]]]", "cube: block 2 has 1 row, expected 2."),
                ("[[1,2,3],4,5,6]", "cube: a list must contain either lists or values."),
                ("[1, 2", re.compile("^cube: .*JSON")),
            ],
        ),
        ("rows", "words", [("a, b\nc", "words: row 2 has 1 value, expected 2.")]),
    ],
)
def test_rejects_invalid_form_values(
    visit: Open,
    request: pytest.FixtureRequest,
    model: str,
    label: str,
    cases: list[tuple[str, Any]],
) -> None:
    """Invalid input is reported with its position, and no request is sent."""
    page = visit(request.getfixturevalue(model))
    requested_urls = []
    page.on("request", lambda sent_request: requested_urls.append(sent_request.url))
    if label == "CSV":
        page.get_by_label("Several rows").check()
    for text, expected in cases:
        page.get_by_label(label).fill(text)
        page.get_by_role("button", name="Predict").click()
        expect(page.get_by_role("alert")).to_have_text(expected)
    assert not [url for url in requested_urls if url.endswith("/infer")]


def test_grid_input(visit: Open, rows: str) -> None:
    """Blank lines separate matrices, flat lists take the declared shape, and text is quoted like in CSV."""
    page = visit(rows)
    for tensor in predict(page)["inputs"]:
        np.testing.assert_array_equal(
            np.reshape(tensor["data"], tensor["shape"]), grids().EXAMPLE[tensor["name"]]
        )
    page.get_by_label("words").fill('"a;b", c\n\n"d ""e""\nf", ""')
    for text in (
        "1 2 3\n4 5 6\n\n7 8 9\n10 11 12\n",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "[1,2,3,4,5,6,7,8,9,10,11,12]",
        "[[[1,2,3],[4,5,6]],[[7,8,9],[10,11,12]]]",
    ):
        page.get_by_label("cube").fill(text)
        cube, words, _ = predict(page)["inputs"]
        assert (cube["shape"], cube["data"]) == ([2, 2, 3], list(range(1, 13)))
        assert (words["shape"], words["data"]) == ([2, 2], ["a;b", "c", 'd "e"\nf', ""])


def test_text_input(visit: Open, all_kinds: str) -> None:
    """Each line is a text, including empty lines between others and lines that start like a list."""
    page = visit(all_kinds)
    for text, sent in [
        ("[INST] hello\n\nworld\n\n", ["[INST] hello", "", "world"]),
        ('["a\\nb", "[c]"]', ["a\nb", "[c]"]),
    ]:
        page.get_by_label("text").fill(text)
        assert predict(page)["inputs"][0]["data"] == sent


def test_optional_inputs(visit: Open, serve: Serve) -> None:
    """An optional BOOL has three states: true, false and absent. An empty optional number or column is left out."""
    columns = [MetadataTensor("number", "FP64", [-1]), MetadataTensor("more", "FP64", [-1])]
    flag = MetadataTensor("flag", "BOOL", [-1])

    def predict_(_: Any, number: Any, more: Any = None, flag: Any = None) -> dict[str, Any]:
        return {"number": number}

    page = visit(serve(models.model([*columns, flag], columns[:1], predict_)).address)
    assert [tensor["name"] for tensor in predict(page)["inputs"]] == ["number"]
    for choice, value in (("true", True), ("false", False)):
        page.get_by_label("flag").select_option(choice)
        assert predict(page)["inputs"][1]["data"] == [value]
    check(page)
    page.get_by_label("flag").select_option("absent")
    assert [tensor["name"] for tensor in predict(page)["inputs"]] == ["number"]
    page.get_by_label("Several rows").check()
    page.get_by_label("CSV").fill("number,more,flag\n1,,true\n2,,false")
    sent = [(tensor["name"], tensor["data"]) for tensor in predict(page)["inputs"]]
    assert sent == [("number", [1, 2]), ("flag", [True, False])]
