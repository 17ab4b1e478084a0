"""What each route does, takes and answers, by the endpoints of Flask; and the parts that they share."""

from __future__ import annotations

from app.compression import CODINGS
from app.envelope import HEADER_LENGTH, JSON, OCTETS
from app.openapi.schemas import TEXT, Json, ref
from app.recorder import REQUEST_ID

BINARY = (
    "The same in JSON, and behind it the bytes of the tensors that have `binary_data_size` among their parameters "
    "and no `data`, in their order: little-endian, row-major, each element of BYTES behind its length in 4 bytes. "
    f"{HEADER_LENGTH} is the length of the JSON."
)
LENGTH = {"description": "The bytes of JSON, where others follow", "schema": {"type": "integer", "minimum": 0}}
HEADERS = {
    REQUEST_ID: {"description": "The id that the request came with, or a new one", "schema": TEXT},
    "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer", "minimum": 0}},
    HEADER_LENGTH: LENGTH,
}
PARAMETERS = {
    REQUEST_ID: {"description": "A name for the request, in its answer and in the log", "schema": TEXT},
    HEADER_LENGTH: LENGTH,
    "Content-Encoding": {
        "description": "What the body is compressed with",
        "schema": {"enum": [*CODINGS, "identity", ""]},
    },
}
ERRORS = {
    400: ("Malformed", "The request is malformed, or does not fit the model"),
    401: ("Unauthenticated", "No API key, or a wrong one"),
    404: ("NotFound", "No such model or version"),
    413: ("TooLarge", "The body is larger than the service takes, as sent or when decompressed"),
    415: ("UnsupportedCoding", "A Content-Encoding other than gzip, deflate and identity"),
    500: ("ModelError", "The model raised, or returned what METADATA does not declare"),
    503: ("Unavailable", "Not ready, or too much to do"),
    504: ("TimedOut", "The model could not begin in time for the deadline"),
}


def headers(*names: str) -> Json:
    return {"headers": {name: ref(name, "headers") for name in names}}


def content(schema: str, **others: Json) -> Json:
    return {"content": {JSON: {"schema": ref(schema)}, **others}}


RESPONSES = {
    name: {"description": told, **(headers("Retry-After") if status == 503 else {}), **content("Error")}
    for status, (name, told) in ERRORS.items()
}


def failures(*statuses: int) -> Json:
    return {str(status): ref(ERRORS[status][0], "responses") for status in statuses}


def operation(summary: str, answer: Json, *errors: int) -> Json:
    """An operation that answers 200 with `answer`, or one of the statuses `errors`."""
    ok = {"description": "The answer", **headers(REQUEST_ID), **answer}
    return {"summary": summary, "responses": {"200": ok, **failures(*errors)}}


def probe(summary: str, schema: str, *errors: int) -> Json:
    """The same, and 503 has an answer of the one form too."""
    made = operation(summary, content(schema), *errors)
    made["responses"]["503"] = {"description": "Not ready", **headers("Retry-After"), **content(schema)}
    return made


def taking(body: Json, parameters: list[str], made: Json) -> Json:
    """The operation with a body, and headers that say how to read it."""
    return {**made, "requestBody": body, "parameters": parameters}


OCTET_STREAM = {OCTETS: {"schema": {"type": "string", "format": "binary", "description": BINARY}}}
DESCRIPTION = {"content": {JSON: {"schema": {"type": "object"}}}}
METRICS = {"content": {kind: {"schema": TEXT} for kind in ("text/plain", "application/openmetrics-text")}}
# What is not here is for people, or a project's own.
OPERATIONS = {
    "rest.server_metadata": operation("What the service is", content("ServerMetadata")),
    "rest.live": operation("Whether the service runs", content("Live")),
    "rest.ready": probe("Whether the service can be called", "Ready"),
    "rest.repository_index": taking(
        {**content("IndexRequest"), "description": "Empty, or which models are asked for"},
        ["Content-Encoding"],
        operation("The models that are here, and their states", content("RepositoryIndex"), 400, 413, 415),
    ),
    "openapi.service_description": operation("The service in OpenAPI", DESCRIPTION),
    "monitoring.show_metrics": operation("Metrics, for Prometheus", METRICS),
    "rest.infer": taking(
        {**content("InferenceRequest", **OCTET_STREAM), "required": True},
        [HEADER_LENGTH, "Content-Encoding"],
        operation(
            "Calls the model",
            {**content("InferenceResponse", **OCTET_STREAM), **headers(REQUEST_ID, HEADER_LENGTH)},
            *(400, 404, 413, 415, 500, 503, 504),
        ),
    ),
    "rest.model_metadata": operation("What the model takes and gives", content("ModelMetadata"), 404),
    "rest.model_ready": probe("Whether the model can be called", "ModelReady", 404),
    "rest.model_config": operation("The model's configuration, as Triton's tools read it", content("ModelConfig"), 404),
    "openapi.model_description": operation("The model in OpenAPI, with its own inputs and outputs", DESCRIPTION, 404),
}
