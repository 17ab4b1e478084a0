"""Write the columns of responses as CSV, Parquet or JSON Lines."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from app.cli.batch.formats import OUTPUT_FORMATS, format_of
from app.cli.common import Failure
from app.codecs import DatetimeCodec
from app.codecs.frames import decode_datetimes
from app.codecs.strings import text_list
from app.datatypes import bytes_array
from app.errors import InvalidInput
from app.types import ResponseOutput


class Output:
    """A file of results. A regular file is named FILE.part until `finish`. The name `-` is stdout.

    The columns of CSV and Parquet have the types of the first response. Raise UsageError if the file cannot have the
    format, or if it is one of the `inputs`.
    """

    def __init__(self, path: Path, kind: str | None, inputs: Sequence[str], delimiter: str = ","):
        self.path, self.delimiter, self.is_stdout = path, delimiter, str(path) == "-"
        self.format = kind or format_of(str(path)) or ("csv" if self.is_stdout else "")
        if self.format not in OUTPUT_FORMATS:
            known = ", ".join(OUTPUT_FORMATS)
            raise click.UsageError(f"{path}: unknown format. Use --output-format with one of {known}.")
        is_regular = not self.is_stdout and (path.is_file() or not path.exists())
        self.part = path.with_name(f"{path.name}.part") if is_regular else None
        if self.format == "parquet" and not self.part:
            raise click.UsageError("Parquet needs a file. Add --output FILE.")
        if any(path.exists() and path.samefile(name) for name in inputs if Path(name).exists()):
            raise click.UsageError(f"{path} is an input. Use another --output.")
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
            self.file = sys.stdout.buffer if self.is_stdout else open(self.part or self.path, "wb")  # noqa: SIM115
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
        if not self.is_stdout:
            self.file.close()

    def finish(self) -> None:
        """Close the file and give it its name."""
        self.close()
        if self.file and self.part:
            os.replace(self.part, self.path)


def to_columns(outputs: Sequence[ResponseOutput], format_name: str) -> dict[str, pa.Array]:
    """Return the outputs as columns. Raise InvalidInput if the format has no form for a value.

    Several values in a row are a list in JSON Lines, and the columns NAME_0, NAME_1 and so on in other formats.
    """
    columns = {}
    for output in outputs:
        try:
            values = _values(output, format_name)
        except InvalidInput as error:
            raise error.about("output", output.name) from None
        width = math.prod(output.shape[1:])
        if format_name == "jsonl":
            for size in reversed(output.shape[1:]):
                values = pa.FixedSizeListArray.from_arrays(values, size)
        if format_name == "jsonl" or width == 1:
            columns[output.name] = values
        else:
            columns |= {f"{output.name}_{index}": values[index::width] for index in range(width)}
    return columns


def _values(output: ResponseOutput, format_name: str) -> pa.Array:
    """Return the values with their types for Parquet, otherwise as text or numbers. BYTES may be binary in Parquet."""
    array, content_type = output.data.ravel(), output.parameters.get("content_type")
    is_parquet = format_name == "parquet"
    if is_parquet and content_type == DatetimeCodec.ContentType:
        return pa.array(decode_datetimes(output), from_pandas=True)
    if is_parquet and output.datatype == "BYTES" and not content_type:
        return pa.array(bytes_array(array).tolist(), pa.binary())
    if output.datatype == "BYTES":
        return pa.array(text_list(array.tolist()), pa.string())
    array = array.astype(np.float32) if output.datatype == "FP16" else array
    values = pa.array(array, from_pandas=not is_parquet)  # NaN is missing in text
    if format_name == "jsonl" and array.dtype.kind == "f":
        if np.isinf(array).any():
            raise InvalidInput("JSON has no Infinity")
        values = values.cast(pa.string()).cast(pa.float64())  # FP32 0.1 is 0.1, and not 0.10000000149011612
    return values
