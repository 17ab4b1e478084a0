"""deploy/helm: what each object says, and that they agree with each other and with the service."""

from __future__ import annotations

from typing import Any

import pytest

from app import __version__
from app.config import Settings
from app.metricfiles import WORKER_BYTES

from .chart_values import CLAIMED, ENABLED, FEATURES, FETCHED, GATEWAY, HPA, KEDA, KEYS, TLS
from .manifests import (
    READY,
    Render,
    assert_probes,
    assert_restricted,
    container_of,
    environment,
    pod_of,
    probes,
)

NAME = "demo-open-inference-service"


def selected(manifests: dict[str, Any], labels: dict[str, str]) -> set[str]:
    """The keys of the pods, the Deployment's among them, that `labels` select."""
    pods = {key: each for key, each in manifests.items() if each["kind"] == "Pod"}
    pods["Deployment"] = manifests["Deployment"]["spec"]["template"]
    return {key for key, pod in pods.items() if labels.items() <= pod["metadata"]["labels"].items()}


def ports_of(service: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["port"] for port in service["spec"]["ports"]}


def mounts(container: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


def volumes(manifests: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {volume["name"]: volume for volume in pod_of(manifests)["volumes"]}


def test_ports_are_those_of_the_settings(render: Render):
    """Both protocols are reached, through the Service, at the ports that the service listens on."""
    manifests = render()
    container = container_of(manifests)
    listening = {"http": Settings.http_port, "grpc": Settings.grpc_port}
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == listening
    assert {name: int(environment(container)[f"{name.upper()}_PORT"]) for name in listening} == listening
    assert ports_of(manifests["Service"]) == listening
    ports = manifests["Service"]["spec"]["ports"]
    assert [port["targetPort"] for port in ports] == ["http", "grpc"]
    assert [port["appProtocol"] for port in ports] == ["http", "kubernetes.io/h2c"]


def test_service_port_is_free_to_choose(render: Render):
    """Another port of the Service leaves the container's as it is; routes and `helm test` follow."""
    values = {"service": {"httpPort": 80, "grpcPort": 90}, **FEATURES["routes"]}
    manifests = render(**values)
    assert ports_of(manifests["Service"]) == {"http": 80, "grpc": 90}
    assert container_of(manifests)["ports"] == container_of(render())["ports"]
    for kind, port in (("HTTPRoute", 80), ("GRPCRoute", 90)):
        assert manifests[kind]["spec"]["rules"][0]["backendRefs"] == [{"name": NAME, "port": port}]
    for kind, port in (("rest", 80), ("grpc", 90)):
        (container,) = manifests[f"Pod/test-{kind}"]["spec"]["containers"]
        assert environment(container)["ADDRESS"] == f"{NAME}.default.svc:{port}"


def test_selectors_match_the_pods_alone(render: Render):
    """Whatever selects pods selects the Deployment's, and not those of `helm test`."""
    manifests = render(**FEATURES["all, behind TLS"]) | render(**FEATURES["all, in the clear"])
    spec = {key: each["spec"] for key, each in manifests.items() if "spec" in each}
    selectors = [
        spec["Service"]["selector"],
        spec["Service/headless"]["selector"],
        *(spec[kind]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor")),
        spec["NetworkPolicy"]["podSelector"]["matchLabels"],
    ]
    (spread,) = pod_of(manifests)["topologySpreadConstraints"]
    for labels in [*selectors, spread["labelSelector"]["matchLabels"]]:
        assert selected(manifests, labels) == {"Deployment"}
    assert len(manifests) > 15


def test_pods_are_restricted(render: Render):
    """The pods, those of `helm test` too, run with no more rights than they need; so does what brings the model."""
    for feature in ("defaults", "tls", "keys", "fetched", "claimed"):
        manifests = render(**FEATURES[feature])
        pods = [pod_of(manifests), manifests["Pod/test-rest"]["spec"], manifests["Pod/test-grpc"]["spec"]]
        for pod in pods:
            assert_restricted(pod)
            assert pod["serviceAccountName"] == NAME
        assert manifests["ServiceAccount"]["automountServiceAccountToken"] is False


def test_memory_and_disk_are_limited(render: Render):
    """Both empty folders have a limit, within the container's own; /dev/shm is memory, for more workers than cores."""
    manifests = render()
    folders, sizes = volumes(manifests), {"Mi": 2**20, "Gi": 2**30}

    def size(text: str) -> int:
        return int(text[:-2]) * sizes[text[-2:]]

    assert mounts(container_of(manifests)) == {"/tmp": "tmp", "/dev/shm": "shm"}
    limits = container_of(manifests)["resources"]["limits"]
    assert (
        limits.keys()
        == {"cpu", "memory", "ephemeral-storage"}
        == container_of(manifests)["resources"]["requests"].keys()
    )
    assert size(folders["tmp"]["emptyDir"]["sizeLimit"]) < size(limits["ephemeral-storage"])
    assert folders["shm"]["emptyDir"]["medium"] == "Memory"
    assert 16 * WORKER_BYTES < size(folders["shm"]["emptyDir"]["sizeLimit"]) < size(limits["memory"])
    shm = volumes(render(shm={"sizeLimit": "1Gi"}))["shm"]["emptyDir"]
    assert shm == {"medium": "Memory", "sizeLimit": "1Gi"}


def test_probes_are_distinct(render: Render):
    """Startup and readiness ask whether the model is loaded, liveness whether the process answers."""
    container = container_of(render())
    assert_probes(container)
    assert {probe["httpGet"]["port"] for _, probe in probes(container)} == {"http"}


def test_probes_by_grpc(render: Render):
    """On demand gRPC is asked whether the model is loaded, with the same patience; whether it lives stays REST's."""
    by_http, by_grpc = container_of(render()), container_of(render(probes={"protocol": "grpc"}))
    for name in ("startupProbe", "readinessProbe"):
        assert by_http[name].pop("httpGet")["path"] == READY
        assert by_grpc[name].pop("grpc") == {"port": Settings.grpc_port}
    assert dict(probes(by_http)) == dict(probes(by_grpc))


def test_tls_and_keys_come_from_secrets(render: Render):
    """A Secret of each is mounted where the settings look for it; then the probes ask by HTTPS, with no key."""
    manifests = render(tls={"secretName": "certificate"}, apiKeys={"secretName": "007"})
    container = container_of(manifests)
    folders = volumes(manifests)
    secrets = {path: folders[name].get("secret") for path, name in mounts(container).items() if path[:5] == "/etc/"}
    assert secrets == {
        "/etc/service/tls": {"secretName": "certificate"},
        "/etc/service/keys": {"secretName": "007"},
    }
    env = environment(container)
    assert (env["TLS_CERT"], env["TLS_KEY"]) == ("/etc/service/tls/tls.crt", "/etc/service/tls/tls.key")
    assert env["API_KEYS_FILE"] == "/etc/service/keys/keys.txt"
    assert {probe["httpGet"]["scheme"] for _, probe in probes(container)} == {"HTTPS"}
    assert {port["appProtocol"] for port in manifests["Service"]["spec"]["ports"]} == {"https"}
    assert all("scheme" not in probe["httpGet"] for _, probe in probes(container_of(render(**KEYS))))


def test_the_model_is_in_the_image(render: Render):
    """Unless told otherwise the service looks for the model where it is in the image."""
    manifests = render()
    assert "MODEL_DIR" not in environment(container_of(manifests))
    assert "initContainers" not in pod_of(manifests)


def test_the_model_is_on_a_volume(render: Render):
    """A claim is mounted, to be read, where MODEL_DIR says that the model is."""
    manifests = render(**CLAIMED)
    folder = environment(container_of(manifests))["MODEL_DIR"]
    (mount,) = (each for each in container_of(manifests)["volumeMounts"] if each["mountPath"] == folder)
    assert mount == {"name": "model", "mountPath": "/mnt/models", "subPath": "iris", "readOnly": True}
    assert volumes(manifests)["model"]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}


def test_the_model_is_fetched(render: Render):
    """An init container writes into the folder that the service reads from."""
    manifests = render(**FETCHED, initContainers=[{"name": "first", "image": "busybox:1"}])
    first, fetch = pod_of(manifests)["initContainers"]
    assert (first["name"], fetch["image"], fetch["command"]) == ("first", "fetch:1", ["fetch"])
    assert mounts(fetch) == {"/tmp": "tmp", "/mnt/models": "model"}
    folder = environment(container_of(manifests))["MODEL_DIR"]
    (mount,) = (each for each in container_of(manifests)["volumeMounts"] if each["mountPath"] == folder)
    assert mount == {"name": "model", "mountPath": "/mnt/models", "readOnly": True}
    assert volumes(manifests)["model"]["emptyDir"] == {"sizeLimit": "1Gi"}


def test_image_is_of_the_app_version(render: Render):
    """The tag is the service's version, unless given; a digest counts before it; `helm test` has the same image."""
    assert container_of(render())["image"] == f"open-inference-service:{__version__}"
    image = {"repository": "images.example/models/iris", "tag": "2"}
    assert container_of(render(image=image))["image"] == "images.example/models/iris:2"
    digest = f"sha256:{'a' * 64}"
    manifests = render(image={**image, "digest": digest}, imagePullSecrets=[{"name": "pull"}])
    for pod in (pod_of(manifests), manifests["Pod/test-rest"]["spec"], manifests["Pod/test-grpc"]["spec"]):
        assert pod["containers"][0]["image"] == f"images.example/models/iris@{digest}"
        assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_no_service_of_the_namespace_reaches_the_settings(render: Render):
    """A Service named `http` would else set HTTP_PORT, to an address."""
    assert pod_of(render())["enableServiceLinks"] is False


def test_headless_service_leads_to_the_pods(render: Render):
    """Its name resolves to pods, so it has their own port, and none that a ServiceMonitor would scrape again."""
    service = render(service={"grpcPort": 90, "headless": True})["Service/headless"]
    assert service["spec"]["clusterIP"] == "None"
    assert ports_of(service) == {"grpc": Settings.grpc_port}
    assert "Service/headless" not in render()


def test_update_replaces_before_it_removes(render: Render):
    """No pod is taken away before its successor is ready, unless all are to go at once."""
    strategy = render()["Deployment"]["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert render(**FEATURES["recreated"])["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}


def test_replicas_are_said_once(render: Render):
    """The Deployment says how many there are, unless a HorizontalPodAutoscaler or KEDA does, for that Deployment."""
    assert render(replicaCount=3)["Deployment"]["spec"]["replicas"] == 3
    for kind, values in (("HorizontalPodAutoscaler", HPA), ("ScaledObject", KEDA)):
        manifests = render(**values)
        assert "replicas" not in manifests["Deployment"]["spec"]
        assert manifests[kind]["spec"]["scaleTargetRef"]["name"] == manifests["Deployment"]["metadata"]["name"]


def test_hpa_counts_processors_and_requests(render: Render):
    """Each target is a metric; new pods come at once, and go slowly."""
    spec = render(**HPA)["HorizontalPodAutoscaler"]["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 9)
    cpu, requests = spec["metrics"]
    assert cpu["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    assert requests["pods"] == {
        "metric": {"name": "inference_requests_in_flight"},
        "target": {"type": "AverageValue", "averageValue": "8"},
    }
    windows = {way: spec["behavior"][way]["stabilizationWindowSeconds"] for way in ("scaleUp", "scaleDown")}
    assert windows == {"scaleUp": 0, "scaleDown": 300}
    only = {**ENABLED, "targetCPUUtilizationPercentage": None, "targetRequestsInFlight": 1}
    assert [each["type"] for each in render(autoscaling=only)["HorizontalPodAutoscaler"]["spec"]["metrics"]] == ["Pods"]


def test_keda_counts_the_same(render: Render):
    """KEDA asks Prometheus for this release's requests, and has the other triggers and the same behaviour."""
    spec = render(**KEDA)["ScaledObject"]["spec"]
    requests, cpu, cron = spec["triggers"]
    assert requests["metadata"] == {
        "serverAddress": "http://prometheus:9090",
        "query": f'sum(inference_requests_in_flight{{job="{NAME}", namespace="default"}})',
        "threshold": "4",
    }
    assert cpu == {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}
    assert cron == KEDA["keda"]["triggers"][0]
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == render(**HPA)["HorizontalPodAutoscaler"]["spec"]["behavior"]


@pytest.mark.parametrize(
    ("budget", "expected"),
    [({}, {"maxUnavailable": 1}), ({"maxUnavailable": None, "minAvailable": "50%"}, {"minAvailable": "50%"})],
)
def test_disruption_budget(render: Render, budget: dict[str, Any], expected: dict[str, Any]):
    """It says one of the two, and lets pods go that are not ready where Kubernetes is new enough."""
    for version, policy in (("1.26", {}), ("1.27", {"unhealthyPodEvictionPolicy": "AlwaysAllow"})):
        spec = render(kubernetes=version, podDisruptionBudget={**ENABLED, **budget})["PodDisruptionBudget"]["spec"]
        assert {name: value for name, value in spec.items() if name != "selector"} == expected | policy


def test_network_policy(render: Render):
    """Both ports are open, to all or to who is named and `helm test`; out goes DNS, and what is added."""
    named = {port["name"] for port in container_of(render())["ports"]}
    spec = render(networkPolicy=ENABLED)["NetworkPolicy"]["spec"]
    (ingress,), (dns,) = spec["ingress"], spec["egress"]
    assert {port["port"] for port in ingress["ports"]} == named
    assert "from" not in ingress
    assert {(port["protocol"], port["port"]) for port in dns["ports"]} == {("UDP", 53), ("TCP", 53)}
    manifests = render(**FEATURES["policy"])
    spec, given = manifests["NetworkPolicy"]["spec"], FEATURES["policy"]["networkPolicy"]
    tests, *others = spec["ingress"][0]["from"]
    assert selected(manifests, tests["podSelector"]["matchLabels"]) == {"Pod/test-rest", "Pod/test-grpc"}
    assert (others, spec["egress"]) == (given["from"], [dns, *given["egress"]])


def test_ingresses_lead_to_the_service(render: Render):
    """Each host's paths lead to the port of their protocol; REST shows the protocol, and not the metrics."""
    manifests = render(**FEATURES["ingress"])
    spec = manifests["Ingress"]["spec"]
    assert [rule["host"] for rule in spec["rules"]] == ["iris.example.com", "iris.example.org"]
    assert spec["ingressClassName"] == "nginx"
    assert spec["tls"] == FEATURES["ingress"]["ingress"]["tls"]
    (grpc,) = manifests["Ingress/grpc"]["spec"]["rules"]
    assert "host" not in grpc
    for rule, path, port in (*((rule, "/v2", "http") for rule in spec["rules"]), (grpc, "/", "grpc")):
        (each,) = rule["http"]["paths"]
        assert (each["path"], each["pathType"]) == (path, "Prefix")
        assert each["backend"]["service"] == {"name": NAME, "port": {"name": port}}
        assert port in ports_of(manifests["Service"])
    assert manifests["Ingress/grpc"]["metadata"]["annotations"].popitem()[1] == "GRPC"


def test_routes_lead_to_the_service(render: Render):
    """Each route has its Gateway, its names and the Service's port of its protocol."""
    manifests = render(**FEATURES["routes"])
    for kind, port, value in (("HTTPRoute", "http", "httpRoute"), ("GRPCRoute", "grpc", "grpcRoute")):
        spec = manifests[kind]["spec"]
        assert spec["parentRefs"] == GATEWAY
        assert spec["hostnames"] == FEATURES["routes"][value]["hostnames"]
        (rule,) = spec["rules"]
        assert rule["backendRefs"] == [{"name": NAME, "port": ports_of(manifests["Service"])[port]}]
    assert manifests["HTTPRoute"]["spec"]["rules"][0]["matches"] == [{"path": {"type": "PathPrefix", "value": "/v2"}}]
    given = FEATURES["routes"]["grpcRoute"]
    assert manifests["GRPCRoute"]["spec"]["rules"][0]["filters"] == given["filters"]
    assert manifests["GRPCRoute"]["spec"]["rules"][0]["matches"] == given["matches"]


def test_service_account(render: Render):
    """It is made by the release's name or another, with a cloud's annotations, or is one that exists."""
    annotations = {"cloud.example/role": "reader"}
    manifests = render(serviceAccount={"name": "reader", "annotations": annotations})
    assert manifests["ServiceAccount/reader"]["metadata"]["annotations"] == annotations
    assert pod_of(manifests)["serviceAccountName"] == "reader"
    for values, name in (({"name": "mine"}, "mine"), ({}, "default")):
        manifests = render(serviceAccount={"create": False, **values})
        assert not any(kind.startswith("ServiceAccount") for kind in manifests)
        assert pod_of(manifests)["serviceAccountName"] == name


def test_placement_and_additions_arrive(render: Render):
    """What places the pod, and what is added to it, is passed on; `helm test` goes where the service may."""
    placed, added = FEATURES["placement"], FEATURES["additions"]
    manifests = render(**placed, **added)
    template, pod = manifests["Deployment"]["spec"]["template"], pod_of(manifests)
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "runtimeClassName"):
        assert pod[name] == placed[name]
    for name in ("nodeSelector", "tolerations"):
        assert manifests["Pod/test-rest"]["spec"][name] == placed[name]
    (constraint,) = pod["topologySpreadConstraints"]
    assert constraint.items() > placed["topologySpreadConstraints"][0].items()
    assert template["metadata"]["annotations"] == added["podAnnotations"]
    assert template["metadata"]["labels"]["team"] == "iris"
    assert pod["initContainers"] == added["initContainers"]
    assert pod["containers"][1:] == added["extraContainers"]
    assert pod["volumes"][-1:] == added["extraVolumes"]
    assert pod["containers"][0]["volumeMounts"][-1:] == added["extraVolumeMounts"]
    own = {**placed["topologySpreadConstraints"][0], "labelSelector": {"matchLabels": {"a": "b"}}}
    assert pod_of(render(topologySpreadConstraints=[own]))["topologySpreadConstraints"] == [own]


def test_nothing_is_made_unless_asked_for(render: Render):
    """A cluster without KEDA, the Gateway API or prometheus-operator takes the chart as it is."""
    assert set(render()) == {"Deployment", "Service", "ServiceAccount", "Pod/test-rest", "Pod/test-grpc"}


def test_tls_is_asked_for_by_monitors(render: Render):
    """Prometheus asks by HTTPS where the service speaks nothing else, for the certificate's name, and what is added."""
    added = {"ca": {"secret": {"name": "certificate", "key": "ca.crt"}}}
    for kind, member in (("ServiceMonitor", "endpoints"), ("PodMonitor", "podMetricsEndpoints")):
        value = kind[0].lower() + kind[1:]
        (plain,) = render(monitoring={value: ENABLED})[kind]["spec"][member]
        (secure,) = render(monitoring={value: {**ENABLED, "endpoint": {"tlsConfig": added}}}, **TLS)[kind]["spec"][
            member
        ]
        assert secure == {**plain, "scheme": "https", "tlsConfig": {"serverName": f"{NAME}.default.svc", **added}}
