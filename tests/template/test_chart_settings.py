"""deploy/helm: the chart has the same settings as the service, with the same types."""

from __future__ import annotations

import json
import re
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from app.config.settings import Settings, on_off, usable_cores

from .helm import Helm
from .manifests import CHART, DEPLOY, Render, container_of, environment, pod_of

# The chart sets these itself. TLS_CLIENT_CA_FILE is excluded because the kubelet has no client certificate.
OF_THE_CHART = {
    "HTTP_PORT",
    "GRPC_PORT",
    "DEVICES",
    "MODEL_DIR",
    "TLS_CERT_FILE",
    "TLS_KEY_FILE",
    "TLS_CLIENT_CA_FILE",
    "API_KEYS_FILE",
}
SETTINGS = {setting.name.upper(): setting for setting in fields(Settings)}
OWN = SETTINGS.keys() - OF_THE_CHART
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# If a setting is null, the image's value applies. The image sets LOG_FORMAT.
IMAGE = dict(
    re.findall(r"^(?:ENV| {3}) (\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
)
# Values around the limits of the settings, and values that are invalid for some or all.
PARTS = [0.5, 1 / 3, 1e-7]
NUMBERS = [
    -1,
    0,
    1,
    2,
    *PARTS,
    1024,
    1025,
    4096,
    4097,
    65536,
    65537,
    86400,
    86401,
    999999,
    10**6,
    2**31 - 1,
    2**31,
]
TEXTS = [
    "",
    "1",
    "x",
    "on",
    "off",
    "ON",
    "error",
    "null",
    "text",
    "json",
    "INFO",
    "info",
    "::",
    "no address",
    "worker",
]
TEXTS += ["*", "http://localhost:3000"]


def of_schema(name: str) -> dict[str, Any]:
    return SCHEMA["properties"]["config"]["properties"][name]


def rendered(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_chart_has_every_setting():
    """values.yaml and its schema contain the settings of settings.py, except those that the chart sets itself."""
    assert VALUES["config"].keys() == OWN
    assert SCHEMA["properties"]["config"]["properties"].keys() == OWN
    assert SETTINGS.keys() > OF_THE_CHART


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_rejects_duplicate_variables(helm: Helm, name: str):
    """extraEnv rejects variables that the chart sets, and accepts a setting only if `config` does not set it."""
    done = helm(
        "template", "demo", CHART, "--set-string", f"extraEnv[0].name={name},extraEnv[0].value=1"
    )
    is_rejected = name in OF_THE_CHART or VALUES["config"][name] is not None
    assert bool(done.returncode) == is_rejected
    assert (f"extraEnv: {name} " in done.stderr) == is_rejected


@pytest.mark.parametrize("name", sorted(OWN))
def test_comments_match_service_settings(name: str):
    """Each comment contains the description in settings.py, and the default of the image or the service."""
    (comment,) = re.findall(
        rf"^  {name}: \S+  # (.*)$", (CHART / "values.yaml").read_text(), re.MULTILINE
    )
    assert comment == SETTINGS[name].metadata["doc"] + format_default(SETTINGS[name])


def format_default(setting: Field[Any]) -> str:
    if setting.name == "workers":
        assert setting.default == usable_cores()
        return ". Default: resources.limits.cpu, or the node's cores"
    if setting.name in ("model_name", "model_version"):
        return f". Default: {setting.name.removeprefix('model_')} in METADATA"
    words = {True: "on", False: "off"} if setting.metadata["parse"] is on_off else {}
    default = IMAGE.get(setting.name.upper(), setting.default)
    return "" if default in (None, ()) else f". Default: {words.get(default, default)}"


@pytest.mark.parametrize("name", sorted(OWN))
def test_schema_matches_service(name: str):
    """The schema and the service accept the same numbers, and every text that the schema accepts is valid."""
    valid, parse = Draft7Validator(of_schema(name)).is_valid, SETTINGS[name].metadata["parse"]
    for value in [*NUMBERS, *TEXTS, True, False]:
        try:
            parse(rendered(value))
            taken = True
        except ValueError:
            taken = False
        if isinstance(value, str) or of_schema(name).get("type") == ["string", "null"]:
            assert taken or not value or name == "HOST" or not valid(value), value
        elif not isinstance(value, bool) and parse is not on_off:
            assert valid(value) == taken, value
    assert any(valid(value) for value in [*NUMBERS, *TEXTS, True])
    default = VALUES["config"][name]
    assert default in (None, SETTINGS[name].default, IMAGE.get(name))


def test_settings_reach_the_service(render: Render):
    """Each setting becomes a variable that the service parses to the same value."""
    values = {
        "HOST": "::",
        "WORKERS": 3,
        "MAX_CONCURRENCY": 5,
        "MAX_QUEUE_SIZE": 0,
        "MAX_BATCH_SIZE": 8,
        "MAX_BATCH_DELAY_MS": 2.5,
        "REQUEST_TIMEOUT_SECONDS": 0.0000001,
        "PREDICT_TIMEOUT_SECONDS": 90,
        "KEEPALIVE_SECONDS": 60,
        "GRPC_MAX_CONNECTION_AGE_SECONDS": 0.5,
        "HEALTH_CHECK_INTERVAL_SECONDS": 2.5,
        "SHUTDOWN_DELAY_SECONDS": 0,
        "SHUTDOWN_TIMEOUT_SECONDS": 86400,
        "MAX_REQUEST_BYTES": 2**31 - 1,
        "MEMORY_LIMIT_BYTES": 2**36,
        "MODEL_NAME": "iris",
        "MODEL_VERSION": "007",
        "JSON_NONFINITE": "null",
        "UI_ENABLED": False,
        "LOG_LEVEL": "DEBUG",
        "LOG_FORMAT": "json",
        "CORS_ORIGINS": "https://app.example.com http://[::1]:3000",
        "CAPTURE_DIR": "/tmp",
        "CAPTURE_SAMPLE_RATE": 0.25,
        "CAPTURE_MAX_BYTES": 2**20,
        "CAPTURE_REDACT": "name, address",
        "DISABLE_OPTIMIZATIONS": "simdjson, worker",
    }
    assert values.keys() == OWN
    env = environment(container_of(render(config=values)))
    parsed = {name: SETTINGS[name].metadata["parse"](env[name]) for name in OWN}
    lists = "CORS_ORIGINS", "CAPTURE_REDACT", "DISABLE_OPTIMIZATIONS"
    names = {name: tuple(re.split(",? ", str(values[name]))) for name in lists}
    assert parsed == values | names | {"CAPTURE_DIR": Path("/tmp")}


def test_default_environment(render: Render):
    """By default, the chart sets only addresses and the two times that determine the grace period."""
    assert environment(container_of(render())) == {
        "HOST": "0.0.0.0",
        "HTTP_PORT": str(Settings.http_port),
        "GRPC_PORT": str(Settings.grpc_port),
        "SHUTDOWN_DELAY_SECONDS": str(Settings.shutdown_delay_seconds),
        "SHUTDOWN_TIMEOUT_SECONDS": str(Settings.shutdown_timeout_seconds),
    }


@pytest.mark.parametrize("seconds", [0, Settings.shutdown_timeout_seconds, 3600])
def test_grace_period_exceeds_request_timeouts(render: Render, seconds: int):
    """The grace period is longer than SHUTDOWN_DELAY_SECONDS and SHUTDOWN_TIMEOUT_SECONDS, and no hook uses it."""
    manifests = render(config={"SHUTDOWN_TIMEOUT_SECONDS": seconds, "SHUTDOWN_DELAY_SECONDS": 7.5})
    assert environment(container_of(manifests))["SHUTDOWN_DELAY_SECONDS"] == "7.5"
    assert pod_of(manifests)["terminationGracePeriodSeconds"] == 8 + seconds + 10
    assert "lifecycle" not in container_of(manifests)


@pytest.mark.parametrize(
    "text",
    [
        'iris: "v\'2" # {{ .Values }}',
        "null",
        "007",
        "1e3",
        "20261121",
        "- é\t✓",
        "\\n",
        "$(HOSTNAME)",
        "a$$b",
    ],
)
def test_model_name_is_passed_unchanged(render: Render, text: str):
    """A model name or version is not interpreted as YAML, as a template or as a Kubernetes variable."""
    env = environment(container_of(render(config={"MODEL_NAME": text, "MODEL_VERSION": text})))
    assert env["MODEL_NAME"].replace("$$", "$") == text
    assert env["MODEL_NAME"].count("$") == 2 * text.count("$")
    assert env["MODEL_VERSION"] == env["MODEL_NAME"]


def test_extra_variables_are_passed_unchanged(render: Render):
    """extraEnv follows the chart's own variables unchanged, and envFrom is set as given."""
    extra = [
        {"name": "JSON_NONFINITE", "value": "null"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    ]
    sources = [{"secretRef": {"name": "cloud"}}]
    container = container_of(render(extraEnv=extra, envFrom=sources))
    assert container["env"][-2:] == extra
    assert container["envFrom"] == sources
