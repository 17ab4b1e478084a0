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
    {
        **row,
        "pair": [None, None]
        if row["number"] is None
        else [np.float32(row["number"]), -np.float32(row["number"])],
    }
    for row in ROWS
]
Infer = Callable[..., Result]


def grpc_at(address: str) -> list[str]:
    return ["--transport", "grpc", "--url", f"grpc://{address}"]


def write_csv(path: Path, rows: list[dict[str, Any]], delimiter: str = ",") -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    moments = [datetime.fromisoformat(row["when"]) for row in rows]
    pq.write_table(
        pa.Table.from_pylist(
            [{**row, "when": when} for row, when in zip(rows, moments, strict=True)]
        ),
        path,
    )
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
        row["number"], row["when"] = (
            None if row["number"] != row["number"] else row["number"],
            row["when"].isoformat(),
        )
    return rows


WRITE = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet}
READ: dict[str, Any] = {"csv": read_csv, "jsonl": read_jsonl, "parquet": read_parquet}
