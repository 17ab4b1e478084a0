"""Model page at /: metadata of the model, a request form, and the same request for other clients.

The page loads no files from other servers. The entry point of its scripts is static/page.js.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flask import Blueprint, Response, abort, render_template, request, send_from_directory

from app.inference.model_runner import ModelState
from app.protocol.datatypes import datatype_of
from app.protocol.http_body import write_json
from app.rest.routes import NOSNIFF, service
from app.ui.fields import Field, FieldKind, create_fields, is_table, to_csv
from app.version import SERVICE_NAME, __version__

if TYPE_CHECKING:
    from app.protocol.envelope import JsonObject
    from app.protocol.metadata import MetadataTensor
    from app.service import Service

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    **NOSNIFF,
}
STATIC = Path(__file__).parent / "static"
# Maximum size of an example in the form, in bytes of JSON.
MAX_EXAMPLE_BYTES = 2**15
# A row with more cells is easier to paste as CSV than to fill in.
MAX_CELLS = 12

# Texts for the states of the model.
STATES = {
    ModelState.LOADING: "Loading",
    ModelState.WARMING_UP: "Loading",
    ModelState.READY: "Ready",
    ModelState.UNHEALTHY: "Not ready",
    ModelState.STOPPING: "Not ready",
    ModelState.CLOSED: "Not ready",
}

page = Blueprint("page", __name__, template_folder="templates")


@page.get("/")
def show_page() -> Response:
    """Return the page, or 404 for a client that does not accept HTML."""
    if request.accept_mimetypes and not request.accept_mimetypes.accept_html:
        abort(404)
    html = render_template("page.html", **_page_context(service))
    return Response(html, headers={**HEADERS, "Cache-Control": "no-store", "Vary": "Accept"})


@page.get("/static/<path:name>")
def show_file(name: str) -> Response:
    response = send_from_directory(STATIC, name)
    response.headers.update(HEADERS)
    return response


def _page_context(service: Service) -> dict[str, Any]:
    """Return the variables of the template."""
    metadata = service.info.metadata
    example = _example_inputs(service)
    values = {name: tensor["data"] for name, tensor in example.items()}
    fields = create_fields(metadata.inputs, example)
    row_count = max(map(len, values.values()), default=0)
    # A form with a cell for each value of one row is better than a table, if they are few.
    has_few_cells = len(fields) <= MAX_CELLS
    has_one_row = row_count <= 1
    return {
        "model": metadata,
        "state": STATES[service.model.state],
        "service": f"{SERVICE_NAME} {__version__}",
        "fields": fields,
        "is_table": is_table(metadata.inputs),
        "by_row": has_few_cells and has_one_row,
        "csv": to_csv(metadata.inputs, values),
        "script": _script_data(service, fields, values),
    }


def _example_inputs(service: Service) -> dict[str, JsonObject]:
    """Return the inputs of the example by name, or none if it is too large for the form."""
    body = write_json(service.info.example())
    if len(body) > MAX_EXAMPLE_BYTES:
        return {}
    return {tensor["name"]: tensor for tensor in json.loads(body)["inputs"]}


def _script_data(
    service: Service, fields: Sequence[Field], values: Mapping[str, list[Any]]
) -> dict[str, Any]:
    """Return the data for the scripts of the page. `values` are those of the example."""
    settings = service.settings
    metadata = service.info.metadata
    return {
        "name": metadata.name,
        "path": f"v2/models/{quote(metadata.name, safe='')}",
        "grpcPort": settings.grpc_port,
        "tls": settings.tls_cert_file is not None,
        "keys": settings.api_keys_file is not None,
        "certificates": settings.tls_client_ca_file is not None,
        "inputs": [_input_data(field, values) for field in fields],
        "outputs": _output_data(metadata.outputs),
    }


def _input_data(field: Field, values: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the declaration of an input for the scripts.

    `example` is empty, unless the input is a file: browsers do not let a page fill in a field for
    files. If the user selects no file, the scripts send the example. Other fields contain it.
    """
    tensor = field.tensor
    example = []
    if field.kind is FieldKind.FILE:
        example = values.get(tensor.name, [])
    return {
        **asdict(tensor),
        "raw": tensor.content_type == "bytes",
        "kind": field.kind,
        "contents": datatype_of(tensor.datatype).contents_field,
        "example": example,
    }


def _output_data(tensors: Iterable[MetadataTensor]) -> dict[str, Any]:
    """Return the outputs for the scripts, by name."""
    outputs = {}
    for tensor in tensors:
        outputs[tensor.name] = {"shape": tensor.shape, "contentType": tensor.content_type}
    return outputs
