"""REST routes of the protocol (R2), and the HTTP status for each exception (R19)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from flask import Blueprint, Flask, Response, current_app, request
from prometheus_client.exposition import choose_encoder
from werkzeug.exceptions import HTTPException
from werkzeug.local import LocalProxy

from app.config.settings import Settings
from app.inference.call import INFER
from app.inference.memory_budget import RequestMemory
from app.inference.pipeline import InferencePipeline
from app.protocol import errors
from app.protocol.http_body import HEADER_LENGTH, JSON, read_header_length, write_json
from app.protocol.http_message import write_response
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.rest.content_encoding import compress
from app.rest.fast_validation import validate_fast
from app.rest.middleware import CALL_KEY, record_route
from app.rest.request_reader import (
    discard_body,
    read_body,
    read_index_request,
    read_raw,
    read_request,
)
from app.rest.rest_call import RestCall
from app.rest.schemas import validate_request

if TYPE_CHECKING:
    from app.service import Service

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
    errors.InferenceError: 500,  # such as the error of another server that predict() calls
}
HEADER_LENGTH_KEY = f"HTTP_{HEADER_LENGTH.upper().replace('-', '_')}"  # its key in the WSGI environ
# A response can quote the request, so a browser must not interpret it as HTML.
NOSNIFF = {"X-Content-Type-Options": "nosniff"}
ERROR_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}
# A browser prompts the user for a key, and sends it with every request of the page.
CHALLENGE = 'Basic realm="model", charset="UTF-8"'
HTTP_ERROR_TEXTS = {
    404: (
        "path not found. Expected a path such as /v2, /v2/health/ready, /v2/models/NAME or "
        "/v2/models/NAME/infer."
    ),
    405: "method not allowed. Use one of {}.",
}

logger = logging.getLogger(__name__)
rest = Blueprint("rest", __name__)
rest.before_app_request(record_route)


class Inference:
    """Handler of the infer route for a WSGI environ, with or without Flask."""

    def __init__(self, pipeline: InferencePipeline, settings: Settings):
        validate = validate_request
        if settings.is_enabled("fast_validation"):
            validate = validate_fast
        self._pipeline = pipeline
        self._settings = settings
        self._read_request = partial(
            read_request, validate=validate, simdjson=settings.is_enabled("simdjson")
        )

    def __call__(
        self, environ: dict[str, Any], name: str, version: str | None
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of the response. Raise InferenceError.

        No Flask context is required.
        """
        call = environ.get(CALL_KEY) or RestCall(environ)
        metadata = self._pipeline.admit(name, version)
        call.match(INFER, call.path)

        with RequestMemory(self._pipeline.memory) as memory:
            body = read_body(environ, self._settings.max_request_bytes, memory.add_bytes)
            call.outcome.set_request_bytes(len(body))
            json_length = read_header_length(environ.get(HEADER_LENGTH_KEY), len(body))

            memory.count_body(body, json_length)
            if json_length == 0:
                request = read_raw(body, metadata)
            else:
                request = self._read_request(body, json_length)
            del body  # free its memory before the model runs
            memory.count_inputs(request)
            request.model_name = name
            request.model_version = version

            response = self._pipeline.infer(request, call)

            binary_names = binary_outputs(request, response)
            memory.count_outputs(request, response, binary_names)
            body, headers = write_response(response, binary_names, self._settings.json_nonfinite)
            call.outcome.set_response_bytes(len(body))
            accepted_encodings = environ.get("HTTP_ACCEPT_ENCODING")
            if accepted_encodings and headers["Content-Type"] == JSON:
                return compress(body, headers, accepted_encodings)
            return body, headers


def binary_outputs(request: InferenceRequest, response: InferenceResponse) -> set[str]:
    """Return the names of the outputs that the client requests in binary form (B6)."""
    is_default = request.parameters.get("binary_data_output", False)
    if not request.outputs and not is_default:
        return set()

    is_binary = {}
    for requested in request.outputs:
        is_binary[requested.name] = requested.parameters.get("binary_data", is_default)
    names = set()
    for output in response.outputs:
        if is_binary.get(output.name, is_default):
            names.add(output.name)
    return names


service = cast("Service", LocalProxy(lambda: current_app.extensions["service"]))


def init_rest(app: Flask, service: Service) -> None:
    """Register the routes and the service on `app`."""
    app.config["MAX_CONTENT_LENGTH"] = service.settings.max_request_bytes
    app.extensions["service"] = service
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False
    app.register_blueprint(rest)


def json_response(value: Any, status: int = 200) -> Response:
    """Return a JSON response.

    It is not compressed, because tritonclient decompresses only infer responses (R18).
    """
    return Response(
        write_json(value),
        status,
        {"Content-Type": JSON, **NOSNIFF, **ERROR_HEADERS.get(status, {})},
    )


@rest.get("/v2")
def server_metadata() -> Response:
    return json_response(service.info.server_metadata())


@rest.get("/v2/health/live")
def server_live() -> Response:
    return json_response({"live": True})


@rest.get("/v2/health/ready")
def server_ready() -> Response:
    ready = service.is_ready
    return json_response({"live": True, "ready": ready}, 200 if ready else 503)


@rest.get("/v2/models")
def model_names() -> Response:
    return json_response({"models": [service.info.metadata.name]})


@rest.get("/v2/models/<name>/ready")
@rest.get("/v2/models/<name>/versions/<version>/ready")
def model_ready(name: str, version: str | None = None) -> Response:
    service.info.find(name, version)
    ready = service.is_ready
    return json_response({"name": name, "ready": ready}, 200 if ready else 503)


@rest.get("/v2/models/<name>")
@rest.get("/v2/models/<name>/versions/<version>")
def model_metadata(name: str, version: str | None = None) -> Response:
    return json_response(service.info.model_metadata(name, version))


@rest.get("/v2/models/<name>/config")
@rest.get("/v2/models/<name>/versions/<version>/config")
def model_config(name: str, version: str | None = None) -> Response:
    return json_response(service.info.model_config(name, version))


@rest.get("/v2/models/stats")
@rest.get("/v2/models/<name>/stats")
@rest.get("/v2/models/<name>/versions/<version>/stats")
def model_statistics(name: str | None = None, version: str | None = None) -> Response:
    # The route of a model's metadata takes precedence (R6).
    if name is None and service.info.metadata.name == "stats":
        return model_metadata("stats")
    service.info.find(name, version)
    release_thread = request.environ[CALL_KEY].release_thread
    return json_response(service.statistics.read(release_thread))


@rest.post("/v2/repository/index")
def repository_index() -> Response:
    body = read_body(request.environ, service.settings.max_request_bytes)
    ready_only = read_index_request(body)
    return json_response(
        service.info.repository_index(is_ready=service.is_ready, ready_only=ready_only)
    )


@rest.post("/v2/models/<name>/infer")
@rest.post("/v2/models/<name>/versions/<version>/infer")
def infer(name: str, version: str | None = None) -> Response:
    handler = Inference(service.pipeline, service.settings)
    body, headers = handler(request.environ, name, version)
    return Response(body, 200, headers)


@rest.get("/metrics")
def metrics() -> Response:
    """Return the metrics of all workers. They include every request completed before this one."""
    release_thread = request.environ[CALL_KEY].release_thread
    snapshot = service.metrics.read(release_thread)
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return Response(encode(snapshot), content_type=content_type)


def error_response(error: Exception, text: str, status: int, log_text: str) -> Response:
    """Return an error response.

    `log_text` is the message for the log, without the client's data.
    """
    call = request.environ.get(CALL_KEY)
    if call is not None:
        call.outcome.fail(type(error), log_text)
    response = json_response({"error": text}, status)
    response.call_on_close(partial(discard_body, request.environ))
    return response


@rest.app_errorhandler(errors.InferenceError)
def handle_inference_error(error: errors.InferenceError) -> Response:
    status = errors.status_of(error, STATUS)
    response = error_response(error, str(error), status=status, log_text=error.log_text())
    if status == 401 and "text/html" in request.headers.get("Accept", ""):
        response.headers.setlist("WWW-Authenticate", [CHALLENGE, "Bearer"])
    return response


@rest.app_errorhandler(HTTPException)
def handle_http_error(error: HTTPException) -> Response:
    """Return an error of Flask, such as 404 or 405, as JSON. Keep its headers, such as Allow."""
    status = error.code or 500
    methods = sorted(getattr(error, "valid_methods", None) or ())
    known_text = HTTP_ERROR_TEXTS.get(status, "").format(", ".join(methods))
    path = errors.shorten(request.path, 200)
    text = f"{request.method} {path}: {known_text or error.description or error.name}"
    log_text = errors.to_sentence(known_text or error.name)
    response = error_response(error, text, status=status, log_text=log_text)
    for name, value in error.get_headers():
        if name not in ("Content-Type", "Content-Length"):
            response.headers[name] = value
    return response


@rest.app_errorhandler(Exception)
def handle_exception(error: Exception) -> Response:
    logger.exception("Unhandled exception in %s", request.endpoint or "a request")
    text = f"Internal error: {type(error).__name__}."
    return error_response(error, text, status=500, log_text=text)
