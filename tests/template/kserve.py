"""Read the manifests in deploy/kserve."""

from __future__ import annotations

from typing import Any

import yaml

from .manifests import DEPLOY

KSERVE = DEPLOY / "kserve"
KNATIVE = ["knative-rest", "knative-grpc"]
STANDARD = ["inferenceservice", "servingruntime"]
EVERY = [*STANDARD, *KNATIVE]
# Members of an InferenceService's predictor that are not members of a pod.
OWN_MEMBERS = {
    "minReplicas",
    "maxReplicas",
    "scaleMetric",
    "scaleTarget",
    "timeout",
    "autoScaling",
    "model",
}
MODELS = "/mnt/models"


def documents(name: str) -> dict[str, Any]:
    """Return the documents of a manifest by kind."""
    return {
        document["kind"]: document
        for document in yaml.safe_load_all((KSERVE / f"{name}.yaml").read_text())
    }


def pod_of(name: str) -> dict[str, Any]:
    """Return the pod that KServe creates from a manifest, before it adds its own members."""
    manifests = documents(name)
    predictor = manifests["InferenceService"]["spec"]["predictor"]
    pod = {member: value for member, value in predictor.items() if member not in OWN_MEMBERS}
    if runtime := manifests.get("ServingRuntime"):
        pod |= {member: runtime["spec"][member] for member in ("containers", "volumes")}
    return pod


def only_container(name: str) -> dict[str, Any]:
    (container,) = pod_of(name)["containers"]
    return container


def environment(name: str, resource: str) -> dict[str, str]:
    """Return the container's variables after KServe and Kubernetes have inserted the InferenceService's name."""
    values = {}
    for variable in only_container(name)["env"]:
        value = variable.get("value")
        if value is None:
            assert (
                variable["valueFrom"]["fieldRef"]["fieldPath"]
                == "metadata.labels['serving.kserve.io/inferenceservice']"
            )
            value = resource
        values[variable["name"]] = (
            value.replace("{{.Name}}", resource) if name == "servingruntime" else value
        )
    return values
