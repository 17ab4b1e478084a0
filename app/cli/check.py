"""The check command: call predict.py as the service does, without a server."""

from __future__ import annotations

import io
import logging
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import packages_distributions
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
from packaging.utils import canonicalize_name

from app.cli.common import BROKEN, FAILED, NOT_READY, Failure, show_json, show_table
from app.cli.options import TRANSPORT, json_option, load_settings
from app.config.packages import service_requirements
from app.config.resources import limit_library_threads
from app.config.settings import ROOT, use_settings
from app.inference.startup_errors import describe_error
from app.protocol.errors import ModelError, shorten

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.protocol.messages import InferenceRequest, InferenceResponse
    from app.protocol.tensors import ResponseOutput
    from app.service import Service

MADE_UP = "a request generated from METADATA"
MAX_VALUES, MAX_VALUE_LENGTH = 4, 30


@click.command(
    epilog="\b\nExamples:\n  PROGRAM check\n  PROGRAM check --input request.json --transport grpc"
)
@click.option(
    "--input", "file", type=click.File("rb"), help="File with a JSON request.  [default: EXAMPLE]"
)
@click.option(
    "--transport",
    "transports",
    type=TRANSPORT,
    multiple=True,
    help="Transport to check.  [default: all]",
)
@click.option("--traceback", "with_traceback", is_flag=True, help="Show the traceback of an error.")
@json_option
def command(file: Any, transports: Sequence[str], with_traceback: bool, as_json: bool) -> None:
    """Call app/predict.py with an example.

    Load the model and process EXAMPLE, or values that match METADATA, as a request over REST and gRPC, without a port.
    Compare the results with METADATA. The exit status is 4 if predict.py cannot be imported or its functions do not
    match METADATA. It is 3 if load() or the warm-up fails, and 1 if another call fails.
    """
    settings = load_settings()
    limit_library_threads(settings.workers)  # before importing NumPy
    logging.getLogger(
        "app.inference.predict_adapter"
    ).disabled = True  # this command prints the same errors
    found = Check(settings, with_traceback).run(
        file and file.read(), transports or TRANSPORT.choices
    )
    (show_json if as_json else show)(found)


class Check:
    """The steps of startup and of an inference request, with their durations in seconds."""

    def __init__(self, settings: Settings, with_traceback: bool):
        self.settings, self.with_traceback = settings, with_traceback
        self.source = ""
        self.seconds: dict[str, float] = {}

    def run(self, body: bytes | None, transports: Sequence[str]) -> dict[str, Any]:
        """Run all steps. Return the object for --json. Raise Failure if a step fails."""
        with self.step("import", BROKEN):
            # Import here, so that the durations of the requests do not include imports.
            import app.rest.routes  # noqa: F401
            import grpc_service.servicer  # noqa: F401
            from app.inference.example import apply_declarations
            from app.inference.owner_files import import_owner_file
            from app.protocol.http_body import write_json
            from app.rest.request_reader import read_request
            from app.service import Service

            use_settings(self.settings)
            module = import_owner_file("predict")
            service = Service(self.settings, module, with_tracing=False)
        with self.step("load()", NOT_READY):
            service.model.load()
        with self.step("warm-up", NOT_READY):
            service.model.warm_up()
        has_example = getattr(module, "EXAMPLE", None) is not None
        self.source = "--input" if body is not None else "EXAMPLE" if has_example else MADE_UP
        with self.step("request"):
            request = read_request(write_json(service.info.example()) if body is None else body)
            apply_declarations(request.inputs, service.info.metadata.inputs)
        for transport in transports:
            with self.step(transport):
                response = infer(transport, service, request)
        model = service.info.metadata
        return {
            "model": {"name": model.name, "version": model.version, "platform": model.platform},
            "request": self.source,
            "seconds": {name: round(seconds, 6) for name, seconds in self.seconds.items()},
            "outputs": [describe_output(output) for output in response.outputs],
            "warnings": undeclared_packages(module) + undeclared_bytes(module),
        }

    @contextmanager
    def step(self, name: str, status: int = FAILED) -> Iterator[None]:
        """Measure a step. If it fails, raise Failure with the exit status."""
        begun = time.monotonic()
        try:
            yield
        except (Exception, SystemExit) as error:
            if self.with_traceback:
                traceback.print_exception(error)
            cause = error.__cause__ if isinstance(error, ModelError) and error.__cause__ else error
            hint = (
                f". This was {MADE_UP}. Write an EXAMPLE or use --input FILE."
                if self.source == MADE_UP
                else ""
            )
            raise Failure(f"{name}: {describe_error(cause)}{hint}", status) from None
        self.seconds[name] = time.monotonic() - begun


def infer(transport: str, service: Service, request: InferenceRequest) -> InferenceResponse:
    """Process the request as the server of `transport` does, without a network connection."""
    from app.inference.call import INFER, Call
    from app.protocol.messages import InferenceResponse
    from app.rest.routes import Inference
    from grpc_service.converters import read_response, write_request
    from grpc_service.servicer import InferenceServicer

    name = service.info.metadata.name
    if transport == "grpc":
        message = write_request(replace(request, model_name=name))
        return read_response(InferenceServicer(service).ModelInfer(message, Call(INFER)))
    body, headers = request.to_http(transport == "rest-binary")
    environ: dict[str, Any] = {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    for header, value in headers.items():
        environ[f"HTTP_{header.upper().replace('-', '_')}"] = value
    handler = Inference(service.pipeline, service.settings)
    response_body, response_headers = handler(environ, name, None)
    return InferenceResponse.from_http(response_body, response_headers)


def describe_output(output: ResponseOutput) -> dict[str, Any]:
    """Return name, datatype, shape and the first values of an output. The values are text."""
    values = output.data.ravel()[:MAX_VALUES]
    texts = [
        each.decode(errors="replace") if isinstance(each, bytes) else str(each) for each in values
    ]
    short = [shorten(text, MAX_VALUE_LENGTH) for text in texts]
    return {
        "name": output.name,
        "datatype": output.datatype,
        "shape": output.shape,
        "values": short,
    }


def undeclared_packages(module: ModuleType) -> list[str]:
    """Return a warning for each package that predict.py uses but setup.cfg does not list. Images would not have it."""
    listed = {canonicalize_name(requirement.name) for requirement in service_requirements()}
    values = vars(module).values()
    modules = {
        each.__name__ if isinstance(each, ModuleType) else getattr(each, "__module__", None)
        for each in values
    }
    used = {str(name).partition(".")[0] for name in modules}
    return [
        f"predict.py uses {name}, which install_requires in setup.cfg does not list"
        for name, packages in sorted(packages_distributions().items())
        if name in used
        and not (ROOT / name).exists()
        and not listed & {*map(canonicalize_name, packages)}
    ]


def undeclared_bytes(module: ModuleType) -> list[str]:
    """Return a warning for each input of bytes that some clients cannot send in the form that they expect (C12)."""
    from app.inference.signature import read_annotations

    annotations = read_annotations(module.predict)
    names = []
    for tensor in module.METADATA.inputs:
        is_base64 = tensor.content_type == "base64"
        is_undeclared = not tensor.content_type and annotations.get(tensor.name) == list[bytes]
        if is_base64 or is_undeclared:
            names.append(tensor.name)
    reason = "so that JSON clients can send base64 text and other clients bytes"
    return [f'input "{name}": declare content_type="bytes", {reason}' for name in names]


def show(found: dict[str, Any]) -> None:
    model = found["model"]
    click.echo(f"{model['name']} {model['version']}, {model['platform']}\n")
    show_table(
        [(name, f"{value * 1000:,.1f} ms") for name, value in found["seconds"].items()],
        ("step", "time"),
    )
    click.echo()
    rows = [
        (each["name"], each["datatype"], each["shape"], ", ".join(each["values"]))
        for each in found["outputs"]
    ]
    show_table(rows, ("output", "datatype", "shape", "first values"))
    click.echo()
    for warning in found["warnings"]:
        click.echo(f"{click.style('warning', fg='yellow')}: {warning}")
    click.echo(
        f"{click.style('ok', fg='green')}: the outputs for {found['request']} match METADATA"
    )
