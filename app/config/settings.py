"""Settings from environment variables, validated at startup."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.config.api_keys import read_keys
from app.config.resources import usable_cores
from app.config.tls import server_context
from app.protocol.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
OPTIMIZATIONS = {"fast_path", "fast_validation", "simdjson", "grpc_pool", "raw_tensors", "worker"}
OPTIMIZATIONS |= {"rolling_reload", "metric_compaction"}
# Former names of settings. Not listed: names of several words that are a prefix of the new name.
RENAMED = {
    "DRAIN_SECONDS": "SHUTDOWN_DELAY_SECONDS",
    "GRACEFUL_TIMEOUT": "SHUTDOWN_TIMEOUT_SECONDS",
}
RENAMED |= {"KEEPALIVE": "KEEPALIVE_SECONDS", "UI": "UI_ENABLED"}
SWITCH = {
    "on": True,
    "1": True,
    "true": True,
    "yes": True,
    "off": False,
    "0": False,
    "false": False,
    "no": False,
}


def number(kind: type[int] | type[float], low: int, high: int) -> Callable[[str], float]:
    """Return a parser for numbers from `low` to `high`."""

    def parse(text: str) -> float:
        with suppress(ValueError):
            if low <= kind(text) <= high:
                return kind(text)
        raise ValueError(f"a {'whole ' * (kind is int)}number from {low} to {high}")

    return parse


duration = number(float, 0, 999_999)


def one_of(*choices: str) -> Callable[[str], str]:
    """Return a case-insensitive parser for `choices`."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise ValueError(" or ".join(choices))

    return parse


def on_off(text: str) -> bool:
    if text.lower() not in SWITCH:
        raise ValueError("on or off")
    return SWITCH[text.lower()]


def names(
    pattern: str, expected: str, separator: str = r"[,\s]+"
) -> Callable[[str], tuple[str, ...]]:
    """Return a parser for one or several names that match `pattern`."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(re.split(separator, text.strip(", ")))
        if not all(re.fullmatch(pattern, each) for each in found):
            raise ValueError(expected)
        return found

    return parse


ORIGINS = names(
    r"\*|(?!http://.*:80$|https://.*:443$)[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+])(:[0-9]{1,5})?",
    "* or origins such as https://app.example.com, in lower case, without a path and a default port",
)
OPTIMIZATION_NAMES = names(
    "|".join(OPTIMIZATIONS), f"names from {', '.join(sorted(OPTIMIZATIONS))}"
)
DEVICES = names("[0-9]+|(GPU|MIG)-.+", "indexes or UUIDs of GPUs, such as 0,1")


def address(text: str) -> str:
    """Validate an IP address or a host name."""
    try:
        socket.getaddrinfo(text, None)
    except (OSError, UnicodeError):
        raise ValueError("an address of this machine, such as 0.0.0.0, 127.0.0.1 or ::") from None
    return text


def directory(text: str, access: int = os.F_OK) -> Path:
    if not (os.path.isdir(text) and os.access(text, access)):
        raise ValueError(f"a directory that exists{' and is writable' * (access == os.W_OK)}")
    return Path(text).resolve()


def readable_file(text: str) -> Path:
    """Parse the path of a file. Do not resolve links, because Kubernetes updates a secret by replacing links."""
    if not (os.path.isfile(text) and os.access(text, os.R_OK)):
        raise ValueError("a file that exists and that this user may read")
    return Path(text).absolute()


def setting(default: Any, parse: Callable[[str], Any], doc: str) -> Any:
    return field(default=default, metadata={"parse": parse, "doc": doc})


@dataclass(frozen=True)
class Settings:
    """All settings. The environment variable of a field is its name in capitals."""

    host: str = setting(
        "0.0.0.0", address, "Address that both servers listen on. `::` is for IPv4 and IPv6"
    )
    http_port: int = setting(8080, number(int, 1, 65535), "Port of the REST server")
    grpc_port: int = setting(8081, number(int, 1, 65535), "Port of the gRPC server")
    workers: int = setting(
        usable_cores(), number(int, 1, 1024), "Worker processes. Each loads a copy of the model"
    )
    devices: tuple[str, ...] = setting((), DEVICES, "GPUs, such as `0,1`. Each worker uses one")
    max_concurrency: int = setting(
        4, number(int, 1, 1024), "Maximum concurrent calls of predict() per worker"
    )
    max_queue_size: int = setting(
        64, number(int, 0, 4096), "Maximum queued requests per worker, or 0. Others get status 503"
    )
    max_batch_size: int = setting(
        1, number(int, 1, 65536), "Maximum rows of a batch of requests. 1 disables batching"
    )
    max_batch_delay_ms: float = setting(
        0, duration, "Milliseconds to wait for more requests for a batch"
    )
    request_timeout_seconds: float = setting(
        0, duration, "Seconds until a queued request times out. 0 disables it"
    )
    predict_timeout_seconds: float = setting(
        0, duration, "Seconds until a running predict() times out. 0 disables it"
    )
    keepalive_seconds: int = setting(
        75, number(int, 1, 86400), "Seconds until an idle REST connection is closed"
    )
    grpc_max_connection_age_seconds: float = setting(
        0, duration, "Seconds until gRPC connections close. 0 disables it"
    )
    health_check_interval_seconds: float = setting(
        10, duration, "Seconds between calls of is_healthy(). 0 disables it"
    )
    shutdown_delay_seconds: float = setting(
        5, duration, "Seconds to keep accepting requests after SIGTERM"
    )
    shutdown_timeout_seconds: int = setting(
        30, number(int, 0, 86400), "Seconds to complete requests after the delay"
    )
    max_request_bytes: int = setting(
        64 * 2**20, number(int, 1, 2**31 - 1), "Maximum request size after decompression"
    )
    model_name: str | None = setting(None, str, "Name of the model in URLs and requests")
    model_version: str | None = setting(None, str, "Version of the model in URLs and requests")
    model_dir: Path = setting(ROOT / "model", directory, "Directory of the files that load() reads")
    json_nonfinite: str = setting(
        "error",
        one_of("error", "null"),
        "±Infinity in JSON responses: `error` or `null`. No effect on NaN",
    )
    ui_enabled: bool = setting(True, on_off, "Model page and Swagger UI: `on` or `off`")
    log_level: str = setting(
        "INFO", one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "Minimum log level"
    )
    log_format: str = setting(
        "text", one_of("text", "json"), "Format of log messages: `text` or `json`"
    )
    tls_cert_file: Path | None = setting(
        None, readable_file, "PEM file of the certificate chain. Enables TLS"
    )
    tls_key_file: Path | None = setting(None, readable_file, "PEM file of the private key")
    tls_client_ca_file: Path | None = setting(
        None, readable_file, "PEM file of the CAs for client certificates"
    )
    api_keys_file: Path | None = setting(
        None, readable_file, "File with one API key per line. Enables API keys"
    )
    cors_origins: tuple[str, ...] = setting(
        (), ORIGINS, "Origins of pages that can call REST, or `*`"
    )
    capture_dir: Path | None = setting(
        None, lambda text: directory(text, os.W_OK), "Directory for captured requests"
    )
    capture_sample_rate: float = setting(
        1, number(float, 0, 1), "Share of inference requests to capture"
    )
    capture_max_bytes: int = setting(
        100 * 2**20, number(int, 1, 2**31 - 1), "Maximum size of a capture file"
    )
    capture_redact: tuple[str, ...] = setting(
        (), names(".+", "", r"\s*,\s*"), "Tensors to capture without their data"
    )
    disable_optimizations: tuple[str, ...] = setting(
        (), OPTIMIZATION_NAMES, "Optimizations to disable"
    )

    def model_file(self, name: str) -> Path:
        """Return the path of a file in MODEL_DIR. Raise ConfigurationError if it does not exist."""
        path = self.model_dir / name
        if not path.exists():
            raise ConfigurationError(
                f"{path}: file not found. Put the model there or set MODEL_DIR to its directory."
            )
        return path

    def is_enabled(self, optimization: str) -> bool:
        """Return True unless DISABLE_OPTIMIZATIONS contains the name."""
        return optimization not in self.disable_optimizations

    @property
    def threads(self) -> int:
        """Return the threads per worker and protocol: one per running or queued request, and 4 for other requests."""
        return self.max_concurrency * self.max_batch_size + self.max_queue_size + 4

    def address(self, port: int) -> str:
        """Return HOST:PORT, with an IPv6 address in brackets."""
        return f"[{self.host}]:{port}" if ":" in self.host else f"{self.host}:{port}"

    def with_local_host(self) -> Settings:
        """Return the settings with a HOST to which clients on this machine can connect."""
        return replace(self, host="127.0.0.1") if self.host in ("0.0.0.0", "::") else self

    @property
    def url(self) -> str:
        return f"{'https' if self.tls_cert_file else 'http'}://{self.address(self.http_port)}"


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. Ignore empty variables. Raise ConfigurationError with all invalid values."""
    values, faults = {}, []
    for each in fields(Settings):
        variable = each.name.upper()
        if text := environ.get(variable, "").strip():
            try:
                values[each.name] = each.metadata["parse"](text)
            except ValueError as error:
                value = (
                    "" if variable == "API_KEYS_FILE" else f", got {text!r}"
                )  # may be a key by mistake
                faults.append(f"{variable}: invalid value. Expected {error}{value}.")
    settings = Settings(
        **{"workers": len(values["devices"]), **values} if "devices" in values else values
    )
    if not faults and settings.http_port == settings.grpc_port:
        faults.append(
            f"GRPC_PORT={settings.grpc_port}: also the value of HTTP_PORT. Expected different ports."
        )
    if faults:
        raise ConfigurationError(" ".join(faults))
    cert, key, client_ca = (
        settings.tls_cert_file,
        settings.tls_key_file,
        settings.tls_client_ca_file,
    )
    if cert and key:
        server_context(cert, key, client_ca)
    elif cert or key or client_ca:
        missing = " and ".join(
            name for name, path in (("TLS_CERT_FILE", cert), ("TLS_KEY_FILE", key)) if not path
        )
        raise ConfigurationError(
            f"{missing}: missing value. TLS needs a certificate and its private key."
        )
    if settings.api_keys_file:
        read_keys(settings.api_keys_file)
    return settings


# The settings of the application that create_app() has created last in this process.
_active: Settings | None = None


def use_settings(settings: Settings) -> None:
    """Make these the settings of this process, for model_file() and read_settings() of app.api."""
    global _active
    _active = settings


def active_settings() -> Settings:
    """Return the settings of this process. Without an application, read those of the environment."""
    if _active is None:
        return read_settings()
    return _active


def changed_settings(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that change a setting, with their values. None of them is a secret."""
    changes = {}
    for field_ in fields(Settings):
        variable = field_.name.upper()
        text = environ.get(variable, "").strip()
        if text and getattr(settings, field_.name) != field_.default:
            changes[variable] = text
    return changes


def find_warnings(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield a warning for each variable whose name resembles a setting, and for settings without effect."""
    known = [each.name.upper() for each in fields(Settings)]
    for variable in [
        name for name, value in environ.items() if value.strip() and name not in known
    ]:
        renamed = [RENAMED[variable]] if variable in RENAMED else []
        longer = [name for name in known if "_" in variable and name.startswith(f"{variable}_")]
        for name in renamed or longer or get_close_matches(variable, known, 1, 0.85):
            yield f"Unknown setting {variable}. Did you mean {name}?"
    if settings.max_batch_delay_ms and settings.max_batch_size == 1:
        yield "MAX_BATCH_DELAY_MS has no effect. Set MAX_BATCH_SIZE, too."
    if settings.max_batch_size > 1 and not settings.max_queue_size:
        yield "MAX_BATCH_SIZE has no effect with MAX_QUEUE_SIZE=0. Waiting requests form batches."
    if len(settings.devices) > settings.workers:
        yield f"DEVICES has {len(settings.devices)} devices, but WORKERS is {settings.workers}. Increase WORKERS."
