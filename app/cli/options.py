"""Options of several commands."""

import os
import re
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import click

from app.cli.client import ServiceClient
from app.cli.common import Failure
from app.config.settings import Settings, read_settings
from app.protocol.errors import ConfigurationError

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
TRANSPORT = click.Choice(["rest-json", "rest-binary", "grpc"])
PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
HOST = r"s?://(\[[\w.:]+\]|[^\s/:]+)"
URLS = {"http": re.compile(rf"http{HOST}(:\d+)?(/\S*)?"), "grpc": re.compile(rf"grpc{HOST}:\d+/?")}
OPTIONS = {
    "url": click.option(
        "--url", help="URL of the service.  [default: the one on this machine, by its settings]"
    ),
    "model": click.option("--model", help="Name of the model.  [default: the only one]"),
    "api_key": click.option(
        "--api-key", envvar="API_KEY", show_envvar=True, help="API key of the service."
    ),
    "cacert": click.option(
        "--cacert", type=PATH, help="PEM file of the service's CA.  [default: the system's CAs]"
    ),
    "cert": click.option(
        "--cert", type=PATH, help="PEM file of the client's certificate.  [default: none]"
    ),
    "cert_key": click.option(
        "--cert-key", type=PATH, help="PEM file of the client's key.  [default: in --cert]"
    ),
}


def service_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select a service. The command receives a ServiceClient as `service`."""

    @wraps(command)
    def with_service(*arguments: Any, **options: Any) -> Any:
        service = find_service(
            options.pop("transport", "rest-json"), **{name: options.pop(name) for name in OPTIONS}
        )
        return command(*arguments, service=service, **options)

    for option in reversed(OPTIONS.values()):
        with_service = option(with_service)
    return with_service


def transport_option(default: str) -> Callable[..., Any]:
    text = (
        "Protocol and encoding. For grpc, --url is grpc://HOST:PORT, or grpcs://HOST:PORT with TLS."
    )
    return click.option(
        "--transport", type=TRANSPORT, default=default, show_default=True, help=text
    )


def find_service(
    transport: str, url: str | None, cacert: Path | None, **options: Any
) -> ServiceClient:
    """Return a client for `url`, or for the service on this machine according to the settings in the environment."""
    scheme = "grpc" if transport == "grpc" else "http"
    if url and not URLS[scheme].fullmatch(url):
        raise click.UsageError(
            f"Invalid --url. Expected {scheme}://HOST:PORT or {scheme}s://HOST:PORT."
        )
    if options["api_key"] and not (
        options["api_key"].isascii() and options["api_key"].isprintable()
    ):
        raise click.UsageError("Invalid --api-key. Expected printable ASCII characters.")
    if url:
        return ServiceClient(
            url.rstrip("/").removesuffix("/v2"), transport, cacert=cacert, **options
        )
    settings = load_settings().with_local_host()
    port = settings.grpc_port if transport == "grpc" else settings.http_port
    url = f"{scheme}{'s' if settings.tls_cert_file else ''}://{settings.address(port)}"
    return ServiceClient(
        url, transport, cacert=cacert, pinned=None if cacert else settings.tls_cert_file, **options
    )


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings from the environment. Raise Failure if they are invalid."""
    try:
        return read_settings(environ)
    except ConfigurationError as error:
        raise Failure(str(error)) from None
