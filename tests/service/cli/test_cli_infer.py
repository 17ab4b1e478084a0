"""The infer command with files of every format and a running service."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.processes import Running
from tests.service.cli.tables import (
    READ,
    ROWS,
    WANTED,
    WRITE,
    Infer,
    read_csv,
    read_jsonl,
    write_csv,
    write_jsonl,
    write_parquet,
)


@pytest.mark.parametrize("transport", ["rest-json", "rest-binary", "grpc"])
@pytest.mark.parametrize("kind", WRITE)
def test_every_format(kind: str, transport: str, infer: Infer, tmp_path: Path) -> None:
    """The output file has the format and the row order of the input file, however long each batch takes."""
    path = WRITE[kind](tmp_path / f"in.{kind}", ROWS)
    infer(
        path,
        "--output",
        tmp_path / f"out.{kind}",
        "--batch-size",
        3,
        "--concurrency",
        4,
        transport=transport,
    )
    assert READ[kind](tmp_path / f"out.{kind}") == WANTED
    assert {path.name for path in tmp_path.iterdir()} == {f"in.{kind}", f"out.{kind}"}


def test_stdin_to_stdout(infer: Infer, tmp_path: Path) -> None:
    """Rows from stdin, compressed or not, go to stdout in another format. The summary goes to stderr."""
    lines = write_jsonl(tmp_path / "in.jsonl", ROWS).read_bytes()
    for stdin in lines, gzip.compress(lines):
        result = infer("-", "--format", "jsonl", "--output-format", "csv", stdin=stdin)
        (tmp_path / "out.csv").write_bytes(result.stdout_bytes)
        assert read_csv(tmp_path / "out.csv") == WANTED
        assert result.stderr.startswith("50 rows in ")


def test_gzip(infer: Infer, tmp_path: Path) -> None:
    """A compressed file is read by its name without .gz."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    infer(tmp_path / "in.csv.gz", "-o", tmp_path / "out.csv")
    assert read_csv(tmp_path / "out.csv") == WANTED


@pytest.mark.parametrize("kind", WRITE)
def test_keep(kind: str, infer: Infer, tmp_path: Path) -> None:
    """--keep-columns writes the columns that no input uses first, unchanged."""
    rows = [{"id": f"00{row}", "note": 'a "b", c', **ROWS[row]} for row in range(9)]
    path = WRITE[kind](tmp_path / f"in.{kind}", rows)
    infer(path, "-o", tmp_path / f"out.{kind}", "--keep-columns", "--batch-size", 4)
    rows_read = READ[kind](tmp_path / f"out.{kind}")
    assert list(rows_read[0])[:2] == ["id", "note"]
    assert [(row.pop("id"), row.pop("note")) for row in rows_read] == [
        (f"00{row}", 'a "b", c') for row in range(9)
    ]
    assert rows_read == WANTED[:9]


@pytest.mark.parametrize("transport", ["rest-json", "grpc"])
def test_optional_input(transport: str, infer: Infer, tmp_path: Path) -> None:
    """An input with a default in predict() needs no column."""
    rows = [{name: value for name, value in row.items() if name != "whole"} for row in ROWS]
    infer(write_csv(tmp_path / "in.csv", rows), "-o", tmp_path / "out.csv", transport=transport)
    assert read_csv(tmp_path / "out.csv") == [{**row, "whole": 0} for row in WANTED]


def test_keep_rejects_a_column_named_like_an_output(infer: Infer, tmp_path: Path) -> None:
    """--keep-columns fails if the output would have two columns with the same name."""
    path = write_csv(tmp_path / "in.csv", [{"pair_1": 8, **ROWS[1]}])
    assert (
        '"pair_1" is also an output'
        in infer(path, "-o", tmp_path / "out.csv", "--keep-columns", status=1).stderr
    )
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_missing_values(infer: Infer, tmp_path: Path) -> None:
    """In CSV, text is missing only if it equals --na-value, and a number is also missing if it is empty or NA."""
    path = write_csv(tmp_path / "in.csv", [ROWS[5], ROWS[6], {**ROWS[7], "number": "NA"}])

    def texts(*words: str) -> list[str | None]:
        infer(path, "-o", tmp_path / "out.jsonl", *words, transport="rest-json")
        assert [row["number"] for row in read_jsonl(tmp_path / "out.jsonl")] == [
            None,
            ROWS[6]["number"],
            None,
        ]
        return [row["text"] for row in read_jsonl(tmp_path / "out.jsonl")]

    assert texts() == ["", "NA", "007"]
    assert texts("--na-value", "") == [None, "NA", "007"]
    assert texts("--na-value", "NA") == ["", None, "007"]
    for transport in "rest-binary", "grpc":
        output = infer(path, "--na-value", "", status=1, transport=transport).stderr
        assert (
            'Input "text": null has no binary form. Use --transport rest-json, or declare missing="" in'
            in output
        )


def test_delimiter(infer: Infer, tmp_path: Path) -> None:
    """--delimiter selects another delimiter, and spaces around column names are ignored."""
    path = write_csv(tmp_path / "in.csv", ROWS, delimiter="\t")
    path.write_text(path.read_text().replace("number\ttext", "number \t text", 1))
    infer(path, "-o", tmp_path / "out.csv", "--delimiter", "tab")
    assert read_csv(tmp_path / "out.csv") == WANTED


@pytest.mark.parametrize("kind", WRITE)
def test_file_without_rows(kind: str, infer: Infer, tmp_path: Path) -> None:
    """A file without rows is an error, and no output is written."""
    write_parquet(tmp_path / "in.parquet", ROWS)
    pq.write_table(pq.read_table(tmp_path / "in.parquet").slice(0, 0), tmp_path / "in.parquet")
    (tmp_path / "in.csv").write_text("number,text,when,flag,whole\n")
    (tmp_path / "in.jsonl").write_text("\n")
    path = tmp_path / f"in.{kind}"
    assert infer(path, "-o", tmp_path / "out.csv", status=1).stderr == f"Error: {path}: no rows\n"
    assert not list(tmp_path.glob("out.*"))


def test_blank_lines(values: Running, infer: Infer) -> None:
    """A blank line is a row if there is one column. Otherwise it is skipped."""
    words = ["-", "--format", "csv", "--output-format", "jsonl"]
    output = infer(*words, at=values, stdin=b"\ntext\nhello\n\nworld\n\n").stdout
    assert [json.loads(line)["text"] for line in output.splitlines()] == ["hello", "", "world", ""]
    output = infer(
        *words, "--keep-columns", at=values, stdin=b"text,id\nhello,1\n\nworld,2\n\n"
    ).stdout
    assert [json.loads(line)["id"] for line in output.splitlines()] == ["1", "2"]
