"""Helpers for the tests of deploy/: the rendered chart, checks of any pod and schemas of custom resources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from .helm import ROOT, Helm

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm"
CRDS = ROOT.parent / "shared" / "crds"
# The full name of the release that `render` uses.
NAME = "demo-open-inference-service"
# Parses in C, which takes a tenth of the time. A few platforms' packages do not have it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
LIVE, READY = "/v2/health/live", "/v2/health/ready"

Render = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def render(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Render:
    """Return render(**values): the manifests of the release `demo` by kind, or by kind/suffix for longer names.

    Results are cached. Each caller receives a copy.
    """
    rendered: dict[str, dict[str, Any]] = {}
    folder = tmp_path_factory.mktemp("values")

    def run(chart: Path = CHART, kubernetes: str = "1.31", **values: Any) -> dict[str, Any]:
        question = json.dumps([str(chart), kubernetes, values])
        if question not in rendered:
            file = folder / "values.json"
            file.write_text(json.dumps(values))
            done = helm("template", "demo", chart, "--values", file, "--kube-version", kubernetes)
            assert done.returncode == 0, done.stderr
            rendered[question] = by_kind(yaml.load_all(done.stdout, LOADER))
        return deepcopy(rendered[question])

    return run


def by_kind(manifests: Iterable[dict[str, Any]]) -> dict[str, Any]:
    listed = list(manifests)
    name = min(
        (manifest["metadata"]["name"] for manifest in listed if manifest["kind"] == "Deployment"),
        key=len,
    )
    result = {}
    for manifest in listed:
        rest = manifest["metadata"]["name"].removeprefix(name).removeprefix("-")
        key = f"{manifest['kind']}/{rest}" if rest else manifest["kind"]
        assert key not in result
        result[key] = manifest
    return result


def pod_of(manifests: dict[str, Any]) -> dict[str, Any]:
    return manifests["Deployment"]["spec"]["template"]["spec"]


def container_of(manifests: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod_of(manifests)["containers"]
    return container


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def volumes(manifests: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {volume["name"]: volume for volume in pod_of(manifests)["volumes"]}


def assert_restricted(pod: dict[str, Any]) -> None:
    """Check that `pod` meets Kubernetes' "restricted" standard, has no token and writes only to empty volumes."""
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] >= 10000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    empty = {volume["name"] for volume in pod.get("volumes", []) if "emptyDir" in volume}
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = {
            mount["name"]
            for mount in container.get("volumeMounts", [])
            if not mount.get("readOnly")
        }
        assert writable <= empty
    for volume in pod.get("volumes", []):
        assert volume.keys() & {"emptyDir", "secret", "persistentVolumeClaim"}, volume


def assert_probes(container: dict[str, Any]) -> None:
    """Check that startup and readiness probe the model, and liveness the process with a longer failure time."""
    paths = {
        name: container[name]["httpGet"]["path"]
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    assert paths == {"startupProbe": READY, "readinessProbe": READY, "livenessProbe": LIVE}
    patience = {
        name: probe["periodSeconds"] * probe.get("failureThreshold", 3)
        for name, probe in probes(container)
    }
    assert patience["livenessProbe"] > patience["readinessProbe"]
    assert patience["startupProbe"] >= 300


def probes(container: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, value) for name, value in container.items() if name.endswith("Probe")]


def to_json_schema(schema: Any) -> Any:
    """Convert `schema` from Kubernetes' extensions to JSON Schema, and reject unknown members."""
    if isinstance(schema, list):
        return [to_json_schema(member) for member in schema]
    if not isinstance(schema, dict):
        return schema
    result = {name: to_json_schema(value) for name, value in schema.items()}
    open_ended = {"additionalProperties", "x-kubernetes-preserve-unknown-fields"} & schema.keys()
    if isinstance(schema.get("properties"), dict) and not open_ended:
        result["additionalProperties"] = False
    if schema.get("nullable") is True:
        result["type"] = [schema["type"], "null"]
    return result


def validator_of(kind: str, version: str) -> Draft202012Validator:
    """Return a validator of the custom resource `kind.group` from its CRD. Unknown members are errors."""
    file = CRDS / f"{kind.replace('.', '-', 1)}-{version}.json"
    if not file.exists():
        pytest.skip(f"no schemas of custom resources at {CRDS}")
    schema = json.loads(file.read_text())
    schema["properties"]["metadata"] = {"type": "object"}
    return Draft202012Validator(to_json_schema(schema))
