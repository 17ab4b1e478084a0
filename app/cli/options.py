"""Options that several commands have."""

from __future__ import annotations

import ast
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
from app.failure import PREDICT


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json, which the command gets as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)


def base_url(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    """--url as REST's base: http(s)://HOST[:PORT][/PREFIX]."""
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        is_one = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        is_one = False
    if is_one:
        return text.rstrip("/").removesuffix("/v2")
    raise click.BadParameter(f"{text!r} is no address; expected one such as http://127.0.0.1:8080")


def a_key(_: click.Context, __: click.Parameter, text: str | None) -> str | None:
    if text and not (text.isascii() and text.isprintable()):
        raise click.BadParameter("a key has letters, digits and signs of ASCII only")
    return text or None


PATH = click.Path(exists=True, dir_okay=False, path_type=Path)
OPTIONS = [
    click.option(
        "--url", metavar="URL", callback=base_url, help="Where REST is: this machine's HTTP_PORT, unless given."
    ),
    click.option("--model", metavar="NAME", help="The model's name: the one that the service has, unless given."),
    click.option(
        "--key", metavar="KEY", envvar="API_KEY", show_envvar=True, callback=a_key, help="An API key of the service's."
    ),
    click.option("--cacert", type=PATH, help="PEM file of who signed the service's certificate."),
    click.option("--cert", type=PATH, help="PEM file of a certificate to show the service, as TLS_CLIENT_CA asks for."),
    click.option("--cert-key", type=PATH, help="PEM file of its private key, where that is not in the same file."),
]
GRPC_OPTION = click.option(
    "--grpc", metavar="HOST:PORT", help="Ask over gRPC, there; grpcs://HOST:PORT is by TLS. Over REST, unless given."
)


def service_options(*, grpc: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that say which service: the command gets a Service, `service`, in their place."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        names = ["url", "model", "key", "cacert", "cert", "cert_key"] + ["grpc"] * grpc

        @wraps(command)
        def with_service(*arguments: Any, **options: Any) -> Any:
            return command(*arguments, service=find(**{name: options.pop(name) for name in names}), **options)

        for option in reversed([OPTIONS[0], *([GRPC_OPTION] if grpc else []), *OPTIONS[1:]]):
            with_service = option(with_service)
        return with_service

    return decorate


def find(url: str | None, cacert: Path | None, **options: Any) -> Service:
    """The service at `url`, or the one that this machine's settings tell of, which is to have the project's model."""
    if url:
        return Service(url, cacert=cacert, **options)
    settings = own_settings()
    pinned = None if cacert else settings.tls_cert
    expected = None if options.get("grpc") or options["model"] else own_model(settings)
    return Service(settings.here().url, cacert=cacert, pinned=pinned, expected=expected, **options)


def own_settings() -> Settings:
    """The settings in the environment; Failure where they will not do."""
    try:
        return read_settings()
    except SetupError as error:
        raise Failure(str(error)) from None


def own_model(settings: Settings) -> str | None:
    """The name that this project's model has; None where predict.py, which is not run, does not say it plainly."""
    if settings.model_name:
        return settings.model_name
    try:
        code = ast.parse(PREDICT.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in code.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "METADATA":
            return named(node.value)
    return None


def named(value: ast.expr) -> str | None:
    """The name in ModelMetadata(name="...", ...)."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "ModelMetadata":
        return None
    given = [each.value for each in value.keywords if each.arg == "name"] or value.args[:1]
    found = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return found if isinstance(found, str) else None
