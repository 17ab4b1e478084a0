"""deploy/kserve: the manifests are valid for KServe, Knative and Kubernetes, and the service runs with them."""

from __future__ import annotations

import http.client
import json
import re
import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import grpc
import kubernetes_validate
import numpy as np
import pytest
import yaml
from flask import Response

from app.config.settings import read_settings
from tests.service.processes import gunicorn
from tests.service.wires import Grpc, Rest

from .helm import ROOT
from .manifests import DEPLOY, LIVE, READY, Render, container_of, validator_of

KSERVE = DEPLOY / "kserve"
KNATIVE = ["knative-rest", "knative-grpc"]
STANDARD = ["inferenceservice", "servingruntime"]
EVERY = [*STANDARD, *KNATIVE]
# Members of an InferenceService's predictor that are not members of a pod.
OWN_MEMBERS = {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget", "timeout", "autoScaling", "model"}
MODELS = "/mnt/models"


def documents(name: str) -> dict[str, Any]:
    """Return the documents of a manifest by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((KSERVE / f"{name}.yaml").read_text())}


def pod_of(name: str) -> dict[str, Any]:
    """Return the pod that KServe creates from a manifest, before it adds its own members."""
    found = documents(name)
    predictor = found["InferenceService"]["spec"]["predictor"]
    pod = {member: value for member, value in predictor.items() if member not in OWN_MEMBERS}
    if runtime := found.get("ServingRuntime"):
        pod |= {member: runtime["spec"][member] for member in ("containers", "volumes")}
    return pod


def only_container(name: str) -> dict[str, Any]:
    (container,) = pod_of(name)["containers"]
    return container


def environment(name: str, resource: str) -> dict[str, str]:
    """Return the container's variables after KServe and Kubernetes have inserted the InferenceService's name."""
    values = {}
    for each in only_container(name)["env"]:
        value = each.get("value")
        if value is None:
            assert each["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['serving.kserve.io/inferenceservice']"
            value = resource
        values[each["name"]] = value.replace("{{.Name}}", resource) if name == "servingruntime" else value
    return values


def rights(pod: dict[str, Any]) -> dict[str, Any]:
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
        for each in kinds[kind]:
            validator = validator_of(f"{each}.serving.kserve.io", document["apiVersion"].rpartition("/")[2])
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
    assert rights(pod) == rights(chart)
    assert rights(pod)["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {"/tmp": "tmp", "/dev/shm": "shm"}
    for volume in pod["volumes"]:
        assert volume["emptyDir"]["medium"] == "Memory"
        assert volume["emptyDir"]["sizeLimit"]
    assert {"cpu", "memory", "ephemeral-storage"} == container["resources"]["requests"].keys()
    assert patience(container) == patience(only_container("inferenceservice"))


def patience(container: dict[str, Any]) -> dict[str, int]:
    """Return the numbers of the liveness probe."""
    return {member: value for member, value in container["livenessProbe"].items() if isinstance(value, int)}


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
    assert ports == [(port["name"], port["containerPort"]) for port in container_of(render())["ports"]]
    assert (
        pod["terminationGracePeriodSeconds"] == settings.shutdown_delay_seconds + settings.shutdown_timeout_seconds + 10
    )
    paths = {each: container[f"{each}Probe"]["httpGet"] for each in ("startup", "readiness", "liveness")}
    assert {each: get["path"] for each, get in paths.items()} == {
        "startup": READY,
        "readiness": READY,
        "liveness": LIVE,
    }
    assert {get["port"] for get in paths.values()} == {settings.http_port}


def mode_of(name: str) -> str:
    return documents(name)["InferenceService"]["metadata"]["annotations"]["serving.kserve.io/deploymentMode"]


@pytest.mark.parametrize("name", KNATIVE)
def test_pods_are_valid_for_knative(name: str) -> None:
    """The pods for Knative use only members that it accepts without a feature flag."""
    pod, container = pod_of(name), only_container(name)
    assert mode_of(name) == "Knative"
    assert pod.keys() <= {"automountServiceAccountToken", "enableServiceLinks", "containers", "volumes"}
    unknown = {"startupProbe", "lifecycle", "stdin", "tty", "volumeDevices"}
    assert not unknown & container.keys()
    (port,) = container["ports"]
    assert port["name"] in ("http1", "h2c")
    assert port["containerPort"] not in {8008, 8012, 8013, 8022, 8112, 9090, 9091}
    for variable in container["env"]:
        assert variable.keys() == {"name", "value"}, "Knative allows no fieldRef"
        assert variable["name"] not in {"PORT", "K_SERVICE", "K_CONFIGURATION", "K_REVISION"}
    assert not {"/", "/dev", "/dev/log"} & {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}


def test_knative_port_and_probes(tmp_path: Path) -> None:
    """Knative's one port is the REST or the gRPC port, and the readiness probe uses it.

    Knative sets that port in an HTTP liveness probe, which would fail on the gRPC port.
    """
    rest, remote = (only_container(name) for name in KNATIVE)
    settings = settings_of("knative-rest", tmp_path)
    assert rest["ports"][0]["containerPort"] == settings.http_port == rest["readinessProbe"]["httpGet"]["port"]
    assert rest["readinessProbe"]["httpGet"]["path"] == READY
    assert remote["ports"][0]["containerPort"] == settings.grpc_port == remote["readinessProbe"]["grpc"]["port"]
    assert rest["livenessProbe"].pop("httpGet") == {"path": LIVE, "port": settings.http_port}
    assert remote["livenessProbe"].pop("exec")["command"] == health_check()
    assert settings.shutdown_delay_seconds == 0
    for each in (rest, remote):
        del each["ports"], each["readinessProbe"]
    assert rest == remote


def health_check() -> list[str]:
    """Return the command of the image's health check."""
    (command,) = re.findall(r"^HEALTHCHECK .* CMD (.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    return json.loads(command)


@pytest.mark.parametrize("name", KNATIVE)
def test_knative_scaling_target(name: str, tmp_path: Path) -> None:
    """The scaling target of a pod is its workers times MAX_CONCURRENCY, with one worker per CPU core."""
    predictor = documents(name)["InferenceService"]["spec"]["predictor"]
    workers = int(only_container(name)["resources"]["limits"]["cpu"])
    assert predictor["scaleMetric"] == "concurrency"
    assert predictor["scaleTarget"] == workers * settings_of(name, tmp_path).max_concurrency


def test_runtime_matches_inference_service() -> None:
    """The InferenceService names the runtime, its format and a protocol. The runtime is not selected automatically."""
    found = documents("servingruntime")
    runtime, model = found["ServingRuntime"], found["InferenceService"]["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert runtime["spec"]["supportedModelFormats"] == [{**model["modelFormat"], "autoSelect": False}]
    assert model["protocolVersion"] in runtime["spec"]["protocolVersions"] == ["v2", "grpc-v2"]
    assert "://" in model["storageUri"]


@pytest.fixture
def fetched(tmp_path: Path) -> Path:
    """Return a read-only model directory as KServe's storage initializer leaves it. Its labels are upper case."""
    folder = tmp_path / "models"
    shutil.copytree(ROOT / "model", folder)
    with np.load(folder / "iris.npz") as file:
        model = dict(file)
    np.savez(folder / "iris.npz", **{**model, "labels": np.char.upper(model["labels"])})
    folder.chmod(0o555)
    return folder


class Client:
    """A client with the interface of FlaskClient that wires.Rest needs."""

    def __init__(self, address: str):
        self.address = address

    def post(self, path: str, data: bytes, headers: dict[str, str]) -> Response:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request("POST", path, data, headers)
            answer = connection.getresponse()
            return Response(answer.read(), answer.status, answer.getheaders())
        finally:
            connection.close()


@pytest.fixture(params=[*EVERY, "stored"])
def started(request: pytest.FixtureRequest, fetched: Path) -> Iterator[tuple[Any, str, bytes]]:
    """Start the service with a manifest's environment, and return it, its model name and the label of its model.

    "stored" is the first manifest with the variables in its comment for a model from a storage URI.
    """
    name = "inferenceservice" if request.param == "stored" else request.param
    resource = documents(name)["InferenceService"]["metadata"]["name"] if name in KNATIVE else "demo"
    values = environment(name, resource)
    if request.param == "stored":
        values |= offered(name)
        assert values["STORAGE_URI"]
    if values.get("MODEL_DIR") == MODELS:
        values["MODEL_DIR"] = str(fetched)
    if name in KNATIVE:  # Knative sets these
        values |= {"PORT": str(only_container(name)["ports"][0]["containerPort"]), "K_SERVICE": f"{resource}-predictor"}
    for variable in ("HTTP_PORT", "GRPC_PORT"):
        values.pop(variable, None)
    with gunicorn(ROOT, WORKERS=1, **{"SHUTDOWN_DELAY_SECONDS": 0, **values}) as service:
        yield service, resource, b"SETOSA" if "MODEL_DIR" in values else b"setosa"


def offered(name: str) -> dict[str, str]:
    """Return the variables in the comment of a manifest."""
    text = (KSERVE / f"{name}.yaml").read_text()
    return dict(re.findall(r"# - name: (\w+)\n +#   value: (\S+)\n", text))


def test_service_runs_with_manifest(started: tuple[Any, str, bytes]) -> None:
    """The model that KServe mounted is served over REST and gRPC under the InferenceService's name."""
    service, resource, label = started
    flower = [("features", "FP32", [1, 4], [5.1, 3.5, 1.4, 0.2])]
    with grpc.insecure_channel(service.grpc) as channel:
        for client in (Rest(Client(service.http), model=resource), Grpc(channel, model=resource)):
            answer = client.infer(flower)
            assert (answer.kind, answer.model_name) == ("ok", resource), answer.text
            assert answer.outputs["label"] == ("BYTES", [1], [label])
            assert client.infer(flower, model="iris").kind == "NOT_FOUND"


def test_page_describes_manifests() -> None:
    """The page lists each manifest, its autoscaling example is valid for KServe's CRD, and its metric exists."""
    readme = (ROOT / "docs/deployment.md").read_text()
    assert {f"{name}.yaml" for name in EVERY} == {path.name for path in KSERVE.glob("*.yaml")}
    assert set(re.findall(r"^\| `(\S+)\.yaml`", readme, re.MULTILINE)) == set(EVERY)
    assert " deployment/open-inference-service-predictor 8080:8080 8081:8081 " in readme, "a headless one maps no port"
    (block,) = re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL)
    manifest = deepcopy(documents("inferenceservice")["InferenceService"])
    scaling = yaml.safe_load(block)["spec"]["predictor"]
    manifest["spec"]["predictor"] |= scaling
    validator_of("inferenceservice.serving.kserve.io", "v1beta1").validate(manifest)
    cpu, in_flight = scaling["autoScaling"]["metrics"]
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
