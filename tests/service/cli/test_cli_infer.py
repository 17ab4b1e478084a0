"""The infer command with files of every format and a running service."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import trustme
from click.testing import CliRunner, Result

from app.cli import main
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
Infer = Callable[..., Result]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("model")
    with gunicorn(ROOT, "tests.service.apps:rows()", FOLDER=folder, MAX_REQUEST_BYTES=2**20) as running:
        yield running


@pytest.fixture(scope="module")
def values() -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:values()") as running:
        yield running


@pytest.fixture(scope="module")
def four() -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:four()") as running:
        yield running


def grpc_at(address: str) -> list[str]:
    return ["--transport", "grpc", "--url", f"grpc://{address}"]


@pytest.fixture
def infer(service: Running) -> Infer:
    """Return a function that runs infer and checks its exit status."""

    def run(
        *words: Any, status: int = 0, transport: str = "rest-binary", at: Running = service, stdin: bytes = b""
    ) -> Result:
        rest = ["--transport", transport, "--url", f"http://{at.http}"]
        where = grpc_at(at.grpc) if transport == "grpc" else rest
        result = CliRunner().invoke(main, ["infer", *map(str, words), *where], input=stdin)
        assert result.exit_code == status, (result.exit_code, result.stderr, result.exception)
        return result

    return run


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    moments = [datetime.fromisoformat(row["when"]) for row in rows]
    pq.write_table(pa.Table.from_pylist([{**row, "when": when} for row, when in zip(rows, moments, strict=True)]), path)
    return path


def number(kind: Any, value: Any) -> Any:
    return None if value in ("", None) else kind(value)


def read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["pair"] = [number(np.float32, row.pop(f"pair_{index}")) for index in range(2)]
        row["number"], row["whole"], row["flag"] = (
            number(float, row["number"]),
            int(row["whole"]),
            row["flag"] == "true",
        )
    return rows


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{**row, "pair": [number(np.float32, each) for each in row["pair"]]} for row in rows]


def read_parquet(path: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        pair = [row.pop(f"pair_{index}") for index in range(2)]
        row["pair"] = [None if each != each else np.float32(each) for each in pair]
        row["number"], row["when"] = None if row["number"] != row["number"] else row["number"], row["when"].isoformat()
    return rows


WRITE = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}
READ: dict[str, Any] = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}


@pytest.mark.parametrize("transport", ["rest-json", "rest-binary", "grpc"])
@pytest.mark.parametrize("kind", WRITE)
def test_every_format(kind: str, transport: str, infer: Infer, tmp_path: Path) -> None:
    """The output file has the format and the row order of the input file, however long each batch takes."""
    path = WRITE[kind](tmp_path / f"in.{kind}", ROWS)
    infer(path, "--output", tmp_path / f"out.{kind}", "--batch-size", 3, "--concurrency", 4, transport=transport)
    assert READ[kind](tmp_path / f"out.{kind}") == WANTED
    assert {each.name for each in tmp_path.iterdir()} == {f"in.{kind}", f"out.{kind}"}


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
    found = READ[kind](tmp_path / f"out.{kind}")
    assert list(found[0])[:2] == ["id", "note"]
    assert [(row.pop("id"), row.pop("note")) for row in found] == [(f"00{row}", 'a "b", c') for row in range(9)]
    assert found == WANTED[:9]


@pytest.mark.parametrize("transport", ["rest-json", "grpc"])
def test_optional_input(transport: str, infer: Infer, tmp_path: Path) -> None:
    """An input with a default in predict() needs no column."""
    rows = [{name: value for name, value in row.items() if name != "whole"} for row in ROWS]
    infer(write_csv(tmp_path / "in.csv", rows), "-o", tmp_path / "out.csv", transport=transport)
    assert read_csv(tmp_path / "out.csv") == [{**row, "whole": 0} for row in WANTED]


def test_keep_rejects_a_column_named_like_an_output(infer: Infer, tmp_path: Path) -> None:
    """--keep-columns fails if the output would have two columns with the same name."""
    path = write_csv(tmp_path / "in.csv", [{"pair_1": 8, **ROWS[1]}])
    assert '"pair_1" is also an output' in infer(path, "-o", tmp_path / "out.csv", "--keep-columns", status=1).stderr
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]


def test_missing_values(infer: Infer, tmp_path: Path) -> None:
    """In CSV, text is missing only if it equals --na-value, and a number is also missing if it is empty or NA."""
    path = write_csv(tmp_path / "in.csv", [ROWS[5], ROWS[6], {**ROWS[7], "number": "NA"}])

    def texts(*words: str) -> list[str | None]:
        infer(path, "-o", tmp_path / "out.jsonl", *words, transport="rest-json")
        assert [row["number"] for row in read_jsonl(tmp_path / "out.jsonl")] == [None, ROWS[6]["number"], None]
        return [row["text"] for row in read_jsonl(tmp_path / "out.jsonl")]

    assert texts() == ["", "NA", "007"]
    assert texts("--na-value", "") == [None, "NA", "007"]
    assert texts("--na-value", "NA") == ["", None, "007"]
    for transport in "rest-binary", "grpc":
        said = infer(path, "--na-value", "", status=1, transport=transport).stderr
        assert 'input "text": data: null has no binary form; use --transport rest-json' in said


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
    told = infer(*words, at=values, stdin=b"\ntext\nhello\n\nworld\n\n").stdout
    assert [json.loads(line)["text"] for line in told.splitlines()] == ["hello", "", "world", ""]
    told = infer(*words, "--keep-columns", at=values, stdin=b"text,id\nhello,1\n\nworld,2\n\n").stdout
    assert [json.loads(line)["id"] for line in told.splitlines()] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("number,text,when\n1,a,2024-01-01\n", [], 'Input "flag": no column. The file has number, text, when.'),
        ("a,b\n1,2\n", ["--columns", "c"], '--columns: no column "c". The file has a, b.'),
        ("number,text,when,flag\n1,a,2024-01-01,true\n2,b\n", [], "in.csv: .*Row #2: Expected 4 columns, got 2"),
        ("", [], "in.csv: expected a header"),
        ("number,text,number\n1,a,2\n", [], "in.csv: expected a header with a different name for each column"),
        ("number,text,when,flag\n1,caf\xe9,2024-01-01,1\n", [], "in.csv: .*invalid UTF8"),
    ],
    ids=["missing", "chosen", "ragged", "empty", "twice", "latin"],
)
def test_rejects_invalid_files(text: str, words: list[str], said: str, infer: Infer, tmp_path: Path) -> None:
    """A file that does not match the model fails with a one-line error that names the column or the row."""
    (tmp_path / "in.csv").write_text(text, "latin-1")
    result = infer(tmp_path / "in.csv", "-o", tmp_path / "out.csv", *words, status=1)
    assert re.match(f"Error: .*{said}", result.stderr)
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
    assert [each.name for each in tmp_path.iterdir()] == ["in.csv"]
    assert "unknown format" in infer(tmp_path / "none.xyz", status=1).stderr
    assert "No such file" in infer(tmp_path / "none.csv", status=1).stderr
    said = infer(path, "-o", "/dev/full", "--output-format", "csv", status=1).stderr
    assert said == "Error: /dev/full: No space left on device\n"
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert CliRunner().invoke(main, ["infer", str(path), "--url", nowhere]).exit_code == 3


@pytest.mark.parametrize("kind", WRITE)
def test_failed_rows(kind: str, infer: Infer, tmp_path: Path) -> None:
    """Rows of failed requests are written to a separate file, which can be sent again."""
    rows = [{**row, "text": "a fault"} if index == 11 else row for index, row in enumerate(ROWS)]
    path, out = WRITE[kind](tmp_path / f"in.{kind}", rows), tmp_path / f"out.{kind}"
    result = infer(path, "-o", out, "--batch-size", 5, "--skip-failed", "--json", status=1)
    found = json.loads(result.stdout)
    assert found["faults"] == [{"first": 11, "last": 15, "error": "400: a row is not to my liking"}]
    assert (found["rows"], found["failed"], found["failed_rows"]) == (45, 5, str(tmp_path / f"out.failed.{kind}"))
    assert READ[kind](out) == WANTED[:10] + WANTED[15:]
    rest = tmp_path / f"rest.{kind}"
    result = infer(tmp_path / f"out.failed.{kind}", "-o", rest, "--batch-size", 1, "--skip-failed", status=1)
    assert "Rows 2 to 2: 400: a row is not to my liking" in result.stderr
    assert READ[kind](rest) == [WANTED[10], *WANTED[12:15]]
    assert b"a fault" in (tmp_path / f"rest.failed.{kind}").read_bytes()
    infer(WRITE[kind](path, ROWS), "-o", out, "--skip-failed")
    assert READ[kind](out) == WANTED
    assert not (tmp_path / f"out.failed.{kind}").exists()  # left by the previous run


def test_incomplete_output(infer: Infer, tmp_path: Path) -> None:
    """Without --skip-failed, OUTPUT changes only if all rows succeed. --fail-fast stops at the first error."""
    rows = [{**row, "text": "a fault"} if index in (11, 30) else row for index, row in enumerate(ROWS)]
    path, out = write_csv(tmp_path / "in.csv", rows), tmp_path / "out.csv"
    out.write_text("mine")
    result = infer(path, "-o", out, "--batch-size", 5, status=1)
    assert result.stderr.endswith(f"10 rows failed. Other results: {out}.part.\n")
    assert out.read_text() == "mine"
    assert read_csv(tmp_path / "out.csv.part") == WANTED[:10] + WANTED[15:30] + WANTED[35:]
    result = infer(path, "-o", out, "--batch-size", 1, "--concurrency", 1, "--fail-fast", status=1)
    assert result.stderr == "Error: Rows 12 to 12: 400: a row is not to my liking\n"
    assert read_csv(tmp_path / "out.csv.part") == WANTED[:11]


@pytest.mark.parametrize("transport", ["rest-json", "grpc"])
def test_rejects_too_large_batches(transport: str, infer: Infer, tmp_path: Path) -> None:
    """A request that is too large is not retried, and the error suggests a smaller batch."""
    path = write_csv(tmp_path / "in.csv", [{**ROWS[0], "text": "x" * 600_000}] * 2)
    said = infer(path, "--retries", 1000, status=1, transport=transport).stderr
    assert re.search("Rows 1 to 2: (413|RESOURCE_EXHAUSTED): .*; use a smaller --batch-size\n", said)
    assert infer(path, "--batch-size", 1, "-o", tmp_path / "out.csv", transport=transport).stderr.startswith(
        "2 rows in "
    )


@pytest.mark.parametrize("transport", ["rest-binary", "grpc"])
def test_overload_is_retried(transport: str, infer: Infer, tmp_path: Path) -> None:
    """A request that an overloaded service rejects is retried until all rows succeed."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    limits = {"MAX_CONCURRENCY": 1, "MAX_QUEUE_SIZE": 0, "MAX_BATCH_SIZE": 1, "FOLDER": tmp_path}
    with gunicorn(ROOT, "tests.service.apps:rows()", **limits) as full:
        words = [path, "--batch-size", 2, "--concurrency", 4]
        infer(*words, "-o", tmp_path / "out.csv", "--retries", 100, transport=transport, at=full)
        assert "rows failed" in infer(*words, "--retries", 0, transport=transport, at=full, status=1).stderr
    assert read_csv(tmp_path / "out.csv") == WANTED


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("number", "much", "not FP64: got .*'much'"),
        ("number", "1_000", "not FP64: got .*'1_000'"),
        ("number", "1e400", "a number that FP64 cannot represent"),
        ("number", "-" + "9" * 400, "a number that FP64 cannot represent"),
        ("whole", "2.5", "not INT64: got .*'2.5'"),
        ("whole", "1.0", "not INT64: got .*'1.0'"),
        ("whole", str(2**63), "not INT64: got .*'9223372036854775808'"),
        ("whole", "", "not INT64: got .*''"),
        ("flag", "2", "not BOOL: got .*2"),
    ],
)
def test_rejects_cells_without_an_exact_value(column: str, cell: str, said: str, infer: Infer, tmp_path: Path) -> None:
    """A cell that the datatype cannot represent exactly fails only its own request. The error names the input."""
    rows = [{**row, column: cell} if index == 2 else row for index, row in enumerate(ROWS[:8])]
    path = write_csv(tmp_path / "in.csv", rows)
    result = infer(path, "-o", tmp_path / "out.csv", "--batch-size", 2, "--skip-failed", status=1)
    assert re.search(f'Rows 3 to 4: input "{column}": {said}', result.stderr)
    assert read_csv(tmp_path / "out.csv") == WANTED[:2] + WANTED[4:8]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("whole", "2.5", "in.jsonl: .*tried to convert to int64"),
        ("whole", 2.5, 'Rows 1 to 4: input "whole": not INT64: got .*2.5'),
        ("flag", 2, "in.jsonl: .*tried to convert to boolean"),
        ("flag", None, 'Rows 1 to 4: input "flag": missing value'),
    ],
)
def test_rejects_json_values_of_mixed_types(name: str, value: Any, said: str, infer: Infer, tmp_path: Path) -> None:
    """The values of a JSON member need a common type and are not changed."""
    rows = [{**row, "whole": index, name: value if index == 2 else row[name]} for index, row in enumerate(ROWS[:4])]
    rows = [
        {**row, "whole": value if index == 2 else index} if name == "whole" else row for index, row in enumerate(rows)
    ]
    assert re.search(said, infer(write_jsonl(tmp_path / "in.jsonl", rows), status=1).stderr)


def test_columns_of_the_only_input(four: Running, infer: Infer, tmp_path: Path) -> None:
    """The only input takes numeric columns, NPY files or lists. --columns selects and orders the columns."""
    numbers = np.arange(20, dtype=np.float32).reshape(5, 4)
    lines = [",".join([f"id{index}", *map(str, row)]) for index, row in enumerate(numbers.tolist())]
    (tmp_path / "named.csv").write_text("\n".join(["id,a,b,c,d", *lines]))
    (tmp_path / "numbered.csv").write_text((tmp_path / "named.csv").read_text().replace("a,b,c,d", "x_0,x_1,x_2,x_3"))
    np.save(tmp_path / "c.npy", numbers)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(numbers))
    write_jsonl(tmp_path / "lists.jsonl", [{"other": row} for row in numbers.tolist()])
    pq.write_table(pa.table({"id": list("abcde"), "x": numbers.tolist()}), tmp_path / "lists.parquet")

    def results(name: str, *words: str) -> list[list[float]]:
        told = infer(tmp_path / name, "--output-format", "jsonl", "--batch-size", 2, *words, at=four).stdout
        return [json.loads(line)["y"] for line in told.splitlines()]

    weights = np.arange(8, dtype=np.float32).reshape(4, 2)
    for name in ("named.csv", "numbered.csv", "c.npy", "fortran.npy", "lists.jsonl", "lists.parquet"):
        assert results(name) == (numbers @ weights).tolist()
    assert results("named.csv", "--columns", "d,c,b,a") == (numbers[:, ::-1] @ weights).tolist()
    (tmp_path / "many.csv").write_text("a,b,c,d,e\n1,2,3,4,5\n")
    said = infer(tmp_path / "many.csv", at=four, status=1).stderr
    assert 'Input "x": expected 4 columns, got 5 with numbers in a, b, c, d, e. Select with --columns.' in said


def test_name_of_the_model_over_grpc(service: Running, infer: Infer, tmp_path: Path) -> None:
    """Without --model, the name comes from the server's index. If the server has none, the error asks for --model."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    result = CliRunner().invoke(main, ["infer", str(path), *grpc_at(service.grpc), "-o", str(tmp_path / "out.csv")])
    assert result.exit_code == 0, result.output
    assert read_csv(tmp_path / "out.csv") == WANTED
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    for status, where in (1, f"127.0.0.1:{port}"), (3, f"127.0.0.1:{free_ports(1)[0]}"):
        result = CliRunner().invoke(main, ["infer", str(path), *grpc_at(where)])
        assert result.exit_code == status
        assert result.stderr.endswith("; use --model NAME\n") == (status == 1)
    server.stop(None)


def test_url_of_grpc(service: Running, tmp_path: Path) -> None:
    """Without --url, the settings locate a local service. A URL of another protocol is invalid."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    words = ["infer", str(path), "-o", str(tmp_path / "out.csv"), "--transport", "grpc"]
    result = CliRunner().invoke(main, words, env={"HOST": "127.0.0.1", "GRPC_PORT": str(service.grpc_port)})
    assert result.exit_code == 0, result.output
    assert read_csv(tmp_path / "out.csv") == WANTED
    for url in f"http://{service.http}", service.grpc, "grpc://127.0.0.1", f"grpc://{service.grpc}/path":
        result = CliRunner().invoke(main, [*words, "--url", url])
        assert result.exit_code == 2
        assert result.stderr == "Error: Invalid --url. Expected grpc://HOST:PORT or grpcs://HOST:PORT.\n"


def test_grpc_with_tls(tmp_path: Path) -> None:
    """TLS needs grpcs:// and a certificate that the client trusts. The settings have that of a local service."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    names = ("ca.pem", "TLS_CERT_FILE", "TLS_KEY_FILE")
    for name, blob in zip(names, (authority.cert_pem, issued.cert_chain_pems[0], issued.private_key_pem), strict=True):
        blob.write_to_path(tmp_path / name)
    path = write_csv(tmp_path / "in.csv", ROWS)
    words = ["infer", str(path), "-o", str(tmp_path / "out.csv"), "--retries", "0", "--transport", "grpc"]
    tls = {name: str(tmp_path / name) for name in names[1:]}

    def status(service: Running, *more: str, **settings: str) -> int:
        return CliRunner().invoke(main, [*words, *more], env=settings).exit_code

    def is_ready(service: Running) -> bool:
        return status(service, HOST="127.0.0.1", GRPC_PORT=str(service.grpc_port), **tls) == 0

    with gunicorn(ROOT, "tests.service.apps:rows()", is_ready=is_ready, FOLDER=tmp_path, **tls) as service:
        assert read_csv(tmp_path / "out.csv") == WANTED
        for scheme, more, expected in (
            ("grpcs", ["--cacert", str(tmp_path / "ca.pem")], 0),
            ("grpcs", [], 3),
            ("grpc", [], 3),
        ):
            assert status(service, "--url", f"{scheme}://{service.grpc}", *more) == expected


def test_timeout(tmp_path: Path) -> None:
    """A request that takes longer than --timeout fails with the same remedy on both protocols."""
    with gunicorn(ROOT, "tests.service.apps:waiting()") as running:
        path = write_csv(tmp_path / "in.csv", [{"folder": tmp_path, "name": "first"}])
        for where in ["--url", f"http://{running.http}"], grpc_at(running.grpc):
            result = CliRunner().invoke(main, ["infer", str(path), *where, "--timeout", "0.3"])
            assert result.exit_code == 1
            assert "; use a longer --timeout, or use a smaller --batch-size\n" in result.stderr
        (tmp_path / "go").touch()


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
    assert 'input "number": not FP64' in infer(other, "--columns", "b,a,c,d,e", status=1).stderr
    said = infer(path, "--columns", "number,text,when,flag,Whole", status=1).stderr
    assert '--columns: no column "Whole"' in said


def test_files_for_a_bytes_input(infer: Infer, tmp_path: Path) -> None:
    """Each file is sent unchanged in its own request, and the error names a file that fails."""
    paths = [tmp_path / f"{index}.png" for index in range(5)]
    for index, path in enumerate(paths):
        path.write_bytes(b"\x89PNG" + bytes(index))
    with gunicorn(ROOT, "tests.service.apps:images()") as running:
        told = infer(*paths, "--keep-columns", "--output-format", "jsonl", at=running).stdout
        absent = infer(paths[0], tmp_path / "none.png", at=running, status=1).stderr
    assert [json.loads(line) for line in told.splitlines()] == [
        {"file": str(path), "size": 4 + index, "begins": repr(b"\x89PNG")} for index, path in enumerate(paths)
    ]
    assert absent == f"Error: {tmp_path / 'none.png'}: No such file or directory\n"


def test_outputs_of_text(values: Running, infer: Infer, tmp_path: Path) -> None:
    """Missing text, JSON, bytes and Infinity are written unchanged, or rejected if the format cannot represent them."""
    path = write_jsonl(tmp_path / "in.jsonl", [{"text": each} for each in ("gap", '{"a":[1,"ü"]}', "007")])
    lines = infer(path, "--output-format", "jsonl", transport="rest-json", at=values).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["text"] for row in rows] == [None, '{"a":[1,"ü"]}', "007"]
    assert [row["json"] for row in rows] == ['"gap"', '{"a":[1,"ü"]}', '"007"']
    assert infer(path, transport="rest-json", at=values).stdout.splitlines()[1].startswith(',"""gap"""')
    write_jsonl(path, [{"text": "png"}, {"text": "inf"}])
    assert 'output "bytes": ' in infer(path, at=values, status=1).stderr
    infer(path, "-o", tmp_path / "out.parquet", at=values)
    assert pq.read_table(tmp_path / "out.parquet")["bytes"].to_pylist() == [b"\x89PNG", b""]
    write_jsonl(path, [{"text": "inf"}])
    assert "JSON has no Infinity" in infer(path, "--output-format", "jsonl", at=values, status=1).stderr
    assert ",inf," in infer(path, at=values).stdout


def test_api_key(infer: Infer, tmp_path: Path) -> None:
    """--api-key is sent with each request on both protocols."""
    (tmp_path / "keys").write_text("a-key-of-the-tests")
    path = write_csv(tmp_path / "in.csv", ROWS)
    with gunicorn(ROOT, "tests.service.apps:rows()", FOLDER=tmp_path, API_KEYS_FILE=tmp_path / "keys") as running:
        for transport in ("rest-binary", "grpc"):
            infer(path, "-o", tmp_path / "out.csv", "--api-key", "a-key-of-the-tests", at=running, transport=transport)
            assert read_csv(tmp_path / "out.csv") == WANTED
            assert infer(path, at=running, transport=transport, status=1).stderr.count("API key") == 1


def lines(first: int, last: int) -> bytes:
    rows = (f"{row},text {row},2024-01-01T00:00:00,true,{row}\n" for row in range(first, last))
    return "".join(rows).encode()


def infer_stdin(url: str, out: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start the command in its own process. It reads CSV from standard input."""
    command = [sys.executable, "-m", "app", "infer", "-", "--format", "csv", "-o", str(out), "--url", url]
    return subprocess.Popen(
        [*command, *words], cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def test_interrupt(service: Running, tmp_path: Path) -> None:
    """Ctrl+C ends the command with status 130. The results so far are in OUTPUT.part."""
    out = tmp_path / "out.csv"
    with infer_stdin(f"http://{service.http}", out) as process:
        assert process.stdin
        process.stdin.write(b"number,text,when,flag,whole\n" + lines(0, 200_000))
        part = out.with_name("out.csv.part")
        wait_for(lambda: part.exists() and part.stat().st_size > 0)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, b"Error: interrupted\n")
    assert part.read_bytes().startswith(b'"number","text"')
    assert not out.exists()


def test_service_restart_loses_no_row(tmp_path: Path) -> None:
    """No row is lost if the service restarts during a job."""
    http, grpc = free_ports(2)
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "SHUTDOWN_DELAY_SECONDS": 0,
        "FOLDER": tmp_path,
    }
    command = [sys.executable, "-m", "gunicorn", "tests.service.apps:rows()"]
    out, count = tmp_path / "out.csv", 50_000
    with started(command, ROOT, settings):
        process = infer_stdin(f"http://127.0.0.1:{http}", out, "--retries", "20")
        assert process.stdin
        process.stdin.write(b"number,text,when,flag,whole\n" + lines(0, count))
    with started(command, ROOT, settings):
        _, said = process.communicate(lines(count, count + 1000), timeout=120)
    assert process.returncode == 0, said
    assert [row["whole"] for row in read_csv(out)] == list(range(count + 1000))


class Answer(BaseHTTPRequestHandler):
    """Another server: it has no /config endpoint, and the first POST gets 502 from a gateway."""

    protocol_version = "HTTP/1.1"
    posts = 0

    def do_GET(self) -> None:
        tensor = {"name": "x", "datatype": "FP32", "shape": [-1]}
        self.answer(
            404 if self.path.endswith("/config") else 200, {"name": "m", "inputs": [tensor], "outputs": [tensor]}
        )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        Answer.posts += 1
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [0.1]}
        self.answer(502 if Answer.posts == 1 else 200, {"model_name": "m", "outputs": [tensor]})

    def answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_other_servers() -> None:
    """A server without this project's extensions works, and a gateway's 502 is retried."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        where = ["--url", f"http://127.0.0.1:{server.server_port}", "--model", "m"]
        words = ["infer", "-", "--format", "csv", "--output-format", "jsonl"]
        result = CliRunner().invoke(main, [*words, *where], input=b"x\n5\n")
        server.shutdown()
    assert (result.exit_code, result.stdout) == (0, '{"x":0.1}\n'), result.stderr


@pytest.mark.parametrize("package", ["rich", "pyarrow"])
def test_package_that_is_not_installed(package: str) -> None:
    """A missing package is reported in one line, with the command that installs it."""
    code = f"import sys; sys.modules['{package}'] = None; from app.cli import main; main(['infer', 'x.csv'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, "")
    expected = f"Error: Package {package} is not installed. Run: pip install --editable '.[batch]'\n"
    assert done.stderr == expected
