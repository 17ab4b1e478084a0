"""The describe command: print METADATA for predict.py, from sample inputs or from a model.

`model_files` reads the declarations that a model file contains. `samples` reads those of sample
inputs, and their first row. `predict_code` writes both as Python code.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from app.cli.common import BROKEN, Failure
from app.cli.options import PATH
from app.inference.startup_errors import describe_error, import_remedy

if TYPE_CHECKING:
    from app.protocol.metadata import MetadataTensor

SAMPLE_SUFFIXES = (".csv", ".json", ".npy", ".parquet")
# Platforms in METADATA, by the suffix of the model file.
MODEL_PLATFORMS = {".joblib": "sklearn_joblib", ".onnx": "onnx_onnxv1", ".ubj": "xgboost_ubj"}


@click.command(
    epilog="\b\nExamples:\n"
    "  PROGRAM describe rows.csv\n"
    "  PROGRAM describe rows.csv --model model.joblib"
)
@click.argument("sample", type=PATH, required=False)
@click.option(
    "--model",
    type=PATH,
    help="Model: .joblib, .onnx or .ubj. Loading a .joblib file runs the code in it.",
)
def command(sample: Path | None, model: Path | None) -> None:
    """Print METADATA for app/predict.py, from a table (.csv, .json, .parquet), an array (.npy) or a
    request (.json).
    """
    file = model or sample
    if file is None:
        raise click.UsageError("Missing SAMPLE or --model.")
    _check_suffix(sample, SAMPLE_SUFFIXES)
    _check_suffix(model, MODEL_PLATFORMS)

    # Imported here, because NumPy would delay --help.
    from app.cli.describe.model_files import read_model
    from app.cli.describe.predict_code import Declarations, write_code
    from app.cli.describe.samples import read_sample

    inputs: Sequence[MetadataTensor] = ()
    outputs: Sequence[MetadataTensor] = ()
    example: Mapping[str, list[Any]] = {}
    if model:
        with _report_errors(model):
            inputs, outputs = read_model(model)
    if sample:
        with _report_errors(sample):
            inputs, example = read_sample(sample, inputs)
    platform = MODEL_PLATFORMS.get(file.suffix, "python")
    click.echo(write_code(Declarations(file.stem, platform, inputs, outputs, example)))


def _check_suffix(file: Path | None, suffixes: Collection[str]) -> None:
    if file and file.suffix not in suffixes:
        raise click.UsageError(
            "Unknown file type. Expected .csv, .json, .npy or .parquet. Models need --model."
        )


@contextmanager
def _report_errors(file: Path) -> Iterator[None]:
    """Raise Failure if the file cannot be read. A pickle can raise any exception."""
    try:
        yield
    except ImportError as error:
        remedy = import_remedy(error.name or "")
        raise Failure(f"{file}: {error}. {remedy}", BROKEN) from None
    except Exception as error:
        raise Failure(f"{file}: {describe_error(error)}") from None
