"""The check command: call predict.py as the service does, without a server."""

from __future__ import annotations

import io
import logging
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
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

# Limits of the printed outputs.
MAX_VALUES = 4
MAX_VALUE_LENGTH = 30


class Source(StrEnum):
    """The origin of the request. The value is for messages."""

    INPUT_FILE = "--input"
    EXAMPLE = "EXAMPLE"
    METADATA = "a request generated from METADATA"


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

    Load the model and process EXAMPLE, or values that match METADATA, as a request over REST and
    gRPC, without a port. Compare the results with METADATA. The exit status is 4 if predict.py
    cannot be imported or its functions do not match METADATA. It is 3 if load() or the warm-up
    fails, and 1 if another call fails.
    """
    settings = load_settings()
    limit_library_threads(settings.workers)  # before importing NumPy
    # The adapter would log the errors that this command prints.
    logging.getLogger("app.inference.predict_adapter").disabled = True

    body = None
    if file:
        body = file.read()
    check = Check(settings, with_traceback)
    report = check.run(body, transports or TRANSPORT.choices)
    if as_json:
        show_json(report)
    else:
        _show_report(report)


class Check:
    """The steps of startup and of an inference request, with their durations in seconds."""

    def __init__(self, settings: Settings, with_traceback: bool):
        self._settings = settings
        self._with_traceback = with_traceback
        self._seconds: dict[str, float] = {}

    def run(self, body: bytes | None, transports: Sequence[str]) -> dict[str, Any]:
        """Run all steps with the JSON request `body`, or with an example if it is None.

        Return the object for --json. Its outputs are those of the last transport. Raise Failure if
        a step fails.
        """
        with self._step("import", BROKEN):
            service, module = _create_service(self._settings)
        with self._step("load()", NOT_READY):
            service.model.load()
        with self._step("warm-up", NOT_READY):
            service.model.warm_up()

        source = _find_source(body, module)
        hint = ""
        if source is Source.METADATA:  # predict() may reject generated values
            hint = f". This was {source}. Write an EXAMPLE or use --input FILE."
        with self._step("request", hint=hint):
            request = _read_request(body, service)
        for transport in transports:
            with self._step(transport, hint=hint):
                response = _infer(transport, service, request)

        model = service.info.metadata
        return {
            "model": {"name": model.name, "version": model.version, "platform": model.platform},
            "request": source,
            "seconds": self._seconds,
            "outputs": list(map(_describe_output, response.outputs)),
            "warnings": _undeclared_packages(module) + _undeclared_bytes(module),
        }

    @contextmanager
    def _step(self, name: str, exit_status: int = FAILED, hint: str = "") -> Iterator[None]:
        """Measure the step in this block. If it fails, raise Failure with its reason and the hint.

        A step also fails if the owner's code calls sys.exit().
        """
        begun = time.monotonic()
        try:
            yield
        except (Exception, SystemExit) as error:
            if self._with_traceback:
                traceback.print_exception(error)
            reason = describe_error(_original_error(error))
            raise Failure(f"{name}: {reason}{hint}", exit_status) from None
        self._seconds[name] = round(time.monotonic() - begun, 6)


def _original_error(error: BaseException) -> BaseException:
    """Return the exception of predict() if it is the cause of a ModelError, or the error itself."""
    if isinstance(error, ModelError) and error.__cause__ is not None:
        return error.__cause__
    return error


def _create_service(settings: Settings) -> tuple[Service, ModuleType]:
    """Return a service whose model is not loaded, and the module predict.py."""
    # Import the servers, too, so that the durations of the requests do not include imports.
    import app.rest.routes  # noqa: F401
    import grpc_service.servicer  # noqa: F401
    from app.inference.owner_files import import_owner_file
    from app.service import Service

    use_settings(settings)
    module = import_owner_file("predict")
    service = Service(settings, module, with_tracing=False)
    return service, module


def _find_source(body: bytes | None, module: ModuleType) -> Source:
    if body is not None:
        return Source.INPUT_FILE
    if getattr(module, "EXAMPLE", None) is not None:
        return Source.EXAMPLE
    return Source.METADATA


def _read_request(body: bytes | None, service: Service) -> InferenceRequest:
    """Parse the JSON request `body`, or the example of the model if it is None."""
    from app.inference.example import apply_declarations
    from app.protocol.http_body import write_json
    from app.rest.request_reader import read_request

    if body is None:
        body = write_json(service.info.example())
    request = read_request(body)
    apply_declarations(request.inputs, service.info.metadata.inputs)
    return request


def _infer(transport: str, service: Service, request: InferenceRequest) -> InferenceResponse:
    """Process the request as the server of `transport` does, without a network connection."""
    if transport == "grpc":
        return _infer_over_grpc(service, request)
    return _infer_over_rest(service, request, is_binary=transport == "rest-binary")


def _infer_over_grpc(service: Service, request: InferenceRequest) -> InferenceResponse:
    from app.inference.call import INFER, Call
    from grpc_service.converters import read_response, write_request
    from grpc_service.servicer import InferenceServicer

    named_request = replace(request, model_name=service.info.metadata.name)
    servicer = InferenceServicer(service)
    response = servicer.ModelInfer(write_request(named_request), Call(INFER))
    return read_response(response)


def _infer_over_rest(
    service: Service, request: InferenceRequest, *, is_binary: bool
) -> InferenceResponse:
    from app.protocol.messages import InferenceResponse
    from app.rest.routes import Inference

    body, headers = request.to_http(is_binary)
    environ: dict[str, Any] = {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[f"HTTP_{key}"] = value

    handler = Inference(service.pipeline, service.settings)
    response_body, response_headers = handler(environ, service.info.metadata.name, None)
    return InferenceResponse.from_http(response_body, response_headers)


def _describe_output(output: ResponseOutput) -> dict[str, Any]:
    """Return name, datatype, shape and the first values of an output. The values are text."""
    texts = []
    for value in output.data.ravel()[:MAX_VALUES]:
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        texts.append(shorten(str(value), MAX_VALUE_LENGTH))
    return {
        "name": output.name,
        "datatype": output.datatype,
        "shape": output.shape,
        "values": texts,
    }


def _undeclared_packages(module: ModuleType) -> list[str]:
    """Return a warning for each package that predict.py uses but setup.cfg does not list.

    Images would not have it.
    """
    declared = {canonicalize_name(requirement.name) for requirement in service_requirements()}
    used_modules = _modules_of_values(module)
    warnings = []
    for name, packages in sorted(packages_distributions().items()):
        is_of_project = (ROOT / name).exists()
        if name not in used_modules or is_of_project:
            continue
        if declared.isdisjoint(map(canonicalize_name, packages)):
            warnings.append(
                f"predict.py uses {name}, which install_requires in setup.cfg does not list"
            )
    return warnings


def _modules_of_values(module: ModuleType) -> set[str]:
    """Return the top-level modules of everything that `module` has imported."""
    names = set()
    for value in vars(module).values():
        if isinstance(value, ModuleType):
            name = value.__name__
        else:
            name = str(getattr(value, "__module__", ""))
        names.add(name.partition(".")[0])
    return names


def _undeclared_bytes(module: ModuleType) -> list[str]:
    """Return a warning for each input of bytes that some clients cannot send in the form that they
    expect (C12).
    """
    from app.inference.signature import read_annotations

    annotations = read_annotations(module.predict)
    warnings = []
    for tensor in module.METADATA.inputs:
        is_base64 = tensor.content_type == "base64"
        is_undeclared = not tensor.content_type and annotations.get(tensor.name) == list[bytes]
        if is_base64 or is_undeclared:
            warnings.append(
                f'input "{tensor.name}": declare content_type="bytes", '
                "so that JSON clients can send base64 text and other clients bytes"
            )
    return warnings


def _show_report(report: dict[str, Any]) -> None:
    """Print the object for --json as tables and lines."""
    model = report["model"]
    click.echo(f"{model['name']} {model['version']}, {model['platform']}\n")

    durations = []
    for step, seconds in report["seconds"].items():
        durations.append((step, f"{seconds * 1000:,.1f} ms"))
    show_table(durations, ("step", "time"))
    click.echo()

    outputs = []
    for output in report["outputs"]:
        values = ", ".join(output["values"])
        outputs.append((output["name"], output["datatype"], output["shape"], values))
    show_table(outputs, ("output", "datatype", "shape", "first values"))
    click.echo()

    for warning in report["warnings"]:
        click.echo(f"{click.style('warning', fg='yellow')}: {warning}")
    ok = click.style("ok", fg="green")
    click.echo(f"{ok}: the outputs for {report['request']} match METADATA")
