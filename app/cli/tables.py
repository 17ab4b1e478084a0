"""What a file of rows is, whatever its format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from app.cli.common import Failure

FORMATS = {
    ".csv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".npy": "npy",
    ".npz": "npz",
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff"), "image"),
}
# So many rows are read at once, and cut into batches: fewer, and pandas takes longer over each.
READ_ROWS = 2**14
# What stands for no number in a CSV.
GAPS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
# A cell that a row of JSON lines does not have.
ABSENT = ...

Rows = dict[str, np.ndarray]


class Table:
    """A file's columns: their names, and which of them hold numbers as far as that is known.

    An array that is alone has no name: `columns` is [""]. `total` is the number of rows where the file says it.
    """

    has_names = True
    tells_gaps = True  # in text, from what is empty
    total: int | None = None
    hint = ""  # at what may help where its columns are not those of the model
    doubt = ""  # why the columns are not what they seem, unless they were chosen by their names

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """What a row of each column is, where the file says it."""
        return {}

    def __init__(self, columns: Sequence[str], numeric: Sequence[str]):
        self.columns, self.numeric = list(columns), list(numeric)

    def read(self, columns: Mapping[str, str]) -> Iterator[Rows]:
        """The rows of these columns, in pieces of at most READ_ROWS; an array each, whose first dimension is rows.

        `columns` says by numpy's letter what each is wanted for: f(loats), which may have gaps, i(ntegers, or
        booleans), or O(bjects), which are not taken for numbers whatever they look like.
        """
        raise NotImplementedError

    def part_read(self) -> float | None:
        """How much of the file is read, 0 to 1, where its rows are not counted."""
        return None

    def close(self) -> None:
        """Lets the files go."""


def check_pyarrow() -> None:
    """Failure where there is none."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise Failure("Parquet needs pyarrow: pip install pyarrow") from None


def format_of(path: str) -> str:
    """By the ending of its name; Failure where that says nothing."""
    suffix = Path(path).suffix.lower()
    if path == "-" or suffix not in FORMATS:
        what = "stdin" if path == "-" else path
        raise Failure(f"{what}: which format? --format csv, or one of {', '.join(sorted(set(FORMATS.values())))}")
    return FORMATS[suffix]
