"""`infer`: invalid files and rows, and columns of each type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from app.cli import main
from tests.kit.processes import Running, free_ports, gunicorn
from tests.service.cli.tables import (
    READ,
    ROOT,
    ROWS,
    WANTED,
    WRITE,
    Infer,
    read_csv,
    write_csv,
    write_jsonl,
)


@pytest.fixture(scope="module")
def four() -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.table_apps:four()") as running:
        yield running


@pytest.mark.parametrize(
    ("text", "words", "error"),
    [
        (
            "number,text,when\n1,a,2024-01-01\n",
            [],
            'Input "flag": no column. The file has number, text, when.',
        ),
        ("a,b\n1,2\n", ["--columns", "c"], '--columns: no column "c". The file has a, b.'),
        (
            "number,text,when,flag\n1,a,2024-01-01,true\n2,b\n",
            [],
            "in.csv: .*Row #2: Expected 4 columns, got 2",
        ),
        ("", [], "in.csv: invalid header"),
        (
            "number,text,number\n1,a,2\n",
            [],
            "in.csv: invalid header. Expected a different name for each column",
        ),
        ("number,text,when,flag\n1,caf\xe9,2024-01-01,1\n", [], "in.csv: .*invalid UTF8"),
    ],
    ids=["missing", "chosen", "ragged", "empty", "twice", "latin"],
)
def test_rejects_invalid_files(
    text: str, words: list[str], error: str, infer: Infer, tmp_path: Path
) -> None:
    """A file that does not match the model fails with a one-line error that names the column or the row."""
    (tmp_path / "in.csv").write_text(text, "latin-1")
    result = infer(tmp_path / "in.csv", "-o", tmp_path / "out.csv", *words, status=1)
    assert re.match(f"Error: .*{error}", result.stderr)
    assert len(result.stderr.splitlines()) == 1


def test_rejects_invalid_options(infer: Infer, tmp_path: Path) -> None:
    """Invalid options exit with status 2 and change no file. An unreachable service exits with status 3."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    for words in (
        [path, "-o", tmp_path / "out.xyz"],
        [path, "--output-format", "parquet"],
        [path, "--json"],
        [path, "--skip-failed"],
        [path, "-o", path],
    ):
        infer(*words, status=2)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]
    assert "unknown format" in infer(tmp_path / "none.xyz", status=1).stderr
    assert "No such file" in infer(tmp_path / "none.csv", status=1).stderr
    error = infer(path, "-o", "/dev/full", "--output-format", "csv", status=1).stderr
    assert error == "Error: /dev/full: No space left on device\n"
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert CliRunner().invoke(main, ["infer", str(path), "--url", nowhere]).exit_code == 3


@pytest.mark.parametrize("kind", WRITE)
def test_failed_rows(kind: str, infer: Infer, tmp_path: Path) -> None:
    """Rows of failed requests are written to a separate file, which can be sent again."""
    rows = [{**row, "text": "a fault"} if index == 11 else row for index, row in enumerate(ROWS)]
    path, out = WRITE[kind](tmp_path / f"in.{kind}", rows), tmp_path / f"out.{kind}"
    result = infer(path, "-o", out, "--batch-size", 5, "--skip-failed", "--json", status=1)
    report = json.loads(result.stdout)
    assert report["faults"] == [
        {"first": 11, "last": 15, "error": "400: Invalid text. Expected text without a fault."}
    ]
    assert (report["rows"], report["failed"], report["failed_rows"]) == (
        45,
        5,
        str(tmp_path / f"out.failed.{kind}"),
    )
    assert READ[kind](out) == WANTED[:10] + WANTED[15:]
    rest = tmp_path / f"rest.{kind}"
    result = infer(
        tmp_path / f"out.failed.{kind}", "-o", rest, "--batch-size", 1, "--skip-failed", status=1
    )
    assert "Rows 2 to 2: 400: Invalid text. Expected text without a fault." in result.stderr
    assert READ[kind](rest) == [WANTED[10], *WANTED[12:15]]
    assert b"a fault" in (tmp_path / f"rest.failed.{kind}").read_bytes()
    infer(WRITE[kind](path, ROWS), "-o", out, "--skip-failed")
    assert READ[kind](out) == WANTED
    assert not (tmp_path / f"out.failed.{kind}").exists()  # left by the previous run


def test_incomplete_output(infer: Infer, tmp_path: Path) -> None:
    """Without --skip-failed, OUTPUT changes only if all rows succeed. --fail-fast stops at the first error."""
    rows = [
        {**row, "text": "a fault"} if index in (11, 30) else row for index, row in enumerate(ROWS)
    ]
    path, out = write_csv(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    out.write_text("mine")
    result = infer(path, "-o", out, "--batch-size", 5, status=1)
    assert result.stderr.endswith(f"10 rows failed. Other results: {out}.part.\n")
    assert out.read_text() == "mine"
    assert read_csv(tmp_path / "out.csv.part") == WANTED[:10] + WANTED[15:30] + WANTED[35:]
    result = infer(path, "-o", out, "--batch-size", 1, "--concurrency", 1, "--fail-fast", status=1)
    assert (
        result.stderr == "Error: Rows 12 to 12: 400: Invalid text. Expected text without a fault.\n"
    )
    assert read_csv(tmp_path / "out.csv.part") == WANTED[:11]


@pytest.mark.parametrize("transport", ["rest-json", "grpc"])
def test_rejects_too_large_batches(transport: str, infer: Infer, tmp_path: Path) -> None:
    """A request that is too large is not retried, and the error suggests a smaller batch."""
    path = write_csv(tmp_path / "in.csv", [{**ROWS[0], "text": "x" * 600_000}] * 2)
    error = infer(path, "--retries", 1000, status=1, transport=transport).stderr
    assert re.search(
        "Rows 1 to 2: (413|RESOURCE_EXHAUSTED): .*. Use a smaller --batch-size.\n", error
    )
    assert infer(
        path, "--batch-size", 1, "-o", tmp_path / "out.csv", transport=transport
    ).stderr.startswith("2 rows in ")


@pytest.mark.parametrize("transport", ["rest-binary", "grpc"])
def test_overload_is_retried(transport: str, infer: Infer, tmp_path: Path) -> None:
    """A request that an overloaded service rejects is retried until all rows succeed."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    limits = {"MAX_CONCURRENCY": 1, "MAX_QUEUE_SIZE": 0, "MAX_BATCH_SIZE": 1, "FOLDER": tmp_path}
    with gunicorn(ROOT, "tests.service.table_apps:rows()", **limits) as full:
        words = [path, "--batch-size", 2, "--concurrency", 4]
        infer(*words, "-o", tmp_path / "out.csv", "--retries", 100, transport=transport, at=full)
        assert (
            "rows failed"
            in infer(*words, "--retries", 0, transport=transport, at=full, status=1).stderr
        )
    assert read_csv(tmp_path / "out.csv") == WANTED


@pytest.mark.parametrize(
    ("column", "cell", "error"),
    [
        ("number", "much", "invalid value. Expected FP64, got .*'much'"),
        ("number", "1_000", "invalid value. Expected FP64, got .*'1_000'"),
        ("number", "1e400", "value out of range. Expected FP64"),
        ("number", "-" + "9" * 400, "value out of range. Expected FP64"),
        ("whole", "2.5", "invalid value. Expected INT64, got .*'2.5'"),
        ("whole", "1.0", "invalid value. Expected INT64, got .*'1.0'"),
        ("whole", str(2**63), "invalid value. Expected INT64, got .*'9223372036854775808'"),
        ("whole", "", "invalid value. Expected INT64, got .*''"),
        ("flag", "2", "invalid value. Expected BOOL, got .*2"),
    ],
)
def test_rejects_cells_without_an_exact_value(
    column: str, cell: str, error: str, infer: Infer, tmp_path: Path
) -> None:
    """A cell that the datatype cannot represent exactly fails only its own request. The error names the input."""
    rows = [{**row, column: cell} if index == 2 else row for index, row in enumerate(ROWS[:8])]
    path = write_csv(tmp_path / "in.csv", rows)
    result = infer(path, "-o", tmp_path / "out.csv", "--batch-size", 2, "--skip-failed", status=1)
    assert re.search(f'Rows 3 to 4: Input "{column}": {error}', result.stderr)
    assert read_csv(tmp_path / "out.csv") == WANTED[:2] + WANTED[4:8]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("whole", "2.5", "in.jsonl: .*tried to convert to int64"),
        ("whole", 2.5, 'Rows 1 to 4: Input "whole": invalid value. Expected INT64, got .*2.5'),
        ("flag", 2, "in.jsonl: .*tried to convert to boolean"),
        ("flag", None, 'Rows 1 to 4: Input "flag": missing value'),
    ],
)
def test_rejects_json_values_of_mixed_types(
    name: str, value: Any, error: str, infer: Infer, tmp_path: Path
) -> None:
    """The values of a JSON member need a common type and are not changed."""
    rows = [
        {**row, "whole": index, name: value if index == 2 else row[name]}
        for index, row in enumerate(ROWS[:4])
    ]
    rows = [
        {**row, "whole": value if index == 2 else index} if name == "whole" else row
        for index, row in enumerate(rows)
    ]
    assert re.search(error, infer(write_jsonl(tmp_path / "in.jsonl", rows), status=1).stderr)


def test_columns_of_the_only_input(four: Running, infer: Infer, tmp_path: Path) -> None:
    """The only input takes numeric columns, NPY files or lists. --columns selects and orders the columns."""
    numbers = np.arange(20, dtype=np.float32).reshape(5, 4)
    lines = [",".join([f"id{index}", *map(str, row)]) for index, row in enumerate(numbers.tolist())]
    (tmp_path / "named.csv").write_text("\n".join(["id,a,b,c,d", *lines]))
    (tmp_path / "numbered.csv").write_text(
        (tmp_path / "named.csv").read_text().replace("a,b,c,d", "x_0,x_1,x_2,x_3")
    )
    np.save(tmp_path / "c.npy", numbers)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(numbers))
    write_jsonl(tmp_path / "lists.jsonl", [{"other": row} for row in numbers.tolist()])
    pq.write_table(
        pa.table({"id": list("abcde"), "x": numbers.tolist()}), tmp_path / "lists.parquet"
    )

    def results(name: str, *words: str) -> list[list[float]]:
        output = infer(
            tmp_path / name, "--output-format", "jsonl", "--batch-size", 2, *words, at=four
        ).stdout
        return [json.loads(line)["y"] for line in output.splitlines()]

    weights = np.arange(8, dtype=np.float32).reshape(4, 2)
    for name in (
        "named.csv",
        "numbered.csv",
        "c.npy",
        "fortran.npy",
        "lists.jsonl",
        "lists.parquet",
    ):
        assert results(name) == (numbers @ weights).tolist()
    assert results("named.csv", "--columns", "d,c,b,a") == (numbers[:, ::-1] @ weights).tolist()
    (tmp_path / "many.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n")
    error = infer(tmp_path / "many.csv", at=four, status=1).stderr
    assert (
        'Input "x": expected 4 columns, got 5 with numbers in a, b, c, d, e. Select with --columns.'
        in error
    )


@pytest.mark.parametrize("value", ["1e39", 1e39])
def test_rejects_numbers_out_of_range_of_fp32(
    value: Any, four: Running, infer: Infer, tmp_path: Path
) -> None:
    """A number that only FP64 can represent is rejected for an FP32 input, and is not sent as infinity."""
    path = write_jsonl(tmp_path / "in.jsonl", [{"a": value, "b": 1, "c": 2, "d": 3}])
    error = infer(path, "--columns", "a,b,c,d", at=four, status=1).stderr
    assert 'Input "x": value out of range. Expected FP32 within' in error


def test_chosen_columns(infer: Infer, tmp_path: Path) -> None:
    """--columns selects columns by input name. If no column has one, the order of the inputs applies."""
    names = [*ROWS[0]]
    path = write_csv(tmp_path / "in.csv", ROWS[:3])
    infer(path, "-o", tmp_path / "out.csv", "--columns", ",".join(reversed(names)))
    assert read_csv(tmp_path / "out.csv") == WANTED[:3]
    other = tmp_path / "other.csv"
    other.write_text(path.read_text().replace(",".join(names), "a,b,c,d,e"))
    infer(other, "-o", tmp_path / "out.csv", "--columns", "a,b,c,d,e")
    assert read_csv(tmp_path / "out.csv") == WANTED[:3]
    assert (
        'Input "number": invalid value. Expected FP64'
        in infer(other, "--columns", "b,a,c,d,e", status=1).stderr
    )
    error = infer(path, "--columns", "number,text,when,flag,Whole", status=1).stderr
    assert '--columns: no column "Whole"' in error


def test_files_for_a_bytes_input(infer: Infer, tmp_path: Path) -> None:
    """R6: with the content type of the metadata, each file is sent unchanged. The error names a file that fails."""
    paths = [tmp_path / f"{index}.png" for index in range(5)]
    for index, path in enumerate(paths):
        path.write_bytes(b"\x89PNG" + bytes(index))
    with gunicorn(ROOT, "tests.service.table_apps:images()") as running:
        words = [*paths, "--keep-columns", "--output-format", "jsonl"]
        output = infer(*words, at=running).stdout
        assert infer(*words, at=running, transport="grpc").stdout == output
        absent = infer(paths[0], tmp_path / "none.png", at=running, status=1).stderr
    assert [json.loads(line) for line in output.splitlines()] == [
        {"file": str(path), "size": 4 + index, "begins": repr(b"\x89PNG")}
        for index, path in enumerate(paths)
    ]
    assert absent == f"Error: {tmp_path / 'none.png'}: No such file or directory\n"


def test_outputs_of_text(values: Running, infer: Infer, tmp_path: Path) -> None:
    """Missing text, JSON, bytes and Infinity are written unchanged, or rejected if the format cannot represent them."""
    path = write_jsonl(
        tmp_path / "in.jsonl", [{"text": text} for text in ("gap", '{"a":[1,"ü"]}', "007")]
    )
    lines = infer(
        path, "--output-format", "jsonl", transport="rest-json", at=values
    ).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == [None, '{"a":[1,"ü"]}', "007"]
    assert [row["json"] for row in rows] == ['"gap"', '{"a":[1,"ü"]}', '"007"']
    assert (
        infer(path, transport="rest-json", at=values)
        .stdout.splitlines()[1]
        .startswith(',"""gap"""')
    )
    write_jsonl(path, [{"text": "png"}, {"text": "inf"}])
    assert 'Output "bytes": ' in infer(path, at=values, status=1).stderr
    infer(path, "-o", tmp_path / "out.parquet", at=values)
    assert pq.read_table(tmp_path / "out.parquet")["bytes"].to_pylist() == [b"\x89PNG", b""]
    write_jsonl(path, [{"text": "inf"}])
    assert (
        "JSON cannot represent Infinity"
        in infer(path, "--output-format", "jsonl", at=values, status=1).stderr
    )
    assert ",inf," in infer(path, at=values).stdout
