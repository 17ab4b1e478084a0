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

TRANSPORT = click.Choice(["rest-json", "rest-binary", "grpc"])
PATH = click.Path(exists=True, dir_okay=False, path_type=Path)

# "s://" or "://", and an IPv6 address in brackets, an IPv4 address or a host name.
_HOST = r"s?://(\[[\w.:]+\]|[^\s/:]+)"
_URL_PATTERNS = {
    "http": re.compile(rf"http{_HOST}(:\d+)?(/\S*)?"),
    "grpc": re.compile(rf"grpc{_HOST}:\d+/?"),
}

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
# The options that select a service, by the names of their parameters.
_SERVICE_OPTIONS = {
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
    def command_with_service(transport: str = "rest-json", **options: Any) -> Any:
        selection = {name: options.pop(name) for name in _SERVICE_OPTIONS}
        service = find_service(transport, **selection)
        return command(service=service, **options)

    # click lists options in the reverse order of their decorators.
    for option in reversed(_SERVICE_OPTIONS.values()):
        command_with_service = option(command_with_service)
    return command_with_service


def transport_option(default: str) -> Callable[..., Any]:
    return click.option(
        "--transport",
        type=TRANSPORT,
        default=default,
        show_default=True,
        help="Protocol and encoding. For grpc, --url is grpc://HOST:PORT, or grpcs://HOST:PORT"
        " with TLS.",
    )


def find_service(
    transport: str, url: str | None, api_key: str | None, cacert: Path | None, **options: Any
) -> ServiceClient:
    """Return a client for `url`, or for the service on this machine.

    The settings in the environment determine the port of a local service and whether it has TLS.
    Raise UsageError for an invalid URL or key.
    """
    scheme = "grpc" if transport == "grpc" else "http"
    if url and not _URL_PATTERNS[scheme].fullmatch(url):
        raise click.UsageError(
            f"Invalid --url. Expected {scheme}://HOST:PORT or {scheme}s://HOST:PORT."
        )
    if api_key and not (api_key.isascii() and api_key.isprintable()):
        raise click.UsageError("Invalid --api-key. Expected printable ASCII characters.")

    pinned = None
    if url:
        base_url = url.rstrip("/").removesuffix("/v2")
    else:
        settings = load_settings().with_local_host()
        base_url = _local_url(settings, scheme)
        if not cacert:
            pinned = settings.tls_cert_file
    return ServiceClient(
        base_url, transport, api_key=api_key, cacert=cacert, pinned=pinned, **options
    )


def _local_url(settings: Settings, scheme: str) -> str:
    """Return the URL of the service on this machine. `scheme` is http or grpc."""
    port = settings.grpc_port if scheme == "grpc" else settings.http_port
    if settings.tls_cert_file:
        scheme += "s"
    return f"{scheme}://{settings.address(port)}"


def load_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings from the environment. Raise Failure if they are invalid."""
    try:
        return read_settings(environ)
    except ConfigurationError as error:
        raise Failure(str(error)) from None
