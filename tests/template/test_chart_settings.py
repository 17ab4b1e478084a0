"""deploy/helm: its settings are the service's, every one, and of the same types."""

from __future__ import annotations

import json
import re
from dataclasses import Field, fields
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from app.config import Settings, on_off, usable_cores

from .helm import Helm
from .manifests import CHART, DEPLOY, Render, container_of, environment, pod_of

# What follows from the rest of the chart; TLS_CLIENT_CA_FILE is not for where the kubelet asks.
OF_THE_CHART = {
    "HTTP_PORT",
    "GRPC_PORT",
    "MODEL_DIR",
    "TLS_CERT_FILE",
    "TLS_KEY_FILE",
    "TLS_CLIENT_CA_FILE",
    "API_KEYS_FILE",
}
SETTINGS = {each.name.upper(): each for each in fields(Settings)}
OWN = SETTINGS.keys() - OF_THE_CHART
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# What is null is as the image has it, which sets LOG_FORMAT by itself.
IMAGE = dict(re.findall(r"^(?:ENV| {3}) (\w+)=(\S+)", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))
# About the bounds of every setting, and what is of no use to some or all.
PARTS = [0.5, 1 / 3, 1e-7]
NUMBERS = [-1, 0, 1, 2, *PARTS, 1024, 1025, 4096, 4097, 65536, 65537, 86400, 86401, 999999, 10**6, 2**31 - 1, 2**31]
TEXTS = ["", "1", "x", "on", "off", "ON", "error", "null", "text", "json", "INFO", "info", "::", "no address", "worker"]


def of_schema(name: str) -> dict[str, Any]:
    return SCHEMA["properties"]["config"]["properties"][name]


def rendered(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_the_chart_has_every_setting():
    """values.yaml and its schema have the settings of app/config.py, less those that the chart itself sets."""
    assert VALUES["config"].keys() == OWN
    assert SCHEMA["properties"]["config"]["properties"].keys() == OWN
    assert SETTINGS.keys() > OF_THE_CHART


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_no_variable_is_there_twice(helm: Helm, name: str):
    """extraEnv takes none of what the chart sets, and a setting where `settings` does not have it."""
    done = helm("template", "demo", CHART, "--set-string", f"extraEnv[0].name={name},extraEnv[0].value=1")
    refused = name in OF_THE_CHART or VALUES["config"][name] is not None
    assert bool(done.returncode) == refused
    assert (f"extraEnv: {name} " in done.stderr) == refused


@pytest.mark.parametrize("name", sorted(OWN))
def test_a_setting_is_told_of_as_in_the_service(name: str):
    """The comment has app/config.py's words, and in brackets the image's default, or else the service's."""
    (comment,) = re.findall(rf"^  {name}: \S+  # (.*)$", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert comment == SETTINGS[name].metadata["doc"] + told_default(SETTINGS[name])


def told_default(setting: Field[Any]) -> str:
    if setting.name == "workers":
        assert setting.default == usable_cores()
        return " (as many as resources.limits.cpu, else as the node has processors)"
    told = {True: "on", False: "off"} if setting.metadata["parse"] is on_off else {}
    default = IMAGE.get(setting.name.upper(), setting.default)
    if default is None or default == frozenset():
        return ""
    return f" ({told.get(default, default)})"


@pytest.mark.parametrize("name", sorted(OWN))
def test_the_schema_takes_what_the_service_takes(name: str):
    """A number is valid for the schema where it is for the service; a text, where the schema takes it, is so too."""
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
    assert default is None or default == SETTINGS[name].default


def test_settings_arrive(render: Render):
    """Each setting is a variable that the service reads the same value from."""
    values = {
        "HOST": "::",
        "WORKERS": 3,
        "PRELOAD_MODEL": True,
        "MAX_CONCURRENCY": 5,
        "MAX_QUEUE_SIZE": 0,
        "MAX_BATCH_SIZE": 8,
        "MAX_BATCH_DELAY_MS": 2.5,
        "REQUEST_TIMEOUT_SECONDS": 0.0000001,
        "KEEPALIVE_SECONDS": 60,
        "GRPC_MAX_CONNECTION_AGE_SECONDS": 0.5,
        "SHUTDOWN_DELAY_SECONDS": 0,
        "SHUTDOWN_TIMEOUT_SECONDS": 86400,
        "MAX_REQUEST_BYTES": 2**31 - 1,
        "MODEL_NAME": "iris",
        "MODEL_VERSION": "007",
        "JSON_NONFINITE": "null",
        "UI_ENABLED": False,
        "LOG_LEVEL": "DEBUG",
        "LOG_FORMAT": "json",
        "DISABLE_OPTIMIZATIONS": "simdjson, worker",
    }
    assert values.keys() == OWN
    env = environment(container_of(render(config=values)))
    parsed = {name: SETTINGS[name].metadata["parse"](env[name]) for name in OWN}
    assert parsed == values | {"DISABLE_OPTIMIZATIONS": {"simdjson", "worker"}}


def test_without_settings_the_image_decides(render: Render):
    """No setting is passed on but the ports and the two times that the grace period follows from."""
    assert environment(container_of(render())) == {
        "HTTP_PORT": str(Settings.http_port),
        "GRPC_PORT": str(Settings.grpc_port),
        "SHUTDOWN_DELAY_SECONDS": str(Settings.shutdown_delay_seconds),
        "SHUTDOWN_TIMEOUT_SECONDS": str(Settings.shutdown_timeout_seconds),
    }


@pytest.mark.parametrize("seconds", [0, Settings.shutdown_timeout_seconds, 3600])
def test_pod_outlives_its_requests(render: Render, seconds: int):
    """The grace period is longer than SHUTDOWN_DELAY_SECONDS and SHUTDOWN_TIMEOUT_SECONDS together. No hook uses it."""
    manifests = render(config={"SHUTDOWN_TIMEOUT_SECONDS": seconds, "SHUTDOWN_DELAY_SECONDS": 7.5})
    assert environment(container_of(manifests))["SHUTDOWN_DELAY_SECONDS"] == "7.5"
    assert pod_of(manifests)["terminationGracePeriodSeconds"] == 8 + seconds + 10
    assert "lifecycle" not in container_of(manifests)


@pytest.mark.parametrize(
    "text",
    ['iris: "v\'2" # {{ .Values }}', "null", "007", "1e3", "20261121", "- é\t✓", "\\n", "$(HOSTNAME)", "a$$b"],
)
def test_model_name_arrives_as_it_stands(render: Render, text: str):
    """Nothing in a model's name or version is read as YAML, as a template or as a variable of Kubernetes."""
    env = environment(container_of(render(config={"MODEL_NAME": text, "MODEL_VERSION": text})))
    assert env["MODEL_NAME"].replace("$$", "$") == text
    assert env["MODEL_NAME"].count("$") == 2 * text.count("$")
    assert env["MODEL_VERSION"] == env["MODEL_NAME"]


def test_further_variables_arrive_as_they_stand(render: Render):
    """extraEnv follows the chart's own, untouched, and envFrom is beside it."""
    extra = [
        {"name": "JSON_NONFINITE", "value": "null"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    ]
    sources = [{"secretRef": {"name": "cloud"}}]
    container = container_of(render(extraEnv=extra, envFrom=sources))
    assert container["env"][-2:] == extra
    assert container["envFrom"] == sources
