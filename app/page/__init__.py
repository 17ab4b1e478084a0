"""The model's page at /: what the model is, a form to try it, and the calls to copy. A room of its own, off by UI=off.

Its files are the project's own, and ask for nothing elsewhere; static/page.js is where they begin.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flask import Blueprint, Flask, Response, abort, current_app, render_template, request, send_from_directory

from app.config import Settings
from app.dataplane import DataPlane
from app.datatypes import datatype_of
from app.envelope import write_json
from app.page.calls import Place, calls
from app.page.fields import Field, csv, fields, is_table
from app.types import MetadataTensor

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
STATIC = Path(__file__).parent / "static"
# An example above this many bytes of JSON is no text to show and to edit.
LONGEST_EXAMPLE = 2**15
# A row of more cells is easier to paste than to fill in.
MOST_CELLS = 12

page = Blueprint("page", __name__, template_folder="templates")


def init_page(app: Flask, plane: DataPlane, settings: Settings) -> None:
    """Puts the page on `app`, unless UI=off."""
    if settings.ui:
        app.extensions["page"] = plane, settings
        app.register_blueprint(page)


@page.get("/")
def show_page() -> Response:
    """The page for a browser, or whoever takes anything; a client that asks for something else is told the paths."""
    if request.accept_mimetypes and not request.accept_mimetypes.accept_html:
        abort(404)
    plane, settings = current_app.extensions["page"]
    plane.admission.step_aside()
    html = render_template("page.html", **view(plane, settings))
    return Response(html, headers={**HEADERS, "Cache-Control": "no-store", "Vary": "Accept"})


@page.get("/static/<path:name>")
def show_file(name: str) -> Response:
    """A file of the page; it needs an API key where all else does, which browsers send along."""
    plane, _ = current_app.extensions["page"]
    plane.admission.step_aside()
    response = send_from_directory(STATIC, name)
    response.headers.update(HEADERS)
    return response


def view(plane: DataPlane, settings: Settings) -> dict[str, Any]:
    """What the template shows."""
    metadata = plane.metadata()
    place = place_of(plane, settings)
    written = write_json(plane.example())
    example = json.loads(written) if len(written) <= LONGEST_EXAMPLE else {"inputs": []}
    tensors = {tensor["name"]: tensor for tensor in example["inputs"]}
    values = {name: tensor["data"] for name, tensor in tensors.items()}
    inputs = fields(metadata.inputs, plane.optional, tensors)
    return {
        "model": metadata,
        "state": state_of(plane),
        "load_time": time_text(plane.load_seconds) if plane.is_loaded else "not yet",
        "service": f"{plane.name} {plane.version}",
        "place": place,
        "path": f"v2/models/{quote(metadata.name, safe='')}",
        "fields": inputs,
        "is_table": is_table(metadata.inputs),
        "by_row": len(inputs) <= MOST_CELLS and max(map(len, values.values()), default=0) <= 1,
        "csv": csv(metadata.inputs, values),
        "calls": calls(example, place) if values else {},
        "script": script(place, inputs, metadata.outputs, values),
    }


def state_of(plane: DataPlane) -> str:
    if plane.ready:
        return "ready"
    return "stopping" if plane.is_stopping else "loading"


def time_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def place_of(plane: DataPlane, settings: Settings) -> Place:
    """Where the client of this request finds the model, by what it calls this host."""
    name = plane.metadata().name
    host = request.host.rpartition(":")[0] if request.host.rpartition(":")[2].isdigit() else request.host
    return Place(
        name=name,
        url=f"{request.url_root}v2/models/{quote(name, safe='')}",
        rest=f"{request.host}{quote(request.root_path)}",
        grpc=f"{host}:{settings.grpc_port}",
        tls=settings.tls_cert is not None,
        keys=settings.api_keys_file is not None,
        certificates=settings.tls_client_ca is not None,
    )


def script(
    place: Place, inputs: list[Field], outputs: list[MetadataTensor], values: dict[str, list[Any]]
) -> dict[str, Any]:
    """What the page's scripts know of the model; `example` is for what no field can hold from the start."""
    return {
        "name": place.name,
        "path": f"v2/models/{quote(place.name, safe='')}",
        "grpcPort": place.grpc.rpartition(":")[2],
        "tls": place.tls,
        "keys": place.keys,
        "certificates": place.certificates,
        "inputs": [
            {
                "name": field.tensor.name,
                "datatype": field.tensor.datatype,
                "shape": field.tensor.shape,
                "kind": field.kind,
                "optional": field.optional,
                "contents": datatype_of(field.tensor.datatype).contents,
                "example": values.get(field.tensor.name, []) if field.kind == "file" else [],
            }
            for field in inputs
        ],
        "outputs": {each.name: {"shape": each.shape, "contentType": each.content_type} for each in outputs},
    }
