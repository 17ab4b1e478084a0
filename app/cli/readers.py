"""The reader of a file, by its format."""

from __future__ import annotations

from collections.abc import Sequence

from app.cli.common import Failure
from app.cli.readarrays import Arrays, Images, ParquetTable
from app.cli.readtext import CsvTable, JsonLines
from app.cli.sources import File
from app.cli.tables import Table, format_of


def open_table(
    paths: Sequence[str],
    format_name: str | None,
    has_names: bool = True,
    separator: str = "",
    null: str | None = None,
) -> Table:
    """The table in the files; Failure where there is none, and where several are not images."""
    kinds = {format_name or format_of(path) for path in paths}
    if null is not None and kinds != {"csv"}:
        raise Failure("--null is for CSV; other files have gaps of their own")
    if kinds == {"image"}:
        return Images(paths)
    if len(paths) > 1:
        raise Failure("several files: images only, or one file of rows")
    (kind,), (path,) = kinds, paths
    if path == "-" and kind in ("parquet", "npz"):
        raise Failure(f"{kind} is not read from stdin: its end comes first; give a file")
    if kind == "parquet":
        return ParquetTable(path)
    file = File(path)
    try:
        if kind == "csv":
            return CsvTable(file, has_names, separator, null)
        return JsonLines(file) if kind == "jsonl" else Arrays(file, is_archive=kind == "npz")
    except BaseException:
        file.close()
        raise
