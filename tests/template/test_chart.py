"""deploy/helm: Kubernetes takes what the chart renders, checkers find nothing, and its README tells of every value."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from .chart_values import ENABLED, FEATURES, GATEWAY
from .environments import make_environment, make_project, run
from .helm import ROOT, Helm
from .manifests import CHART, DEPLOY, Render, validator_of

# The first that the chart takes, one between, and the newest that the validator knows.
KUBERNETES = ["1.25", "1.31", ".".join(kubernetes_validate.latest_version().split(".")[:2])]
CUSTOM = {
    "GRPCRoute": ("grpcroute.gateway.networking.k8s.io", "v1"),
    "HTTPRoute": ("httproute.gateway.networking.k8s.io", "v1"),
    "PodMonitor": ("podmonitor.monitoring.coreos.com", "v1"),
    "PrometheusRule": ("prometheusrule.monitoring.coreos.com", "v1"),
    "ScaledObject": ("scaledobject.keda.sh", "v1alpha1"),
    "ServiceMonitor": ("servicemonitor.monitoring.coreos.com", "v1"),
}


@pytest.fixture
def values_file(tmp_path: Path):
    """values_file(values): a file that helm reads them from."""

    def write(values: dict[str, Any]) -> Path:
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        return file

    return write


@pytest.mark.parametrize("feature", ["defaults", "all, behind TLS", "all, in the clear"])
def test_chart_passes_helm_lint(helm: Helm, values_file, feature: str):
    """The chart has nothing that `helm lint --strict` warns of."""
    done = helm("lint", "--strict", CHART, "--values", values_file(FEATURES[feature]))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_oldest_kubernetes_is_the_one_that_is_tried():
    """Chart.yaml's kubeVersion is where the versions begin that the manifests are held against."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


@pytest.mark.parametrize("feature", FEATURES)
def test_manifests_are_valid_kubernetes(render: Render, feature: str):
    """No manifest has a member that Kubernetes of any age does not know, and each has all that it must have."""
    for version in KUBERNETES:
        for manifest in render(kubernetes=version, **FEATURES[feature]).values():
            if manifest["kind"] not in CUSTOM:
                kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("feature", [name for name in FEATURES if name in ("routes", "keda") or "all" in name])
def test_custom_resources_are_valid(render: Render, feature: str):
    """The CRDs take what is theirs, and would refuse a misspelt member."""
    manifests = [each for each in render(**FEATURES[feature]).values() if each["kind"] in CUSTOM]
    assert manifests
    for manifest in manifests:
        validator = validator_of(*CUSTOM[manifest["kind"]])
        validator.validate(manifest)
        manifest["spec"]["misspelt"] = True
        assert not validator.is_valid(manifest)


def test_every_custom_resource_is_tried(render: Render):
    """The features together render each custom resource that has a schema."""
    kinds = {each["kind"] for values in FEATURES.values() for each in render(**values).values()}
    assert kinds >= CUSTOM.keys()


def test_checkov_finds_nothing(helm: Helm, values_file, tmp_path: Path):
    """checkov passes what is rendered, but for the rules that are left out with a reason."""
    python = make_environment("checkov", Path(__file__).parent / "checkov" / "requirements.txt")
    rendered = tmp_path / "rendered"
    for feature in ("defaults", "all, behind TLS", "all, in the clear"):
        folder = rendered / feature.replace(" ", "-")
        folder.mkdir(parents=True)
        done = helm("template", "demo", CHART, "--values", values_file(FEATURES[feature]))
        assert done.returncode == 0, done.stderr
        (folder / "chart.yaml").write_text(done.stdout)
    config = DEPLOY / ".checkov.yaml"
    printed = run(python, python.parent / "checkov", "--config-file", config, "--directory", rendered, "-o", "json")
    summary = json.loads(printed)["summary"]
    assert summary["failed"] == 0
    assert summary["passed"] > 300
    for line in config.read_text().partition("skip-check:\n")[2].splitlines():
        assert re.fullmatch(r"  - CKV2?_K8S_\d+  # \w.{20,}", line)


def test_names_follow_the_chart(render: Render, tmp_path: Path):
    """Under another chart's name nothing keeps the name of this one: the templates hold none."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    for file in ("Chart.yaml", "values.yaml"):
        text = (chart / file).read_text().replace("open-inference-service", "other")
        (chart / file).write_text(text)
    manifests = render(chart, **FEATURES["all, behind TLS"])
    assert {each["metadata"]["name"][:10] for each in manifests.values()} == {"demo-other"}
    assert "open-inference" not in json.dumps(manifests)


def test_the_longest_names_fit(render: Render):
    """A long name of a chart is cut, so that the names made of it are within Kubernetes' 63 characters."""
    manifests = render(nameOverride="n" * 63, **FEATURES["service"], **FEATURES["monitoring"])
    assert max(len(each["metadata"]["name"]) for each in manifests.values()) <= 63
    labels = [label for each in manifests.values() for label in each["metadata"]["labels"].values()]
    assert max(map(len, labels)) <= 63


def fresh_readme(chart: Path, into: Path) -> str:
    """The README of `chart` with its table made anew."""
    shutil.copytree(chart, into)
    subprocess.run([sys.executable, into / "values_table.py"], check=True)
    return (into / "README.md").read_text()


def test_the_readme_has_the_values(tmp_path: Path):
    """The table in the chart's README is the one that `make values` makes of values.yaml, here and in the template."""
    for number, chart in enumerate((CHART, ROOT / "{{cookiecutter.project_slug}}/deploy/helm")):
        fresh = fresh_readme(chart, tmp_path / str(number))
        assert fresh == (chart / "README.md").read_text(), f"{chart}/README.md is stale: make values"


def test_the_example_works(render: Render):
    """The README's values are such as the chart takes, and render what they speak of."""
    (example,) = re.findall(r"^```yaml\n(.*?)^```", (CHART / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    manifests = render(**yaml.safe_load(example))
    wanted = {"HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceMonitor", "PrometheusRule"}
    assert manifests.keys() > wanted
    validator_of(*CUSTOM["ServiceMonitor"]).validate(manifests["ServiceMonitor"])


def leaves(values: Any, path: str = "") -> set[str]:
    """The dotted names of all values."""
    if not isinstance(values, dict) or not values:
        return {path}
    return {name for key, value in values.items() for name in leaves(value, f"{path}.{key}".lstrip("."))}


def test_the_table_tells_of_each_value():
    """Each value of values.yaml, as YAML's own reader finds it, is in the table, by itself or as what holds it."""
    listed = set(re.findall(r"^\| `([\w.]+)` \| `", (CHART / "README.md").read_text(), re.MULTILINE))
    for name in leaves(yaml.safe_load((CHART / "values.yaml").read_text())):
        parts = name.split(".")
        assert any(".".join(parts[:end]) in listed for end in range(1, len(parts) + 1)), name


def test_a_project_of_another_name_has_a_chart_of_its_own(helm: Helm, tmp_path: Path):
    """With other answers chart and README bear their names; the chart passes helm, and the table is fresh."""
    project = make_project(tmp_path, project_name="Churn of Customers", image_repository="ghcr.io/ada/churn")
    chart = project / "deploy" / "helm"
    done = helm("lint", "--strict", chart)
    assert done.returncode == 0, done.stdout + done.stderr
    rendered = helm("template", "demo", chart).stdout
    assert 'image: "ghcr.io/ada/churn:0.1.0"' in rendered
    assert "open-inference-service" not in rendered
    readme = (chart / "README.md").read_text()
    assert "helm install churn-of-customers deploy/helm" in readme
    assert "open-inference-service" not in readme
    assert fresh_readme(chart, tmp_path / "fresh") == readme


def test_the_package_has_what_it_needs_alone(helm: Helm, tmp_path: Path):
    """`helm package` leaves out what makes the README, and a packaged chart renders as the folder does."""
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    shutil.unpack_archive(package, tmp_path)
    names = {path.name for path in (tmp_path / "open-inference-service").rglob("*")}
    assert not names & {"values_table.py", ".helmignore", "__pycache__"}
    assert helm("template", "demo", package).stdout == helm("template", "demo", CHART).stdout


REFUSED_BY_SCHEMA = [
    ({"replicas": 2}, "replicas"),
    ({"model": {"nmae": "iris"}}, "nmae"),
    ({"settings": {"MODEL_VERSION": 2}}, "settings.MODEL_VERSION"),
    ({"settings": {"WORKER": 2}}, "WORKER"),
    ({"settings": {"WORKERS": 0}}, "settings.WORKERS"),
    ({"settings": {"HTTP_PORT": 80}}, "HTTP_PORT"),
    ({"settings": {"DRAIN_SECONDS": None}}, "DRAIN_SECONDS"),
    ({"settings": {"GRACEFUL_TIMEOUT": None}}, "GRACEFUL_TIMEOUT"),
    ({"settings": {"LOG_LEVEL": "LOUD"}}, "settings.LOG_LEVEL"),
    ({"service": {"httpPort": "8080"}}, "service.httpPort"),
    ({"securityContext": {"readOnlyRootFileSystem": False}}, "readOnlyRootFileSystem"),
    ({"podSecurityContext": {"readOnlyRootFilesystem": True}}, "readOnlyRootFilesystem"),
    ({"probes": {"liveness": {"path": "/"}}}, "path"),
    ({"probes": {"protocol": "tcp"}}, "probes.protocol"),
    ({"extraEnv": [{"name": "OTHER", "value": 2}]}, "extraEnv.0.value"),
    ({"extraEnv": [{"name": "OTHER", "valeu": "2"}]}, "valeu"),
    ({"tls": {"secretName": None}}, "secretName"),
    ({"apiKeys": {"keys": ["secret"]}}, "keys"),
    ({"podLabels": {"app.kubernetes.io/name": "other"}}, "podLabels"),
    ({"shm": {"sizeLimit": "64M8"}}, "shm.sizeLimit"),
    ({"image": {"digest": "latest"}}, "image.digest"),
    ({"keda": {"minReplicaCount": 0}}, "keda.minReplicaCount"),
    ({"ingress": {"paths": []}}, "ingress.paths"),
    ({"httpRoute": {"parentRefs": [{"namespace": "edge"}]}}, "httpRoute.parentRefs.0"),
    ({"resources": {"limit": {"cpu": "1"}}}, "limit"),
    ({"resources": {"limits": {"memory": "2 Gi"}}}, "resources.limits.memory"),
    ({"model": {"initContainer": {"resources": {"requests": {"cpu": "one"}}}}}, "resources.requests.cpu"),
    ({"tmp": {"sizeLimit": "1ki"}}, "tmp.sizeLimit"),
    ({"image": {"tag": "0.1.0 "}}, "image.tag"),
    ({"image": {"repository": "my images/iris"}}, "image.repository"),
    ({"ingress": {"hosts": ["iris .example.com"]}}, "ingress.hosts.0"),
    ({"ingress": {"tls": [{"hosts": [" iris.example.com"]}]}}, "ingress.tls.0.hosts.0"),
    ({"grpcRoute": {"hostnames": ["Iris.example.com"]}}, "grpcRoute.hostnames.0"),
    ({"grpcRoute": {"timeouts": {"request": "60s"}}}, "grpcRoute.timeouts"),
    ({"progressDeadlineSeconds": 0}, "progressDeadlineSeconds"),
    ({"service": {"ipFamilies": ["ipv6"]}}, "service.ipFamilies.0"),
    ({"keda": {"prometheus": {"authenticationRef": {"nmae": "token"}}}}, "nmae"),
]
REFUSED_IN_WORDS = [
    ({"extraEnv": [{"name": "HTTP_PORT", "value": "9000"}]}, "extraEnv: HTTP_PORT follows from other values"),
    ({"settings": {"WORKERS": 2}, "extraEnv": [{"name": "WORKERS", "value": "3"}]}, "WORKERS is in settings"),
    ({"autoscaling": ENABLED, "keda": ENABLED}, "autoscaling and keda: both are enabled"),
    ({"autoscaling": {**ENABLED, "targetCPUUtilizationPercentage": None}}, "give targetCPUUtilizationPercentage"),
    ({"keda": ENABLED}, "give prometheus.serverAddress"),
    ({"podDisruptionBudget": {**ENABLED, "minAvailable": 1}}, "give maxUnavailable or minAvailable"),
    ({"podDisruptionBudget": {**ENABLED, "maxUnavailable": None}}, "give maxUnavailable or minAvailable"),
    ({"probes": {"protocol": "grpc"}, "tls": {"secretName": "a"}}, "the kubelet asks by gRPC without TLS only"),
    (
        {"model": {"persistentVolumeClaim": {"claimName": "a"}, "initContainer": {"image": "b"}}},
        "both would be at /mnt/models",
    ),
    ({"monitoring": {"serviceMonitor": ENABLED, "podMonitor": ENABLED}}, "each pod would count twice"),
    ({"httpRoute": ENABLED}, "httpRoute.parentRefs: name the Gateway"),
    ({"grpcRoute": ENABLED}, "grpcRoute.parentRefs: name the Gateway"),
    (
        {
            "httpRoute": {**ENABLED, "parentRefs": GATEWAY, "hostnames": ["a.example.com"]},
            "grpcRoute": {**ENABLED, "parentRefs": GATEWAY, "hostnames": ["a.example.com"]},
        },
        "hostnames: a.example.com is of both",
    ),
    (
        {"httpRoute": {**ENABLED, "parentRefs": GATEWAY}, "grpcRoute": {**ENABLED, "parentRefs": GATEWAY}},
        "hostnames: httpRoute and grpcRoute have the same parentRef and no names",
    ),
    ({"autoscaling": {**ENABLED, "minReplicas": 6}}, "autoscaling: minReplicas is more than maxReplicas"),
    (
        {"keda": {**ENABLED, "targetCPUUtilizationPercentage": 75, "minReplicaCount": 6}},
        "keda: minReplicaCount is more than maxReplicaCount",
    ),
    ({"keda": {**ENABLED, "prometheus": {"serverAddress": "http://a"}}}, "keda.prometheus: enable monitoring"),
    ({"service": {"grpcPort": 8080}}, "service: httpPort and grpcPort are the same"),
    ({"strategy": {"rollingUpdate": {"maxSurge": 0}}}, "with maxSurge and maxUnavailable 0"),
    ({"strategy": {"rollingUpdate": {"maxSurge": "0%"}}}, "with maxSurge and maxUnavailable 0"),
    *(({"settings": {"HOST": host}}, f"settings.HOST: at {host} nobody") for host in ("127.0.0.1", "::1", "localhost")),
]
TAKEN = [
    {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
    {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 0}}},
    {"strategy": {"rollingUpdate": {"maxSurge": None, "maxUnavailable": None}}},
    {"image": {"repository": "localhost:5000/a_b/iris", "tag": "v1.0_rc-1"}},
    {"resources": {"limits": {"cpu": 1.5, "memory": "1e9", "nvidia.com/gpu": 1}}, "tmp": {"sizeLimit": "64M"}},
    {"ingress": {"hosts": ["*.example.com"]}},
    {"httpRoute": {**ENABLED, "parentRefs": GATEWAY}, "grpcRoute": {**ENABLED, "parentRefs": [{"name": "other"}]}},
    {"settings": {"HOST": "0.0.0.0"}},
]


@pytest.mark.parametrize(("values", "words"), REFUSED_BY_SCHEMA + REFUSED_IN_WORDS, ids=repr)
def test_what_would_not_work_is_refused(helm: Helm, values_file, values: dict[str, Any], words: str):
    """A value that the chart does not know, or that would not work, is an error that names it."""
    done = helm("template", "demo", CHART, "--values", values_file(values))
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.parametrize("values", TAKEN, ids=repr)
def test_what_is_near_to_what_is_refused_is_taken(render: Render, values: dict[str, Any]):
    """No rule refuses what Kubernetes would take."""
    for manifest in render(**values).values():
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, KUBERNETES[-1], strict=True)


def test_names_that_look_like_something_else_are_text(helm: Helm, values_file):
    """A release called 2024, and names such as true, are rendered as text."""
    values = {**FEATURES["all, behind TLS"], "nameOverride": "true", "fullnameOverride": "null"}
    values["serviceAccount"] = {"name": "007"}
    done = helm("template", "2024", CHART, "--values", values_file(values))
    assert done.returncode == 0, done.stderr
    for manifest in yaml.safe_load_all(done.stdout):
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, KUBERNETES[-1], strict=True)
        metadata = manifest["metadata"]
        assert {type(each) for each in [metadata["name"], *metadata["labels"].values()]} == {str}
        assert metadata["labels"]["app.kubernetes.io/instance"] == "2024"


@pytest.mark.parametrize("release", ["2024", "my.release"])
def test_a_release_whose_service_would_have_no_name_is_refused(helm: Helm, release: str):
    """A release's name may be what a Service's may not."""
    done = helm("template", release, CHART)
    assert done.returncode != 0
    assert f"{release}-open-inference-service: a Service's name begins with a letter" in done.stderr
    assert helm("template", release, CHART, "--set", "fullnameOverride=iris").returncode == 0


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """`schema` and all that is in it."""
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from subschemas(part)


def test_the_schema_is_closed():
    """Wherever it says what an object of the chart's has, it takes nothing else; the rest is Kubernetes' to check."""
    schemas = list(subschemas(json.loads((CHART / "values.schema.json").read_text())))
    own = [each for each in schemas if each.get("type") == "object" and any(each.get("properties", {}).values())]
    assert len(own) > 30
    assert all(each.get("additionalProperties") is False for each in own)


def test_an_older_kubernetes_is_refused(helm: Helm):
    """helm says so before it installs anything."""
    done = helm("template", "demo", CHART, "--kube-version", "1.24")
    assert done.returncode != 0
    assert "kubeVersion" in done.stderr
