"""deploy/helm: what the chart renders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from app import __version__
from app.config import Settings

from .helm import Helm
from .manifests import CHART, Render, assert_probes, assert_restricted, container_of, environment, probes

# The first release with all that the chart uses, and the newest that the validator knows.
KUBERNETES = ["1.25", kubernetes_validate.latest_version()]


def test_chart_passes_helm_lint(helm: Helm):
    """The chart has nothing that `helm lint --strict` warns of."""
    done = helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES)
def test_manifests_are_valid_kubernetes(render: Render, version: str):
    """Every manifest, with every value in use, has no member that Kubernetes does not know, and all it must have."""
    values = {
        "model": {"name": "iris", "version": "2"},
        "env": [
            {"name": "WORKERS", "value": "2"},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "tls": {"secretName": "certificate"},
        "apiKeys": {"secretName": "keys"},
    }
    for manifest in [*render().values(), *render(**values).values()]:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_ports_are_those_of_the_settings(render: Render):
    """Both protocols are reached, through the Service, at the ports that the service listens on by default."""
    manifests = render()
    listening = {"http": Settings().http_port, "grpc": Settings().grpc_port}
    assert {port["name"]: port["containerPort"] for port in container_of(manifests)["ports"]} == listening
    ports = manifests["Service"]["spec"]["ports"]
    assert {port["name"]: port["port"] for port in ports} == listening
    assert [port["targetPort"] for port in ports] == ["http", "grpc"]
    assert [port["appProtocol"] for port in ports] == ["http", "kubernetes.io/h2c"]


def test_service_port_is_free_to_choose(render: Render):
    """Another port of the Service leaves the container's as it is."""
    manifests = render(service={"httpPort": 80})
    assert manifests["Service"]["spec"]["ports"][0]["port"] == 80
    assert container_of(manifests)["ports"][0]["containerPort"] == Settings().http_port


def test_service_selects_the_pods(render: Render):
    """The Service and the Deployment select by labels that the pods bear."""
    manifests = render()
    template = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
    assert manifests["Service"]["spec"]["selector"].items() <= template
    assert manifests["Deployment"]["spec"]["selector"]["matchLabels"].items() <= template


def test_pod_is_restricted(render: Render):
    """The pod runs with no more rights than it needs."""
    assert_restricted(render()["Deployment"]["spec"]["template"]["spec"])


def test_probes_are_distinct(render: Render):
    """Startup and readiness ask whether the model is loaded, liveness whether the process answers."""
    container = container_of(render())
    assert_probes(container)
    assert {probe["httpGet"]["port"] for _, probe in probes(container)} == {"http"}


def test_tls_and_keys_come_from_secrets(render: Render):
    """A Secret of each is mounted where the settings look for it; then the probes ask by HTTPS, with no key."""
    manifests = render(tls={"secretName": "certificate"}, apiKeys={"secretName": "007"})
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    container = container_of(manifests)
    volumes = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    mounts = {each["mountPath"]: volumes.get(each["name"]) for each in container["volumeMounts"]}
    assert mounts == {"/tmp": None, "/etc/service/tls": "certificate", "/etc/service/keys": "007"}
    env = environment(container)
    assert (env["TLS_CERT"], env["TLS_KEY"]) == ("/etc/service/tls/tls.crt", "/etc/service/tls/tls.key")
    assert env["API_KEYS_FILE"] == "/etc/service/keys/keys.txt"
    assert {probe["httpGet"]["scheme"] for _, probe in probes(container)} == {"HTTPS"}
    assert {port["appProtocol"] for port in manifests["Service"]["spec"]["ports"]} == {"https"}
    assert all("scheme" not in probe["httpGet"] for _, probe in probes(container_of(render())))
    assert_restricted(pod)


@pytest.mark.parametrize("seconds", [0, Settings().graceful_timeout, 3600])
def test_pod_outlives_its_requests(render: Render, seconds: int):
    """The grace period leaves room for DRAIN_SECONDS and for GRACEFUL_TIMEOUT."""
    manifests = render(gracefulTimeout=seconds, drainSeconds=7)
    container = container_of(manifests)
    assert environment(container) == {"DRAIN_SECONDS": "7", "GRACEFUL_TIMEOUT": str(seconds)}
    assert manifests["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > seconds + 7


def test_default_values_are_those_of_the_settings(render: Render):
    """Without values the service runs on its own defaults, under its own name for the model."""
    assert environment(container_of(render())) == {
        "DRAIN_SECONDS": str(Settings().drain_seconds),
        "GRACEFUL_TIMEOUT": str(Settings().graceful_timeout),
    }


def test_no_service_of_the_namespace_reaches_the_settings(render: Render):
    """A Service named `http` would else set HTTP_PORT, to an address."""
    assert render()["Deployment"]["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_image_is_of_the_app_version(render: Render):
    """The tag is the service's version, unless given."""
    assert container_of(render())["image"] == f"open-inference-service:{__version__}"
    image = {"repository": "images.example/models/iris", "tag": "2"}
    assert container_of(render(image=image))["image"] == "images.example/models/iris:2"


@pytest.mark.parametrize(
    "text",
    ['iris: "v\'2" # {{ .Values }}', "null", "007", "1e3", "20261121", "- é\t✓", "\\n", "$(HOSTNAME)", "a$$b"],
)
def test_model_name_arrives_as_it_stands(render: Render, text: str):
    """Nothing in a model's name or version is read as YAML, as a template or as a variable of Kubernetes."""
    env = environment(container_of(render(model={"name": text, "version": text})))
    assert env["MODEL_NAME"].replace("$$", "$") == text
    assert env["MODEL_NAME"].count("$") == 2 * text.count("$")
    assert env["MODEL_VERSION"] == env["MODEL_NAME"]


def test_env_arrives_as_it_stands(render: Render):
    """Further variables follow the chart's own, untouched."""
    extra = [
        {"name": "JSON_NONFINITE", "value": "null"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    ]
    assert container_of(render(env=extra))["env"][2:] == extra


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 2},
        {"model": {"nmae": "iris"}},
        {"model": {"version": 2}},
        {"service": {"httpPort": "8080"}},
        {"drainSeconds": None},
        {"gracefulTimeout": None},
        {"securityContext": {"readOnlyRootFileSystem": False}},
        {"podSecurityContext": {"readOnlyRootFilesystem": True}},
        {"probes": {"liveness": {"path": "/"}}},
        {"env": [{"name": "HTTP_PORT", "value": "9000"}]},
        {"env": [{"name": "WORKERS", "value": 2}]},
        {"env": [{"name": "TLS_CLIENT_CA", "value": "/ca.pem"}]},
        {"tls": {"secretName": None}},
        {"apiKeys": {"keys": ["secret"]}},
    ],
    ids=json.dumps,
)
def test_schema_refuses(helm: Helm, tmp_path: Path, values: dict[str, Any]):
    """A value that the chart does not know, or that would not work, is an error that names it."""
    file = tmp_path / "values.json"
    file.write_text(json.dumps(values))
    done = helm("template", "demo", CHART, "--values", file)
    assert done.returncode != 0
    assert next(iter(values)) in done.stderr


def test_names_follow_the_chart(render: Render, tmp_path: Path):
    """Under another chart's name nothing keeps the name of this one: the templates hold none."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    for file in ("Chart.yaml", "values.yaml"):
        text = (chart / file).read_text().replace("open-inference-service", "other")
        (chart / file).write_text(text)
    manifests = render(chart)
    assert {each["metadata"]["name"] for each in manifests.values()} == {"demo-other"}
    assert "open-inference" not in json.dumps(manifests)


def test_notes_name_the_calls(render: Render, tmp_path: Path):
    """The notes after an installation open both ports of the right Service and escape the model's name in its path."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    # helm shows its notes only to a cluster; as a manifest it renders them anywhere.
    manifest = 'apiVersion: v1\nkind: Notes\ntext: {{ include "notes" . | toJson }}\n'
    (chart / "templates" / "notes.yaml").write_text('{{ define "notes" }}' + notes + "{{ end }}\n" + manifest)
    text = render(chart, model={"name": "my model/1"}, service={"httpPort": 80})["Notes"]["text"]
    assert "port-forward service/demo-open-inference-service 8080:80 8081:8081" in text
    assert "curl http://127.0.0.1:8080/v2/models/my%20model%2F1\n" in text
    text = render(chart, tls={"secretName": "a"}, apiKeys={"secretName": "b"})["Notes"]["text"]
    assert "curl --insecure https://127.0.0.1:8080/v2/health/ready\n" in text
    assert 'curl --insecure https://127.0.0.1:8080/v2/models/MODEL -H "Authorization: Bearer $API_KEY"\n' in text
