"""The info command: show the model and the state of a running service."""

from typing import Any

import click

from app.cli.client import ServiceClient
from app.cli.common import NOT_READY, Failure, show_json, show_table
from app.cli.options import json_option, service_options


@click.command(
    epilog="\b\nExamples:\n  PROGRAM info\n  PROGRAM info --url https://iris.example.org --json"
)
@service_options
@json_option
def command(service: ServiceClient, as_json: bool) -> None:
    """Show the model and the state of a running service.

    The exit status is 3 if the service does not respond or is not ready.
    """
    path = service.model_path()
    readiness = service.send("GET", f"{path}/ready")
    is_ready = readiness.status == 200
    server = service.get("/v2")
    model = service.get(path)

    if as_json:
        show_json({"url": service.url, "ready": is_ready, "server": server, "model": model})
    else:
        _show_model(model, is_ready)
        _show_server(service.url, server, model)
        _show_tensors("input", model["inputs"])
        _show_tensors("output", model["outputs"])
    if not is_ready:
        raise Failure(f"{model['name']} at {service.url} is not ready", NOT_READY)


def _show_model(model: dict[str, Any], is_ready: bool) -> None:
    """Print name, versions and state of the model."""
    state = click.style("not ready", fg="red")
    if is_ready:
        state = click.style("ready", fg="green")
    versions = ", ".join(model.get("versions", ()))
    click.echo(f"{model['name']} {versions} is {state}\n")


def _show_server(url: str, server: dict[str, Any], model: dict[str, Any]) -> None:
    """Print the metadata of the server, and the platform of the model."""
    show_table(
        [
            ("address", f"{url}/v2"),
            ("server", f"{server['name']} {server.get('version', '')}"),
            ("extensions", ", ".join(server.get("extensions", ()))),
            ("platform", model.get("platform", "")),
        ]
    )


def _show_tensors(kind: str, tensors: list[dict[str, Any]]) -> None:
    """Print a table of the inputs or outputs after an empty line. `kind` is the first header."""
    rows = []
    for tensor in tensors:
        parameters = tensor.get("parameters", {})
        content_type = parameters.get("content_type", "")
        rows.append((tensor["name"], tensor["datatype"], tensor["shape"], content_type))
    click.echo()
    show_table(rows, (kind, "datatype", "shape", "content type"))
