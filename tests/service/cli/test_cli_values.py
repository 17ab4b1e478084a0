"""`infer`: values that are lost, altered or refused on their way from a file through a model into another."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from app.cli import main
from app.cli.columns import Column
from app.cli.writearrays import write_parquet
from app.datatypes import object_array
from tests.service.processes import Running, gunicorn

ROOT = Path(__file__).parents[3]
TEXTS = ["plain", "null", '{"a":[1,"ü"]}', "123456789012345678901234567890", '"7"', "true"]
VALUES = ["plain", None, {"a": [1, "ü"]}, 123456789012345678901234567890, "7", True]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:values()") as running:
        yield running


Infer = Callable[..., Result]


@pytest.fixture
def infer(service: Running, tmp_path: Path) -> Infer:
    """infer(rows, words, ...): the command on texts as JSON lines, on bytes of CSV, or on a file."""

    def run(rows: list[str] | bytes | Path, *words: Any, status: int = 0, grpc: bool = False) -> Result:
        path = rows if isinstance(rows, Path) else tmp_path / ("in.csv" if isinstance(rows, bytes) else "in.jsonl")
        if not isinstance(rows, Path) and "--resume" not in words:
            lines = [] if isinstance(rows, bytes) else [json.dumps({"text": each}) + "\n" for each in rows]
            path.write_bytes(rows if isinstance(rows, bytes) else "".join(lines).encode())
        where = ["--grpc", service.grpc] if grpc else ["--url", f"http://{service.http}"]
        result = CliRunner().invoke(main, ["infer", str(path), *map(str, words), *where])
        assert result.exit_code == status, (result.exit_code, result.stderr, result.exception)
        return result

    return run


def outputs(result: Result, name: str) -> list[Any]:
    return [json.loads(line)[name] for line in result.stdout.splitlines()]


@pytest.mark.parametrize("start", ["", "\n\n"], ids=["", "late"])
def test_blank_rows(start: str, infer: Infer) -> None:
    """A blank line of the only column is a row of empty text; of several columns it is none."""
    told = infer(f"{start}text\nhello\n\nworld\n\n".encode(), "--output-format", "jsonl")
    assert outputs(told, "text") == ["hello", "", "world", ""]
    told = infer(f"{start}text,id\nhello,1\n\nworld,2\n\n".encode(), "--output-format", "jsonl", "--keep")
    assert outputs(told, "id") == ["1", "2"]


def test_json_outputs(infer: Infer, tmp_path: Path) -> None:
    """An output of pd_json is the values that it says, in every format that has them."""
    assert outputs(infer(TEXTS, "--output-format", "jsonl"), "json") == VALUES
    told = infer(TEXTS, "--output-format", "csv").stdout.splitlines()
    assert [line.split(",2024")[0] for line in told[1:]] == [
        "plain,plain", "null,", '"{""a"":[1,""ü""]}","{""a"":[1,""ü""]}"', f"{TEXTS[3]},{TEXTS[3]}", '"""7""",7',
        "true,true",
    ]  # fmt: skip
    infer(["a", "b"], "-o", tmp_path / "out.npz")
    assert np.load(tmp_path / "out.npz")["json"].tolist() == ["a", "b"]
    told = infer(TEXTS, "-o", tmp_path / "mixed.npz", status=1)
    assert 'mixed.npz: "json": an array has no form of' in told.stderr


@pytest.mark.parametrize(
    ("texts", "kind", "said"),
    [
        (["a", "offset"], "parquet", 'output "when": data: some moments have an offset, and some have none'),
        (["a", "b", "offset", "offset"], "parquet", ".*Field when has incompatible types"),
        (["[1]", "x"], "parquet", 'column "json": cannot mix list'),
        (["{}", "null"], "parquet", ".*'json'"),
        ([str(10**30), "1"], "parquet", 'column "json": '),
        (["gap", "x"], "npz", '"text": an array has no form of'),
        (["1", "2", "x", "y"], "parquet", ".*Field json has incompatible types: int64 vs"),
        (["1", "2", "x", "y"], "npz", '"json": rows of <U1 and of int64'),
    ],
    ids=["offset", "offset later", "nested", "empty", "huge", "gap", "other later", "mixed"],
)
def test_values_without_a_form(texts: list[str], kind: str, said: str, infer: Infer, tmp_path: Path) -> None:
    """What a format cannot hold is never altered: the column is named, and another format has what is done."""
    if kind == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"out.{kind}"
    told = infer(texts, "-o", out, "--batch-size", 2, "--in-flight", 1, status=1)
    assert re.fullmatch(
        rf"Error: {out}: {said}.* rows done, and --resume with another --output-format.*\n", told.stderr
    )
    told = infer(texts, "-o", out, "--resume", "--output-format", "csv")
    assert f" {len(texts)} done before" in told.stderr
    lines = out.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["text", *("" if each == "gap" else each for each in texts)]
    assert ["+01:00" in line for line in lines[1:]] == ["offset" in each for each in texts]


def test_column_of_another_name(infer: Infer) -> None:
    """An only input that takes a column of another name is told so; of its own name, or of no names, it is not."""
    told = infer(b"id\n7\n8\n")
    assert told.stderr.startswith('input "text" gets the column "id"\n2 rows in ')
    assert infer(b"a,b\n1,x\n", "--columns", "b").stderr.startswith('input "text" gets the column "b"\ncolumns that no')
    assert infer(b"text\na\n").stderr.startswith("1 row in ")
    assert infer(b"a\n", "--no-header").stderr.startswith("1 row in ")


def test_infinity(infer: Infer) -> None:
    """JSON has none, which is told by column; CSV has."""
    told = infer(["a", "inf"], "--output-format", "jsonl", status=1)
    assert 'rows 1 to 2: column "number": JSON has no infinity; --output-format csv, parquet or npz has' in told.stderr
    assert infer(["a", "inf"]).stdout.splitlines()[2].endswith(',inf,""')


@pytest.mark.parametrize("kind", ["csv", "jsonl", "npz"])
def test_bytes_that_are_no_text(kind: str, infer: Infer, tmp_path: Path) -> None:
    """The column is named, and what makes text of them; Parquet has them as they are."""
    told = infer(["a", "png"], "-o", tmp_path / f"out.{kind}", status=1).stderr
    assert 'column "bytes": data: not UTF-8 text: ' in told
    assert 'content_type="base64" in METADATA makes text of bytes' in told
    assert "Traceback" not in told
    parquet = pytest.importorskip("pyarrow.parquet")
    infer(["a", "png"], "-o", tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet")["bytes"].to_pylist() == [b"", b"\x89PNG"]


def test_missing_text(infer: Infer, tmp_path: Path) -> None:
    """A text that is missing comes back so over REST; gRPC has no form of it, which is told by row and column."""
    told = infer(["a", "gap"], "--output-format", "jsonl")
    assert outputs(told, "text") == ["a", None]
    assert outputs(told, "number") == [0, 0]
    assert infer(["a", "gap"], status=1, grpc=True).stderr.count('output "text"') == 1
    assert "leave --grpc out" in infer(["a", "gap"], status=1, grpc=True).stderr
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a", None]}), tmp_path / "in.parquet")
    told = infer(tmp_path / "in.parquet", status=1, grpc=True)
    assert 'input "text": row 2, column "text": missing text, which gRPC has no form of' in told.stderr


def test_types_of_parquet(infer: Infer, tmp_path: Path) -> None:
    """What the first answers do not have does not keep the later ones from a type."""
    pd, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    texts = ["null", "null", "1", "null", "2.5", "3"]
    infer(texts, "-o", tmp_path / "out.parquet", "--batch-size", 2)
    assert pd.read_parquet(tmp_path / "out.parquet")["json"].tolist() == pytest.approx(
        [np.nan, np.nan, 1, np.nan, 2.5, 3], nan_ok=True
    )


def test_parquet_without_pyarrow(infer: Infer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it is not installed is told before any row is sent."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for words in ([b"text\na\n", "-o", tmp_path / "out.parquet"], [tmp_path / "in.parquet"]):
        assert infer(*words, status=1).stderr == "Error: Parquet needs pyarrow: pip install pyarrow\n"
    assert not (tmp_path / "out.parquet.part").exists()


def test_moments_of_parquet(tmp_path: Path) -> None:
    """Moments that are all missing in some answers have what the others have: an offset, or none."""
    pq = pytest.importorskip("pyarrow.parquet")
    for zone in ("", "Z"):
        pieces = [["NaT", "NaT"], [f"2024-01-01T00:00:00{zone}", "NaT"]]
        columns = [[Column("when", object_array(each), "datetime")] for each in pieces]
        write_parquet(tmp_path / "out.parquet", lambda made=columns: iter(made))  # type: ignore[misc]
        (field,) = pq.read_schema(tmp_path / "out.parquet")
        assert bool(field.type.tz) == bool(zone)
        assert pq.read_table(tmp_path / "out.parquet")["when"].null_count == 3
