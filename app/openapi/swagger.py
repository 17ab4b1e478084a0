"""Swagger UI over the descriptions: a page for people, all of whose parts come from this service."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from flask import Blueprint, Response, abort, current_app, make_response, render_template, request, send_from_directory

from app.rest import NOSNIFF

swagger = Blueprint("swagger", __name__, url_prefix="/v2", template_folder="templates")
# data: is for the icons in Swagger UI's style sheet.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# What a page needs, and the folder that has it; Swagger UI's where none is named.
PARTS = {
    "start.js": Path(__file__).parent / "static",
    **dict.fromkeys(["index.css", "swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"]),
}
KEPT_SECONDS = 3600


@swagger.get("/docs")
@swagger.get("/models/<name>/docs")
@swagger.get("/models/<name>/versions/<version>/docs")
def page(**target: str) -> Response:
    """The page. Its parts are below it: there a browser sends the key that it was asked for, behind a proxy too."""
    plane, _ = current_app.extensions["openapi"]
    served = plane.metadata(**target)
    title, below = served.name if target else plane.name, "" if request.path.endswith("/") else "docs/"
    made = make_response(render_template("docs.html", title=title, below=below))
    made.headers.update({"Content-Security-Policy": POLICY, **NOSNIFF})
    return made


@swagger.get("/docs/<file>")
@swagger.get("/models/<name>/docs/<file>")
@swagger.get("/models/<name>/versions/<version>/docs/<file>")
def part(file: str, **target: str) -> Response:
    plane, _ = current_app.extensions["openapi"]
    plane.metadata(**target)
    if file not in PARTS:
        abort(404)
    plane.admission.step_aside()
    made = send_from_directory(PARTS[file] or swagger_ui(), file, max_age=KEPT_SECONDS)
    made.headers.update(NOSNIFF)
    return made


def swagger_ui() -> Path:
    """The folder of Swagger UI's own files; the package that has them is not loaded."""
    package = find_spec("flask_swagger_ui")
    if package is None or package.origin is None:
        raise ModuleNotFoundError("flask-swagger-ui is not installed")
    return Path(package.origin).parent / "dist"
