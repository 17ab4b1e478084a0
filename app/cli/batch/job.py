"""The job of infer: send the rows of a file in concurrent requests and write the results.

run_job() opens the files and the connections, and closes them in any case. A Job uses them.
"""

import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
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


@dataclass
class Job:
    """Sends batches concurrently and writes the results in the order of the rows.

    - mapping: the columns that the inputs of `model` use.
    - failed_output: the file for the rows of failed requests, or None without --skip-failed.
    """

    options: JobOptions
    model: ModelMetadata
    client: Client
    source: Source
    mapping: ColumnMapping
    output: Output
    failed_output: Output | None
    counts: Counts = field(default_factory=Counts)

    def send_all(self) -> None:
        """Send all rows and write their results.

        Raise Failure if the service does not respond, or at the first failed request with
        --fail-fast.
        """
        if self.failed_output:
            self.failed_output.path.unlink(missing_ok=True)  # from an earlier run
        with ThreadPoolExecutor(self.options.concurrency) as pool:
            try:
                self._send_batches(pool)
            finally:
                # After an error, cancel the other requests. One that is just starting can
                # reconnect. _open_job() closes that connection when the threads have ended.
                pool.shutdown(wait=False, cancel_futures=True)
                self.client.close()

    def _send_batches(self, pool: Executor) -> None:
        """Send all batches, write their results and show the progress on a terminal."""
        console = Console(stderr=True)
        is_terminal = sys.stderr.isatty()
        with Progress(console=console, transient=True, disable=not is_terminal) as progress:
            task = progress.add_task("", total=self.source.total)
            for table, result in self._submit_batches(pool):
                self._write_result(table, result)
                done = self.counts.done
                description = _format_count(done, "row")
                progress.update(task, description=description, completed=done)

    def _submit_batches(self, pool: Executor) -> Iterator[SentBatch]:
        """Submit batches to the threads, and yield them in the order of the rows.

        Twice as many batches as threads are submitted but not yielded, so that a slow request does
        not block the others.
        """
        limit = 2 * self.options.concurrency
        window: deque[SentBatch] = deque()
        for table in self.source.batches():
            result = pool.submit(self._infer, table)
            window.append((table, result))
            if len(window) == limit:
                yield window.popleft()
        yield from window

    def _infer(self, table: pa.Table) -> EncodedRows:
        """Send the rows. Return the encoded results."""
        try:
            request = self.mapping.request(table)
            outputs = self.client.infer(request).outputs
            apply_declarations(outputs, self.model.outputs)
        except NoBinaryForm as error:
            error.remedy = 'use --transport rest-json, or declare missing="" in METADATA'
            raise
        _check_rows(outputs, len(table))
        columns = to_columns(outputs, self.output.format)
        kept_columns = self.mapping.unused if self.options.keep_columns else []
        return self.output.encode(table.select(kept_columns), columns)

    def _write_result(self, table: pa.Table, result: Future[EncodedRows]) -> None:
        """Write the results of the rows in `table`, or add them to the failed rows."""
        try:
            self.output.write(result.result())
            self.counts.add_rows(len(table))
        except Unreachable as error:
            raise to_failure(error) from None
        except InferenceError as error:
            text = str(error)
            if self.source.format == "image":
                text = f"{table[FILE][0]}: {text}"
            self._add_fault(table, one_line(text))

    def _add_fault(self, table: pa.Table, error: str) -> None:
        first = self.counts.done + 1
        last = self.counts.done + len(table)
        fault = Fault(first, last, error)
        if self.options.fail_fast:
            raise Failure(str(fault))
        if self.failed_output:
            _write_failed_rows(self.failed_output, table, error)
        self.counts.add_fault(fault, rows=len(table))

    def finish_outputs(self) -> None:
        """Give the closed output files their names.

        Without --skip-failed, an output without the failed rows remains FILE.part.
        """
        if self.failed_output:
            self.failed_output.finish()
        is_complete = self.counts.failed == 0 or self.failed_output is not None
        if is_complete:
            self.output.finish()

    def report(self, seconds: float) -> None:
        """Print the numbers and the first failures. Raise Failure if rows failed."""
        counts = self.counts
        failed_path = None
        if self.failed_output and counts.failed:
            failed_path = str(self.failed_output.path)

        if self.options.as_json:
            report = {
                "rows": counts.rows,
                "failed": counts.failed,
                "seconds": seconds,
                "output": str(self.output.path),
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
            location = f"Other results: {self.output.part or 'stdout'}."
            if failed_path:
                location = f"Failed rows: {failed_path}."
            raise Failure(f"{_format_count(counts.failed, 'row')} failed. {location}")


def run_job(files: Sequence[str], service: ServiceClient, options: JobOptions) -> None:
    """Send the rows of the files, write the results and print a report.

    Raise Failure if a file, an option or the model is not suitable, or if rows failed.
    """
    begun = time.monotonic()
    with _open_job(files, service, options) as job:
        job.send_all()
    job.finish_outputs()
    job.report(seconds=time.monotonic() - begun)


@contextmanager
def _open_job(files: Sequence[str], service: ServiceClient, options: JobOptions) -> Iterator[Job]:
    """Open the files and the connections of a job, and close them at the end of the block."""
    with ExitStack() as stack:
        output = Output(Path(options.output), options.output_format, files)
        stack.enter_context(closing(output))

        model = read_model(service)
        source = Source(
            files,
            format_name=options.format_name,
            batch_rows=options.batch_size or _default_batch(model),
            delimiter=options.delimiter_character,
            na_value=options.na_value,
        )
        stack.enter_context(closing(source.tables))

        failed_output = None
        if options.skip_failed:
            failed_output = _create_failed_output(files, options, source.format)
            stack.enter_context(closing(failed_output))

        mapping = ColumnMapping(source.head, model, options.column_names)

        transports = []
        for _ in range(options.concurrency):
            transport = open_transport(service, model.name, options.timeout)
            stack.enter_context(closing(transport))
            transports.append(transport)
        client = Client(transports, options.retries)

        yield Job(
            options,
            model,
            client=client,
            source=source,
            mapping=mapping,
            output=output,
            failed_output=failed_output,
        )


def _create_failed_output(files: Sequence[str], options: JobOptions, source_format: str) -> Output:
    """Return the file for failed rows, next to the output. Its format is that of the source, or
    JSON Lines if the source has a format that only inputs can have.
    """
    format_name = source_format
    if format_name not in OUTPUT_FORMATS:
        format_name = "jsonl"
    path = Path(options.output)
    failed_path = path.with_name(f"{path.stem}.failed.{format_name}")
    return Output(failed_path, format_name, files, options.delimiter_character)


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


def _write_failed_rows(output: Output, table: pa.Table, error: str) -> None:
    """Write the rows with their error in the last column. It replaces one of an earlier run."""
    names = [name for name in table.column_names if name not in (CONTENTS, ERROR)]
    errors = pa.array([error] * len(table))
    rows = table.select(names).append_column(ERROR, errors)
    output.write(output.encode(rows, {}))


def _format_count(number: int, noun: str) -> str:
    """Return a number and a noun, such as "1 row" or "1,000 rows"."""
    if number != 1:
        noun += "s"
    return f"{number:,} {noun}"
