"""The description in OpenAPI 3.1, made of the routes that there are, the schemas and METADATA."""

from __future__ import annotations

import re
from copy import deepcopy
from urllib.parse import quote

from apispec import APISpec
from apispec.ext.marshmallow import MarshmallowPlugin
from werkzeug.routing import Map, Rule

from app.dataplane import DataPlane
from app.envelope import JSON, write_json
from app.guard import FREE
from app.openapi.operations import HEADERS, OPERATIONS, PARAMETERS, RESPONSES, failures
from app.openapi.schemas import TEXT, Json, add_schemas
from app.openapi.tensors import refine
from app.recorder import REQUEST_ID

ABOUT = (
    "The Open Inference Protocol v2 over REST, with the Binary Tensor Data Extension. A path with a slash at its end "
    "answers the same, and HEAD works wherever GET does. Every failure is an Error, that of an unknown path (404) or a "
    "wrong method (405) too, and every answer has an X-Request-Id. Content-Type is not looked at."
)
KEYS = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key", "description": "An API key"},
}


def describe(routes: Map, plane: DataPlane, target: dict[str, str], root: str, has_keys: bool) -> Json:
    """The description of the model whose name, and version, are in `target`, or of the service where that is empty.

    `root` is where the paths begin, as seen from the description.
    """
    served, plugin = plane.metadata(), MarshmallowPlugin()
    title, version = (served.name, served.version) if target else (plane.name, plane.version)
    info, servers = {"description": ABOUT}, [{"url": root, "description": "this service"}]
    spec = APISpec(title, version, "3.1.0", plugins=[plugin], info=info, servers=servers)
    add_schemas(spec, plugin)
    add_shared(spec, has_keys)
    if target:
        refine(spec.components.schemas, served, plane.optional)
    else:
        for name, there in (("name", served.name), ("version", served.version)):
            parameter = {"description": f"The model's {name}", "schema": {**TEXT, "minLength": 1}, "example": there}
            spec.components.parameter(name, "path", parameter)
    order = list(OPERATIONS)
    rules = [rule for rule in routes.iter_rules() if rule.endpoint in OPERATIONS]
    for rule in sorted(rules, key=lambda rule: (len(rule.arguments), order.index(rule.endpoint))):
        if not target or rule.arguments == target.keys():
            add_operation(spec, rule, plane, target, has_keys)
    return without_unused(spec.to_dict())


def add_shared(spec: APISpec, has_keys: bool) -> None:
    for name, header in HEADERS.items():
        spec.components.header(name, header)
    for name, parameter in PARAMETERS.items():
        spec.components.parameter(name, "header", parameter)
    for name, response in RESPONSES.items():
        if has_keys or name != "Unauthenticated":
            spec.components.response(name, response)
    if has_keys:
        for name, scheme in KEYS.items():
            spec.components.security_scheme(name, scheme)
        spec.options["security"] = [{name: []} for name in KEYS]


def add_operation(spec: APISpec, rule: Rule, plane: DataPlane, target: dict[str, str], has_keys: bool) -> None:
    """The operation of the route, with what is of this service alone."""
    made = deepcopy(OPERATIONS[rule.endpoint])
    has_version = "version" in rule.arguments
    made["operationId"] = rule.endpoint.partition(".")[2] + "_of_version" * (has_version and not target)
    made["parameters"] = [*([] if target else sorted(rule.arguments)), *made.get("parameters", []), REQUEST_ID]
    made["tags"] = ["model" if rule.arguments else "service"]
    path = re.sub(r"<(\w+)>", lambda found: quote(target[found[1]], "") if target else f"{{{found[1]}}}", rule.rule)
    if has_keys and FREE.fullmatch(path):
        made["security"] = []
    elif has_keys:
        made["responses"] |= failures(401)
    if rule.endpoint == "rest.infer":
        made["requestBody"]["content"][JSON]["example"] = plane.example()
    (method,) = (rule.methods or set()) - {"HEAD", "OPTIONS"}
    spec.path(path, operations={method.lower(): made})


def without_unused(description: Json) -> Json:
    """The description without schemas that nothing in it refers to."""
    text, schemas = write_json(description).decode(), description["components"]["schemas"]
    for name in list(schemas):
        if f'/schemas/{name}"' not in text:
            del schemas[name]
    return description
