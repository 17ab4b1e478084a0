"""Write the columns of responses as CSV, Parquet or JSON Lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from app.cli.batch.column_mapping import to_columns
from app.cli.common import Failure
from app.errors import InvalidInput
from app.types import ResponseOutput

FORMATS = ("csv", "parquet", "jsonl")


class Output:
    """A file of results. A regular file is named FILE.part until `finish`. The name `-` is stdout.

    The columns of CSV and Parquet have the types of the first response.
    """

    def __init__(self, path: Path, format_name: str, delimiter: str = ","):
        self.path, self.format, self.delimiter = path, format_name, delimiter
        is_regular = str(path) != "-" and (path.is_file() or not path.exists())
        self.part = path.with_name(f"{path.name}.part") if is_regular else None
        self.file: Any = None
        self.schema = pa.schema([])
        self.writer: Any = None

    def encode(self, kept: pa.Table, outputs: Sequence[ResponseOutput]) -> Any:
        """Return rows of kept columns and outputs, ready to write. Several threads may call this.

        Raise InvalidInput if the format has no form for a value, and Failure if two columns have the same name.
        """
        columns = to_columns(outputs, self.format)
        if twice := [name for name in kept.column_names if name in columns]:
            raise Failure(f'--keep: "{twice[0]}" is also an output of the model. Rename the column in the file.')
        try:
            table = pa.table({**{name: kept[name] for name in kept.column_names}, **columns})
            if self.format == "jsonl":
                return b"".join(orjson.dumps(row, default=str) + b"\n" for row in table.to_pylist())
            return table
        except pa.ArrowException as error:
            raise InvalidInput(str(error)) from None

    def write(self, rows: Any) -> None:
        """Write what `encode` returned. Raise InvalidInput if the types of its columns do not fit the file."""
        if self.file is None:
            self.file = sys.stdout.buffer if str(self.path) == "-" else open(self.part or self.path, "wb")  # noqa: SIM115
        if self.format == "jsonl":
            self.file.write(rows)
            return
        if self.writer is None:
            types = {each.name: pa.string() if pa.types.is_null(each.type) else each.type for each in rows.schema}
            self.schema = pa.schema(types)
            if self.format == "parquet":
                self.writer = pq.ParquetWriter(self.file, self.schema)
            else:
                options = arrow_csv.WriteOptions(delimiter=self.delimiter)
                self.writer = arrow_csv.CSVWriter(self.file, self.schema, write_options=options)
        try:
            self.writer.write_table(rows.cast(self.schema))
        except (pa.ArrowException, ValueError) as error:
            raise InvalidInput("the response has columns of another type", got=str(error)) from None

    def close(self) -> None:
        """Close the file, with the rows that were written."""
        if self.file is None or self.file.closed:
            return
        if self.writer is not None:
            self.writer.close()
        self.file.flush()
        if self.file is not sys.stdout.buffer:
            self.file.close()

    def finish(self) -> None:
        """Close the file and give it its name."""
        self.close()
        if self.file and self.part:
            os.replace(self.part, self.path)
