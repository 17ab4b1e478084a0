"""deploy/helm: the objects other than the pod agree with the pod, with each other and with the service."""

from __future__ import annotations

from typing import Any

import pytest

from app.config.settings import Settings

from .chart_values import ENABLED, FEATURES, GATEWAY, HPA, KEDA, TLS
from .manifests import (
    NAME,
    Render,
    container_of,
    environment,
    pod_of,
    validator_of,
)


def selected(manifests: dict[str, Any], labels: dict[str, str]) -> set[str]:
    """Return the keys of the pods, including those of Deployments, that `labels` select."""
    pods = {key: manifest for key, manifest in manifests.items() if manifest["kind"] == "Pod"}
    pods |= {
        key: manifest["spec"]["template"]
        for key, manifest in manifests.items()
        if manifest["kind"] == "Deployment"
    }
    return {key for key, pod in pods.items() if labels.items() <= pod["metadata"]["labels"].items()}


def ports_of(service: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["port"] for port in service["spec"]["ports"]}


def test_ports_match_settings(render: Render):
    """The Service exposes both protocols on the ports that the service listens on."""
    manifests = render()
    container = container_of(manifests)
    listening = {"http": Settings.http_port, "grpc": Settings.grpc_port}
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == listening
    assert {
        name: int(environment(container)[f"{name.upper()}_PORT"]) for name in listening
    } == listening
    assert ports_of(manifests["Service"]) == listening
    ports = manifests["Service"]["spec"]["ports"]
    assert [port["targetPort"] for port in ports] == ["http", "grpc"]
    assert [port["appProtocol"] for port in ports] == ["http", "kubernetes.io/h2c"]


def test_service_port_can_change(render: Render):
    """A different port of the Service does not change the container's port. Routes and `helm test` use the new port."""
    values = {"service": {"httpPort": 80, "grpcPort": 90}, **FEATURES["routes"]}
    manifests = render(**values)
    assert ports_of(manifests["Service"]) == {"http": 80, "grpc": 90}
    assert container_of(manifests)["ports"] == container_of(render())["ports"]
    for kind, port in (("HTTPRoute", 80), ("GRPCRoute", 90)):
        assert manifests[kind]["spec"]["rules"][0]["backendRefs"] == [{"name": NAME, "port": port}]
    for kind, port in (("rest", 80), ("grpc", 90)):
        (container,) = manifests[f"Pod/test-{kind}"]["spec"]["containers"]
        assert environment(container)["ADDRESS"] == f"{NAME}.default.svc:{port}"


def test_selectors_match_only_deployment_pods(render: Render):
    """Every selector matches the Deployment's pods, and not those of `helm test`."""
    manifests = render(**FEATURES["all, behind TLS"]) | render(**FEATURES["all, in the clear"])
    spec = {key: manifest["spec"] for key, manifest in manifests.items() if "spec" in manifest}
    selectors = [
        spec["Service"]["selector"],
        spec["Service/headless"]["selector"],
        *(
            spec[kind]["selector"]["matchLabels"]
            for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor")
        ),
        spec["NetworkPolicy"]["podSelector"]["matchLabels"],
    ]
    (spread,) = pod_of(manifests)["topologySpreadConstraints"]
    for labels in [*selectors, spread["labelSelector"]["matchLabels"]]:
        assert selected(manifests, labels) == {"Deployment"}
    assert len(manifests) > 15


def test_headless_service_uses_pod_port(render: Render):
    """The headless Service has the pods' gRPC port, and no HTTP port that a ServiceMonitor would scrape twice."""
    service = render(service={"grpcPort": 90, "headless": True})["Service/headless"]
    assert service["spec"]["clusterIP"] == "None"
    assert ports_of(service) == {"grpc": Settings.grpc_port}
    assert "Service/headless" not in render()


def test_services_use_ip_families(render: Render):
    """Both Services use the configured IP families in order. By default, the cluster chooses."""
    families = {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]}
    given, silent = (render(service={"headless": True, **values}) for values in (families, {}))
    for key in ("Service", "Service/headless"):
        assert given[key]["spec"] == {**silent[key]["spec"], **families}
        assert not families.keys() & silent[key]["spec"].keys()


def test_replicas_are_set_once(render: Render):
    """The Deployment sets the number of replicas, unless a HorizontalPodAutoscaler or KEDA scales it."""
    assert render(replicaCount=3)["Deployment"]["spec"]["replicas"] == 3
    for kind, values in (("HorizontalPodAutoscaler", HPA), ("ScaledObject", KEDA)):
        manifests = render(**values)
        assert "replicas" not in manifests["Deployment"]["spec"]
        assert (
            manifests[kind]["spec"]["scaleTargetRef"]["name"]
            == manifests["Deployment"]["metadata"]["name"]
        )


def test_hpa_uses_cpu_and_requests(render: Render):
    """Each target becomes a metric. Scaling up is immediate, scaling down has a stabilization window."""
    spec = render(**HPA)["HorizontalPodAutoscaler"]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 9)
    cpu, requests = spec["metrics"]
    assert cpu["resource"] == {
        "name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 75},
    }
    assert requests["pods"] == {
        "metric": {"name": "inference_requests_in_flight"},
        "target": {"type": "AverageValue", "averageValue": "8"},
    }
    windows = {
        way: spec["behavior"][way]["stabilizationWindowSeconds"] for way in ("scaleUp", "scaleDown")
    }
    assert windows == {"scaleUp": 0, "scaleDown": 300}
    only = {**ENABLED, "targetCPUUtilizationPercentage": None, "targetRequestsInFlight": 1}
    assert [
        metric["type"]
        for metric in render(autoscaling=only)["HorizontalPodAutoscaler"]["spec"]["metrics"]
    ] == ["Pods"]


def test_keda_uses_same_metrics(render: Render):
    """KEDA queries Prometheus for this release's requests, and has the other triggers and the HPA's behavior."""
    spec = render(**KEDA)["ScaledObject"]["spec"]
    requests, cpu, cron = spec["triggers"]
    assert requests["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": f'sum(inference_requests_in_flight{{job="{NAME}", namespace="default"}})',
        "threshold": f"{0.75 * Settings(workers=1).max_concurrency:g}",
        "ignoreNullValues": "false",
    }
    assert "authenticationRef" not in requests
    assert cpu == {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}
    assert cron == KEDA["keda"]["triggers"][0]
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == render(**HPA)["HorizontalPodAutoscaler"]["spec"]["behavior"]


def test_keda_uses_custom_query(render: Render):
    """A custom query replaces the chart's query and needs no monitor. Credentials are passed on."""
    reference = {"name": "token", "kind": "ClusterTriggerAuthentication"}
    prometheus = {
        "serverAddress": "https://metrics",
        "query": 'sum(a{b=~"\\\\d\'"})',
        "authenticationRef": reference,
    }
    manifest = render(keda={**ENABLED, "prometheus": prometheus})["ScaledObject"]
    (trigger,) = manifest["spec"]["triggers"]
    assert (trigger["metadata"]["query"], trigger["authenticationRef"]) == (
        prometheus["query"],
        reference,
    )
    validator_of("scaledobject.keda.sh", "v1alpha1").validate(manifest)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({}, {"maxUnavailable": 1}),
        ({"maxUnavailable": None, "minAvailable": "50%"}, {"minAvailable": "50%"}),
    ],
)
def test_disruption_budget(render: Render, budget: dict[str, Any], expected: dict[str, Any]):
    """The budget has one of the two limits, and allows evicting unready pods on Kubernetes 1.27 or later."""
    for version, policy in (("1.26", {}), ("1.27", {"unhealthyPodEvictionPolicy": "AlwaysAllow"})):
        values = {"replicaCount": 2, "podDisruptionBudget": {**ENABLED, **budget}}
        spec = render(kubernetes=version, **values)["PodDisruptionBudget"]["spec"]
        assert {
            name: value for name, value in spec.items() if name != "selector"
        } == expected | policy


def test_network_policy(render: Render):
    """The policy opens both ports, to all or to given sources and `helm test`, and allows DNS and given egress."""
    named = {port["name"] for port in container_of(render())["ports"]}
    spec = render(networkPolicy=ENABLED)["NetworkPolicy"]["spec"]
    (ingress,), (dns,) = spec["ingress"], spec["egress"]
    assert {port["port"] for port in ingress["ports"]} == named
    assert "from" not in ingress
    assert {(port["protocol"], port["port"]) for port in dns["ports"]} == {
        (protocol, port) for protocol in ("UDP", "TCP") for port in (53, 5353)
    }
    manifests = render(**FEATURES["policy"])
    spec, given = manifests["NetworkPolicy"]["spec"], FEATURES["policy"]["networkPolicy"]
    tests, *others = spec["ingress"][0]["from"]
    assert selected(manifests, tests["podSelector"]["matchLabels"]) == {
        "Pod/test-rest",
        "Pod/test-grpc",
    }
    assert (others, spec["egress"]) == (given["ingress"], [dns, *given["egress"]])


def test_ingresses_route_to_service(render: Render):
    """Each Ingress routes its hosts to the port of its protocol. REST exposes /v2 but not the metrics."""
    manifests = render(**FEATURES["ingress"])
    spec = manifests["Ingress"]["spec"]
    assert [rule["host"] for rule in spec["rules"]] == ["iris.example.com", "iris.example.org"]
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == FEATURES["ingress"]["ingress"]["tls"]
    (grpc,) = manifests["Ingress/grpc"]["spec"]["rules"]
    assert "host" not in grpc
    for rule, path, port in (
        *((rule, "/v2", "http") for rule in spec["rules"]),
        (grpc, "/", "grpc"),
    ):
        (route,) = rule["http"]["paths"]
        assert (route["path"], route["pathType"]) == (path, "Prefix")
        assert route["backend"]["service"] == {"name": NAME, "port": {"name": port}}
        assert port in ports_of(manifests["Service"])
    assert manifests["Ingress/grpc"]["metadata"]["annotations"].popitem()[1] == "GRPC"


def test_routes_point_to_service(render: Render):
    """Each route has its Gateway, hostnames and the Service's port of its protocol."""
    manifests = render(**FEATURES["routes"])
    for kind, port, value in (
        ("HTTPRoute", "http", "httpRoute"),
        ("GRPCRoute", "grpc", "grpcRoute"),
    ):
        spec = manifests[kind]["spec"]
        assert spec["parentRefs"] == GATEWAY
        assert spec["hostnames"] == FEATURES["routes"][value]["hostnames"]
        (rule,) = spec["rules"]
        assert rule["backendRefs"] == [{"name": NAME, "port": ports_of(manifests["Service"])[port]}]
    assert manifests["HTTPRoute"]["spec"]["rules"][0]["matches"] == [
        {"path": {"type": "PathPrefix", "value": "/v2"}}
    ]
    given = FEATURES["routes"]["grpcRoute"]
    assert manifests["HTTPRoute"]["spec"]["rules"][0]["timeouts"] == {"request": "60s"}
    assert manifests["GRPCRoute"]["spec"]["rules"][0]["filters"] == given["filters"]
    assert manifests["GRPCRoute"]["spec"]["rules"][0]["matches"] == given["matches"]


def test_chart_version_restarts_no_pod(render: Render):
    """The chart's version is a label of every object except the pod template, so a new version restarts no pod."""
    manifests = render()
    for key in ("Deployment", "Service"):
        assert manifests[key]["metadata"]["labels"]["helm.sh/chart"].startswith(
            "open-inference-service-"
        )
    template = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert "helm.sh/chart" not in template
    assert template.items() < manifests["Deployment"]["metadata"]["labels"].items()


def test_optional_objects_are_off_by_default(render: Render):
    """By default, the chart needs neither KEDA nor the Gateway API nor prometheus-operator."""
    assert set(render()) == {
        "Deployment",
        "Service",
        "ServiceAccount",
        "Pod/test-rest",
        "Pod/test-grpc",
    }


def test_monitors_use_tls(render: Render):
    """With TLS, monitors scrape over HTTPS with the certificate's name, and pass on additional settings."""
    added = {"ca": {"secret": {"name": "certificate", "key": "ca.crt"}}}
    for kind, member in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):

        def endpoint(kind=kind, member=member, **values: Any) -> dict[str, Any]:
            monitor = {
                kind[0].lower() + kind[1:]: {**ENABLED, "endpoint": values.pop("endpoint", {})}
            }
            return render(monitoring=monitor, **values)[kind]["spec"][member][0]

        secure = {
            **endpoint(),
            "scheme": "https",
            "tlsConfig": {"serverName": f"{NAME}.default.svc", **added},
        }
        assert endpoint(**TLS, endpoint={"tlsConfig": added}) == secure
        other = {"serverName": "other.example.com"}
        assert endpoint(**TLS, endpoint={"tlsConfig": other})["tlsConfig"] == other
