"""Settings from the environment."""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from app import api, create_app, testing
from app.api import model_file
from app.config.settings import Settings, find_warnings, read_settings
from app.protocol.errors import ConfigurationError
from app.protocol.metadata import MetadataTensor
from tests.kit import models


def test_defaults() -> None:
    """If a variable is not set or is empty, its default applies."""
    assert read_settings({}) == read_settings({"HTTP_PORT": "", "MODEL_NAME": " "}) == Settings()
    assert (Settings().http_port, Settings().grpc_port, Settings().max_request_bytes) == (
        8080,
        8081,
        64 * 2**20,
    )


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("HTTP_PORT", "9000", 9000),
        ("WORKERS", " 2 ", 2),
        ("HOST", "127.0.0.1", "127.0.0.1"),
        ("MODEL_NAME", "other", "other"),
        ("JSON_NONFINITE", "NULL", "null"),
        ("UI_ENABLED", "On", True),
        ("UI_ENABLED", "0", False),
        ("LOG_LEVEL", "debug", "DEBUG"),
        ("MODEL_DIR", "/", Path("/")),
        ("DEVICES", "0, 1", ("0", "1")),
        ("DEVICES", "GPU-8932f937,MIG-GPU-8932f937/1/0", ("GPU-8932f937", "MIG-GPU-8932f937/1/0")),
        ("GRPC_MAX_CONNECTION_AGE_SECONDS", "0.5", 0.5),
        ("HEALTH_CHECK_INTERVAL_SECONDS", "0", 0),
        ("REQUEST_TIMEOUT_SECONDS", "0.3333333333333333", 1 / 3),
        ("MAX_BATCH_DELAY_MS", "1e-07", 1e-7),  # JSON's notation
        ("CORS_ORIGINS", "*", ("*",)),
        (
            "CORS_ORIGINS",
            "https://app.example.com, http://[::1]:3000",
            ("https://app.example.com", "http://[::1]:3000"),
        ),
        ("CAPTURE_DIR", "/tmp", Path("/tmp")),
        ("CAPTURE_SAMPLE_RATE", "0.1", 0.1),
        ("CAPTURE_REDACT", "name, home address", ("name", "home address")),
    ],
)
def test_reads_values(variable: str, text: str, value: object) -> None:
    """A valid value is converted to the type of its setting, in any accepted spelling."""
    assert getattr(read_settings({variable: text}), variable.lower()) == value


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_paths_are_marked(setting: Field[Any]) -> None:
    """A setting is marked as a path, which the serve command makes absolute, if its type contains Path."""
    setting_type = get_type_hints(Settings)[setting.name]
    has_path = Path in (setting_type, *get_args(setting_type))

    assert setting.metadata["is_path"] == has_path


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("HTTP_PORT", "0", "a whole number from 1 to 65535"),
        ("GRPC_PORT", "65536", "a whole number from 1 to 65535"),
        ("WORKERS", "two", "a whole number"),
        ("MAX_CONCURRENCY", "1.5", "a whole number"),
        ("MAX_QUEUE_SIZE", "-1", "a whole number"),
        ("REQUEST_TIMEOUT_SECONDS", "-1", "a number from 0 to 999999"),
        ("SHUTDOWN_DELAY_SECONDS", "soon", "a number"),
        ("SHUTDOWN_DELAY_SECONDS", "nan", "a number"),
        ("SHUTDOWN_DELAY_SECONDS", "1000000", "a number"),
        ("MAX_REQUEST_BYTES", "64MiB", "a whole number"),
        ("SHUTDOWN_TIMEOUT_SECONDS", "9" * 5000, "a whole number"),
        ("KEEPALIVE_SECONDS", "²", "a whole number"),
        ("UI_ENABLED", "perhaps", "on or off"),
        ("HOST", "not an address", "an address"),
        ("JSON_NONFINITE", "nan", "error or null"),
        ("LOG_LEVEL", "loud", "DEBUG or INFO"),
        ("MODEL_DIR", "/no/such/folder", "a directory that exists"),
        (
            "CORS_ORIGINS",
            "https://app.example.com/",
            "origins such as https://app.example.com, in lower case",
        ),
        ("CORS_ORIGINS", "app.example.com", "origins"),
        ("CORS_ORIGINS", "https://*.example.com", "origins"),
        ("CORS_ORIGINS", "https://app.example.com:443", "a default port"),
        ("CORS_ORIGINS", "https://App.example.com", "in lower case"),
        ("CORS_ORIGINS", "null", "origins"),
        ("DEVICES", "cuda:0", "indexes or UUIDs of GPUs"),
        ("DEVICES", ",", "indexes or UUIDs of GPUs"),
        ("CAPTURE_DIR", "/no/such/folder", "a directory that exists and is writable"),
        ("CAPTURE_SAMPLE_RATE", "1.1", "a number from 0 to 1"),
        ("GRPC_PORT", "8080", "also the value of HTTP_PORT"),
    ],
)
def test_rejects_invalid_values(variable: str, text: str, expected: str) -> None:
    """An invalid value is rejected, and the error names the variable and the expected value."""
    with pytest.raises(ConfigurationError, match=f"^{variable}[:=].*{expected}"):
        read_settings({variable: text})


def test_reports_all_invalid_values() -> None:
    """Several invalid values are reported in one error message."""
    with pytest.raises(ConfigurationError, match="HTTP_PORT: .* WORKERS: "):
        read_settings({"HTTP_PORT": "x", "WORKERS": "x"})


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("API_KEY_FILE", "API_KEYS_FILE"),
        ("MAX_CONCURENCY", "MAX_CONCURRENCY"),
        ("WORKER", "WORKERS"),
        ("GRPC_PROT", "GRPC_PORT"),
        ("MAXBATCHSIZE", "MAX_BATCH_SIZE"),
        ("LOG_LEVEK", "LOG_LEVEL"),
        ("API_KEYS", "API_KEYS_FILE"),
        ("DRAIN_SECONDS", "SHUTDOWN_DELAY_SECONDS"),
        ("GRACEFUL_TIMEOUT", "SHUTDOWN_TIMEOUT_SECONDS"),
        ("GRPC_MAX_CONNECTION_AGE", "GRPC_MAX_CONNECTION_AGE_SECONDS"),
        ("KEEPALIVE", "KEEPALIVE_SECONDS"),
        ("MAX_QUEUE", "MAX_QUEUE_SIZE"),
        ("REQUEST_TIMEOUT", "REQUEST_TIMEOUT_SECONDS"),
        ("TLS_CERT", "TLS_CERT_FILE"),
        ("TLS_CLIENT_CA", "TLS_CLIENT_CA_FILE"),
        ("TLS_KEY", "TLS_KEY_FILE"),
        ("UI", "UI_ENABLED"),
        ("MAX_BATCH_DELAY", "MAX_BATCH_DELAY_MS"),
        ("HTTP_PORT_8080_TCP_ADDR", None),
        ("HTTP_PROXY", None),
        ("HOSTNAME", None),
        ("HTTPS_PROXY", None),
        ("HTTP_HOST", None),
        ("GRPC_HOST", None),
        ("WEB_CONCURRENCY", None),
        ("MODEL_URI", None),
        ("PORT", None),
        ("LOG_LEVEL", None),
        ("MODEL", None),
    ],
)
def test_warns_about_misspelled_settings(variable: str, name: str | None) -> None:
    """A variable that resembles a setting causes a warning with the setting's name. Other variables do not."""
    expected = [f"Unknown setting {variable}. Did you mean {name}?"] if name else []
    assert list(find_warnings(Settings(), {variable: "x"})) == expected
    assert not list(find_warnings(Settings(), {variable: ""}))


def test_devices_set_number_of_workers() -> None:
    """WORKERS defaults to the number of DEVICES. A warning shows that some have no worker."""
    assert read_settings({"DEVICES": "0,1,2"}).workers == 3
    fewer = read_settings({"DEVICES": "0,1,2", "WORKERS": "2"})
    assert fewer.workers == 2
    assert list(find_warnings(fewer, {})) == [
        "DEVICES has 3 devices, but WORKERS is 2. Increase WORKERS."
    ]
    assert not list(find_warnings(read_settings({"DEVICES": "0", "WORKERS": "2"}), {}))


def test_warns_of_batches_without_a_queue() -> None:
    """Batches form while requests wait, so MAX_QUEUE_SIZE=0 leaves MAX_BATCH_SIZE without an effect."""
    settings = read_settings({"MAX_BATCH_SIZE": "8", "MAX_QUEUE_SIZE": "0"})
    assert list(find_warnings(settings, {})) == [
        "MAX_BATCH_SIZE has no effect with MAX_QUEUE_SIZE=0. Waiting requests form batches."
    ]
    assert not list(find_warnings(read_settings({"MAX_BATCH_SIZE": "8"}), {}))


def test_finds_model_files(tmp_path: Path) -> None:
    """model_file() returns a path in MODEL_DIR. If the file does not exist, the error has its path and the remedy."""
    settings = read_settings({"MODEL_DIR": str(tmp_path)})
    (tmp_path / "there").touch()
    assert settings.model_file("there") == tmp_path / "there"
    with pytest.raises(
        ConfigurationError,
        match=f"{tmp_path}/missing: file not found. Put the model there or set MODEL_DIR",
    ):
        settings.model_file("missing")


def test_settings_of_application_reach_the_model(tmp_path: Path) -> None:
    """model_file() and read_settings() in predict.py use the settings that create_app() got."""
    (tmp_path / "term.txt").write_text("1.5")
    paths: list[Path] = []

    def load() -> None:
        paths.append(model_file("term.txt"))
        paths.append(api.read_settings().model_dir)

    module = models.model([], [MetadataTensor("y", "FP32", [-1])], lambda model: [1.0], load)
    create_app(Settings(model_dir=tmp_path), module)
    assert paths == [tmp_path / "term.txt", tmp_path]


def test_settings_of_serve_reach_the_model(tmp_path: Path) -> None:
    """app.testing.serve() passes its settings on, too. The next application has its own."""
    module = models.model(
        [],
        [MetadataTensor("y", "FP32", [-1])],
        lambda model: [model],
        lambda: float(model_file("term.txt").read_text()),
    )
    for value in (1.5, 2.5):
        folder = tmp_path / str(value)
        folder.mkdir()
        (folder / "term.txt").write_text(str(value))
        with testing.serve(module, Settings(model_dir=folder)) as infer:
            assert infer()["y"].tolist() == [value]
