"""info: what a running service says of itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from app.cli.common import NOT_READY, Failure, show_json, show_table
from app.cli.options import json_option, service_options
from app.cli.service import Service

METRIC = re.compile(r"^(inference_(?:workers|workers_ready|model_load_seconds)) (\S+)$", re.MULTILINE)


@click.command(
    epilog="""\b
    Examples:
      PROGRAM info
      PROGRAM info --url https://iris.example.org --key $API_KEY --json"""
)
@service_options(grpc=False)
@json_option
def command(service: Service, as_json: bool) -> None:
    """Show what a running service says of itself.

    That is its model, whether it is ready, and its workers where it has metrics. The exit status is 3 where it is not
    ready, or does not answer.
    """
    found = look_at(replace(service, expected=None))
    (show_json if as_json else show)(found)
    if service.expected not in (None, name := found["model"]["name"]):
        click.echo(f"note: {service.stranger(name)}", err=True)
    if not found["ready"]:
        raise Failure(f"{found['model']['name']} at {service.url} is not ready", NOT_READY)


def look_at(service: Service) -> dict[str, Any]:
    server, path = service.get("/v2"), service.model_path()
    model, metrics = service.get(path), service.ask("GET", "/metrics")
    values = dict(METRIC.findall(metrics.body.decode(errors="replace"))) if metrics.status == 200 else {}
    found = {
        "url": service.url,
        "ready": service.ask("GET", f"{path}/ready").status == 200,
        "server": server,
        "model": model,
    }
    for key, name in (("workers", "inference_workers"), ("workers_ready", "inference_workers_ready")):
        if name in values:
            found[key] = int(float(values[name]))
    if found["ready"] and "inference_model_load_seconds" in values:
        found["load_seconds"] = float(values["inference_model_load_seconds"])
    return found


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
    if "workers_ready" in found:
        rows.append(("workers", f"{found['workers']}, {found['workers_ready']} of them ready"))
    if "load_seconds" in found:
        rows.append(("load()", f"{found['load_seconds']:.2f} s"))
    show_table(rows)
    for kind in ("inputs", "outputs"):
        click.echo()
        show_table([row(tensor) for tensor in model[kind]], (kind[:-1], "datatype", "shape", "content type"))


def row(tensor: dict[str, Any]) -> Sequence[Any]:
    content_type = tensor.get("parameters", {}).get("content_type", "")
    return tensor["name"], tensor["datatype"], tensor["shape"], content_type
