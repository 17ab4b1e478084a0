"""Settings: read from the environment in this one place, checked before anything starts."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from app.errors import SetupError
from app.machine import usable_cores

ROOT = Path(__file__).resolve().parent.parent


def whole(low: int, high: int) -> Callable[[str], int]:
    """A parser of whole numbers from `low` to `high`."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser that takes one of `choices`, in any case, and gives it as spelt here."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(" or ".join(choices))

    return parse


def address(text: str) -> str:
    """A parser of an IP address or a host name of this machine."""
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        raise ValueError("an address of this machine, such as 0.0.0.0, 127.0.0.1 or ::") from None
    return text


def folder(text: str) -> Path:
    """A parser of a path to a folder that exists."""
    if not os.path.isdir(text):
        raise ValueError("a folder that exists")
    return Path(text).resolve()


def setting(default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc})


@dataclass(frozen=True)
class Settings:
    """One field a setting; the environment variable is the field's name in capitals."""

    host: str = setting("0.0.0.0", address, "address that both protocols listen on")
    http_port: int = setting(8080, whole(1, 65535), "port of REST")
    grpc_port: int = setting(8081, whole(1, 65535), "port of gRPC")
    workers: int = setting(usable_cores(), whole(1, 1024), "worker processes; each holds its own copy of the model")
    threads: int = setting(4, whole(1, 1024), "REST requests that a worker runs at once")
    grpc_threads: int = setting(4, whole(1, 1024), "gRPC calls that a worker runs at once")
    keepalive: int = setting(75, whole(1, 86400), "seconds that an idle REST connection is kept open")
    graceful_timeout: int = setting(30, whole(0, 86400), "seconds that running requests get to finish on SIGTERM")
    max_request_bytes: int = setting(
        64 * 2**20, whole(1, 2**31 - 1), "largest request, in bytes, after decompression; both protocols"
    )
    model_name: str | None = setting(None, str, "name to serve the model under, in place of METADATA's")
    model_version: str | None = setting(None, str, "version to serve it as, in place of METADATA's")
    model_dir: Path = setting(ROOT / "model", folder, "folder that load() reads the model from")
    json_nonfinite: str = setting(
        "error", one_of("error", "null"), "what becomes of ±Infinity in a JSON response: an `error`, or `null`"
    )
    log_level: str = setting(
        "INFO", one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "least severity that is logged"
    )

    def address(self, port: int) -> str:
        """HOST and `port` as both servers take them, an IPv6 address in brackets."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings that `environ` holds; an empty variable counts as unset.

    Raises SetupError, naming every variable whose value will not do.
    """
    values, faults = {}, []
    for each in fields(Settings):
        variable = each.name.upper()
        if text := environ.get(variable, "").strip():
            try:
                values[each.name] = each.metadata["parse"](text)
            except ValueError as error:
                faults.append(f"{variable}={text!r}: expected {error}")
    settings = Settings(**values)
    if settings.http_port == settings.grpc_port:
        faults.append(f"GRPC_PORT={settings.grpc_port}: REST has this port (HTTP_PORT); give each its own")
    if faults:
        raise SetupError("; ".join(faults))
    return settings
