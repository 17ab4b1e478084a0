"""info: show the model and the state of a running service."""

from __future__ import annotations

import re
from typing import Any

import click

from app.cli.common import NOT_READY, Failure, show_json, show_table
from app.cli.options import json_option, service_options
from app.cli.service import Service

METRIC = re.compile(r"^inference_(workers|workers_ready) (\S+)$", re.MULTILINE)


@click.command(
    epilog="""\b
    Examples:
      PROGRAM info
      PROGRAM info --url https://iris.example.org --key $API_KEY --json"""
)
@service_options(grpc=False)
@json_option
def command(service: Service, as_json: bool) -> None:
    """Show the model and the state of a running service.

    The exit status is 3 if the service does not respond or is not ready.
    """
    path = service.model_path()
    found = {
        "url": service.url,
        "ready": service.ask("GET", f"{path}/ready").status == 200,
        "server": service.get("/v2"),
        "model": service.get(path),
    }
    metrics = service.ask("GET", "/metrics").body.decode(errors="replace")  # other services may have none
    found |= {name: int(float(value)) for name, value in METRIC.findall(metrics)}
    (show_json if as_json else show)(found)
    if not found["ready"]:
        raise Failure(f"{found['model']['name']} at {service.url} is not ready", NOT_READY)


def show(found: dict[str, Any]) -> None:
    model, server = found["model"], found["server"]
    state = click.style("ready", fg="green") if found["ready"] else click.style("not ready", fg="red")
    click.echo(f"{model['name']} {', '.join(model.get('versions', ()))} is {state}\n")
    rows = [
        ("address", f"{found['url']}/v2"),
        ("server", f"{server['name']} {server.get('version', '')}"),
        ("extensions", ", ".join(server.get("extensions", ()))),
        ("platform", model.get("platform", "")),
    ]
    if "workers" in found:
        rows.append(("workers", f"{found['workers']}, {found.get('workers_ready', 0)} ready"))
    show_table(rows)
    for kind in ("input", "output"):
        click.echo()
        show_table([row(tensor) for tensor in model[f"{kind}s"]], (kind, "datatype", "shape", "content type"))


def row(tensor: dict[str, Any]) -> list[Any]:
    content_type = tensor.get("parameters", {}).get("content_type", "")
    return [tensor["name"], tensor["datatype"], tensor["shape"], content_type]
