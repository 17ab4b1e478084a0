"""`infer`: files of every kind in and out, what becomes of rows that fail, and of runs that end too early."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli import main
from app.cli.choosing import match
from app.cli.columns import Column
from app.cli.common import Failure
from app.cli.infer import check_outputs
from app.cli.readers import open_table
from app.cli.writers import WRITERS
from app.datatypes import object_array
from app.errors import InvalidInput
from app.types import InferenceRequest, MetadataTensor
from tests.service.processes import Running, free_ports, gunicorn, started, wait_for

ROOT = Path(__file__).parents[3]
TEXTS = ["plain", 'with "quotes"', "two\nlines", "comma, tab\t", "größer 漢字 🌷", "", "NA", "007", " edges "]
ROWS = [
    {
        "number": row / 7 if row % 5 else None,
        "text": TEXTS[row % len(TEXTS)],
        "when": (datetime(2024, 2, 28, 23, 59, 59, 250_000) + timedelta(hours=row)).isoformat(),
        "flag": row % 2 == 0,
        "whole": 2**53 + row,
    }
    for row in range(50)
]
WANTED = [
    {**row, "pair": [None, None] if row["number"] is None else [np.float32(row["number"]), -np.float32(row["number"])]}
    for row in ROWS
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:rows()", FOLDER=folder, MAX_REQUEST_BYTES=2**20) as running:
        yield running


@contextmanager
def mended(folder: Path) -> Iterator[None]:
    """Meanwhile the model takes the rows that it refuses otherwise."""
    (folder / "mended").touch()
    try:
        yield
    finally:
        (folder / "mended").unlink()


Infer = Callable[..., Result]


@pytest.fixture
def infer(service: Running) -> Infer:
    """infer(words, ...): the command, with `status` and what it says; over gRPC where `grpc`."""

    def run(*words: Any, status: int = 0, grpc: bool = False, stdin: bytes | None = None) -> Result:
        where = ["--grpc", service.grpc] if grpc else ["--url", f"http://{service.http}"]
        result = CliRunner().invoke(main, ["infer", *map(str, words), *where], input=stdin)
        assert result.exit_code == status, (result.exit_code, result.stderr, result.exception)
        return result

    return run


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pandas as pd

    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(rows)
    frame["when"] = pd.to_datetime(frame["when"])
    frame.to_parquet(path, index=False)
    return path


def write_npz(path: Path, rows: list[dict[str, Any]]) -> Path:
    arrays = {name: np.array([row[name] for row in rows]) for name in ("text", "flag", "whole")}
    when = np.array([row["when"] for row in rows], "M8[us]")
    np.savez_compressed(path, when=when, number=np.array([row["number"] for row in rows], float), **arrays)
    return path


def read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["pair"] = [gap(np.float32, row.pop(f"pair_{index}")) for index in range(2)]
        row["number"], row["whole"], row["flag"] = gap(float, row["number"]), int(row["whole"]), row["flag"] == "true"
    return rows


def gap(kind: Any, text: Any) -> Any:
    return kind(text) if text not in ("", None) and text == text else None


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{**row, "pair": [gap(np.float32, each) for each in row["pair"]]} for row in rows]


def read_parquet(path: Path) -> list[dict[str, Any]]:
    import pandas as pd

    rows = pd.read_parquet(path).to_dict("records")
    for row in rows:
        row["pair"] = [gap(np.float32, row.pop(f"pair_{index}")) for index in range(2)]
        row["number"], row["when"] = gap(float, row["number"]), row["when"].isoformat()
    return rows


def read_npz(path: Path) -> list[dict[str, Any]]:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file}
    rows = [{name: array[row] for name, array in arrays.items()} for row in range(len(arrays["number"]))]
    for row in rows:
        row["pair"], row["number"] = [gap(np.float32, each) for each in row["pair"]], gap(float, row["number"])
    return rows


WRITE = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet, "npz": write_npz}
READ: dict[str, Any] = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet, "npz": read_npz}


@pytest.mark.parametrize("grpc", [False, True], ids=["rest", "grpc"])
@pytest.mark.parametrize("kind", WRITE)
def test_every_kind(kind: str, grpc: bool, infer: Infer, tmp_path: Path) -> None:
    """What a file holds comes back in a file of its kind, row by row, whatever batches took longest."""
    path = WRITE[kind](tmp_path / f"in.{kind}", ROWS)
    infer(path, "--output", tmp_path / f"out.{kind}", "--batch-size", 3, "--in-flight", 4, grpc=grpc)
    assert READ[kind](tmp_path / f"out.{kind}") == WANTED
    assert {each.name for each in tmp_path.iterdir()} == {f"in.{kind}", f"out.{kind}"}


def test_stdin_to_stdout(infer: Infer, tmp_path: Path) -> None:
    """Rows pass through a pipe, in another format where it is wanted; what is said goes to stderr."""
    lines = write_jsonl(tmp_path / "in.jsonl", ROWS).read_bytes()
    result = infer("-", "--format", "jsonl", "--output-format", "csv", stdin=lines)
    (tmp_path / "out.csv").write_bytes(result.stdout_bytes)
    assert read_csv(tmp_path / "out.csv") == WANTED
    assert result.stderr.startswith("50 rows in ")


def test_keep(infer: Infer, tmp_path: Path) -> None:
    """--keep has the columns that no input takes in front, as they were; without it their names are told."""
    path = write_csv(tmp_path / "in.csv", [{"id": f"00{row}", "note": 'a "b", c', **ROWS[row]} for row in range(9)])
    infer(path, "-o", tmp_path / "out.csv", "--keep", "--batch-size", 4)
    found = read_csv(tmp_path / "out.csv")
    assert [(row.pop("id"), row.pop("note")) for row in found] == [(f"00{row}", 'a "b", c') for row in range(9)]
    assert found == WANTED[:9]
    result = infer(path, "-o", tmp_path / "out.jsonl")
    assert "columns that no input takes: id, note" in result.stderr
    assert read_jsonl(tmp_path / "out.jsonl") == WANTED[:9]


def test_kept_moments(infer: Infer, tmp_path: Path) -> None:
    """Dates and datetimes that are kept stay so, with their gaps; times of day and durations become text."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    moment = datetime(2024, 2, 29, 12, 30)
    kept = {
        "day": [moment.date(), None],
        "moment": [moment, None],
        "abroad": pa.array([moment, None], pa.timestamp("us", "Europe/Amsterdam")),
        "never": pa.array([None, None], pa.timestamp("us")),
        "time": [moment.time(), None],
        "span": [timedelta(hours=25), None],
    }
    pq.write_table(pa.table({**pa.Table.from_pylist(ROWS[:2]).to_pydict(), **kept}), tmp_path / "in.parquet")
    infer(tmp_path / "in.parquet", "-o", tmp_path / "out.parquet", "--keep", "--batch-size", 1)
    found = pq.read_table(tmp_path / "out.parquet")
    assert all(pa.types.is_timestamp(found.schema.field(name).type) for name in ("day", "moment", "abroad", "never"))
    assert {name: found[name].cast("string").to_pylist() for name in ("day", "moment", "never", "time", "span")} == {
        "day": ["2024-02-29 00:00:00.000000", None],
        "moment": ["2024-02-29 12:30:00.000000", None],
        "never": [None, None],
        "time": ["12:30:00", None],
        "span": ["1 day, 1:00:00", None],
    }
    assert found["abroad"][0].as_py() == moment.replace(tzinfo=UTC)


def test_gaps_in_text(infer: Infer, tmp_path: Path) -> None:
    """Empty text of a CSV is told, since it may stand for a gap; --null says what does, in every column."""
    path = write_csv(tmp_path / "in.csv", [ROWS[5], ROWS[6], ROWS[7]])
    told = "empty cells went as empty text, not as missing: text (--null '')\n"

    def texts(*words: str) -> tuple[bool, list[str | None]]:
        said = infer(path, "-o", tmp_path / "out.jsonl", "--overwrite", *words).stderr
        return told in said, [row["text"] for row in read_jsonl(tmp_path / "out.jsonl")]

    assert texts() == (True, ["", "NA", "007"])
    assert texts("--null", "") == (False, [None, "NA", "007"])
    assert texts("--null", "NA") == (False, ["", None, "007"])
    assert "missing text, which gRPC has no form of" in infer(path, "--null", "", status=1, grpc=True).stderr
    write_csv(path, [{**ROWS[6], "number": -999, "text": "a"}])
    infer(path, "-o", tmp_path / "out.jsonl", "--overwrite", "--null", "-999")
    assert [row["number"] for row in read_jsonl(tmp_path / "out.jsonl")] == [None]
    assert "--null is for CSV" in infer(write_jsonl(tmp_path / "in.jsonl", ROWS), "--null", "", status=1).stderr


def test_moments_in_npz(infer: Infer, tmp_path: Path) -> None:
    """A datetime of numpy is one, whatever its unit, and so is one that is missing."""
    arrays = {name: np.array([row[name] for row in ROWS[1:3]]) for name in ("text", "flag", "number")}
    moments = np.array(["2024-02-29T12:30", "NaT"], "M8[ns]")
    np.savez(tmp_path / "in.npz", when=np.array(["2024-02-29", "2024-03-01"], "M8[D]"), kept=moments, **arrays)
    infer(tmp_path / "in.npz", "-o", tmp_path / "out.jsonl", "--keep")
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert [json.loads(line)["kept"] for line in lines] == ["2024-02-29T12:30:00", "NaT"]
    np.savez(tmp_path / "in.npz", when=moments, **arrays)
    said = infer(tmp_path / "in.npz", "-o", tmp_path / "out.npz", status=1).stderr
    assert "expected a datetime in ISO 8601, got 'NaT'" in said  # list[datetime], which has no gap


@pytest.mark.parametrize("kind", WRITE)
def test_few_rows(kind: str, infer: Infer, tmp_path: Path) -> None:
    """One row gives one, and a file without rows gives one without rows that has the columns."""
    infer(WRITE[kind](tmp_path / f"in.{kind}", ROWS[:1]), "-o", tmp_path / f"out.{kind}")
    assert READ[kind](tmp_path / f"out.{kind}") == WANTED[:1]
    if kind == "csv":
        (tmp_path / "in.csv").write_text("number,text,when,flag\n")
        infer(tmp_path / "in.csv", "-o", tmp_path / "out.csv", "--overwrite")
        assert (tmp_path / "out.csv").read_text() == "number,text,when,flag,whole,pair_0,pair_1\n"
    (tmp_path / "in.csv").write_text("number,text,when,flag\n")
    infer(tmp_path / "in.csv", "-o", tmp_path / f"out.{kind}", "--overwrite")
    assert READ[kind](tmp_path / f"out.{kind}") == []


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (
            "number,text,when\n1,a,2024-01-01\n",
            [],
            'the input "flag"; the file has number, text, when; --no-header, if its',
        ),
        ("a,b\n1,2\n", ["--columns", "c"], '--columns: no "c"; the file has a, b'),
        ("number,text,when,flag\n1,2,3,4,5,6\n", [], "in.csv: line 2 has 6 fields, and the first line 4$"),
        (
            "number,text,when,flag\n1,a,2024-01-01,true\n2,b,c,d,e\n",
            [],
            "in.csv: line 3 has 5 fields, and the first line 4$",
        ),
        ("number,text,when,Flag\n1,a,2024-01-01,true\n", [], '"Flag" differs in case'),
        ("number;text;when;flag\n1;a;2024-01-01;true\n", [], 'seems to be separated by ";"; --separator ";"'),
        ("number;text\n1,5;a\n", [], 'line 2 has 2 fields, and the first line 1; the file .* ";"; --separator ";"$'),
        ("number;text\n1;a\n1,5;a\n", [], 'line 3 has 2 fields, and the first line 1; the .* ";"; --separator ";"$'),
        ('number,text\n1,a\n2,"b\n', [], "in.csv: .*EOF inside string"),
        ("number\ttext\twhen\n1\ta\t2024-01-01\n", [], 'seems to be separated by "tab"; --separator "tab"'),
        ("1,2,3.5,4\n5,6,7,8\n", [], "--no-header"),
        ("", [], "in.csv has no rows and no header"),
        ("number, number\n1,2\n", [], 'two columns are "number"'),
        ("number,text,number\n1,a,2\n", [], 'two columns are "number"'),
        ("number,text\n1,a\n2,caf\xe9\n", [], "in.csv: line 3 is not UTF-8; iconv -f latin1"),
        ("number,text,when,flag\n" + "1,a,2024-01-01,true\n" * 99_999 + "1,\xe9,b,1", [], "line 100001 is not UTF-8"),
        ("\x1f\x8b\x08\x00", [], "in.csv: compressed by gzip; zcat FILE"),
    ],
    ids=[
        "missing",
        "chosen",
        "longer",
        "ragged",
        "case",
        "semicolons",
        "decimal commas",
        "later commas",
        "quote",
        "tabs",
        "numbers",
        "empty",
        "twice",
        "twice, apart",
        "latin",
        "later",
        "gzip",
    ],
)
def test_wrong_files(text: str, words: list[str], said: str, infer: Infer, tmp_path: Path) -> None:
    """A file that does not fit the model is told in one line that names the column or line, with status 1."""
    (tmp_path / "in.csv").write_text(text, "latin-1")
    result = infer(tmp_path / "in.csv", "-o", tmp_path / "out.csv", *words, status=1)
    assert len(result.stderr.splitlines()) == 1
    assert re.search(said, result.stderr)


def test_wrong_usage(infer: Infer, tmp_path: Path) -> None:
    """What cannot be done is told before anything is sent; a service that is not there has status 3."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    assert "which format?" in infer(path, "-o", tmp_path / "out.xyz", status=2).stderr
    assert "need a file" in infer(path, "--output-format", "npz", status=1).stderr
    assert "--json reports on stdout" in infer(path, "--json", status=2).stderr
    assert "a folder" in infer(path, "-o", tmp_path, status=2).stderr
    full = infer(path, "-o", "/dev/full", "--output-format", "csv", status=1).stderr
    assert full == "Error: /dev/full: No space left on device\n"
    assert "No such file" in infer(tmp_path / "none.csv", status=1).stderr
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert CliRunner().invoke(main, ["infer", str(path), "--url", nowhere]).exit_code == 3


def test_failed_rows_are_resumed(infer: Infer, folder: Path, tmp_path: Path) -> None:
    """Batches that fail are told by row and reason, the others are kept, and --resume completes the file in order."""
    rows = [{**row} for row in ROWS]
    rows[11]["text"] = "a fault"
    path, out = write_csv(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    result = infer(path, "-o", out, "--batch-size", 5, "--json", status=1)
    assert json.loads(result.stdout)["faults"] == [{"first": 11, "last": 15, "error": "400: a row is not to my liking"}]
    assert "45 rows done, and --resume goes on" in result.stderr
    assert not out.exists()
    assert "--resume goes on with it; or delete it" in infer(path, "-o", out, status=1).stderr
    result = infer(path, "-o", out, "--batch-size", 1, "--resume", status=1)
    assert "row 12: 400: a row is not to my liking" in result.stderr
    result = infer(path, "-o", out, "--resume", "--skip-failed", status=1)
    assert read_csv(out) == [row for index, row in enumerate(WANTED) if index != 11]
    out.unlink()
    infer(path, "-o", out, "--batch-size", 5, status=1)
    with mended(folder):
        result = infer(path, "-o", out, "--resume")
    assert "5 rows in" in result.stderr
    assert "45 done before" in result.stderr
    assert read_csv(out) == [{**row, "text": "a fault"} if index == 11 else row for index, row in enumerate(WANTED)]
    assert "exists and there is nothing to resume" in infer(path, "-o", out, "--resume", status=1).stderr


@pytest.mark.parametrize("lost", ["a byte", "two ranges", "all but half the header", "all"])
@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_rows_that_a_crash_lost(kind: str, lost: str, infer: Infer, folder: Path, tmp_path: Path) -> None:
    """Rows that the journal tells of, and that are not there, are done again: each comes once, and in its place."""
    rows = [{**row, "text": "a fault"} if index in (11, 30) else row for index, row in enumerate(ROWS)]
    path, out = write_csv(tmp_path / "in.csv", rows), tmp_path / f"out.{kind}"
    part, journal = (out.with_name(f"{out.name}.{each}") for each in ("part", "journal"))
    infer(path, "-o", out, "--batch-size", 5, "--in-flight", 1, status=1)
    lines = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
    starts = sorted({offset: start for start, _, offset, _ in lines})
    assert len(starts) == 3
    os.truncate(part, {"a byte": part.stat().st_size - 1, "two ranges": starts[1] + 1, "all": 0}.get(lost, 9))
    for batch in (1, 3):  # what was lost must not come back with a later run, either
        result = infer(path, "-o", out, "--resume", "--batch-size", batch, "--in-flight", 1, status=1)
        assert "48 rows done, and --resume goes on" in result.stderr
    with mended(folder):
        result = infer(path, "-o", out, "--resume")
    assert "48 done before" in result.stderr
    wanted = [{**row, "text": "a fault"} if index in (11, 30) else row for index, row in enumerate(WANTED)]
    assert READ[kind](out) == wanted


def test_nothing_done_is_nothing_to_resume(infer: Infer, tmp_path: Path) -> None:
    """A run that did no row is in nobody's way: the next begins anew, with --resume too, also of another file."""
    path, out = write_csv(tmp_path / "in.csv", [{**ROWS[0], "text": "a fault"}]), tmp_path / "out.csv"
    result = infer(path, "-o", out, status=1)
    assert result.stderr.endswith("\n1 row failed\n")
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]
    write_csv(path, ROWS[:2])
    for words in ([], ["--resume"]):
        out.with_name("out.csv.part").write_text("number,te")
        out.with_name("out.csv.journal").write_text(
            '{"input": [], "format": "csv", "columns": ["number", "text"]}\n[0, 1'
        )
        infer(path, "-o", out, *words)
        assert read_csv(out) == WANTED[:2]
        out.unlink()


def test_nothing_is_lost(infer: Infer, tmp_path: Path) -> None:
    """Neither an input nor an output that is there is written over; --overwrite gives the output up, not the input."""
    path, out = write_csv(tmp_path / "in.csv", ROWS[:1]), tmp_path / "out.csv"
    held = path.read_bytes()
    out.symlink_to(path)
    for place in (path, out):
        assert "is an input" in infer(path, "-o", place, "--overwrite", status=1).stderr
    assert path.read_bytes() == held
    out.unlink()
    out.write_text("mine")
    assert "--overwrite replaces it" in infer(path, "-o", out, status=1).stderr
    assert out.read_text() == "mine"
    assert infer(path, "-o", out, "--overwrite").stderr.startswith("1 row in ")
    assert read_csv(out) == WANTED[:1]


def test_resume_wants_the_same(infer: Infer, tmp_path: Path) -> None:
    """What is done of one file is not taken for that of another; --fail-fast stops at the first that fails."""
    rows = [ROWS[0], {**ROWS[1], "text": "a fault"}, *ROWS]
    path, out = write_csv(tmp_path / "in.csv", rows), tmp_path / "out.npz"
    result = infer(path, "-o", out, "--batch-size", 1, "--in-flight", 1, "--fail-fast", status=1)
    assert "row 2: 400: a row is not to my liking" in result.stderr
    write_csv(path, rows[1:])
    assert "of a run with another input" in infer(path, "-o", out, "--resume", status=1).stderr


@pytest.mark.parametrize("grpc", [False, True], ids=["rest", "grpc"])
def test_batches_that_are_too_large(grpc: bool, infer: Infer, tmp_path: Path) -> None:
    """Where a batch is more than the service takes, a smaller one is advised, and for one row it is not."""
    path = write_csv(tmp_path / "in.csv", [{**ROWS[0], "text": "x" * 600_000}] * 2)
    said = infer(path, status=1, grpc=grpc).stderr
    assert re.search("rows 1 to 2: (413|RESOURCE_EXHAUSTED): .* larger .*; a smaller --batch-size helps\n", said)
    assert infer(path, "--batch-size", 1, "-o", tmp_path / "out.csv", grpc=grpc).stderr.startswith("2 rows in ")
    write_csv(path, [{**ROWS[0], "text": "x" * 2_000_000}])
    said = infer(path, status=1, grpc=grpc).stderr
    assert re.search("row 1: (413|RESOURCE_EXHAUSTED): .* larger .*\n", said)
    assert "--batch-size" not in said


def test_cells_that_will_not_do(infer: Infer, tmp_path: Path) -> None:
    """A cell that its input has no form of fails its batch alone, and is told by row and column."""
    rows = [{**row} for row in ROWS[:8]]
    rows[2]["number"], rows[5]["whole"] = "much", ""
    path = write_csv(tmp_path / "in.csv", rows)
    result = infer(path, "-o", tmp_path / "out.csv", "--batch-size", 2, "--skip-failed", status=1)
    assert """row 3, column "number": expected FP64, got 'much'""" in result.stderr
    assert 'row 6, column "whole": missing' in result.stderr
    assert read_csv(tmp_path / "out.csv") == WANTED[:2] + WANTED[6:8]
    rows[2]["number"], rows[5]["whole"] = 1, 1
    for row, when in ((3, "2024-13-01"), (7, "2024-01-01T00:00:00.123456789")):
        changed = [{**each, "when": when} if index == row else each for index, each in enumerate(rows)]
        path, text = write_csv(tmp_path / "in.csv", changed), re.escape(repr(when))
        for grpc in (False, True):
            said = infer(path, status=1, grpc=grpc).stderr
            assert re.search(rf'rows 1 to 8: row {row + 1}: .*input "when": data: .*{text}', said)
    result = infer(path, "--batch-size", 1, status=1)
    assert [each.partition("400: ")[0] for each in result.stderr.splitlines() if "400: " in each] == ["row 8: "]
    path = write_jsonl(tmp_path / "in.jsonl", [ROWS[0], {"number": 1}])
    assert 'row 2, column "text": missing' in infer(path, status=1).stderr


def test_an_output_that_has_no_answer_for_each_row() -> None:
    """Three numbers of any picture are no answers for three rows; where an input has three rows, too, they are."""
    picture, three = MetadataTensor("x", "UINT8", [-1, -1, 3]), MetadataTensor("x", "UINT8", [3, 4])
    mean = MetadataTensor("y", "FP32", [3])
    with pytest.raises(Failure, match='output "y" has the shape .3., .* and so none for each row'):
        check_outputs([picture], [mean])
    check_outputs([three], [mean])
    check_outputs([picture], [MetadataTensor("y", "FP32", [1])])


def test_columns_of_an_only_input(tmp_path: Path) -> None:
    """An only input takes the columns of numbers, without a header too, an NPY, and lists; the answers are the same."""
    numbers = np.arange(20, dtype=np.float32).reshape(5, 4)
    plain = "\n".join(",".join(map(str, row)) for row in numbers.tolist())
    named = "\n".join(f"id{index},{line}" for index, line in enumerate(plain.splitlines()))
    (tmp_path / "plain.csv").write_text(plain)
    (tmp_path / "named.csv").write_text(f"id,a,b,c,d\n{named}\n")
    np.save(tmp_path / "c.npy", numbers)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(numbers))
    write_jsonl(tmp_path / "lists.jsonl", [{"x": row} for row in numbers.tolist()])
    with gunicorn(ROOT, "tests.service.apps:four()") as running:

        def infer(*words: str) -> np.ndarray:
            out = tmp_path / "out.npy"
            where = ["--url", f"http://{running.http}", "--output", str(out), "--overwrite", "--batch-size", "2"]
            result = CliRunner().invoke(main, ["infer", *words, *where])
            assert result.exit_code == 0, result.stderr
            return np.load(out)

        wanted = numbers @ np.arange(8, dtype=np.float32).reshape(4, 2)
        for words in (["plain.csv", "--no-header"], ["named.csv"], ["c.npy"], ["fortran.npy"], ["lists.jsonl"]):
            np.testing.assert_array_equal(infer(str(tmp_path / words[0]), *words[1:]), wanted)
        backwards = infer(str(tmp_path / "named.csv"), "--columns", "d,c,b,a")
        np.testing.assert_array_equal(backwards, numbers[:, ::-1] @ np.arange(8, dtype=np.float32).reshape(4, 2))
        (tmp_path / "many.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n")
        result = CliRunner().invoke(main, ["infer", str(tmp_path / "many.csv"), "--url", f"http://{running.http}"])
        assert 'input "x" takes 4 columns of numbers; the file has 5: a, b, c, d, e' in result.stderr
        result = CliRunner().invoke(main, ["infer", str(tmp_path / "named.csv"), "--url", f"http://{running.http}"])
        assert result.stderr.startswith(
            'input "x" gets the columns a, b, c, d\ncolumns that no input takes: id (--keep'
        )


@pytest.mark.parametrize("swapped", [False, True])
def test_chosen_by_name_or_by_place(swapped: bool, infer: Infer, tmp_path: Path) -> None:
    """--columns goes by name where all of them are inputs', by place where none is, and never by both."""
    names = [*ROWS[0]]
    path = write_csv(tmp_path / "in.csv", ROWS[:3])
    (tmp_path / "other.csv").write_text(path.read_text().replace(",".join(names), "a,b,c,d,e"))
    chosen = ",".join(names[::-1] if swapped else names)
    infer(path, "-o", tmp_path / "out.csv", "--columns", chosen)
    assert read_csv(tmp_path / "out.csv") == WANTED[:3]
    order = "b,a,c,d,e" if swapped else "a,b,c,d,e"
    result = infer(tmp_path / "other.csv", "--columns", order, status=int(swapped))
    assert f"inputs get columns by position: number <- {order[0]}, text <- {order[2]}, when" in result.stderr
    assert swapped == ('column "b": expected FP64' in result.stderr)


@pytest.mark.parametrize(
    ("header", "chosen", "said"),
    [
        ("number,txt,when,flag,whole", "number,txt,when,flag,whole", "txt: .*; without a column: text$"),
        ("text,when,flag,whole,Number", "text,when,flag,whole,Number", '"number" differs in case$'),
        ("number,text,when,flag,id", "number,text,when,flag,id", "id: .*; without a column: whole$"),
        ("a,b,c", "a,b,c", "there are 3 of them for 5 inputs: number, text, when, flag, whole$"),
    ],
    ids=["misspelt", "case", "more", "fewer"],
)
def test_chosen_by_half(header: str, chosen: str, said: str, infer: Infer, tmp_path: Path) -> None:
    """Columns of which some are inputs' and some are not are taken for nothing: those that are not are named."""
    path = tmp_path / "in.csv"
    path.write_text(f"{header}\n{'1,' * header.count(',')}1\n")
    result = infer(path, "-o", tmp_path / "out.csv", "--columns", chosen, status=1)
    assert re.search(said, result.stderr.strip())
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]


def test_more_columns_by_number(infer: Infer, tmp_path: Path) -> None:
    """NAME_0 is not taken for an input of one value where NAME_1 is there too, unless it is chosen."""
    path = tmp_path / "in.csv"
    path.write_text("number_0,number_1,text,when,flag\n1,2,a,2024-01-01,true\n")
    result = infer(path, "-o", tmp_path / "out.csv", status=1)
    assert 'input "number" (shape [-1]) takes one column, and the file has number_0 and number_1; --c' in result.stderr
    infer(path, "-o", tmp_path / "out.csv", "--columns", "number_0,text,when,flag")
    assert read_csv(tmp_path / "out.csv")[0]["number"] == 1


def test_optional_input_in_another_case(infer: Infer, tmp_path: Path) -> None:
    """A column that is nearly called as an optional input is not taken, which is told."""
    (tmp_path / "in.csv").write_text("number,text,when,flag,Whole\n1,a,2024-01-01,true,7\n")
    result = infer(tmp_path / "in.csv", "-o", tmp_path / "out.csv")
    assert 'no column for the optional input "whole"; "Whole" differs in case\n' in result.stderr
    assert read_csv(tmp_path / "out.csv")[0]["whole"] == 0


def test_kept_column_named_as_an_output(infer: Infer, tmp_path: Path) -> None:
    """--keep is refused before the first request where a column would be there twice, and not advised."""
    path, out = tmp_path / "in.csv", tmp_path / "out.csv"
    path.write_text("id,pair_1,number,text,when,flag\n7,8,1,a,2024-01-01,true\n")
    said = 'Error: --keep: "pair_1" is an output of the model too; rename the column in the file, or leave --keep out\n'
    assert infer(path, "-o", out, "--keep", status=1).stderr == said
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]
    assert infer(path, "-o", out).stderr.startswith("columns that no input takes: id, pair_1\n")
    infer(path, "-o", tmp_path / "out.jsonl", "--keep")
    assert read_jsonl(tmp_path / "out.jsonl")[0]["pair_1"] == "8"
    pytest.importorskip("pyarrow")
    assert infer(path, "-o", tmp_path / "out.parquet", "--keep", status=1).stderr == said


def test_separator(infer: Infer, tmp_path: Path) -> None:
    """Other separators are named, and blanks around the names are none of them."""
    path = write_csv(tmp_path / "in.csv", [{**row, "text": "a"} for row in ROWS[:3]])
    names, *rows = path.read_text().splitlines()
    path.write_text("\n".join([names.replace(",", " ;  "), *(row.replace(",", ";") for row in rows)]))
    infer(path, "-o", tmp_path / "out.csv", "--separator", ";")
    assert read_csv(tmp_path / "out.csv") == [{**row, "text": "a"} for row in WANTED[:3]]


@pytest.mark.parametrize("quoted", [False, True], ids=["plain", "quoted"])
@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"], ids=repr)
@pytest.mark.parametrize(("row", "fields"), [("1", 1), ("1,2,3", 3)], ids=["shorter", "longer"])
def test_ragged_rows(row: str, fields: int, ends: str, quoted: bool, tmp_path: Path) -> None:
    """A row that is too short or too long is told by its line, wherever it is, and others are not."""
    text = f'"a, ""b""{ends}c"' if quoted else "2" * 20
    lines = ["x,y", *[f"1,{text}"] * 30_000, "", f"1,{text}"]
    path, columns = tmp_path / "in.csv", {"x": "i"}
    path.write_bytes(ends.join(lines).encode())
    with closing(open_table([str(path)], None)) as table:
        assert sum(len(piece["x"]) for piece in table.read(columns)) == 30_001
    path.write_bytes(ends.join([*lines[:20_000], row, *lines]).encode())
    number = 20_001 + 19_999 * quoted
    with (
        closing(open_table([str(path)], None)) as table,
        pytest.raises(Failure, match=f"line {number} has {fields} fields?, and the first line 2$"),
    ):
        list(table.read(columns))


def matched(path: Path, *inputs: MetadataTensor) -> InferenceRequest:
    """The request of a file's rows."""
    with closing(open_table([str(path)], None)) as table:
        matching = match(table, inputs)
        (piece,) = table.read(matching.kinds)
        return matching.request(piece)


def test_columns_by_number(tmp_path: Path) -> None:
    """Columns are not taken by their places where their names say what is missing."""
    (tmp_path / "in.csv").write_text("f_0,f_1,f_2,x\n1,2,3,4\n")
    for shape in ([-1, 4], [-1, 2, 2]):
        with pytest.raises(Failure, match="^f_3 is missing"):
            matched(tmp_path / "in.csv", MetadataTensor("f", "FP32", shape))
    (request,) = matched(tmp_path / "in.csv", MetadataTensor("f", "FP32", [-1, -1])).inputs
    assert request.data.tolist() == [[1, 2, 3]]
    with pytest.raises(
        Failure, match=r"^input \"f\" \(shape \[-1, 2\]\) takes 2 columns, .* f_0, f_1 and f_2; --columns"
    ):
        matched(tmp_path / "in.csv", MetadataTensor("f", "FP32", [-1, 2]))
    np.save(tmp_path / "in.npy", np.zeros((2, 3)))
    for shape in ([-1, 4], [-1], [-1, -1, 3]):
        with pytest.raises(Failure, match="the array has rows of"):
            matched(tmp_path / "in.npy", MetadataTensor("f", "FP64", shape))


def test_integers(tmp_path: Path) -> None:
    """Large integers stay exact beside small ones, and one that is none is told by row, column and value."""
    path = write_jsonl(tmp_path / "in.jsonl", [{"n": 1}, {"n": 2**63 + 1}])
    assert matched(path, MetadataTensor("n", "UINT64", [-1])).inputs[0].data.tolist() == [1, 2**63 + 1]
    for text, said in (("2.5", "expected INT64, got 2.5"), (str(2**62 * 4), "INT64")):
        (tmp_path / "in.csv").write_text(f"n\n1\n{text}\n3\n")
        with pytest.raises(InvalidInput, match=f'row 2, column "n": .*{said}'):
            matched(tmp_path / "in.csv", MetadataTensor("n", "INT64", [-1]))
    (tmp_path / "in.csv").write_text("n\n1\n300\n")
    with pytest.raises(InvalidInput, match='row 2, column "n": 300 is out of the range of UINT8'):
        matched(tmp_path / "in.csv", MetadataTensor("n", "UINT8", [-1]))


@pytest.mark.parametrize(
    ("datatype", "lines", "said"),
    [
        ("INT64", "1.0\n9007199254740993\n2", "row 2, .* is not exact"),
        ("INT64", "1_000\n7\n2", "row 1, .*expected INT64, got '1_000'"),
        ("FP64", "1\n2\n1_000", "row 3, .*expected FP64, got '1_000'"),
        ("FP64", f"1\n{'9' * 400}\n2", "row 2, .*expected FP64, got '?9999"),
        ("FP16", "1\n70000\n80000", "row 2, .*FP16 cannot hold 70000"),
        ("FP32", "inf\nNaN\n1e39", "row 3, .*FP32 cannot hold 1e[+]39"),
    ],
)
def test_numbers_are_not_altered(datatype: str, lines: str, said: str, tmp_path: Path) -> None:
    """A cell that its input would hold as another number is refused, by its row."""
    (tmp_path / "in.csv").write_text(f"n\n{lines}\n")
    with pytest.raises(InvalidInput, match=said):
        matched(tmp_path / "in.csv", MetadataTensor("n", datatype, [-1]))


@pytest.mark.parametrize(
    ("datatype", "values", "said"),
    [
        ("BYTES", ["a", 7, True], "row 3, .*expected text, got True"),
        ("BYTES", ["a", [1], "b"], "row 2, .*expected text"),
        ("FP32", [[1, 2], [1], [1, 2]], "row 2, .*its list and others differ in length"),
        ("FP32", [[1, 2], [1, 2], [1, [2]]], "row 3, .*its list and others differ in length"),
    ],
)
def test_cells_of_json_lines(datatype: str, values: list[Any], said: str, tmp_path: Path) -> None:
    """What no cell of the input may be is told by its row."""
    path = write_jsonl(tmp_path / "in.jsonl", [{"x": each} for each in values])
    with pytest.raises(InvalidInput, match=said):
        matched(path, MetadataTensor("x", datatype, [-1, -1] if datatype == "FP32" else [-1]))


def test_lists_in_parquet(tmp_path: Path) -> None:
    """A list is a row of the input; lists of different lengths are told."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    for rows in ([[1.0, 2.0], [3.0, 4.0]], [[[1.0], [2.0]], [[3.0], [4.0]]]):
        pq.write_table(pa.table({"x": rows}), tmp_path / "in.parquet")
        (made,) = matched(tmp_path / "in.parquet", MetadataTensor("x", "FP32", [-1, 2])).inputs
        assert made.data.tolist() == [[1, 2], [3, 4]]
    pq.write_table(pa.table({"x": [[1.0], [3.0, 4.0]]}), tmp_path / "in.parquet")
    with pytest.raises(InvalidInput, match="differ in length"):
        matched(tmp_path / "in.parquet", MetadataTensor("x", "FP32", [-1, 2]))


def test_images(tmp_path: Path) -> None:
    """Image files are rows, their bytes as they are, in the form that the input's content type has."""
    for index in range(5):
        (tmp_path / f"{index}.png").write_bytes(b"\x89PNG" + bytes(index))
    with gunicorn(ROOT, "tests.service.apps:images()") as running:
        paths = [str(tmp_path / f"{index}.png") for index in range(5)]
        where = ["--url", f"http://{running.http}", "--batch-size", "2", "--keep", "--output-format", "jsonl"]
        result = CliRunner().invoke(main, ["infer", *paths, *where])
        absent = CliRunner().invoke(main, ["infer", paths[0], "none.png", *where])
    assert (absent.exit_code, absent.stderr) == (1, "Error: none.png: No such file or directory\n")
    assert result.exit_code == 0, result.stderr
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"file": path, "size": 4 + index, "begins": repr(b"\x89PNG")} for index, path in enumerate(paths)
    ]


LINES = 150_000  # more than the command reads ahead


def line(row: int) -> str:
    return f"{row},text {row},2024-01-01T00:00:00,true,{row}\n"


def whole(rows: int) -> str:
    return "number,text,when,flag,whole\n" + "".join(map(line, range(rows)))


@contextmanager
def running(service: Running, out: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command in a process of its own, which reads CSV from its stdin."""
    command = [sys.executable, "-m", "app", "infer", "-", "--format", "csv", "--output", str(out)]
    with subprocess.Popen(
        [*command, "--url", f"http://{service.http}", *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def feed(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin
    process.stdin.write(text.encode())
    process.stdin.flush()


def said_at_the_end(process: subprocess.Popen[bytes]) -> str:
    """Its stderr, when it has ended, which the end of its stdin makes it."""
    assert process.stdin
    assert process.stderr
    process.stdin.close()
    process.wait(60)
    return process.stderr.read().decode()


def is_under_way(out: Path) -> bool:
    """Whether rows are done, and the journal says so."""
    journal = out.with_name(f"{out.name}.journal")
    return journal.exists() and journal.read_text().count("\n") > 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT], ids=["killed", "interrupted"])
def test_goes_on_after_a_stop(how: signal.Signals, service: Running, infer: Infer, tmp_path: Path) -> None:
    """A run that is killed or interrupted is resumed: each row is there once, in its place."""
    out, text = tmp_path / "out.csv", whole(LINES)
    with running(service, out) as process:
        feed(process, text[: len(text) // 2])
        wait_for(lambda: is_under_way(out))
        os.kill(process.pid, how)
        process.wait(60)
        assert process.stderr
        said = process.stderr.read().decode()
    if how == signal.SIGINT:
        assert process.returncode == 130, said
        assert said.startswith("Error: interrupted; ")
        assert len(said.splitlines()) == 1
    with out.with_name("out.csv.part").open("ab") as file:
        file.write(b"half a r")
    result = infer("-", "--format", "csv", "-o", out, "--resume", stdin=text.encode())
    assert " done before" in result.stderr
    found = out.read_text().splitlines()[1:]
    assert [int(each.split(",")[4]) for each in found] == list(range(LINES))


def test_waits_for_a_service_that_starts_anew(folder: Path, tmp_path: Path) -> None:
    """A service that is replaced in the middle of a run costs no row."""
    http, grpc = free_ports(2)
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": http, "GRPC_PORT": grpc, "DRAIN_SECONDS": 0, "FOLDER": folder}
    command = [sys.executable, "-m", "gunicorn", "tests.service.apps:rows()"]
    out, text = tmp_path / "out.csv", whole(LINES)
    with ExitStack() as stack:
        with started(command, ROOT, settings) as first:
            process = stack.enter_context(running(first, out, "--retries", "20"))
            feed(process, text[: len(text) // 2])
            wait_for(lambda: is_under_way(out))
        with started(command, ROOT, settings):
            feed(process, text[len(text) // 2 :])
            said = said_at_the_end(process)
        assert process.returncode == 0, said
    found = out.read_text().splitlines()[1:]
    assert [int(each.split(",")[4]) for each in found] == list(range(LINES))


def test_memory_is_flat(service: Running, tmp_path: Path) -> None:
    """What the command holds at the end of a long stream is what it held at its beginning."""
    out = tmp_path / "out.csv"
    with running(service, out) as process:
        held, piece = [], "".join(map(line, range(50_000)))
        feed(process, "number,text,when,flag,whole\n")
        for _ in range(10):
            feed(process, piece)
            held.append(resident(process.pid))
        said = said_at_the_end(process)
        assert process.returncode == 0, said
    assert held[-1] - held[1] < 0.1 * held[1]
    assert out.read_bytes().count(b"\n") == 500_001


def resident(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))


CELLS = {
    "text": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0"), max_size=5),
    "number": st.floats(allow_infinity=False, width=64),
    "whole": st.integers(-(2**63), 2**63 - 1),
}
TABLES = st.lists(st.fixed_dictionaries(CELLS), min_size=1, max_size=5)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_what_is_written_is_read(kind: str, tmp_path: Path) -> None:
    """Text, numbers and gaps are the same in the file that is written and in the one that is read."""

    @settings(max_examples=100, deadline=None)
    @given(TABLES)
    def check(rows: list[dict[str, Any]]) -> None:
        arrays = {
            "text": object_array([row["text"] for row in rows]),
            "number": np.array([row["number"] for row in rows]),
            "whole": np.array([row["whole"] for row in rows]),
        }
        writer = WRITERS[kind]
        path = tmp_path / f"table.{kind}"
        path.write_bytes(writer.header(list(arrays)) + writer.encode([Column(*each) for each in arrays.items()]))
        with closing(open_table([str(path)], None)) as table:
            (piece,) = table.read({"number": "f", "whole": "i", "text": "O"})
        assert piece["text"].tolist() == arrays["text"].tolist()
        assert piece["whole"].tolist() == arrays["whole"].tolist()
        found = np.array([np.nan if each is None else each for each in piece["number"].tolist()])
        np.testing.assert_allclose(found, arrays["number"], rtol=1e-15)

    check()
