"""The infer command: send the rows of a file to the model and write the results."""

from typing import Any

import click

from app.cli.batch.formats import DELIMITERS, FORMATS, OUTPUT_FORMATS
from app.cli.client import ServiceClient
from app.cli.common import BROKEN, Failure
from app.cli.options import json_option, service_options, transport_option


@click.command(
    "infer",
    epilog="""\b
Examples:
  PROGRAM infer flowers.csv --output labels.csv
  PROGRAM infer rows.parquet --output labels.parquet --keep-columns --concurrency 8
  zcat rows.csv.gz | PROGRAM infer - --format csv > labels.csv
  PROGRAM infer rows.csv --output labels.csv --skip-failed    failed rows go to labels.failed.csv
  PROGRAM infer *.jpg --output labels.jsonl --keep-columns
""",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "-o", "--output", default="-", metavar="FILE", help="File for the results.  [default: stdout]"
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(FORMATS),
    help="Format of FILE.  [default: by its name]",
)
@click.option(
    "--output-format",
    type=click.Choice(OUTPUT_FORMATS),
    help="Output format.  [default: by name, or csv]",
)
@click.option(
    "--delimiter",
    type=click.Choice(DELIMITERS),
    default=",",
    metavar="[, ; | tab]",
    help="CSV delimiter. [default: ,]",
)
@click.option(
    "--na-value", metavar="TEXT", help="Missing value in CSV, such as NA.  [default: none]"
)
@click.option(
    "--columns",
    metavar="A,B,...",
    help="Columns for the inputs, by name or in order.  [default: all]",
)
@click.option(
    "--keep-columns",
    is_flag=True,
    help="Write the columns that no input takes, before the results.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    metavar="ROWS",
    help="Rows per request.  [default: about 1 MiB]",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 256),
    default=4,
    show_default=True,
    help="Concurrent requests.",
)
@click.option(
    "--retries", type=click.IntRange(0), default=8, show_default=True, help="Retries of a request."
)
@click.option(
    "--timeout",
    type=click.FloatRange(0.001),
    default=60,
    show_default=True,
    help="Seconds per request.",
)
@click.option("--fail-fast", is_flag=True, help="Stop at the first request that fails.")
@click.option(
    "--skip-failed",
    is_flag=True,
    help="Write failed rows to OUTPUT.failed, and the others to the output.",
)
@transport_option("rest-binary")
@service_options
@json_option
def command(files: tuple[str, ...], service: ServiceClient, **options: Any) -> None:
    """Send the rows of a file to the model and write the results in the same order.

    FILE is CSV, Parquet, JSON Lines or NPY, optionally compressed with gzip. Use - for stdin. Other
    files are sent unchanged, one per request, to a BYTES input. An input uses the column with its
    name, or NAME_0, NAME_1 and so on. If the model has one input, it uses as many columns as it has
    values per row.

    The command continues after failed requests. It then lists the errors and exits with status 1.
    The results of the other rows are in OUTPUT.part, or in OUTPUT with --skip-failed.
    """
    try:
        from app.cli.batch.job import JobOptions, run_job
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        text = f"Package {package} is not installed. Run pip install --editable '.[batch]'"
        raise Failure(text, BROKEN) from None
    job_options = JobOptions(**options)
    is_stdout = job_options.output == "-"
    if job_options.as_json and is_stdout:
        raise click.UsageError("--json writes to stdout. Add --output FILE for the results.")
    if job_options.skip_failed and is_stdout:
        raise click.UsageError(
            "--skip-failed needs a name for the file of failed rows. Add --output FILE."
        )
    try:
        run_job(files, service, job_options)
    except BrokenPipeError:
        raise  # click ends the command without a message
    except OSError as error:
        raise Failure(f"{job_options.output}: {error.strerror}") from None
