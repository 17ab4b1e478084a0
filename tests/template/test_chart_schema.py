"""Values that the chart rejects or accepts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

from .chart_values import ENABLED, FEATURES, GATEWAY, HPA, KEDA
from .charts import CUSTOM, KUBERNETES, budget
from .helm import Helm
from .manifests import CHART, Render


def routes(
    http: list[str], grpc: list[str], gateways: list[dict[str, Any]] = GATEWAY
) -> dict[str, Any]:
    """Return values with an HTTPRoute at GATEWAY and a GRPCRoute at `gateways`, with these hostnames."""
    return {
        "httpRoute": {**ENABLED, "parentRefs": GATEWAY, "hostnames": http},
        "grpcRoute": {**ENABLED, "parentRefs": gateways, "hostnames": grpc},
    }


REFUSED_BY_SCHEMA = [
    ({"replicas": 2}, "replicas"),
    ({"model": {"nmae": "iris"}}, "nmae"),
    ({"config": {"MODEL_VERSION": 2}}, "config.MODEL_VERSION"),
    ({"config": {"WORKER": 2}}, "WORKER"),
    ({"config": {"WORKERS": 0}}, "config.WORKERS"),
    ({"config": {"HTTP_PORT": 80}}, "HTTP_PORT"),
    ({"config": {"SHUTDOWN_DELAY_SECONDS": None}}, "SHUTDOWN_DELAY_SECONDS"),
    ({"config": {"SHUTDOWN_TIMEOUT_SECONDS": None}}, "SHUTDOWN_TIMEOUT_SECONDS"),
    ({"config": {"LOG_LEVEL": "LOUD"}}, "config.LOG_LEVEL"),
    ({"service": {"httpPort": "8080"}}, "service.httpPort"),
    ({"securityContext": {"readOnlyRootFileSystem": False}}, "readOnlyRootFileSystem"),
    ({"podSecurityContext": {"readOnlyRootFilesystem": True}}, "readOnlyRootFilesystem"),
    ({"livenessProbe": {"path": "/"}}, "path"),
    ({"probeProtocol": "tcp"}, "probeProtocol"),
    ({"extraEnv": [{"name": "OTHER", "value": 2}]}, "extraEnv.0.value"),
    ({"extraEnv": [{"name": "OTHER", "valeu": "2"}]}, "valeu"),
    ({"tls": {"existingSecret": None}}, "existingSecret"),
    ({"apiKeys": {"keys": ["secret"]}}, "keys"),
    ({"podLabels": {"app.kubernetes.io/name": "other"}}, "podLabels"),
    ({"shm": {"sizeLimit": "64M8"}}, "shm.sizeLimit"),
    ({"image": {"digest": "latest"}}, "image.digest"),
    ({"keda": {"minReplicaCount": 0}}, "keda.minReplicaCount"),
    ({"ingress": {"paths": []}}, "ingress.paths"),
    ({"httpRoute": {"parentRefs": [{"namespace": "edge"}]}}, "httpRoute.parentRefs.0"),
    ({"resources": {"limit": {"cpu": "1"}}}, "limit"),
    ({"gpus": 0.5}, "gpus"),
    ({"resources": {"limits": {"memory": "2 Gi"}}}, "resources.limits.memory"),
    (
        {"model": {"initContainer": {"resources": {"requests": {"cpu": "one"}}}}},
        "resources.requests.cpu",
    ),
    ({"tmp": {"sizeLimit": "1ki"}}, "tmp.sizeLimit"),
    ({"image": {"tag": "0.1.0 "}}, "image.tag"),
    *(
        ({"image": {"repository": name}}, "image.repository")
        for name in ("my images/iris", "a/iris:1", "a.b/C/d", "a..b", "a._b")
    ),
    ({"fullnameOverride": "n" * 54}, "fullnameOverride"),
    ({"enabled": "yes"}, "enabled"),
    ({"ingress": {"hosts": ["iris .example.com"]}}, "ingress.hosts.0"),
    *(
        ({"ingress": {"hosts": [host]}}, "ingress.hosts.0")
        for host in ("a..b", "a-.b", "a.-b", "a.")
    ),
    ({"ingress": {"tls": [{"hosts": [" iris.example.com"]}]}}, "ingress.tls.0.hosts.0"),
    ({"grpcRoute": {"hostnames": ["Iris.example.com"]}}, "grpcRoute.hostnames.0"),
    ({"grpcRoute": {"timeouts": {"request": "60s"}}}, "grpcRoute.timeouts"),
    ({"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}, "rollingUpdate.maxUnavailable"),
    ({"podDisruptionBudget": {"maxUnavailable": "150%"}}, "podDisruptionBudget.maxUnavailable"),
    ({"podDisruptionBudget": {"minAvailable": "1000%"}}, "podDisruptionBudget.minAvailable"),
    ({"progressDeadlineSeconds": 0}, "progressDeadlineSeconds"),
    ({"service": {"ipFamilies": ["ipv6"]}}, "service.ipFamilies.0"),
    ({"keda": {"prometheus": {"authenticationRef": {"nmae": "token"}}}}, "nmae"),
    ({"networkPolicy": {"ingress": [{"from": [{"podSelector": {}}]}]}}, "networkPolicy.ingress.0"),
    ({"networkPolicy": {"ingress": [{}]}}, "networkPolicy.ingress.0"),
    *(({"canary": {"weight": weight}}, "canary.weight") for weight in (-1, 101, 12.5, "10")),
    ({"canary": {"header": {"name": "x-canary"}}}, "canary.header"),
    ({"canary": {"header": {"name": "x canary", "value": "1"}}}, "canary.header.name"),
    ({"canary": {"replicaCount": 0}}, "canary.replicaCount"),
    ({"canary": {"image": {"repository": "other"}}}, "repository"),
    ({"canary": {"config": {"MODEL_VERSION": 2}}}, "canary.config.MODEL_VERSION"),
    ({"canary": {"model": {"subPath": "2"}}}, "subPath"),
    *(
        ({"monitoring": values}, next(iter(values)))
        for values in (
            {"serviceMonitor": {"enabled": "yes"}},
            {"serviceMonitor": {"interval": "often"}},
            {"serviceMonitor": {"endpoint": {"path": "/"}}},
            {"rules": {"label": {}}},
            {"dashboard": {"labels": {"a": 1}}},
        )
    ),
    *(({"model": {member: None}}, member) for member in ("persistentVolumeClaim", "initContainer")),
]
RENAMED = [
    ({"settings": {"WORKERS": 2}}, "settings: renamed to config\n"),
    ({"probes": {"protocol": "grpc"}}, "probes.protocol: renamed to probeProtocol\n"),
    ({"probes": {"startup": {"failureThreshold": 9}}}, "probes.startup: renamed to startupProbe\n"),
    (
        {"probes": {"readiness": {}, "liveness": {}}},
        "probes.readiness: renamed to readinessProbe\n",
    ),
    ({"probes": {"readiness": {}, "liveness": {}}}, "probes.liveness: renamed to livenessProbe\n"),
    (
        {"apiKeys": {"secretName": "keys"}},
        "apiKeys.secretName: renamed to apiKeys.existingSecret\n",
    ),
    ({"tls": {"secretName": "certificate"}}, "tls.secretName: renamed to tls.existingSecret\n"),
    ({"networkPolicy": {"from": []}}, "networkPolicy.from: renamed to networkPolicy.ingress\n"),
]
REFUSED_IN_WORDS = [
    *RENAMED,
    ({"extraEnv": [{"name": "HTTP_PORT", "value": "9000"}]}, "extraEnv: HTTP_PORT is reserved"),
    (
        {"config": {"WORKERS": 2}, "extraEnv": [{"name": "WORKERS", "value": "3"}]},
        "extraEnv: WORKERS is also in config",
    ),
    (
        {"gpus": 1, "resources": {"limits": {"nvidia.com/gpu": 1}}},
        "gpus: resources.limits has nvidia.com/gpu, too.",
    ),
    ({"autoscaling": ENABLED, "keda": ENABLED}, "autoscaling and keda: both are enabled"),
    (
        {"autoscaling": {**ENABLED, "targetCPUUtilizationPercentage": None}},
        "autoscaling: missing target",
    ),
    ({"keda": ENABLED}, "keda: missing trigger"),
    (
        {"podDisruptionBudget": {**ENABLED, "minAvailable": 1}},
        "expected maxUnavailable or minAvailable",
    ),
    (
        {"podDisruptionBudget": {**ENABLED, "maxUnavailable": None}},
        "expected maxUnavailable or minAvailable",
    ),
    (
        {"probeProtocol": "grpc", "tls": {"existingSecret": "a"}},
        "the kubelet does not support TLS in gRPC probes",
    ),
    (
        {"model": {"persistentVolumeClaim": {"claimName": "a"}, "initContainer": {"image": "b"}}},
        "both use /mnt/models",
    ),
    ({"monitoring": {"serviceMonitor": ENABLED, "podMonitor": ENABLED}}, "each pod counts twice"),
    ({"httpRoute": ENABLED}, "httpRoute.parentRefs: missing Gateway"),
    ({"grpcRoute": ENABLED}, "grpcRoute.parentRefs: missing Gateway"),
    (routes([], []), "grpcRoute.hostnames: * overlaps with * of httpRoute at Gateway gateway"),
    (
        routes(["a.example.com"], ["example.com", "a.example.com"]),
        "a.example.com overlaps with a.example.com of",
    ),
    (routes([], ["a.example.com"]), "a.example.com overlaps with * of httpRoute"),
    (routes(["a.example.com"], ["*.example.com"]), "*.example.com overlaps with a.example.com of"),
    (
        routes(["*.example.com"], ["*.a.example.com"]),
        "*.a.example.com overlaps with *.example.com of",
    ),
    (routes([], [], [{"name": "gateway", "namespace": "edge"}]), "of httpRoute at Gateway gateway"),
    (
        routes([], [], [{"name": "other"}, {**GATEWAY[0], "kind": "Gateway", "port": 443}]),
        "of httpRoute at Gateway gateway",
    ),
    (
        {"podDisruptionBudget": {**ENABLED, "maxUnavailable": ""}},
        "expected maxUnavailable or minAvailable",
    ),
    *((budget(maxUnavailable=none), f"Expected more than 0, got {none}.") for none in (0, "00%")),
    *(
        (
            budget(minAvailable=all_of),
            f"Expected less than the number of replicas (1), got {all_of}.",
        )
        for all_of in (1, 2, "50%")
    ),
    (
        {**budget(minAvailable="100%"), "replicaCount": 9},
        "Expected less than the number of replicas (9), got 100%.",
    ),
    ({**budget(minAvailable=2), **HPA}, "Expected less than the number of replicas (2), got 2."),
    (
        {**budget(minAvailable="67%"), **KEDA},
        "Expected less than the number of replicas (2), got 67%.",
    ),
    ({"startupProbe": {"failureThreshold": 301}}, "Expected at least 602, got 600."),
    ({"startupProbe": {"initialDelaySeconds": 301}}, "Expected at least 601, got 600."),
    (
        {"autoscaling": ENABLED, "resources": None},
        "autoscaling.targetCPUUtilizationPercentage: missing",
    ),
    (
        {**KEDA, "resources": {member: {"cpu": None} for member in ("requests", "limits")}},
        "keda.targetCPUUtilization",
    ),
    (
        {"autoscaling": {**ENABLED, "minReplicas": 6}},
        "autoscaling.minReplicas: greater than maxReplicas. Expected at most 5, got 6.",
    ),
    (
        {"keda": {**ENABLED, "targetCPUUtilizationPercentage": 75, "minReplicaCount": 6}},
        "keda.minReplicaCount: greater than maxReplicaCount. Expected at most 5, got 6.",
    ),
    (
        {"keda": {**ENABLED, "prometheus": {"serverAddress": "http://a"}}},
        "keda.prometheus: the default query",
    ),
    ({"service": {"grpcPort": 8080}}, "service: httpPort and grpcPort are both 8080."),
    ({"strategy": {"rollingUpdate": {"maxSurge": 0}}}, "maxSurge and maxUnavailable are both 0"),
    (
        {"strategy": {"rollingUpdate": {"maxSurge": "00%"}}},
        "maxSurge and maxUnavailable are both 0",
    ),
    (
        {"canary": {**ENABLED, "weight": 1}},
        "canary: weight and header need a route. Enable httpRoute or grpcRoute",
    ),
    (
        {"canary": {**ENABLED, "header": {"name": "x-canary", "value": "1"}}},
        "canary: weight and header need a route",
    ),
    (
        {"canary": {**ENABLED, "extraEnv": [{"name": "GRPC_PORT", "value": "1"}]}},
        "extraEnv: GRPC_PORT is reserved",
    ),
    *(
        ({"config": {"HOST": host}}, f"Expected 0.0.0.0 or ::, got {host}.")
        for host in ("127.0.0.1", "::1", "localhost", "LOCALHOST", " 127.0.0.1", "::1 ")
    ),
]
TAKEN = [
    {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
    {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 0}}},
    {"strategy": {"rollingUpdate": {"maxSurge": None, "maxUnavailable": None}}},
    {"strategy": {"rollingUpdate": None}},
    {"image": {"repository": "localhost:5000/a_b/iris", "tag": "v1.0_rc-1"}},
    {"image": {"repository": "Images.example/a/b--c__d.e"}},
    {"fullnameOverride": "n" * 53},
    {**budget(maxUnavailable="1%"), "replicaCount": 1},
    {**budget(minAvailable="050%"), **HPA},
    {**budget(minAvailable=1), "replicaCount": 0},
    {"startupProbe": {"failureThreshold": 300}},
    {"autoscaling": ENABLED, "resources": {"requests": {"cpu": None}}},
    {
        "autoscaling": {
            **ENABLED,
            "targetCPUUtilizationPercentage": 0,
            "targetRequestsInFlight": 3,
        },
        "resources": None,
    },
    {"monitoring": {"serviceMonitor": {**ENABLED, "endpoint": None}}},
    {"monitoring": {"podMonitor": {**ENABLED, "endpoint": None}}},
    {
        "resources": {"limits": {"cpu": 1.5, "memory": "1e9", "nvidia.com/gpu": 1}},
        "tmp": {"sizeLimit": "64M"},
    },
    {"ingress": {"hosts": ["*.example.com"]}},
    {"ingress": {"hosts": ["a--b.c-d.1", "a"]}},
    {"strategy": {"rollingUpdate": {"maxSurge": "200%", "maxUnavailable": "100%"}}},
    {**budget(maxUnavailable="0100%"), "replicaCount": 1},
    *(
        routes([], [], [{**GATEWAY[0], **other}])
        for other in ({"name": "b"}, {"namespace": "b"}, {"sectionName": "b"})
    ),
    routes([], [], [{"name": "gateway", "sectionName": "https"}]),  # in the release's namespace
    routes(
        ["example.com", "a.example.com"], ["*.a.example.com", "b.example.com", "aa.example.com"]
    ),
    {"config": {"HOST": "::"}},
    {"config": {"HOST": None}},
    {"canary": ENABLED},
    {"canary": {"weight": 10}},
    {**budget(minAvailable=1), "replicaCount": 2, "canary": ENABLED},
]


@pytest.mark.parametrize(("values", "words"), REFUSED_BY_SCHEMA + REFUSED_IN_WORDS, ids=repr)
def test_rejects_invalid_values(helm: Helm, values_file, values: dict[str, Any], words: str):
    """An unknown value or one that would not work is rejected with an error that names it."""
    done = helm("template", "demo", CHART, "--values", values_file(values))
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("values", TAKEN, ids=repr)
def test_accepts_values_close_to_invalid(render: Render, values: dict[str, Any]):
    """Values close to the invalid ones are accepted and render valid manifests."""
    for manifest in render(**values).values():
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, KUBERNETES[-1], strict=True)


def test_names_that_look_like_numbers_are_text(helm: Helm, values_file):
    """A release named 2024 and names such as true are rendered as text."""
    values = {**FEATURES["all, behind TLS"], "nameOverride": "true", "fullnameOverride": "null"}
    values["serviceAccount"] = {"name": "007"}
    done = helm("template", "2024", CHART, "--values", values_file(values))
    assert done.returncode == 0, done.stderr
    for manifest in yaml.safe_load_all(done.stdout):
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, KUBERNETES[-1], strict=True)
        metadata = manifest["metadata"]
        assert {type(text) for text in [metadata["name"], *metadata["labels"].values()]} == {str}
        assert metadata["labels"]["app.kubernetes.io/instance"] == "2024"


@pytest.mark.parametrize("release", ["2024", "my.release"])
def test_rejects_release_with_invalid_service_name(helm: Helm, release: str):
    """A release name that is not valid as a Service name is rejected, unless fullnameOverride is set."""
    done = helm("template", release, CHART)
    assert done.returncode != 0
    assert f"hyphens, got {release}-open-inference-service. Rename" in done.stderr
    assert helm("template", release, CHART, "--set", "fullnameOverride=iris").returncode == 0


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield `schema` and all its subschemas."""
    if isinstance(schema, dict):
        yield schema
    for part in (
        schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    ):
        yield from subschemas(part)


def test_schema_rejects_unknown_members():
    """Each object of the chart that the schema describes rejects unknown members. Kubernetes checks the rest."""
    schemas = list(subschemas(json.loads((CHART / "values.schema.json").read_text())))
    closed = [
        schema
        for schema in schemas
        if schema.get("type") == "object" and any(schema.get("properties", {}).values())
    ]
    assert len(closed) > 30
    assert all(schema.get("additionalProperties") is False for schema in closed)
    assert not [schema for schema in schemas if "$ref" in schema and len(schema) > 1], (
        "keywords next to a $ref are ignored"
    )
