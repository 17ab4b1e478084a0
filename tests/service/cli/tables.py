"""Tables in each file format, and their expected outputs."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from click.testing import Result

ROOT = Path(__file__).parents[3]
TEXTS = [
    "plain",
    'with "quotes"',
    "two\nlines",
    "comma, tab\t",
    "größer 漢字 🌷",
    "",
    "NA",
    "007",
    " edges ",
]
START = datetime(2024, 2, 28, 23, 59, 59, 250_000)
Infer = Callable[..., Result]


def make_row(index: int) -> dict[str, Any]:
    """Return a row of values that are hard to keep. The number is missing in every fifth row."""
    moment = START + timedelta(hours=index)
    return {
        "number": index / 7 if index % 5 else None,
        "text": TEXTS[index % len(TEXTS)],
        "when": moment.isoformat(),
        "flag": index % 2 == 0,
        "whole": 2**53 + index,
    }


def with_pair(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with the output `pair` of the service `rows`: the number and its negative."""
    pair = [None, None]
    if row["number"] is not None:
        number = np.float32(row["number"])
        pair = [number, -number]
    return {**row, "pair": pair}


ROWS = [make_row(index) for index in range(50)]
WANTED = [with_pair(row) for row in ROWS]


def grpc_at(address: str) -> list[str]:
    """Return the options of `infer` for a gRPC server."""
    return ["--transport", "grpc", "--url", f"grpc://{address}"]


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False)
            file.write(line + "\n")
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    typed_rows = []
    for row in rows:
        moment = datetime.fromisoformat(row["when"])
        typed_rows.append({**row, "when": moment})
    pq.write_table(pa.Table.from_pylist(typed_rows), path)
    return path


def number(kind: Any, value: Any) -> Any:
    """Return a value of a CSV or JSON file as a number of this type, or None if it is missing."""
    if value in ("", None):
        return None
    return kind(value)


def is_nan(value: Any) -> bool:
    """Return whether a value of any type is NaN."""
    return value != value


def read_csv(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        pair = [row.pop("pair_0"), row.pop("pair_1")]
        row["pair"] = [number(np.float32, element) for element in pair]
        row["number"] = number(float, row["number"])
        row["whole"] = int(row["whole"])
        row["flag"] = row["flag"] == "true"
    return rows


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        row["pair"] = [number(np.float32, element) for element in row["pair"]]
        rows.append(row)
    return rows


def read_parquet(path: Path) -> list[dict[str, Any]]:
    rows = pq.read_table(path).to_pylist()
    for row in rows:
        pair = [row.pop("pair_0"), row.pop("pair_1")]
        row["pair"] = [None if is_nan(element) else np.float32(element) for element in pair]
        if is_nan(row["number"]):
            row["number"] = None
        row["when"] = row["when"].isoformat()
    return rows


WRITE = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}
READ: dict[str, Any] = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}
