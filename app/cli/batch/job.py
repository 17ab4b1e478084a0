"""The job of infer: send the rows of a file in concurrent requests and write the results."""

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path

import click
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from app.cli.batch.column_mapping import ColumnMapping, to_columns
from app.cli.batch.files import CONTENTS, FILE, EncodedRows, Output, Source
from app.cli.batch.formats import OUTPUT_FORMATS
from app.cli.batch.transports import Client, Unreachable, open_transport, read_model, to_failure
from app.cli.client import ServiceClient
from app.cli.common import Failure, one_line, show_json
from app.inference.example import apply_declarations
from app.protocol.datatypes import datatype_of
from app.protocol.errors import InferenceError, InvalidInput, NoBinaryForm
from app.protocol.metadata import ModelMetadata
from app.protocol.tensors import ResponseOutput

# Limits of the default batch size.
REQUEST_BYTES = 2**20
MAX_ROWS = 4096
# Estimated size of a text.
TEXT_BYTES = 64
# Maximum number of failed requests in the report.
MAX_FAULTS = 20
# The error column in the file of failed rows.
ERROR = "error"

# The rows of a request, and its results.
SentBatch = tuple[pa.Table, Future[EncodedRows]]


@dataclass(frozen=True)
class JobOptions:
    """The options of infer, except those that select the service."""

    output: str
    format_name: str | None
    output_format: str | None
    delimiter: str
    na_value: str | None
    columns: str | None
    keep_columns: bool
    batch_size: int | None
    concurrency: int
    retries: int
    timeout: float
    fail_fast: bool
    skip_failed: bool
    as_json: bool

    @property
    def delimiter_character(self) -> str:
        return "\t" if self.delimiter == "tab" else self.delimiter

    @property
    def column_names(self) -> list[str]:
        """Return the names in --columns, or none if it is absent."""
        names = []
        for text in (self.columns or "").split(","):
            name = text.strip()
            if name:
                names.append(name)
        return names


@dataclass(frozen=True)
class Fault:
    """A request that failed. `first` and `last` are the numbers of its rows, from 1."""

    first: int
    last: int
    error: str

    def __str__(self) -> str:
        return f"Rows {self.first} to {self.last}: {self.error}"


@dataclass
class Counts:
    """The rows that have a result, those that failed, and the first failures."""

    begun: float = field(default_factory=time.monotonic)
    rows: int = 0
    failed: int = 0
    faults: list[Fault] = field(default_factory=list)

    @property
    def done(self) -> int:
        return self.rows + self.failed

    def add_fault(self, fault: Fault, rows: int) -> None:
        self.failed += rows
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)

    def add_rows(self, rows: int) -> None:
        self.rows += rows


class Job:
    """Sends batches concurrently and writes the results in the order of the rows.

    Raise Failure if a file, an option or the model is not suitable.
    """

    def __init__(self, files: Sequence[str], service: ServiceClient, options: JobOptions):
        self._options = options
        self._counts = Counts()
        with ExitStack() as stack:
            self._output = Output(Path(options.output), options.output_format, files)
            stack.enter_context(closing(self._output))

            model = read_model(service)
            self._model_outputs = model.outputs
            self._source = Source(
                files,
                format_name=options.format_name,
                batch_rows=options.batch_size or _default_batch(model),
                delimiter=options.delimiter_character,
                na_value=options.na_value,
            )
            stack.enter_context(closing(self._source.tables))

            self._failed_output: Output | None = None
            if options.skip_failed:
                self._failed_output = self._create_failed_output(files)
                stack.enter_context(closing(self._failed_output))

            self._mapping = ColumnMapping(self._source.head, model, options.column_names)
            self._kept_columns = self._mapping.unused if options.keep_columns else []

            transports = []
            for _ in range(options.concurrency):
                transport = open_transport(service, model.name, options.timeout)
                stack.enter_context(closing(transport))
                transports.append(transport)
            self._client = Client(transports, options.retries)

            # run() closes the resources. If this method fails, the stack does.
            self._resources = stack.pop_all()

    def _create_failed_output(self, inputs: Sequence[str]) -> Output:
        """Return the file for failed rows, next to the output, in the format of the source."""
        format_name = self._source.format
        if format_name not in OUTPUT_FORMATS:
            format_name = "jsonl"
        path = self._output.path.with_name(f"{self._output.path.stem}.failed.{format_name}")
        return Output(path, format_name, inputs, self._options.delimiter_character)

    def run(self) -> None:
        """Send all rows, complete the output and print a report. Raise Failure if rows failed."""
        with self._resources as stack:
            if self._failed_output:
                self._failed_output.path.unlink(missing_ok=True)  # from an earlier run
            pool = stack.enter_context(ThreadPoolExecutor(self._options.concurrency))
            # Cancel all requests. A request that is just starting can reconnect. The stack closes
            # that connection last.
            stack.callback(self._client.close)
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            self._send_all(pool)

        if self._failed_output:
            self._failed_output.finish()
        is_complete = self._counts.failed == 0 or self._failed_output is not None
        if is_complete:
            self._output.finish()
        self._report()

    def _send_all(self, pool: Executor) -> None:
        """Send all batches, write their results and show the progress on a terminal."""
        console = Console(stderr=True)
        is_terminal = sys.stderr.isatty()
        with Progress(console=console, transient=True, disable=not is_terminal) as progress:
            task = progress.add_task("", total=self._source.total)
            for table, result in self._submit_batches(pool):
                self._write_result(table, result)
                done = self._counts.done
                description = _format_count(done, "row")
                progress.update(task, description=description, completed=done)

    def _submit_batches(self, pool: Executor) -> Iterator[SentBatch]:
        """Submit batches to the threads, and yield them in the order of the rows.

        Twice as many batches as threads are submitted but not yielded, so that a slow request does
        not block the others.
        """
        limit = 2 * self._options.concurrency
        window: deque[SentBatch] = deque()
        for table in self._source.batches():
            result = pool.submit(self._infer, table)
            window.append((table, result))
            if len(window) == limit:
                yield window.popleft()
        yield from window

    def _infer(self, table: pa.Table) -> EncodedRows:
        """Send the rows. Return the encoded results."""
        try:
            request = self._mapping.request(table)
            outputs = self._client.infer(request).outputs
            apply_declarations(outputs, self._model_outputs)
        except NoBinaryForm as error:
            error.remedy = 'use --transport rest-json, or declare missing="" in METADATA'
            raise
        _check_rows(outputs, len(table))
        columns = to_columns(outputs, self._output.format)
        return self._output.encode(table.select(self._kept_columns), columns)

    def _write_result(self, table: pa.Table, result: Future[EncodedRows]) -> None:
        """Write the results of the rows in `table`, or add them to the failed rows."""
        try:
            self._output.write(result.result())
            self._counts.add_rows(len(table))
        except Unreachable as error:
            raise to_failure(error) from None
        except InferenceError as error:
            text = str(error)
            if self._source.format == "image":
                text = f"{table[FILE][0]}: {text}"
            self._add_fault(table, one_line(text))

    def _add_fault(self, table: pa.Table, error: str) -> None:
        first = self._counts.done + 1
        last = self._counts.done + len(table)
        fault = Fault(first, last, error)
        if self._options.fail_fast:
            raise Failure(str(fault))
        if self._failed_output:
            self._write_failed_rows(self._failed_output, table, error)
        self._counts.add_fault(fault, rows=len(table))

    @staticmethod
    def _write_failed_rows(output: Output, table: pa.Table, error: str) -> None:
        """Write the rows with their error in the last column. It replaces one of an earlier run."""
        names = [name for name in table.column_names if name not in (CONTENTS, ERROR)]
        errors = pa.array([error] * len(table))
        rows = table.select(names).append_column(ERROR, errors)
        output.write(output.encode(rows, {}))

    def _report(self) -> None:
        """Print the numbers and the first failures. Raise Failure if rows failed."""
        counts = self._counts
        seconds = time.monotonic() - counts.begun
        failed_path = None
        if self._failed_output and counts.failed:
            failed_path = str(self._failed_output.path)

        if self._options.as_json:
            report = {
                "rows": counts.rows,
                "failed": counts.failed,
                "seconds": seconds,
                "output": str(self._output.path),
                "failed_rows": failed_path,
                "faults": list(map(asdict, counts.faults)),
            }
            show_json(report)
        else:
            rate = counts.rows / seconds
            rows = _format_count(counts.rows, "row")
            click.echo(f"{rows} in {seconds:.1f} s, {rate:,.0f} rows/s", err=True)

        for fault in counts.faults:
            click.echo(fault, err=True)
        if counts.failed:
            location = f"Other results: {self._output.part or 'stdout'}."
            if failed_path:
                location = f"Failed rows: {failed_path}."
            raise Failure(f"{_format_count(counts.failed, 'row')} failed. {location}")


def _default_batch(model: ModelMetadata) -> int:
    """Return the number of rows in a request of about 1 MiB. Variable dimensions count as 1."""
    row_bytes = 0
    for tensor in model.inputs:
        element_bytes = datatype_of(tensor.datatype).size or TEXT_BYTES
        row_bytes += element_bytes * prod(map(abs, tensor.shape[1:]))
    rows = REQUEST_BYTES // max(row_bytes, 1)
    return max(1, min(MAX_ROWS, rows))


def _check_rows(outputs: Sequence[ResponseOutput], rows: int) -> None:
    """Raise InvalidInput if an output does not have one value or array per row."""
    for output in outputs:
        if output.shape[:1] != [rows]:
            error = InvalidInput(expected=f"{rows} rows", got=f"shape {output.shape}")
            raise error.about("output", output.name)


def _format_count(number: int, noun: str) -> str:
    """Return a number and a noun, such as "1 row" or "1,000 rows"."""
    if number != 1:
        noun += "s"
    return f"{number:,} {noun}"
