"""The settings. They are read from the environment here, and checked before anything starts."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.errors import SetupError
from app.keys import read_keys
from app.machine import usable_cores
from app.tls import server_context

ROOT = Path(__file__).resolve().parent.parent
EVERYWHERE = ("0.0.0.0", "::")
# From this similarity, a variable may be meant for a setting. API_KEYS and API_KEYS_FILE have 0.76.
CLOSE = 0.75
# The optimizations that DISABLE_OPTIMIZATIONS can switch off. The service works without each of them.
OPTIMIZATIONS = {
    *("fast_path", "fast_validation", "simdjson", "grpc_pool", "raw_tensors"),
    *("worker", "rolling_reload", "metric_compaction"),
}
# For probes and refusals.
SPARE_THREADS = 4
SWITCH = {"on": True, "1": True, "true": True, "yes": True, "off": False, "0": False, "false": False, "no": False}


def whole(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of integers from `low` to `high`."""

    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,19}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a parser of `choices`, in any case."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(" or ".join(choices))

    return parse


def time_in(unit: str) -> Callable[[str], float]:
    """Return a parser of a time in seconds or milliseconds."""

    def parse(text: str) -> float:
        if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]+)?(e-[0-9]+)?", text):
            raise ValueError(f"{unit}, such as 0, 5 or 0.5")
        return float(text)

    return parse


def on_off(text: str) -> bool:
    if text.lower() not in SWITCH:
        raise ValueError("on or off")
    return SWITCH[text.lower()]


def optimizations(text: str) -> frozenset[str]:
    """Parse a list of names from OPTIMIZATIONS, separated by commas or spaces."""
    names = frozenset(text.replace(",", " ").split())
    if names - OPTIMIZATIONS:
        raise ValueError(f"names from {', '.join(sorted(OPTIMIZATIONS))}")
    return names


def address(text: str) -> str:
    """Parse an IP address or a host name of this machine."""
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        raise ValueError("an address of this machine, such as 0.0.0.0, 127.0.0.1 or ::") from None
    return text


def folder(text: str) -> Path:
    if not os.path.isdir(text):
        raise ValueError("a folder that exists")
    return Path(text).resolve()


def readable(text: str) -> Path:
    """Parse the path of a file. A link stays a link: Kubernetes replaces a secret by changing its links."""
    if not (os.path.isfile(text) and os.access(text, os.R_OK)):
        raise ValueError("a file that exists, and that this user may read")
    return Path(text).absolute()


def setting(default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc})


@dataclass(frozen=True)
class Settings:
    """One field per setting. The environment variable is the field's name in capitals."""

    host: str = setting("0.0.0.0", address, "address that both protocols listen on; `::` is all, those of IPv6 too")
    http_port: int = setting(8080, whole(1, 65535), "port of REST")
    grpc_port: int = setting(8081, whole(1, 65535), "port of gRPC")
    workers: int = setting(usable_cores(), whole(1, 1024), "worker processes; each has its own copy of the model")
    preload: bool = setting(False, on_off, "`on` loads the model once, before the workers, which then share its memory")
    max_concurrency: int = setting(4, whole(1, 1024), "calls of predict() at once in a worker, for both protocols")
    max_queue: int = setting(64, whole(0, 4096), "requests of a worker that wait for them; more are refused, with 503")
    max_batch_size: int = setting(
        1, whole(1, 65536), "most rows of requests that run as one predict(); 1 is no batching"
    )
    max_batch_delay_ms: float = setting(0, time_in("milliseconds"), "milliseconds that a batch waits for more")
    request_timeout: float = setting(
        0,
        time_in("seconds"),
        "seconds that a request may take: one that cannot be answered by then is not begun; 0 is for ever",
    )
    keepalive: int = setting(75, whole(1, 86400), "seconds that an idle REST connection is kept open")
    grpc_max_connection_age: float = setting(
        0,
        time_in("seconds"),
        "seconds after which a gRPC connection takes no new call, so that its client makes another; 0 is never",
    )
    drain_seconds: float = setting(
        5, time_in("seconds"), "seconds between not being ready and taking no new work, on SIGTERM"
    )
    graceful_timeout: int = setting(30, whole(0, 86400), "seconds after those that running requests get to finish")
    max_request_bytes: int = setting(
        64 * 2**20, whole(1, 2**31 - 1), "largest request, in bytes, after decompression; both protocols"
    )
    model_name: str | None = setting(None, str, "name to serve the model under, in place of METADATA's")
    model_version: str | None = setting(None, str, "version to serve it as, in place of METADATA's")
    model_dir: Path = setting(ROOT / "model", folder, "folder that load() reads the model from")
    json_nonfinite: str = setting(
        "error", one_of("error", "null"), "what becomes of ±Infinity in a JSON response: an `error`, or `null`"
    )
    ui: bool = setting(True, on_off, "`off` serves no pages for people: no model's page at /, no Swagger UI")
    log_level: str = setting(
        "INFO", one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "least severity that is logged"
    )
    log_format: str = setting("text", one_of("text", "json"), "form of the log: `text`, or `json`, an object a line")
    tls_cert: Path | None = setting(
        None, readable, "PEM file of the certificate and its chain: both protocols speak TLS only"
    )
    tls_key: Path | None = setting(None, readable, "PEM file of its private key")
    tls_client_ca: Path | None = setting(
        None, readable, "PEM file of authorities: every client must show a certificate of theirs, probes too"
    )
    api_keys_file: Path | None = setting(
        None, readable, "file of API keys, one a line: whatever is no probe and no metrics needs one"
    )
    disable_optimizations: frozenset[str] = setting(
        frozenset(),
        optimizations,
        "optimizations to switch off, separated by commas, to find out whether one is at fault",
    )

    def model_file(self, name: str) -> Path:
        """Return the path of a file in MODEL_DIR. Raise SetupError if it does not exist."""
        path = self.model_dir / name
        if not path.exists():
            raise SetupError(f"there is no {path}: put the model there, or set MODEL_DIR to the folder that has it")
        return path

    @property
    def threads(self) -> int:
        """A worker's threads per protocol: for all requests that may run or wait, and some that need no model."""
        return self.max_concurrency * self.max_batch_size + self.max_queue + SPARE_THREADS

    def address(self, port: int) -> str:
        """Return HOST:PORT, with an IPv6 address in brackets."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def here(self) -> Settings:
        """Return the settings with a HOST under which this machine reaches the service."""
        return replace(self, host="127.0.0.1") if self.host in EVERYWHERE else self

    @property
    def url(self) -> str:
        return f"{'https' if self.tls_cert else 'http'}://{self.address(self.http_port)}"


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings from `environ`. An empty variable counts as unset. Raise SetupError with all invalid values."""
    values, faults = {}, []
    for each in fields(Settings):
        variable = each.name.upper()
        if text := environ.get(variable, "").strip():
            try:
                values[each.name] = each.metadata["parse"](text)
            except ValueError as error:
                faults.append(f"{variable}={text!r}: expected {error}")
    settings = Settings(**values)
    if not faults and settings.http_port == settings.grpc_port:
        faults.append(f"GRPC_PORT={settings.grpc_port}: REST has this port (HTTP_PORT); give each its own")
    if faults:
        raise SetupError("; ".join(faults))
    check_files(settings)
    return settings


def without_effect(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Return variables that change nothing, or less than they say, each with the reason and the remedy."""
    for variable, name in misspelt(os.environ):
        yield variable, "no setting is called so", f"is it {name}?"
    if settings.max_batch_delay_ms and settings.max_batch_size == 1:
        yield "MAX_BATCH_DELAY_MS", "nothing is batched", "set MAX_BATCH_SIZE, too"
    if settings.max_queue + 1 < settings.max_batch_size:
        largest = settings.max_queue + 1
        yield "MAX_BATCH_SIZE", f"a batch gets {largest} requests at most, one and MAX_QUEUE", "raise MAX_QUEUE, too"


def misspelt(environ: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return variables that nearly have the name of a setting, each with the setting."""
    names = [each.name.upper() for each in fields(Settings)]
    long = [name for name in names if len(name) > 4]  # HOST and UI are near to too much
    unknown = [variable for variable, value in environ.items() if value.strip() and variable not in names]
    return [(variable, name) for variable in unknown for name in get_close_matches(variable, long, 1, CLOSE)]


def check_files(settings: Settings) -> None:
    """Raise SetupError if the files for TLS or API keys are invalid or incomplete."""
    cert, key, client_ca = settings.tls_cert, settings.tls_key, settings.tls_client_ca
    if cert and key:
        server_context(cert, key, client_ca)
    elif cert or key or client_ca:
        missing = " and ".join(name for name, path in (("TLS_CERT", cert), ("TLS_KEY", key)) if not path)
        raise SetupError(f"{missing}: not set; TLS takes a certificate, TLS_CERT, and its private key, TLS_KEY")
    if settings.api_keys_file:
        read_keys(settings.api_keys_file)
