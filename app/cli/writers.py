"""The writers by their formats."""

from __future__ import annotations

from typing import Any

from app.cli.writearrays import Framed, write_npy, write_npz, write_parquet
from app.cli.writetext import Csv, JsonLines

WRITERS: dict[str, Any] = {
    "csv": Csv(),
    "jsonl": JsonLines(),
    "parquet": Framed(write_parquet),
    "npy": Framed(write_npy),
    "npz": Framed(write_npz),
}
