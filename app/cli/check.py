"""check: predict.py called as the service would call it, without a service."""

from __future__ import annotations

import logging
import time
import traceback
import warnings
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from app.cli.common import BROKEN, FAILED, NOT_READY, Failure, counted, show_json, show_table
from app.cli.options import json_option, own_settings
from app.cli.packages import undeclared
from app.errors import InferenceError, ModelError, NoBinaryForm, shorten
from app.failure import PREDICT, reason
from app.machine import share_cores

if TYPE_CHECKING:
    from app.config import Settings
    from app.dataplane import DataPlane
    from app.types import InferenceRequest, MetadataTensor, ModelMetadata, RequestInput, ResponseOutput

FORMS = ("json", "binary", "grpc")
VALUES_AT_MOST = 4
TWICE = "with its rows twice"


@click.command(
    epilog="""\b
    Examples:
      PROGRAM check
      PROGRAM check --input request.json --form grpc
      PROGRAM check && PROGRAM serve"""
)
@click.option("--input", "file", type=click.File("rb"), metavar="FILE", help="A request in JSON, in place of EXAMPLE.")
@click.option("--form", "forms", multiple=True, type=click.Choice(FORMS), help="Only in this form; may be repeated.")
@click.option("--traceback", "with_traceback", is_flag=True, help="Show the traceback of an error, too.")
@json_option
def command(file: Any, forms: Sequence[str], with_traceback: bool, as_json: bool) -> None:
    """Call app/predict.py with an example.

    It loads the model, and sends EXAMPLE, or a request that METADATA makes likely, through all that the service does
    with one: REST in JSON, REST in binary, and gRPC; without a server or a port. What comes back is held against
    METADATA. The exit status is what serve would end with: 4 where predict.py cannot be imported or METADATA does not
    fit it, 3 where load() or the warm-up fails, which is a call with EXAMPLE; and 1 where another call does.
    """
    settings = own_settings()
    share_cores(settings.workers)  # before numpy is loaded
    with quiet():
        found = Check(settings, with_traceback).run(file and file.read(), forms or FORMS)
    (show_json if as_json else show)(found)


@contextmanager
def quiet() -> Iterator[None]:
    """Without the log's lines on what the command tells itself."""
    told = logging.getLogger("app.predictor")
    told.disabled = True
    try:
        yield
    finally:
        told.disabled = False


class Check:
    """The steps of a start and of a call, and the seconds that each took."""

    def __init__(self, settings: Settings, with_traceback: bool):
        self.settings, self.with_traceback = settings, with_traceback
        self.seconds: dict[str, float] = {}
        self.source = "EXAMPLE"
        self.warned: list[str] = []

    def run(self, body: bytes | None, forms: Sequence[str]) -> dict[str, Any]:
        """What was found, as JSON has it; Failure where a step fails."""
        try:
            from app.cli.forms import FORMS
            from app.envelope import write_json
            from app.schemas import read_request
        except ImportError as error:  # protos that are not compiled, or a package that is not installed
            raise Failure(str(error), BROKEN) from None

        plane = self.load()
        if body:
            self.source = "--input"
        with self.step("request"):
            request = read_request(body or write_json(plane.example()))
        for name in forms:
            with self.step(FORMS[name].title):
                response = FORMS[name].ask(plane, self.settings, request)
        del self.seconds["request"]
        served = plane.metadata()
        return {
            "model": {"name": served.name, "version": served.version, "platform": served.platform},
            "request": self.source,
            "seconds": {name: round(value, 6) for name, value in self.seconds.items()},
            "outputs": [described(output) for output in response.outputs],
            "warnings": [*self.warned, *undeclared_imports(), *self.other_calls(plane, request)],
        }

    def other_calls(self, plane: DataPlane, request: InferenceRequest) -> Iterator[str]:
        """What calls with other inputs fail by, and rows that get lost; a refusal is an answer."""
        from app.cli.forms import FORMS

        for what, inputs in variations(request.inputs, plane.metadata(), plane.optional):
            try:
                response = FORMS["binary"].ask(plane, self.settings, replace(request, inputs=inputs))
            except ModelError as error:
                told = reason(error.__cause__ or error)
                yield f"a call {what} fails: {told}; answer it, or raise InvalidInput"
            except InferenceError:
                pass
            else:
                if what == TWICE:
                    yield from other_rows(response.outputs, len(inputs[0].data))

    def load(self) -> DataPlane:
        from app.dataplane import DataPlane, import_predict
        from app.predictor import Predictor

        with self.step("import", BROKEN):
            module = import_predict()
            if getattr(module, "EXAMPLE", None) is None:
                self.source = "made up"
            plane = DataPlane(Predictor(module), self.settings)
        with self.step("load()", NOT_READY), self.hearing("load()"):
            plane.load()
        with self.step("warm-up", NOT_READY):
            plane.warm_up()
        return plane

    @contextmanager
    def hearing(self, name: str) -> Iterator[None]:
        """Keeps what Python warns of meanwhile: it may be why this, or a later step, fails."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("default")
            try:
                yield
            finally:
                self.warned += [f"{name}: {each.category.__name__}: {each.message}" for each in told]

    @contextmanager
    def step(self, name: str, status: int = FAILED) -> Iterator[None]:
        begun = time.monotonic()
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a panic of Rust's, or SystemExit, too
            if self.with_traceback:
                traceback.print_exception(error)
            show_warnings(self.warned, err=True)
            cause = error.__cause__ if isinstance(error, ModelError) and error.__cause__ else error
            told = reason(cause)
            if self.source == "made up" and status == FAILED and not (isinstance(error, ModelError) and cause is error):
                told += "; the request was made up: write an EXAMPLE, or give --input FILE"
            if isinstance(cause, NoBinaryForm):
                told += f"; leave it out of {self.source}, or try --form json alone"
            raise Failure(f"{name}: {told}", status) from None
        self.seconds[name] = time.monotonic() - begun


def described(output: ResponseOutput) -> dict[str, Any]:
    values = [shown(value) for value in output.data.ravel()[:VALUES_AT_MOST].tolist()]
    more = ["…"] if output.data.size > VALUES_AT_MOST else []
    return {"name": output.name, "datatype": output.datatype, "shape": output.shape, "values": values + more}


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return shorten(" ".join(text.split()), 30)


def variations(
    inputs: list[RequestInput], metadata: ModelMetadata, optional: Container[str]
) -> Iterator[tuple[str, list[RequestInput]]]:
    """Other inputs that METADATA and predict() allow, with what they are."""
    from app.contract import listed

    free = {each.name for each in metadata.inputs if has_rows(each)}
    if free:
        yield "with no rows, which METADATA allows,", [rowless(each) if each.name in free else each for each in inputs]
    rows = {len(each.data) for each in inputs if each.name in free}
    if all(map(has_rows, (*metadata.inputs, *metadata.outputs))) and len(rows) == 1 and rows != {0}:
        yield TWICE, [doubled(each) for each in inputs]
    if left := [each.name for each in inputs if each.name in optional]:
        kept = [each for each in inputs if each.name not in left]
        yield f"without {listed(left)}, for which predict() has a default,", kept


def has_rows(tensor: MetadataTensor) -> bool:
    return tensor.shape[:1] == [-1]


def rowless(sent: RequestInput) -> RequestInput:
    return type(sent)(sent.name, sent.datatype, data=sent.data[:0], parameters=sent.parameters)


def doubled(sent: RequestInput) -> RequestInput:
    import numpy as np

    data = np.concatenate([sent.data, sent.data])
    return type(sent)(sent.name, sent.datatype, data=data, parameters=sent.parameters)


def other_rows(outputs: Sequence[ResponseOutput], sent: int) -> Iterator[str]:
    """The outputs that have not a row for each that was sent."""
    for output in outputs:
        if (got := len(output.data)) != sent:
            yield (
                f'output "{output.name}": predict() returned {counted(got, "row")} for {sent}; clients take each for '
                "the row that they sent, so give as many out as in, unless this is meant"
            )


def undeclared_imports() -> Iterator[str]:
    for line, package in undeclared(PREDICT):
        yield f"app/predict.py, line {line}: imports {package}, which nothing in install_requires in setup.cfg brings"


def show(found: dict[str, Any]) -> None:
    model = found["model"]
    click.echo(f"{model['name']} {model['version']}, {model['platform']}\n")
    show_table([(name, f"{value * 1000:,.1f} ms") for name, value in found["seconds"].items()], ("step", "time"))
    click.echo()
    rows = [(each["name"], each["datatype"], each["shape"], ", ".join(each["values"])) for each in found["outputs"]]
    show_table(rows, ("output", "datatype", "shape", "values"))
    click.echo()
    show_warnings(found["warnings"])
    made_up = "a request that was made up; an EXAMPLE would be a better one"
    request = made_up if found["request"] == "made up" else found["request"]
    click.echo(f"{click.style('ok', fg='green')}: METADATA declares what came back, for {request}")


def show_warnings(told: Sequence[str], err: bool = False) -> None:
    for warning in told:
        click.echo(f"{click.style('warning', fg='yellow')}: {warning}", err=err)
