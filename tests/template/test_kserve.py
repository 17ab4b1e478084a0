"""deploy/kserve: the manifests are valid for KServe, Knative and Kubernetes, and the service runs with them."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.config.settings import read_settings

from .helm import ROOT
from .kserve import (
    EVERY,
    KNATIVE,
    KSERVE,
    MODELS,
    STANDARD,
    documents,
    environment,
    only_container,
    pod_of,
)
from .manifests import DEPLOY, LIVE, READY, Render, container_of, validator_of


def security_context(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the container's security context merged with its pod's."""
    (container,) = pod["containers"]
    return {**pod.get("securityContext", {}), **container["securityContext"]}


@pytest.mark.parametrize("name", EVERY)
def test_manifests_are_valid_for_kserve(name: str) -> None:
    """Every document is valid for KServe's CRDs, also as a ClusterServingRuntime. A misspelled member is rejected."""
    for kind, document in documents(name).items():
        kinds = {
            "InferenceService": ["inferenceservice"],
            "ServingRuntime": ["servingruntime", "clusterservingruntime"],
        }
        for resource in kinds[kind]:
            validator = validator_of(
                f"{resource}.serving.kserve.io", document["apiVersion"].rpartition("/")[2]
            )
            validator.validate(document)
            holder = document["spec"].get("predictor", document["spec"])
            for place in [
                document["spec"],
                holder,
                *holder.get("containers", ()),
                *filter(None, [holder.get("model")]),
            ]:
                place["prots"] = []
                assert not validator.is_valid(document), place
                del place["prots"]


@pytest.mark.parametrize("version", ["1.25", kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", EVERY)
def test_pods_are_valid_for_kubernetes(name: str, version: str) -> None:
    """The pods have no unknown members, even where KServe's CRDs accept any."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "demo"}, "spec": pod_of(name)}
    kubernetes_validate.validate(pod, version, strict=True)


@pytest.mark.parametrize("name", EVERY)
def test_manifests_agree_with_chart(name: str, render: Render) -> None:
    """Every manifest has the chart's permissions, no token, no service links, and writable volumes in memory."""
    chart = render()["Deployment"]["spec"]["template"]["spec"]
    pod, container = pod_of(name), only_container(name)
    assert container["name"] == "kserve-container"
    assert container["image"].startswith("open-inference-service:")
    assert security_context(pod) == security_context(chart)
    assert security_context(pod)["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {"/tmp": "tmp", "/dev/shm": "shm"}
    for volume in pod["volumes"]:
        assert volume["emptyDir"]["medium"] == "Memory"
        assert volume["emptyDir"]["sizeLimit"]
    assert {"cpu", "memory", "ephemeral-storage"} == container["resources"]["requests"].keys()
    assert probe_numbers(container) == probe_numbers(only_container("inferenceservice"))


def probe_numbers(container: dict[str, Any]) -> dict[str, int]:
    """Return the numbers of the liveness probe."""
    return {
        member: value
        for member, value in container["livenessProbe"].items()
        if isinstance(value, int)
    }


def settings_of(name: str, tmp_path: Path) -> Any:
    """Return the service's settings as it reads them in the container."""
    values = environment(name, "demo")
    if "MODEL_DIR" in values:
        assert values["MODEL_DIR"] == MODELS
        values["MODEL_DIR"] = str(tmp_path)
    return read_settings(values)


@pytest.mark.parametrize("name", STANDARD)
def test_standard_mode(name: str, tmp_path: Path, render: Render) -> None:
    """Ports and probes equal the chart's, HTTP comes first, and the grace period covers a shutdown."""
    pod, container, settings = pod_of(name), only_container(name), settings_of(name, tmp_path)
    assert mode_of(name) == "Standard"
    ports = [(port["name"], port["containerPort"]) for port in container["ports"]]
    assert ports == [("http", settings.http_port), ("grpc", settings.grpc_port)]
    assert ports == [
        (port["name"], port["containerPort"]) for port in container_of(render())["ports"]
    ]
    assert (
        pod["terminationGracePeriodSeconds"]
        == settings.shutdown_delay_seconds + settings.shutdown_timeout_seconds + 10
    )
    paths = {
        probe: container[f"{probe}Probe"]["httpGet"]
        for probe in ("startup", "readiness", "liveness")
    }
    assert {probe: get["path"] for probe, get in paths.items()} == {
        "startup": READY,
        "readiness": READY,
        "liveness": LIVE,
    }
    assert {get["port"] for get in paths.values()} == {settings.http_port}


def mode_of(name: str) -> str:
    return documents(name)["InferenceService"]["metadata"]["annotations"][
        "serving.kserve.io/deploymentMode"
    ]


@pytest.mark.parametrize("name", KNATIVE)
def test_pods_are_valid_for_knative(name: str) -> None:
    """The pods for Knative use only members that it accepts without a feature flag."""
    pod, container = pod_of(name), only_container(name)
    assert mode_of(name) == "Knative"
    assert pod.keys() <= {
        "automountServiceAccountToken",
        "enableServiceLinks",
        "containers",
        "volumes",
    }
    unknown = {"startupProbe", "lifecycle", "stdin", "tty", "volumeDevices"}
    assert not unknown & container.keys()
    (port,) = container["ports"]
    assert port["name"] in ("http1", "h2c")
    assert port["containerPort"] not in {8008, 8012, 8013, 8022, 8112, 9090, 9091}
    for variable in container["env"]:
        assert variable.keys() == {"name", "value"}, "Knative allows no fieldRef"
        assert variable["name"] not in {"PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION"}
    assert not {"/", "/dev", "/dev/log"} & {
        mount["mountPath"] for mount in container["volumeMounts"]
    }
    assert {volume["name"] for volume in pod["volumes"]} == {
        mount["name"] for mount in container["volumeMounts"]
    }


def test_knative_port_and_probes(tmp_path: Path) -> None:
    """Knative's one port is the REST or the gRPC port, and the readiness probe uses it.

    Knative sets that port in an HTTP liveness probe, which would fail on the gRPC port.
    """
    rest, remote = (only_container(name) for name in KNATIVE)
    settings = settings_of("knative-rest", tmp_path)
    assert (
        rest["ports"][0]["containerPort"]
        == settings.http_port
        == rest["readinessProbe"]["httpGet"]["port"]
    )
    assert rest["readinessProbe"]["httpGet"]["path"] == READY
    assert (
        remote["ports"][0]["containerPort"]
        == settings.grpc_port
        == remote["readinessProbe"]["grpc"]["port"]
    )
    assert rest["livenessProbe"].pop("httpGet") == {"path": LIVE, "port": settings.http_port}
    assert remote["livenessProbe"].pop("exec")["command"] == health_check()
    assert settings.shutdown_delay_seconds == 0
    for container in (rest, remote):
        del container["ports"], container["readinessProbe"]
    assert rest == remote


def health_check() -> list[str]:
    """Return the command of the image's health check."""
    (command,) = re.findall(
        r"^HEALTHCHECK .* CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )
    return json.loads(command)


@pytest.mark.parametrize("name", KNATIVE)
def test_knative_scaling_target(name: str, tmp_path: Path) -> None:
    """The scaling target of a pod is its workers times MAX_CONCURRENCY, with one worker per CPU core."""
    predictor = documents(name)["InferenceService"]["spec"]["predictor"]
    workers = int(only_container(name)["resources"]["limits"]["cpu"])
    assert predictor["scaleMetric"] == "concurrency"
    assert predictor["scaleTarget"] == workers * settings_of(name, tmp_path).max_concurrency


@pytest.mark.parametrize("name", KNATIVE)
def test_canary(name: str) -> None:
    """The comment for a canary, and the members in the guide, are valid. They change only the share and the image."""
    plain = documents(name)["InferenceService"]
    text, count = re.subn(
        "# (canaryTrafficPercent: )", r"\1", (KSERVE / f"{name}.yaml").read_text()
    )
    assert count == 1
    manifest = yaml.safe_load(text)
    validator = validator_of("inferenceservice.serving.kserve.io", "v1beta1")
    validator.validate(manifest)
    assert manifest["spec"]["predictor"].pop("canaryTrafficPercent") == 10
    assert manifest == plain
    guide = (ROOT / "docs/guides/canary.md").read_text()
    change = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)[-1])
    predictor, (container,) = (
        change["spec"]["predictor"],
        change["spec"]["predictor"].pop("containers"),
    )
    manifest["metadata"]["annotations"] |= change["metadata"]["annotations"]
    manifest["spec"]["predictor"] |= predictor
    manifest["spec"]["predictor"]["containers"][0] |= container
    validator.validate(manifest)
    assert (predictor, container["name"]) == (
        {"canaryTrafficPercent": 10},
        only_container(name)["name"],
    )
    assert container["image"] != only_container(name)["image"]


def test_runtime_matches_inference_service() -> None:
    """The InferenceService names the runtime, its format and a protocol. The runtime is not selected automatically."""
    manifests = documents("servingruntime")
    runtime, model = (
        manifests["ServingRuntime"],
        manifests["InferenceService"]["spec"]["predictor"]["model"],
    )
    assert model["runtime"] == runtime["metadata"]["name"]
    assert runtime["spec"]["supportedModelFormats"] == [
        {**model["modelFormat"], "autoSelect": False}
    ]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"] == ["v2", "grpc-v2"]
    assert "://" in model["storageUri"]


def test_page_describes_manifests() -> None:
    """The page lists each manifest, its examples are valid for the CRDs, and its metric exists."""
    readme = (ROOT / "docs/kserve.md").read_text()
    assert {f"{name}.yaml" for name in EVERY} == {path.name for path in KSERVE.glob("*.yaml")}
    assert set(re.findall(r"^\| `(\S+)\.yaml`", readme, re.MULTILINE)) == set(EVERY)
    assert " deployment/open-inference-service-predictor 8080:8080 8081:8081\n" in readme, (
        "a headless one maps no port"
    )
    keys, scaling, monitor = map(
        yaml.safe_load, re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    )
    for example in (keys, scaling):
        manifest = deepcopy(documents("inferenceservice")["InferenceService"])
        manifest["spec"]["predictor"] |= example["spec"]["predictor"]
        validator_of("inferenceservice.serving.kserve.io", "v1beta1").validate(manifest)
    validator_of("podmonitor.monitoring.coreos.com", "v1").validate(monitor)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {
        port["name"] for port in only_container("inferenceservice")["ports"]
    }
    cpu, in_flight = scaling["spec"]["predictor"]["autoScaling"]["metrics"]
    assert in_flight["external"]["metric"]["query"].startswith(
        'sum(inference_requests_in_flight{namespace="default", pod=~"'
    )
    assert "`inference_requests_in_flight`" in (ROOT / "docs/monitoring.md").read_text()
    share = cpu["resource"]["target"]["averageUtilization"] / 100
    target = in_flight["external"]["target"]
    annotations = documents("servingruntime")["ServingRuntime"]["spec"]["annotations"]
    assert dict(re.findall(r'`(prometheus\.io/\w+): "?([^`"]+)"?`', readme)) == annotations
    assert annotations["prometheus.io/port"] == str(read_settings({}).http_port)
    assert target == {"type": "Value", "value": f"{share * read_settings({}).max_concurrency:g}"}
