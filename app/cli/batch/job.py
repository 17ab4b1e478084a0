"""The job of infer: send the rows of a file in concurrent requests and write the results."""

import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
from rich.console import Console
from rich.progress import Progress

from app.cli.batch.column_mapping import ColumnMapping, to_columns
from app.cli.batch.files import CONTENTS, FILE, Output, Source
from app.cli.batch.formats import OUTPUT_FORMATS
from app.cli.batch.transports import Client, Unreachable, open_transport, read_model, to_failure
from app.cli.client import ServiceClient
from app.cli.common import Failure, one_line, show_json
from app.inference.example import apply_declarations
from app.protocol.datatypes import datatype_of
from app.protocol.errors import InferenceError, InvalidInput, NoBinaryForm
from app.protocol.metadata import ModelMetadata

REQUEST_BYTES, MAX_ROWS = 2**20, 4096  # limits of the default batch size
TEXT_BYTES = 64  # estimated size of a text
MAX_FAULTS = 20  # maximum number of errors in the report
ERROR = "error"  # the error column in the file of failed rows
FAULT = "Rows {first} to {last}: {error}"


def default_batch(model: ModelMetadata) -> int:
    """Return the number of rows in a request of about 1 MiB."""
    sizes = [
        (datatype_of(each.datatype).size or TEXT_BYTES) * prod(map(abs, each.shape[1:]))
        for each in model.inputs
    ]
    return max(1, min(MAX_ROWS, REQUEST_BYTES // max(sum(sizes), 1)))


def format_count(number: int, noun: str) -> str:
    """Return a number and a noun, such as "1 row" or "1,000 rows"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def map_in_order(
    pool: Executor, function: Any, items: Iterable[Any], limit: int
) -> Iterator[tuple[Any, Future[Any]]]:
    """Submit the items, at most `limit` ahead, and yield each with its future in order."""
    window: deque[tuple[Any, Future[Any]]] = deque()
    for item in items:
        window.append((item, pool.submit(function, item)))
        if len(window) == limit:
            yield window.popleft()
    yield from window


@dataclass
class Counts:
    """The rows that have a result, those that failed, and the first failures."""

    begun: float = field(default_factory=time.monotonic)
    rows: int = 0
    failed: int = 0
    faults: list[dict[str, Any]] = field(default_factory=list)

    @property
    def done(self) -> int:
        return self.rows + self.failed

    def add_fault(self, fault: dict[str, Any], rows: int) -> None:
        self.failed += rows
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)

    def add_rows(self, rows: int) -> None:
        self.rows += rows


class Job:
    """Sends batches concurrently and writes the results in the order of the rows.

    Raise Failure if a file, an option or the model is not suitable.
    """

    def __init__(self, files: Sequence[str], service: ServiceClient, **options: Any):
        self.options = options
        self.counts = Counts()
        delimiter = "\t" if options["delimiter"] == "tab" else options["delimiter"]
        with ExitStack() as stack:
            self.output = stack.enter_context(
                closing(Output(Path(options["output"]), options["output_format"], files))
            )
            model = read_model(service)
            self.outputs = model.outputs
            batch_rows = options["batch_size"] or default_batch(model)
            self.source = Source(
                files, options["format_name"], batch_rows, delimiter, options["na_value"]
            )
            stack.enter_context(closing(self.source.tables))
            self.failed_output: Output | None = None
            if options["skip_failed"]:
                kind = self.source.format if self.source.format in OUTPUT_FORMATS else "jsonl"
                failed_path = self.output.path.with_name(f"{self.output.path.stem}.failed.{kind}")
                self.failed_output = stack.enter_context(
                    closing(Output(failed_path, kind, files, delimiter))
                )
            chosen = [
                name.strip() for name in (options["columns"] or "").split(",") if name.strip()
            ]
            self.mapping = ColumnMapping(self.source.head, model, chosen)
            self.kept = self.mapping.unused if options["keep_columns"] else []
            connect = partial(open_transport, service, model.name, options["timeout"])
            transports = [
                stack.enter_context(closing(connect())) for _ in range(options["concurrency"])
            ]
            self.client = Client(transports, options["retries"])
            self.resources = stack.pop_all()  # closed by run()

    def run(self) -> None:
        """Send all rows, complete the output and print a report. Raise Failure if rows failed."""
        with self.resources as stack:
            if self.failed_output:
                self.failed_output.path.unlink(missing_ok=True)  # from an earlier run
            pool = stack.enter_context(ThreadPoolExecutor(self.options["concurrency"]))
            # Cancel all requests. A request that is just starting can reconnect. The stack closes that connection last.
            stack.callback(self.client.close)
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            self._send_all(pool)
        if self.failed_output:
            self.failed_output.finish()
        if not self.counts.failed or self.failed_output:
            self.output.finish()
        self._report()

    def _send_all(self, pool: Executor) -> None:
        # Twice as many items as threads, so that a slow request does not block the others.
        results = map_in_order(
            pool, self._infer, self.source.batches(), 2 * self.options["concurrency"]
        )
        with Progress(
            console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
        ) as bar:
            task = bar.add_task("", total=self.source.total)
            for table, encoded in results:
                self._write_results(table, encoded)
                done = self.counts.done
                bar.update(task, description=format_count(done, "row"), completed=done)

    def _infer(self, table: pa.Table) -> Any:
        """Send the rows. Return the encoded results."""
        try:
            outputs = self.client.infer(self.mapping.request(table)).outputs
            apply_declarations(outputs, self.outputs)
        except NoBinaryForm as missing:
            missing.remedy = 'use --transport rest-json, or declare missing="" in METADATA'
            raise
        for output in outputs:
            if output.shape[:1] != [len(table)]:
                error = InvalidInput(expected=f"{len(table)} rows", got=f"shape {output.shape}")
                raise error.about("output", output.name)
        return self.output.encode(table.select(self.kept), to_columns(outputs, self.output.format))

    def _write_results(self, table: pa.Table, results: Future[Any]) -> None:
        try:
            self.output.write(results.result())
            self.counts.add_rows(len(table))
        except InferenceError as error:
            if isinstance(error, Unreachable):
                raise to_failure(error) from None
            text = f"{table[FILE][0]}: {error}" if self.source.format == "image" else str(error)
            self._add_fault(table, one_line(text))

    def _add_fault(self, table: pa.Table, error: str) -> None:
        start = self.counts.done
        fault = {"first": start + 1, "last": start + len(table), "error": error}
        if self.options["fail_fast"]:
            raise Failure(FAULT.format(**fault))
        if self.failed_output:
            rows = table.select(
                [name for name in table.column_names if name not in (CONTENTS, ERROR)]
            )
            rows = rows.append_column(ERROR, pa.array([error] * len(rows)))
            self.failed_output.write(self.failed_output.encode(rows, {}))
        self.counts.add_fault(fault, rows=len(table))

    def _report(self) -> None:
        counts = self.counts
        seconds = time.monotonic() - counts.begun
        failed_path = None
        if self.failed_output and counts.failed:
            failed_path = str(self.failed_output.path)
        if self.options["as_json"]:
            show_json(
                {
                    "rows": counts.rows,
                    "failed": counts.failed,
                    "seconds": seconds,
                    "output": str(self.output.path),
                    "failed_rows": failed_path,
                    "faults": counts.faults,
                }
            )
        else:
            rate = counts.rows / seconds
            rows = format_count(counts.rows, "row")
            click.echo(f"{rows} in {seconds:.1f} s, {rate:,.0f} rows/s", err=True)
        for fault in counts.faults:
            click.echo(FAULT.format(**fault), err=True)
        if counts.failed:
            where = f"Other results: {self.output.part or 'stdout'}."
            if failed_path:
                where = f"Failed rows: {failed_path}."
            raise Failure(f"{format_count(counts.failed, 'row')} failed. {where}")
