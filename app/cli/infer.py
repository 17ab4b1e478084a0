"""infer: every row of a file through the model, and the answers into another."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli import interrupts
from app.cli.common import FAILED, Failure, counted, show_json
from app.cli.options import json_option, service_options
from app.cli.service import Service

if TYPE_CHECKING:
    from app.cli.matching import Matching
    from app.cli.run import Run
    from app.types import MetadataTensor

REQUEST_BYTES = 2**20
MOST_ROWS = 4096
TEXT_BYTES = 64  # of a text, by guess
FAULTS_SHOWN = 5
INPUT_FORMATS = ["csv", "parquet", "jsonl", "npy", "npz", "image"]
OUTPUT_FORMATS = INPUT_FORMATS[:-1]


def default_batch(inputs: Sequence[MetadataTensor]) -> int:
    """Rows that make about a mebibyte, if they are not too many; the inputs' own number where they declare one."""
    from app.datatypes import datatype_of

    if fixed := [each.shape[0] for each in inputs if each.shape[0] > 0]:
        return max(fixed)
    width = sum((datatype_of(each.datatype).size or TEXT_BYTES) * prod(map(abs, each.shape[1:])) for each in inputs)
    return max(1, min(MOST_ROWS, REQUEST_BYTES // max(width, 1)))


class Separator(click.ParamType):
    name = "separator"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        mark = {"tab": "\t", "\\t": "\t"}.get(value, value)
        if len(mark) != 1 or mark in '"\r\n' or not mark.isascii():
            self.fail(f"{value}: one character, or tab", param, ctx)
        return mark


@click.command(
    "infer",
    short_help="Send a file's rows through the model.",
    epilog="""\b
Examples:
  PROGRAM infer flowers.csv --output labels.csv
  PROGRAM infer rows.parquet --output rows-out.parquet --keep --in-flight 8
  zcat rows.csv.gz | PROGRAM infer - --format csv > out.csv
  PROGRAM infer rows.csv --output out.csv --resume        goes on where it was stopped
  PROGRAM infer *.jpg --output found.jsonl --keep
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("-o", "--output", default="-", metavar="FILE", help="Where the answers go; stdout unless given.")
@click.option("--format", "format_name", type=click.Choice(INPUT_FORMATS), help="Of FILE; by its name unless given.")
@click.option("--output-format", type=click.Choice(OUTPUT_FORMATS), help="By the output's name unless given, or CSV.")
@click.option("--no-header", is_flag=True, help="The CSV has no line of names: its columns are 1, 2 and on.")
@click.option(
    "--separator", metavar="CHAR", type=Separator(), help="Of the CSV's columns; a comma unless given, or tab."
)
@click.option("--null", metavar="TEXT", help="What a missing cell of the CSV holds, in text too; '' is an empty one.")
@click.option(
    "--columns", metavar="A,B,...", help="What the inputs take: by name; by position where none is an input's."
)
@click.option("--keep", is_flag=True, help="Put the file's other columns into the output, before the answers.")
@click.option("--batch-size", type=click.IntRange(1), metavar="ROWS", help="Of a request; about 1 MiB unless given.")
@click.option("--in-flight", type=click.IntRange(1, 256), default=4, show_default=True, help="Requests at once.")
@click.option("--retries", type=click.IntRange(0), default=8, show_default=True, help="Of a request, where that helps.")
@click.option("--timeout", type=click.FloatRange(0.001), default=60, show_default=True, help="Seconds for an answer.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first batch that fails.")
@click.option("--skip-failed", is_flag=True, help="Finish the output without the rows that fail.")
@click.option("--resume", is_flag=True, help="Go on with what an earlier run of the same left undone.")
@click.option("--overwrite", is_flag=True, help="Replace an output that is there.")
@service_options()
@json_option
def command(files: tuple[str, ...], service: Service, as_json: bool, **options: Any) -> None:
    """Sends the rows of FILE through the model, several batches at once, and writes the answers in their order.

    FILE is CSV, Parquet, JSON lines, NPY, NPZ, images, or - for stdin. An input takes the column of its name, or
    NAME_0, NAME_1 and on; the only input of a model takes as many columns as it has values in a row. An output of
    several values a row becomes NAME_0 and on, in JSON lines a list.

    Batches that fail do not stop the others: they are told at the end, with exit status 1. What is done stays beside
    the output, in FILE.part, until all is, and --resume sends the rest; so it does after an interrupt or a crash.
    Exit status 3: the service does not answer.
    """
    if as_json and options["output"] == "-":
        raise click.UsageError("--json reports on stdout, where the answers go; give --output FILE")
    run, outputs = prepare(files, service, **options)
    sink = run.sink
    try:
        with interrupts.raised():
            run.go()
            run.finish(outputs)
    except KeyboardInterrupt:
        sink.pause()
        raise Failure(f"interrupted{advice(sink)}", interrupts.INTERRUPTED) from None
    except Failure as failure:
        sink.pause()
        raise Failure(failure.message + advice(sink), failure.exit_code) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        name = "stdout" if options["output"] == "-" else options["output"]
        raise Failure(f"{name}: {error.strerror}{advice(sink)}") from None
    report(run, options["output"], as_json)


def prepare(files: Sequence[str], service: Service, **options: Any) -> tuple[Run, Sequence[MetadataTensor]]:
    """The run, and the model's outputs."""
    from app.cli.choosing import match
    from app.cli.model import read_model
    from app.cli.readers import open_table
    from app.cli.run import Options, Run
    from app.cli.senders import Senders
    from app.cli.spool import Spool, Stream
    from app.cli.writers import WRITERS

    path, format_name = output_of(options["output"], options["output_format"])
    if options["resume"] and path is None:
        raise click.UsageError("--resume needs --output FILE")
    if path:
        spare(path, files, options["resume"], options["overwrite"])
    model = read_model(service)
    separator, null = options["separator"] or "", options["null"]
    table = open_table(files, options["format_name"], not options["no_header"], separator, null)
    click.get_current_context().call_on_close(table.close)
    chosen = [name.strip() for name in (options["columns"] or "").split(",") if name.strip()]
    check_outputs(model.inputs, model.outputs)
    matching = match(table, model.inputs, model.optional, chosen)
    matching.takes_gaps = not service.grpc
    matching.blank = None if table.tells_gaps else set()
    for note in matching.notes:
        click.echo(note, err=True)
    kept = to_keep(matching, model.outputs, format_name, options["keep"])
    writer = WRITERS[format_name]
    about = {
        "input": [[name, *stamp(name)] for name in files],
        "model": [model.name, model.version],
        "format": "frames" if hasattr(writer, "write") else format_name,
        "matching": [matching.inputs, kept, null],
    }
    if format_name == "npy" and len(kept) + len(model.outputs) > 1:
        raise Failure("NPY holds one array, and there are more columns and outputs; NPZ holds several")
    sink = Spool(path, writer, about, options["resume"]) if path else Stream(options["output"], writer)
    click.get_current_context().call_on_close(sink.close)
    senders = Senders(service, model, options["timeout"], options["retries"])
    batch_size = options["batch_size"] or default_batch(model.inputs)
    how = Options(batch_size, options["in_flight"], options["fail_fast"], options["skip_failed"])
    return Run(table, matching, senders, sink, kept, how), model.outputs


def check_outputs(inputs: Sequence[MetadataTensor], outputs: Sequence[MetadataTensor]) -> None:
    """Failure where the inputs take any number of rows, and an output has always so many."""
    for each in outputs:
        if each.shape[:1] > [1] and all(tensor.shape[:1] == [-1] for tensor in inputs):
            raise Failure(
                f'output "{each.name}" has the shape {each.shape}, whatever the inputs have, and so none for each row'
            )


def to_keep(matching: Matching, outputs: Sequence[MetadataTensor], format_name: str, is_wanted: bool) -> Sequence[str]:
    """The columns to keep; those that are left out are told. Failure where one is named as an output is."""
    from app.cli.columns import check_kept, declared, flat

    columns, extra = declared(outputs, []), matching.extra
    names = [each.name for each in (flat(columns) if format_name in ("csv", "parquet") else columns)]
    if is_wanted:
        check_kept(extra, names)
        return extra
    if extra and not matching.is_image:
        advice = "" if {*extra} & {*names} else " (--keep keeps them)"
        click.echo(f"columns that no input takes: {', '.join(extra)}{advice}", err=True)
    return []


def output_of(name: str, format_name: str | None) -> tuple[Path | None, str]:
    """The file to write, or None where it is a pipe, and its format; by its name where none is given."""
    from app.cli.tables import FORMATS, check_pyarrow

    path = Path(name)
    if path.is_dir():
        raise click.UsageError(f"{name}: a folder; give --output a file")
    is_file = name != "-" and (path.is_file() or not path.exists())
    found = format_name or (FORMATS.get(path.suffix.lower()) if is_file else "csv")
    if found not in OUTPUT_FORMATS:
        raise click.UsageError(f"{name}: which format? --output-format csv, or one of {', '.join(OUTPUT_FORMATS)}")
    if found == "parquet":
        check_pyarrow()
    return (path if is_file else None), str(found)


def spare(path: Path, files: Sequence[str], resume: bool, overwrite: bool) -> None:
    """Raises Failure where a run would take an input away, or another output that nobody gave up."""
    from app.cli.spool import beside

    part, journal = (beside(path, each) for each in ("part", "journal"))
    for made in (path, part, journal, beside(path, "whole")):
        for name in files:
            if name != "-" and made.exists() and Path(name).exists() and os.path.samefile(name, made):
                raise Failure(f"{made} is an input; give the answers a file of their own")
    if not path.exists() or overwrite or (resume and part.exists() and journal.exists()):
        return
    if resume:
        raise Failure(f"{path} exists and there is nothing to resume; delete it, or --overwrite")
    raise Failure(f"{path} exists; --overwrite replaces it")


def stamp(name: str) -> list[int]:
    """What changes when a file does."""
    if name == "-":
        return []
    try:
        found = Path(name).stat()
    except OSError as error:
        raise Failure(f"{name}: {error.strerror}") from None
    return [found.st_size, found.st_mtime_ns]


def advice(sink: Any) -> str:
    return f"; {counted(sink.rows, 'row')} done, and {sink.remedy}" if sink.part and sink.rows else ""


def report(run: Run, output: str, as_json: bool) -> None:
    """Says what came of it, and ends with 1 where rows failed."""
    tally = run.tally
    if blank := run.matching.blank:
        click.echo(f"empty cells went as empty text, not as missing: {', '.join(sorted(blank))} (--null '')", err=True)
    if as_json:
        faults = [{"first": each.start + 1, "last": each.stop, "error": each.text} for each in tally.faults]
        found = {"rows": tally.rows, "failed": tally.failed, "skipped": run.skipped, "seconds": tally.seconds}
        show_json({**found, "output": output, "faults": faults})
    else:
        earlier = f", {run.skipped:,} done before" if run.skipped else ""
        rate = tally.rows / tally.seconds if tally.seconds else 0
        click.echo(f"{counted(tally.rows, 'row')} in {tally.seconds:.1f} s, {rate:,.0f} rows/s{earlier}", err=True)
    if tally.failed:
        for fault in tally.faults[:FAULTS_SHOWN]:
            click.echo(str(fault), err=True)
        others = len(tally.faults) - FAULTS_SHOWN
        rest = f", {counted(others, 'more fault')}" if others > 0 else ""
        more = "" if run.is_whole else advice(run.sink)
        click.echo(f"{counted(tally.failed, 'row')} failed{rest}{more}", err=True)
        sys.exit(FAILED)
