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
    found = {
        "url": service.url,
        "ready": service.send("GET", f"{path}/ready").status == 200,
        "server": service.get("/v2"),
        "model": service.get(path),
    }
    (show_json if as_json else show)(found)
    if not found["ready"]:
        raise Failure(f"{found['model']['name']} at {service.url} is not ready", NOT_READY)


def show(found: dict[str, Any]) -> None:
    model, server = found["model"], found["server"]
    state = (
        click.style("ready", fg="green") if found["ready"] else click.style("not ready", fg="red")
    )
    click.echo(f"{model['name']} {', '.join(model.get('versions', ()))} is {state}\n")
    show_table(
        [
            ("address", f"{found['url']}/v2"),
            ("server", f"{server['name']} {server.get('version', '')}"),
            ("extensions", ", ".join(server.get("extensions", ()))),
            ("platform", model.get("platform", "")),
        ]
    )
    for kind in ("input", "output"):
        tensors = [
            (
                each["name"],
                each["datatype"],
                each["shape"],
                each.get("parameters", {}).get("content_type", ""),
            )
            for each in model[f"{kind}s"]
        ]
        click.echo()
        show_table(tensors, (kind, "datatype", "shape", "content type"))
