"""Routes of the OpenAPI description and of Swagger UI."""

from importlib.metadata import distribution
from pathlib import Path

from flask import Blueprint, Response, abort, render_template, request, send_from_directory

from app.protocol.http_body import JSON, write_json
from app.rest.routes import NOSNIFF, service

openapi = Blueprint("openapi", __name__, url_prefix="/v2")
swagger = Blueprint("swagger", __name__, url_prefix="/v2", template_folder="templates")
HEADERS = {"Content-Type": JSON, "Cache-Control": "no-cache", **NOSNIFF}
# Swagger UI's style sheet contains icons as data: URLs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STATIC = Path(__file__).parent / "static"
SWAGGER_UI = str(distribution("flask-swagger-ui").locate_file("flask_swagger_ui/dist"))
FILES = ("swagger.js", "index.css", "swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
MAX_AGE_SECONDS = 3600


@openapi.get("/docs/openapi.json", endpoint="service_description")
@openapi.get("/models/<name>/docs/openapi.json", endpoint="model_description")
@openapi.get("/models/<name>/versions/<version>/docs/openapi.json", endpoint="model_description")
def show_description(**target: str) -> Response:
    """Return the description.

    Its server URL is relative, so it is also valid under a path prefix of a proxy.
    """
    from app.ui.openapi import describe  # imported here, because it is rarely used

    service.info.find(**target)
    depth = request.path.count("/") - 1
    root = "/".join([".."] * depth)
    has_keys = service.settings.api_keys_file is not None
    description = describe(service.info, root, has_keys)
    response = Response(write_json(description), headers=HEADERS)
    response.add_etag()
    response.make_conditional(request)
    return response


@swagger.get("/docs")
@swagger.get("/models/<name>/docs")
@swagger.get("/models/<name>/versions/<version>/docs")
def show_page(**target: str) -> Response:
    """Return the page.

    Its files are below its path, so that browsers request them with the same API key.
    """
    metadata = service.info.find(**target)
    # Relative URLs in a page at /docs are relative to /, and in one at /docs/ to /docs/.
    below = "" if request.path.endswith("/") else "docs/"
    html = render_template("docs.html", title=metadata.name, below=below)
    return Response(html, headers={"Content-Security-Policy": POLICY, **NOSNIFF})


@swagger.get("/docs/<file>")
@swagger.get("/models/<name>/docs/<file>")
@swagger.get("/models/<name>/versions/<version>/docs/<file>")
def show_file(file: str, **target: str) -> Response:
    """Return a file of the page: its own script, or a file of Swagger UI."""
    service.info.find(**target)
    if file not in FILES:
        abort(404)
    directory = STATIC if file == "swagger.js" else SWAGGER_UI
    response = send_from_directory(directory, file, max_age=MAX_AGE_SECONDS)
    response.headers.update(NOSNIFF)
    return response
