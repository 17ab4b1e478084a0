"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from app.cli.common import Failure
from app.cli.service import Service
from app.config import Settings, read_settings
from app.errors import SetupError

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def base_url(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """Return the base URL of REST, http(s)://HOST[:PORT][/PREFIX], without /v2."""
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the port is not a number
        is_valid = False
    if not is_valid:
        raise click.BadParameter(f"Invalid URL {text!r}. Expected one such as http://127.0.0.1:8080.")
    return text.rstrip("/").removesuffix("/v2")


def api_key(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text and not (text.isascii() and text.isprintable()):
        raise click.BadParameter("An API key contains only printable ASCII characters.")
    return text or None


PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
SERVICE_OPTIONS = {
    "url": click.option(
        "--url", metavar="URL", callback=base_url, help="REST address.  [default: HTTP_PORT on this machine]"
    ),
    "grpc": click.option(
        "--grpc", metavar="HOST:PORT", help="gRPC address, to call over gRPC. grpcs://HOST:PORT uses TLS."
    ),
    "model": click.option("--model", metavar="NAME", help="Name of the model.  [default: the service's only model]"),
    "key": click.option(
        "--key", metavar="KEY", envvar="API_KEY", show_envvar=True, callback=api_key, help="API key of the service."
    ),
    "cacert": click.option("--cacert", type=PATH, help="PEM file of the authority that signed the certificate."),
    "cert": click.option("--cert", type=PATH, help="PEM file of a client certificate."),
    "cert_key": click.option("--cert-key", type=PATH, help="PEM file of its private key.  [default: in --cert]"),
}


def service_options(*, grpc: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options that select a service. The command receives a Service as `service`."""
    selected = {name: option for name, option in SERVICE_OPTIONS.items() if grpc or name != "grpc"}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_service(*arguments: Any, **options: Any) -> Any:
            service = find(**{name: options.pop(name) for name in selected})
            return command(*arguments, service=service, **options)

        for option in reversed(selected.values()):
            with_service = option(with_service)
        return with_service

    return decorate


def find(url: str | None, cacert: Path | None, **options: Any) -> Service:
    """Return the service at `url`, or else the one on this machine, by the settings in the environment."""
    if url:
        return Service(url, cacert=cacert, **options)
    settings = own_settings()
    return Service(settings.here().url, cacert=cacert, pinned=None if cacert else settings.tls_cert, **options)


def own_settings() -> Settings:
    """Return the settings in the environment. Raise Failure if they are invalid."""
    try:
        return read_settings()
    except SetupError as error:
        raise Failure(str(error)) from None
