"""The routes of the description in OpenAPI: of the service, and of its model with its own inputs and outputs."""

from __future__ import annotations

from functools import cache

from flask import Blueprint, Flask, Response, current_app, request

from app.config import Settings
from app.dataplane import DataPlane
from app.envelope import JSON, write_json
from app.openapi.swagger import swagger
from app.rest import NOSNIFF

openapi = Blueprint("openapi", __name__, url_prefix="/v2")
# What is described, by the parameters of a path; nothing of them is the whole service.
Target = tuple[tuple[str, str], ...]
HEADERS = {"Content-Type": JSON, "Cache-Control": "no-cache", **NOSNIFF}


def init_openapi(app: Flask, plane: DataPlane, settings: Settings) -> None:
    """Puts the routes on `app`, and Swagger UI's unless UI is off."""

    @cache
    def description(target: Target, root: str) -> bytes:
        from app.openapi.description import describe  # here, as most services are never asked

        return write_json(describe(app.url_map, plane, dict(target), root, settings.api_keys_file is not None))

    app.extensions["openapi"] = plane, description
    app.register_blueprint(openapi)
    if settings.ui:
        app.register_blueprint(swagger)


@openapi.get("/docs/openapi.json")
def service_description() -> Response:
    return show()


@openapi.get("/models/<name>/docs/openapi.json")
@openapi.get("/models/<name>/versions/<version>/docs/openapi.json")
def model_description(**target: str) -> Response:
    return show(**target)


def show(**target: str) -> Response:
    """The description, whose paths begin where the client has the service's own, whatever a proxy has before them."""
    plane, description = current_app.extensions["openapi"]
    plane.metadata(**target)
    plane.admission.step_aside()
    root = "/".join([".."] * (request.path.count("/") - 1))
    made = Response(description(tuple(target.items()), root), headers=HEADERS)
    made.add_etag()
    made.make_conditional(request)
    return made
