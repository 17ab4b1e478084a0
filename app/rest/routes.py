"""REST routes of the protocol (R2), and the HTTP status for each exception (R19)."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from flask import Blueprint, Flask, Response, current_app, request
from prometheus_client.exposition import choose_encoder
from werkzeug.exceptions import HTTPException
from werkzeug.local import LocalProxy

from app.config.settings import Settings
from app.inference.data_plane import DataPlane
from app.inference.request_context import INFER
from app.observability.metrics import Metrics
from app.protocol import errors
from app.protocol.http_body import HEADER_LENGTH, JSON, read_header_length, write_json
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.rest.content_encoding import compress
from app.rest.middleware import CONTEXT_KEY, RestContext, pattern_of
from app.rest.request_reader import (
    discard_body,
    read_body,
    read_index_request,
    read_raw,
    read_request,
)
from app.rest.schemas import Validate, validate_request

STATUS: dict[type[errors.InferenceError], int] = {
    errors.InvalidInput: 400,
    errors.Unauthenticated: 401,
    errors.NotFound: 404,
    errors.PayloadTooLarge: 413,
    errors.UnsupportedEncoding: 415,
    errors.ModelError: 500,
    errors.Unavailable: 503,
    errors.Overloaded: 503,
    errors.DeadlineExceeded: 504,
    errors.ClientDisconnected: 499,  # only for the log and metrics
}
HEADER_LENGTH_KEY = f"HTTP_{HEADER_LENGTH.upper().replace('-', '_')}"  # its key in the WSGI environ
# A response can quote the request, so a browser must not interpret it as HTML.
NOSNIFF = {"X-Content-Type-Options": "nosniff"}
ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}
# A browser prompts the user for a key, and sends it with every request of the page.
CHALLENGE = 'Basic realm="model", charset="UTF-8"'
HTTP_ERROR_TEXTS = {
    404: "path not found. Expected a path such as /v2, /v2/health/ready, /v2/models/NAME or /v2/models/NAME/infer.",
    405: "method not allowed. Use one of {}.",
}

logger = logging.getLogger(__name__)
rest = Blueprint("rest", __name__)


class Inference:
    """Handler of the infer route for a WSGI environ. `validate` validates the envelope."""

    def __init__(self, plane: DataPlane, settings: Settings, validate: Validate = validate_request):
        self.plane, self.settings = plane, settings
        self.read = partial(
            read_request,
            validate=validate,
            simdjson="simdjson" not in settings.disable_optimizations,
        )

    def __call__(
        self, environ: dict[str, Any], name: str, version: str | None
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of the response. Raise InferenceError. No Flask context is required."""
        context = environ.get(CONTEXT_KEY) or RestContext(environ)
        context.operation = INFER
        served = self.plane.metadata(
            name, version
        )  # an unknown name is reported before other errors
        context.known_path = context.path
        self.plane.admission.reject_if_full()
        body = read_body(environ, self.settings.max_request_bytes)
        context.received = len(body)
        length = read_header_length(environ.get(HEADER_LENGTH_KEY), len(body))
        request = read_raw(body, served) if length == 0 else self.read(body, length)
        del body  # free its memory before the model runs
        request.model_name, request.model_version = name, version
        response = self.plane.infer(request, context)
        body, headers = response.to_http(
            binary_outputs(request, response), self.settings.json_nonfinite
        )
        context.sent = len(body)
        accepted = environ.get("HTTP_ACCEPT_ENCODING")
        return (
            compress(body, headers, accepted)
            if accepted and headers["Content-Type"] == JSON
            else (body, headers)
        )


def binary_outputs(request: InferenceRequest, response: InferenceResponse) -> set[str]:
    """Return the names of the outputs that the client requests in binary form (B6)."""
    default = request.parameters.get("binary_data_output", False)
    asked = {
        output.name: output.parameters.get("binary_data", default) for output in request.outputs
    }
    return {output.name for output in response.outputs if asked.get(output.name, default)}


@dataclass(frozen=True)
class Service:
    """Objects that create_app() builds. Call make_grpc_server() after the fork: grpcio servers do not support forks."""

    plane: DataPlane
    settings: Settings
    metrics: Metrics
    make_grpc_server: Callable[[], Any]

    def infer(self, inference_request: InferenceRequest) -> InferenceResponse:
        """Run the model in a route of app/custom.py. Raise InferenceError, for which Flask's error handlers respond."""
        context = request.environ[CONTEXT_KEY]
        context.operation, context.known_path = INFER, pattern_of(request.url_rule)
        return self.plane.infer(inference_request, context)


service = cast(Service, LocalProxy(lambda: current_app.extensions["service"]))


def init_rest(app: Flask, service: Service) -> None:
    """Register the routes and the service on `app`."""
    app.config["MAX_CONTENT_LENGTH"] = service.settings.max_request_bytes
    app.extensions["service"] = service
    app.url_map.strict_slashes = app.url_map.merge_slashes = False
    app.register_blueprint(rest)


def json_response(value: Any, status: int = 200) -> Response:
    """Return a JSON response. It is not compressed: tritonclient decompresses only infer responses (R18)."""
    return Response(
        write_json(value),
        status,
        {"Content-Type": JSON, **NOSNIFF, **ERROR_HEADERS.get(status, {})},
    )


@rest.get("/v2")
def server_metadata() -> Response:
    plane = service.plane
    return json_response(
        {"name": plane.name, "version": plane.version, "extensions": plane.extensions}
    )


@rest.get("/v2/health/live")
def server_live() -> Response:
    return json_response({"live": True})


@rest.get("/v2/health/ready")
def server_ready() -> Response:
    ready = service.plane.is_ready
    return json_response({"live": True, "ready": ready}, 200 if ready else 503)


@rest.get("/v2/models")
def model_names() -> Response:
    return json_response({"models": [service.plane.metadata().name]})


@rest.get("/v2/models/<name>/ready")
@rest.get("/v2/models/<name>/versions/<version>/ready")
def model_ready(name: str, version: str | None = None) -> Response:
    ready = service.plane.is_model_ready(name, version)
    return json_response({"name": name, "ready": ready}, 200 if ready else 503)


@rest.get("/v2/models/<name>")
@rest.get("/v2/models/<name>/versions/<version>")
def model_metadata(name: str, version: str | None = None) -> Response:
    return json_response(service.plane.model_metadata(name, version))


@rest.get("/v2/models/<name>/config")
@rest.get("/v2/models/<name>/versions/<version>/config")
def model_config(name: str, version: str | None = None) -> Response:
    return json_response(service.plane.model_config(name, version))


@rest.get("/v2/models/stats")
@rest.get("/v2/models/<name>/stats")
@rest.get("/v2/models/<name>/versions/<version>/stats")
def model_statistics(name: str = "", version: str | None = None) -> Response:
    if not name and service.plane.metadata().name == "stats":  # R6 takes precedence
        return model_metadata("stats")
    request.environ[CONTEXT_KEY].release_thread()
    return json_response(service.metrics.statistics.read(name, version))


@rest.post("/v2/repository/index")
def repository_index() -> Response:
    body = read_body(request.environ, service.settings.max_request_bytes)
    return json_response(service.plane.repository_index(ready_only=read_index_request(body)))


@rest.post("/v2/models/<name>/infer")
@rest.post("/v2/models/<name>/versions/<version>/infer")
def infer(name: str, version: str | None = None) -> Response:
    body, headers = Inference(service.plane, service.settings)(request.environ, name, version)
    return Response(body, 200, headers)


@rest.get("/metrics")
def metrics() -> Response:
    """Return the metrics of all workers. They include every request completed before this one."""
    request.environ[CONTEXT_KEY].release_thread()
    service.plane.observer_queue.wait_for_workers()
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(service.metrics.registry), content_type=content_type)


def error_response(error: Exception, text: str, status: int, log_text: str) -> Response:
    """Return an error response. `log_text` is the message for the log, without data from the client."""
    if context := request.environ.get(CONTEXT_KEY):
        context.error, context.failure = log_text, type(error)
    response = json_response({"error": text}, status)
    response.call_on_close(partial(discard_body, request.environ))
    return response


@rest.app_errorhandler(errors.InferenceError)
def handle_inference_error(error: errors.InferenceError) -> Response:
    status = errors.status_of(error, STATUS)
    response = error_response(error, str(error), status, error.log_text())
    if status == 401 and "text/html" in request.headers.get("Accept", ""):
        response.headers.setlist("WWW-Authenticate", [CHALLENGE, "Bearer"])
    return response


@rest.app_errorhandler(HTTPException)
def handle_http_error(error: HTTPException) -> Response:
    """Return an error of Flask, such as 404 or 405, as JSON. Keep its headers, such as Allow."""
    status = error.code or 500
    known = HTTP_ERROR_TEXTS.get(status, "").format(
        ", ".join(sorted(getattr(error, "valid_methods", None) or ()))
    )
    text = f"{request.method} {errors.shorten(request.path, 200)}: {known or error.description or error.name}"
    response = error_response(error, text, status, errors.to_sentence(known or error.name))
    response.headers.update(
        [each for each in error.get_headers() if each[0] not in ("Content-Type", "Content-Length")]
    )
    return response


@rest.app_errorhandler(Exception)
def handle_exception(error: Exception) -> Response:
    logger.exception("Unhandled exception in %s", request.endpoint or "a request")
    return error_response(error, text := f"Internal error: {type(error).__name__}.", 500, text)
