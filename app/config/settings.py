"""Settings from environment variables, validated at startup.

A field of Settings defines a setting: its default, its parser and its documentation. The command
line, the tests of docs/configuration.md and those of the Helm chart read them from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from app.config.api_keys import read_keys
from app.config.parsers import (
    Names,
    Number,
    OneOf,
    WholeNumber,
    address,
    directory,
    on_off,
    readable_file,
    writable_directory,
)
from app.config.resources import usable_cores
from app.config.tls import server_context
from app.protocol.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
OPTIMIZATIONS = {
    "fast_path",
    "fast_validation",
    "grpc_pool",
    "metric_compaction",
    "raw_tensors",
    "rolling_reload",
    "simdjson",
    "worker",
}
# Former names of settings. Not listed: names of several words that are a prefix of the new name.
_RENAMED = {
    "DRAIN_SECONDS": "SHUTDOWN_DELAY_SECONDS",
    "GRACEFUL_TIMEOUT": "SHUTDOWN_TIMEOUT_SECONDS",
    "KEEPALIVE": "KEEPALIVE_SECONDS",
    "UI": "UI_ENABLED",
}
# The share of equal characters from which a variable is probably a misspelled setting.
_MIN_SIMILARITY = 0.85

_duration = Number(0, 999_999)
_port = WholeNumber(1, 65535)
_byte_count = WholeNumber(1, 2**31 - 1)
_devices = Names("[0-9]+|(GPU|MIG)-.+", "indexes or UUIDs of GPUs, such as 0,1")
_optimizations = Names("|".join(OPTIMIZATIONS), f"names from {', '.join(sorted(OPTIMIZATIONS))}")
_origins = Names(
    r"\*"
    r"|(?!http://.*:80$|https://.*:443$)"
    r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+])(:[0-9]{1,5})?",
    "* or origins such as https://app.example.com, in lower case, without a path and a default"
    " port",
)
_tensor_names = Names(".+", expected="", separator=r"\s*,\s*")


def setting(default: Any, parse: Callable[[str], Any], doc: str, *, is_path: bool = False) -> Any:
    """Return the field of a setting with its parser (parsers.py) and its documentation."""
    return field(default=default, metadata={"parse": parse, "doc": doc, "is_path": is_path})


def path_setting(default: Path | None, parse: Callable[[str], Path], doc: str) -> Any:
    """Return the field of a setting that is a path of a file or directory.

    The serve command makes a relative path absolute before it changes the working directory.
    """
    return setting(default, parse, doc, is_path=True)


@dataclass(frozen=True)
class Settings:
    """All settings. The environment variable of a field is its name in capitals."""

    host: str = setting(
        "127.0.0.1",
        address,
        "Address that both servers listen on. `0.0.0.0` accepts other machines, `::` also IPv6",
    )
    http_port: int = setting(8080, _port, "Port of the REST server")
    grpc_port: int = setting(8081, _port, "Port of the gRPC server")
    workers: int = setting(
        usable_cores(), WholeNumber(1, 1024), "Worker processes. Each loads a copy of the model"
    )
    devices: tuple[str, ...] = setting((), _devices, "GPUs, such as `0,1`. Each worker uses one")
    max_concurrency: int = setting(
        4, WholeNumber(1, 1024), "Maximum concurrent calls of predict() per worker"
    )
    max_queue_size: int = setting(
        64,
        WholeNumber(0, 4096),
        "Maximum queued requests per worker, or 0. Others get status 503",
    )
    max_batch_size: int = setting(
        1, WholeNumber(1, 65536), "Maximum rows of a batch of requests. 1 disables batching"
    )
    max_batch_delay_ms: float = setting(
        0, _duration, "Milliseconds to wait for more requests for a batch"
    )
    request_timeout_seconds: float = setting(
        0, _duration, "Seconds until a queued request times out. 0 disables it"
    )
    predict_timeout_seconds: float = setting(
        0, _duration, "Seconds until a running predict() times out. 0 disables it"
    )
    keepalive_seconds: int = setting(
        75, WholeNumber(1, 86400), "Seconds until an idle REST connection is closed"
    )
    grpc_max_connection_age_seconds: float = setting(
        0, _duration, "Seconds until gRPC connections close. 0 disables it"
    )
    health_check_interval_seconds: float = setting(
        10, _duration, "Seconds between calls of is_healthy(). 0 disables it"
    )
    shutdown_delay_seconds: float = setting(
        5, _duration, "Seconds to keep accepting requests after SIGTERM"
    )
    shutdown_timeout_seconds: int = setting(
        30, WholeNumber(0, 86400), "Seconds to complete requests after the delay"
    )
    max_request_bytes: int = setting(
        64 * 2**20, _byte_count, "Maximum request size after decompression"
    )
    memory_limit_bytes: int = setting(
        0,
        WholeNumber(0, 2**63),
        "Memory for all workers. 0: that of the container",
    )
    model_name: str | None = setting(None, str, "Name of the model in URLs and requests")
    model_version: str | None = setting(None, str, "Version of the model in URLs and requests")
    model_dir: Path = path_setting(
        ROOT / "model", directory, "Directory of the files that load() reads"
    )
    json_nonfinite: str = setting(
        "error",
        OneOf("error", "null"),
        "±Infinity in JSON responses: `error` or `null`. No effect on NaN",
    )
    ui_enabled: bool = setting(True, on_off, "Model page and Swagger UI: `on` or `off`")
    log_level: str = setting(
        "INFO", OneOf("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "Minimum log level"
    )
    log_format: str = setting(
        "text", OneOf("text", "json"), "Format of log messages: `text` or `json`"
    )
    tls_cert_file: Path | None = path_setting(
        None, readable_file, "PEM file of the certificate chain. Enables TLS"
    )
    tls_key_file: Path | None = path_setting(None, readable_file, "PEM file of the private key")
    tls_client_ca_file: Path | None = path_setting(
        None, readable_file, "PEM file of the CAs for client certificates"
    )
    api_keys_file: Path | None = path_setting(
        None, readable_file, "File with one API key per line. Enables API keys"
    )
    cors_origins: tuple[str, ...] = setting(
        (), _origins, "Origins of pages that can call REST, or `*`"
    )
    capture_dir: Path | None = path_setting(
        None, writable_directory, "Directory for captured requests"
    )
    capture_sample_rate: float = setting(1, Number(0, 1), "Share of inference requests to capture")
    capture_max_bytes: int = setting(100 * 2**20, _byte_count, "Maximum size of a capture file")
    capture_redact: tuple[str, ...] = setting(
        (), _tensor_names, "Tensors to capture without their data"
    )
    disable_optimizations: tuple[str, ...] = setting((), _optimizations, "Optimizations to disable")

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
        """Return the threads per worker and protocol: one per running or queued inference request,
        and 4 for other requests.
        """
        return self.max_concurrency * self.max_batch_size + self.max_queue_size + 4

    def address(self, port: int) -> str:
        """Return HOST:PORT, with an IPv6 address in brackets."""
        if ":" in self.host:
            return f"[{self.host}]:{port}"
        return f"{self.host}:{port}"

    @property
    def is_local(self) -> bool:
        """True if only clients on this machine can connect."""
        return self.host.startswith("127.") or self.host in ("::1", "localhost")

    def with_local_host(self) -> Settings:
        """Return the settings with a HOST to which clients on this machine can connect."""
        if self.host in ("0.0.0.0", "::"):
            return replace(self, host="127.0.0.1")
        return self

    @property
    def url(self) -> str:
        """The URL of the REST server at HOST."""
        scheme = "https" if self.tls_cert_file else "http"
        return f"{scheme}://{self.address(self.http_port)}"


# The fields of Settings by their environment variables.
_FIELDS: dict[str, Field[Any]] = {
    settings_field.name.upper(): settings_field for settings_field in fields(Settings)
}


def read_settings(environ: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings. Ignore empty variables.

    Raise ConfigurationError with all invalid values. Files for TLS and API keys are read, too, so
    that errors in them are found at startup.
    """
    values: dict[str, Any] = {}
    problems = []
    for variable, settings_field in _FIELDS.items():
        text = environ.get(variable, "").strip()
        if not text:
            continue
        try:
            values[settings_field.name] = settings_field.metadata["parse"](text)
        except ValueError as error:
            problem = f"{variable}: invalid value. Expected {error}"
            if variable != "API_KEYS_FILE":  # may contain a key by mistake
                problem += f", got {text!r}"
            problems.append(f"{problem}.")

    if "devices" in values:
        values.setdefault("workers", len(values["devices"]))
    settings = Settings(**values)
    if not problems and settings.http_port == settings.grpc_port:
        problems.append(
            f"GRPC_PORT={settings.grpc_port}: also the value of HTTP_PORT."
            " Expected different ports."
        )
    if problems:
        raise ConfigurationError(" ".join(problems))

    _check_tls_files(settings)
    _check_api_keys_file(settings)
    return settings


def _check_tls_files(settings: Settings) -> None:
    """Raise ConfigurationError if a file for TLS is missing or invalid."""
    cert = settings.tls_cert_file
    key = settings.tls_key_file
    client_ca = settings.tls_client_ca_file
    if cert and key:
        server_context(cert, key, client_ca)
        return
    if not (cert or key or client_ca):
        return

    missing = []
    if cert is None:
        missing.append("TLS_CERT_FILE")
    if key is None:
        missing.append("TLS_KEY_FILE")
    raise ConfigurationError(
        f"{' and '.join(missing)}: missing value. TLS needs a certificate and its private key."
    )


def _check_api_keys_file(settings: Settings) -> None:
    """Raise ConfigurationError if the file of API keys has no key or an invalid key."""
    if settings.api_keys_file is not None:
        read_keys(settings.api_keys_file)


# The settings of the application that create_app() has created last in this process.
_active: Settings | None = None


def use_settings(settings: Settings) -> None:
    """Make these the settings of this process, for model_file() and read_settings() of app.api."""
    global _active
    _active = settings


def active_settings() -> Settings:
    """Return the settings of this process.

    Without an application, read those of the environment.
    """
    if _active is None:
        return read_settings()
    return _active


def changed_settings(settings: Settings, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that change a setting, with their values. None of them is a secret."""
    changes = {}
    for variable, settings_field in _FIELDS.items():
        text = environ.get(variable, "").strip()
        if text and getattr(settings, settings_field.name) != settings_field.default:
            changes[variable] = text
    return changes


def find_warnings(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Yield a warning for each variable that is probably a misspelled setting, and for each setting
    without effect.
    """
    for variable, text in environ.items():
        is_set = bool(text.strip())
        if is_set and variable not in _FIELDS:
            for name in _similar_settings(variable):
                yield f"Unknown setting {variable}. Did you mean {name}?"
    if environ.get("SCRIPT_NAME", "").strip():
        yield "SCRIPT_NAME has no effect. Let the proxy remove the path prefix."

    if settings.max_batch_delay_ms and settings.max_batch_size == 1:
        yield "MAX_BATCH_DELAY_MS has no effect. Set MAX_BATCH_SIZE, too."
    if settings.max_batch_size > 1 and not settings.max_queue_size:
        yield "MAX_BATCH_SIZE has no effect with MAX_QUEUE_SIZE=0. Waiting requests form batches."
    devices = len(settings.devices)
    if devices > settings.workers:
        yield (
            f"DEVICES has {devices} devices, but WORKERS is {settings.workers}. Increase WORKERS."
        )


def _similar_settings(variable: str) -> list[str]:
    """Return the settings that the user of an unknown variable may have meant.

    - A setting that had this name before.
    - Settings whose names start with it: TLS_KEY_FILE for TLS_KEY. A single word, such as MODEL,
      is not enough.
    - The setting with the most similar name: GRPC_PORT for GRPC_PROT.
    """
    if variable in _RENAMED:
        return [_RENAMED[variable]]
    if "_" in variable:
        longer_names = [name for name in _FIELDS if name.startswith(f"{variable}_")]
        if longer_names:
            return longer_names
    return get_close_matches(variable, _FIELDS, n=1, cutoff=_MIN_SIMILARITY)
