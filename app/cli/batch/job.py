"""Send the rows of a file to the service, several requests at once, and write the results."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
import pyarrow as pa

from app.cli.batch import transports
from app.cli.batch.column_mapping import ColumnMapping, map_columns
from app.cli.batch.model import Model, read_model
from app.cli.batch.reading import CONTENTS, FILE, Source, format_of
from app.cli.batch.terminal import progress_bar
from app.cli.batch.writing import FORMATS, Output
from app.cli.common import FAILED, NOT_READY, Failure, counted, one_line, show_json
from app.cli.service import Service
from app.datatypes import datatype_of
from app.errors import InferenceError, InvalidInput
from app.types import MetadataTensor, ResponseOutput

REQUEST_BYTES, MAX_ROWS = 2**20, 4096  # of the default batch
TEXT_BYTES = 64  # the estimated size of a text
FAULTS_SHOWN, FAULTS_KEPT = 5, 10_000
ERROR = "error"  # the column of failed rows


def prepare(files: Sequence[str], service: Service, **options: Any) -> Job:
    """Read the model's metadata and open the files. Raise Failure for everything that cannot work."""
    output = make_output(Path(options["output"]), options["output_format"], files)
    model = read_model(service)
    batch_rows = options["batch_size"] or default_batch(model)
    delimiter = "\t" if options["separator"] == "tab" else options["separator"]
    source = Source(files, options["format_name"], batch_rows, delimiter, options["null"])
    failed_output = None
    if options["skip_failed"]:
        kind = source.format if source.format in FORMATS else "jsonl"
        failed_path = output.path.with_name(f"{output.path.stem}.failed.{kind}")
        failed_output = make_output(failed_path, kind, files, delimiter)
    chosen = [name.strip() for name in (options["columns"] or "").split(",") if name.strip()]
    mapping = map_columns(source.head, model.inputs, model.optional, chosen)
    kept = mapping.unused if options["keep"] else []
    # Raises Failure if two columns have the same name, and is the result of a file without rows.
    no_results = output.encode(source.head.slice(0, 0).select(kept), [empty_output(each) for each in model.outputs])
    output.open()
    number, timeout, form = options["in_flight"], options["timeout"], options["form"]
    connections = [transports.connect(service, model, timeout, form) for _ in range(number)]
    client = transports.Client(connections, options["retries"])
    return Job(source, mapping, client, output, failed_output, kept, no_results, number, options["fail_fast"])


def make_output(path: Path, format_name: str | None, files: Sequence[str], delimiter: str = ",") -> Output:
    """Return the output. Raise UsageError if it cannot have the format, or if writing it would destroy an input."""
    output = Output(path, format_name or format_of(str(path)) or ("csv" if str(path) == "-" else ""), delimiter)
    if output.format not in FORMATS:
        raise click.UsageError(f"{path}: unknown format. Use --output-format with one of {', '.join(FORMATS)}.")
    if output.format == "parquet" and not output.part:
        raise click.UsageError("Parquet needs a file. Add --output FILE.")
    written = [each for each in (path, output.part) if each and each.exists()]
    if any(each.samefile(name) for each in written for name in files if Path(name).exists()):
        raise click.UsageError(f"{path} is an input. Use another --output.")
    return output


def default_batch(model: Model) -> int:
    """Return the number of rows that make about 1 MiB, or the number that the inputs declare."""
    if fixed := [each.shape[0] for each in model.inputs if each.shape and each.shape[0] > 0]:
        return max(fixed)
    sizes = [(datatype_of(each.datatype).size or TEXT_BYTES) * prod(map(abs, each.shape[1:])) for each in model.inputs]
    return max(1, min(MAX_ROWS, REQUEST_BYTES // max(sum(sizes), 1)))


def empty_output(tensor: MetadataTensor) -> ResponseOutput:
    shape = (0, *(max(size, 1) for size in tensor.shape[1:]))
    data = np.empty(shape, datatype_of(tensor.datatype).dtype)
    return ResponseOutput(tensor.name, tensor.datatype, data=data, parameters=tensor.parameters)


class Fault(NamedTuple):
    """Rows that failed for one reason, numbered from 1."""

    first: int
    last: int
    error: str


@dataclass
class Job:
    """Sends batches, several at once, and writes their results in the order of the rows."""

    source: Source
    mapping: ColumnMapping
    client: transports.Client
    output: Output
    failed_output: Output | None
    kept: list[str]
    no_results: Any
    concurrency: int
    fail_fast: bool
    rows: int = 0
    failed: int = 0
    seconds: float = 0
    faults: list[Fault] = field(default_factory=list)

    def run(self) -> None:
        """Send all rows and finish the output. Raise Failure if it makes no sense to continue."""
        begun = time.monotonic()
        try:
            self._send_all()
            if not self.rows:
                self.output.write(self.no_results)
        finally:
            self.seconds = time.monotonic() - begun
            self.output.close()
        if not self.failed or self.failed_output:
            self.output.finish()
        if self.failed_output:
            self.failed_output.finish()

    def _send_all(self) -> None:
        window: deque[tuple[pa.Table, Future[Any]]] = deque()
        pool = ThreadPoolExecutor(self.concurrency)
        try:
            with progress_bar() as bar:
                task = bar.add_task("", total=None)

                def write_first() -> None:
                    self._write_results(*window.popleft())
                    done = self.rows + self.failed
                    bar.update(task, description=counted(done, "row"), completed=done, total=self.source.total or None)

                for table in self.source.batches():
                    window.append((table, pool.submit(self._infer, table)))
                    # Twice as many as threads: the others continue while the first one is slow.
                    if len(window) >= 2 * self.concurrency:
                        write_first()
                while window:
                    write_first()
        finally:
            self.client.close()
            pool.shutdown(cancel_futures=True)

    def _infer(self, table: pa.Table) -> Any:
        """Return the encoded results of the rows."""
        outputs = self.client.infer(self.mapping.request(table)).outputs
        for output in outputs:
            if output.shape[:1] != [len(table)]:
                error = InvalidInput(expected=f"{len(table)} rows", got=f"shape {output.shape}")
                raise error.about("output", output.name)
        return self.output.encode(table.select(self.kept), outputs)

    def _write_results(self, table: pa.Table, results: Future[Any]) -> None:
        try:
            self.output.write(results.result())
            self.rows += len(table)
        except InferenceError as error:
            self._add_fault(table, str(error))
        except transports.Retryable as error:
            if not error.is_answered:
                raise Failure(str(error), NOT_READY) from None
            self._add_fault(table, str(error))

    def _add_fault(self, table: pa.Table, error: str) -> None:
        error = f"{table[FILE][0]}: {error}" if self.source.format == "image" else error
        start = self.rows + self.failed
        fault = Fault(start + 1, start + len(table), error)
        if self.fail_fast:
            raise Failure("Rows {} to {}: {}".format(*fault))
        if self.failed_output:
            if not self.failed:
                self.failed_output.open()
            rows = table.select([name for name in table.column_names if name not in (CONTENTS, ERROR)])
            rows = rows.append_column(ERROR, pa.array([error] * len(rows)))
            self.failed_output.write(self.failed_output.encode(rows, []))
        self.failed += len(table)
        if len(self.faults) < FAULTS_KEPT:
            self.faults.append(fault)


def report(job: Job, as_json: bool) -> None:
    """Print the numbers of rows and the failures. Exit with status 1 if rows failed."""
    failed_path = str(job.failed_output.path) if job.failed_output and job.failed else None
    if as_json:
        found = {"rows": job.rows, "failed": job.failed, "seconds": job.seconds, "output": str(job.output.path)}
        show_json({**found, "failed_rows": failed_path, "faults": [each._asdict() for each in job.faults]})
    else:
        rate = job.rows / job.seconds if job.seconds else 0
        click.echo(f"{counted(job.rows, 'row')} in {job.seconds:.1f} s, {rate:,.0f} rows/s", err=True)
    if job.failed:
        for fault in job.faults[:FAULTS_SHOWN]:
            click.echo(one_line("Rows {} to {}: {}".format(*fault)), err=True)
        where = f" Failed rows: {failed_path}." if failed_path else f" Other results: {job.output.part or 'stdout'}."
        click.echo(f"{counted(job.failed, 'row')} failed.{where}", err=True)
        sys.exit(FAILED)
