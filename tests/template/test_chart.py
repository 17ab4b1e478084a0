"""deploy/helm: the manifests are valid, linters find no problems, and the README lists every value."""

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

from .chart_values import ENABLED, FEATURES, GATEWAY, HPA, KEDA
from .environments import make_environment, make_project, run
from .helm import ROOT, Helm
from .manifests import CHART, DEPLOY, Render, container_of, validator_of

# The oldest version that the chart supports, one between, and the newest that the validator knows.
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
    """Return values_file(values), which writes a values file for helm."""

    def write(values: dict[str, Any]) -> Path:
        file = tmp_path / "values.json"
        file.write_text(json.dumps(values))
        return file

    return write


@pytest.mark.parametrize("feature", ["defaults", "all, behind TLS", "all, in the clear"])
def test_chart_passes_helm_lint(helm: Helm, values_file, feature: str):
    """`helm lint --strict` reports no warnings."""
    done = helm("lint", "--strict", CHART, "--values", values_file(FEATURES[feature]))
    assert done.returncode == 0, done.stdout + done.stderr


def test_oldest_supported_kubernetes_is_tested():
    """Chart.yaml's kubeVersion is the oldest version that the manifests are validated against."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"] == f">={KUBERNETES[0]}.0-0"


@pytest.mark.parametrize("feature", FEATURES)
def test_manifests_are_valid_kubernetes(render: Render, feature: str):
    """Every manifest is valid for each tested Kubernetes version, without unknown members."""
    for version in KUBERNETES:
        for manifest in render(kubernetes=version, **FEATURES[feature]).values():
            if manifest["kind"] not in CUSTOM:
                kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("feature", [name for name in FEATURES if name in ("routes", "keda") or "all" in name])
def test_custom_resources_are_valid(render: Render, feature: str):
    """Custom resources are valid for their CRDs, and the validator rejects a misspelled member."""
    manifests = [each for each in render(**FEATURES[feature]).values() if each["kind"] in CUSTOM]
    assert manifests
    for manifest in manifests:
        validator = validator_of(*CUSTOM[manifest["kind"]])
        validator.validate(manifest)
        manifest["spec"]["misspelt"] = True
        assert not validator.is_valid(manifest)


def test_every_custom_resource_is_validated(render: Render):
    """The features render every custom resource that has a schema."""
    kinds = {each["kind"] for values in FEATURES.values() for each in render(**values).values()}
    assert kinds >= CUSTOM.keys()


def test_checkov_finds_nothing(helm: Helm, values_file, tmp_path: Path):
    """checkov passes for the rendered manifests, except for rules that are skipped with a reason."""
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
    """After the chart is renamed, no manifest contains the old name."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    for file in ("Chart.yaml", "values.yaml"):
        text = (chart / file).read_text().replace("open-inference-service", "other")
        (chart / file).write_text(text)
    manifests = render(chart, **FEATURES["all, behind TLS"])
    assert {each["metadata"]["name"][:10] for each in manifests.values()} == {"demo-other"}
    assert "open-inference" not in json.dumps(manifests)


@pytest.mark.parametrize("name", ["n" * 63, f"{'n' * 45}{'-' * 17}n"])
def test_long_names_are_shortened(render: Render, name: str):
    """Names and labels from a long chart name have at most 63 characters and end with a letter or digit."""
    manifests = render(nameOverride=name, **FEATURES["service"], **FEATURES["monitoring"])
    assert max(len(each["metadata"]["name"]) for each in manifests.values()) <= 63
    labels = [label for each in manifests.values() for label in each["metadata"]["labels"].values()]
    assert max(map(len, labels)) <= 63
    assert not re.search("--", manifests["Deployment"]["metadata"]["name"])
    assert not [label for label in labels if re.search(r"^\W|\W$|--test$", label)]


def test_large_numbers_are_integers(helm: Helm, values_file):
    """A large number from a values file is rendered as an integer, not in exponent notation."""
    many = 1_000_000
    settings = {"replicaCount": many, "revisionHistoryLimit": many, "progressDeadlineSeconds": many}
    hpa = {**ENABLED, "minReplicas": many, "maxReplicas": many, "targetCPUUtilizationPercentage": many}
    keda = {**KEDA["keda"], "minReplicaCount": many, "maxReplicaCount": many, "pollingInterval": many}
    keda |= {"prometheus": {"serverAddress": "http://a", "targetRequestsInFlight": many}}
    files = [
        {**settings, **budget(maxUnavailable=many), "tmp": {"sizeLimit": many}},
        {"autoscaling": {**hpa, "targetRequestsInFlight": many}, "probes": {"liveness": {"failureThreshold": many}}},
        {**KEDA, "keda": {**keda, "targetCPUUtilizationPercentage": many}},
        {**budget(minAvailable=many), "replicaCount": many + 1},
    ]
    for values, count in zip(files, (5, 5, 5, 1), strict=True):
        done = helm("template", "demo", CHART, "--values", values_file(values))
        assert done.returncode == 0, done.stderr
        assert "e+0" not in done.stdout
        assert len(re.findall(r": \"?1000000\"?$", done.stdout, re.MULTILINE)) == count


def fresh_readme(chart: Path, into: Path) -> str:
    """Return the README of `chart` after its table is generated again."""
    shutil.copytree(chart, into)
    subprocess.run([sys.executable, ROOT / "tools/values_table.py", into], check=True)
    return (into / "README.md").read_text()


def test_readme_has_current_table(tmp_path: Path):
    """The table in the chart's README matches values.yaml, in this repository and in the template."""
    for number, chart in enumerate((CHART, ROOT / "{{cookiecutter.project_slug}}/deploy/helm")):
        fresh = fresh_readme(chart, tmp_path / str(number))
        assert fresh == (chart / "README.md").read_text(), f"{chart}/README.md is stale: make values"


def test_readme_example_renders(render: Render):
    """The README's example values are valid and render the resources that it describes."""
    (example,) = re.findall(r"^```yaml\n(.*?)^```", (CHART / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    manifests = render(**yaml.safe_load(example))
    wanted = {"HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceMonitor", "PrometheusRule"}
    assert manifests.keys() > wanted
    validator_of(*CUSTOM["ServiceMonitor"]).validate(manifests["ServiceMonitor"])


def leaves(values: Any, path: str = "") -> set[str]:
    """Return the dotted names of all values."""
    if not isinstance(values, dict) or not values:
        return {path}
    return {name for key, value in values.items() for name in leaves(value, f"{path}.{key}".lstrip("."))}


def groups(values: Any, path: str = "") -> set[str]:
    """Return the dotted names of all values that contain others."""
    if not isinstance(values, dict):
        return set()
    return {path} | {name for key, value in values.items() for name in groups(value, f"{path}.{key}".lstrip("."))}


def test_table_lists_commented_values():
    """The table lists every value and every group of values that has a comment in values.yaml."""
    listed = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert listed < leaves(values) | groups(values)
    commented = re.findall(r"^ *(\w+):.*  # ", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert {name.split(".")[-1] for name in listed} >= {*commented} - {*values["settings"]}


def test_project_chart_uses_project_names(helm: Helm, tmp_path: Path):
    """The chart and README of a project use its names. The chart passes `helm lint`, and the table is current."""
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


def test_package_contains_only_required_files(helm: Helm, tmp_path: Path):
    """`helm package` leaves out the README's tools, and the package renders the same manifests as the directory."""
    done = helm("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.glob("*.tgz")
    shutil.unpack_archive(package, tmp_path)
    names = {path.name for path in (tmp_path / "open-inference-service").rglob("*")}
    assert not names & {"values_table.py", ".helmignore", "__pycache__"}
    assert helm("template", "demo", package).stdout == helm("template", "demo", CHART).stdout


def budget(**values: Any) -> dict[str, Any]:
    return {"podDisruptionBudget": {**ENABLED, "maxUnavailable": None, **values}}


def routes(http: list[str], grpc: list[str], gateways: list[dict[str, Any]] = GATEWAY) -> dict[str, Any]:
    """Return values with an HTTPRoute at GATEWAY and a GRPCRoute at `gateways`, with these hostnames."""
    return {
        "httpRoute": {**ENABLED, "parentRefs": GATEWAY, "hostnames": http},
        "grpcRoute": {**ENABLED, "parentRefs": gateways, "hostnames": grpc},
    }


REFUSED_BY_SCHEMA = [
    ({"replicas": 2}, "replicas"),
    ({"model": {"nmae": "iris"}}, "nmae"),
    ({"settings": {"MODEL_VERSION": 2}}, "settings.MODEL_VERSION"),
    ({"settings": {"WORKER": 2}}, "WORKER"),
    ({"settings": {"WORKERS": 0}}, "settings.WORKERS"),
    ({"settings": {"HTTP_PORT": 80}}, "HTTP_PORT"),
    ({"settings": {"SHUTDOWN_DELAY_SECONDS": None}}, "SHUTDOWN_DELAY_SECONDS"),
    ({"settings": {"SHUTDOWN_TIMEOUT_SECONDS": None}}, "SHUTDOWN_TIMEOUT_SECONDS"),
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
    *(
        ({"image": {"repository": name}}, "image.repository")
        for name in ("my images/iris", "a/iris:1", "a.b/C/d", "a..b", "a._b")
    ),
    ({"fullnameOverride": "n" * 54}, "fullnameOverride"),
    ({"enabled": "yes"}, "enabled"),
    ({"ingress": {"hosts": ["iris .example.com"]}}, "ingress.hosts.0"),
    *(({"ingress": {"hosts": [host]}}, "ingress.hosts.0") for host in ("a..b", "a-.b", "a.-b", "a.")),
    ({"ingress": {"tls": [{"hosts": [" iris.example.com"]}]}}, "ingress.tls.0.hosts.0"),
    ({"grpcRoute": {"hostnames": ["Iris.example.com"]}}, "grpcRoute.hostnames.0"),
    ({"grpcRoute": {"timeouts": {"request": "60s"}}}, "grpcRoute.timeouts"),
    ({"strategy": {"rollingUpdate": {"maxUnavailable": "101%"}}}, "rollingUpdate.maxUnavailable"),
    ({"podDisruptionBudget": {"maxUnavailable": "150%"}}, "podDisruptionBudget.maxUnavailable"),
    ({"podDisruptionBudget": {"minAvailable": "1000%"}}, "podDisruptionBudget.minAvailable"),
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
    (routes([], []), "hostnames: httpRoute's * and grpcRoute's * meet at gateway"),
    (routes(["a.example.com"], ["example.com", "a.example.com"]), "httpRoute's a.example.com and grpcRoute's a.exam"),
    (routes([], ["a.example.com"]), "httpRoute's * and grpcRoute's a.example.com"),
    (routes(["a.example.com"], ["*.example.com"]), "httpRoute's a.example.com and grpcRoute's *.example.com"),
    (routes(["*.example.com"], ["*.a.example.com"]), "httpRoute's *.example.com and grpcRoute's *.a.example.com"),
    (routes([], [], [{"name": "gateway", "namespace": "edge"}]), "meet at gateway"),
    (routes([], [], [{"name": "other"}, {**GATEWAY[0], "kind": "Gateway", "port": 443}]), "meet at gateway"),
    ({"podDisruptionBudget": {**ENABLED, "maxUnavailable": ""}}, "give maxUnavailable or minAvailable"),
    *((budget(maxUnavailable=none), f"maxUnavailable: with {none} no node could be drained") for none in (0, "00%")),
    *((budget(minAvailable=all_of), f"with {all_of} of 1 replicas no node could be") for all_of in (1, 2, "50%")),
    ({**budget(minAvailable="100%"), "replicaCount": 9}, "with 100% of 9 replicas no node could be drained"),
    ({**budget(minAvailable=2), **HPA}, "with 2 of 2 replicas no node could be drained"),
    ({**budget(minAvailable="67%"), **KEDA}, "with 67% of 2 replicas no node could be drained"),
    ({"probes": {"startup": {"failureThreshold": 301}}}, "progressDeadlineSeconds: 600 is less than the 602 seconds"),
    ({"probes": {"startup": {"initialDelaySeconds": 301}}}, "is less than the 601 seconds"),
    ({"autoscaling": ENABLED, "resources": None}, "autoscaling.targetCPUUtilizationPercentage: it is of resources"),
    ({**KEDA, "resources": {each: {"cpu": None} for each in ("requests", "limits")}}, "keda.targetCPUUtilization"),
    ({"autoscaling": {**ENABLED, "minReplicas": 6}}, "autoscaling: minReplicas is more than maxReplicas"),
    (
        {"keda": {**ENABLED, "targetCPUUtilizationPercentage": 75, "minReplicaCount": 6}},
        "keda: minReplicaCount is more than maxReplicaCount",
    ),
    ({"keda": {**ENABLED, "prometheus": {"serverAddress": "http://a"}}}, "keda.prometheus: enable monitoring"),
    ({"service": {"grpcPort": 8080}}, "service: httpPort and grpcPort are the same"),
    ({"strategy": {"rollingUpdate": {"maxSurge": 0}}}, "with maxSurge and maxUnavailable 0"),
    ({"strategy": {"rollingUpdate": {"maxSurge": "00%"}}}, "with maxSurge and maxUnavailable 0"),
    *(
        ({"settings": {"HOST": host}}, f"settings.HOST: at {host} nobody")
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
    {"probes": {"startup": {"failureThreshold": 300}}},
    {"autoscaling": ENABLED, "resources": {"requests": {"cpu": None}}},
    {"autoscaling": {**ENABLED, "targetCPUUtilizationPercentage": 0, "targetRequestsInFlight": 3}, "resources": None},
    {"monitoring": {"serviceMonitor": {**ENABLED, "endpoint": None}}},
    {"monitoring": {"podMonitor": {**ENABLED, "endpoint": None}}},
    {"resources": {"limits": {"cpu": 1.5, "memory": "1e9", "nvidia.com/gpu": 1}}, "tmp": {"sizeLimit": "64M"}},
    {"ingress": {"hosts": ["*.example.com"]}},
    {"ingress": {"hosts": ["a--b.c-d.1", "a"]}},
    {"strategy": {"rollingUpdate": {"maxSurge": "200%", "maxUnavailable": "100%"}}},
    {**budget(maxUnavailable="0100%"), "replicaCount": 1},
    *(routes([], [], [{**GATEWAY[0], **other}]) for other in ({"name": "b"}, {"namespace": "b"}, {"sectionName": "b"})),
    routes([], [], [{"name": "gateway", "sectionName": "https"}]),  # in the release's namespace
    routes(["example.com", "a.example.com"], ["*.a.example.com", "b.example.com", "aa.example.com"]),
    {"settings": {"HOST": "0.0.0.0"}},
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
        assert {type(each) for each in [metadata["name"], *metadata["labels"].values()]} == {str}
        assert metadata["labels"]["app.kubernetes.io/instance"] == "2024"


@pytest.mark.parametrize("release", ["2024", "my.release"])
def test_rejects_release_with_invalid_service_name(helm: Helm, release: str):
    """A release name that is not valid as a Service name is rejected, unless fullnameOverride is set."""
    done = helm("template", release, CHART)
    assert done.returncode != 0
    assert f"{release}-open-inference-service: a Service's name begins with a letter" in done.stderr
    assert helm("template", release, CHART, "--set", "fullnameOverride=iris").returncode == 0


def subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield `schema` and all its subschemas."""
    if isinstance(schema, dict):
        yield schema
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from subschemas(part)


def test_schema_rejects_unknown_members():
    """Each object of the chart that the schema describes rejects unknown members. Kubernetes checks the rest."""
    schemas = list(subschemas(json.loads((CHART / "values.schema.json").read_text())))
    own = [each for each in schemas if each.get("type") == "object" and any(each.get("properties", {}).values())]
    assert len(own) > 30
    assert all(each.get("additionalProperties") is False for each in own)
    assert not [each for each in schemas if "$ref" in each and len(each) > 1], "what is beside a $ref does not count"


def test_chart_as_dependency(helm: Helm, tmp_path: Path):
    """A parent chart can use a value as the condition, and "" or 0 to unset defaults, where null is not passed on."""
    dependency = {"name": "open-inference-service", "version": ">=0", "condition": "open-inference-service.enabled"}
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    values = {
        "enabled": True,
        "autoscaling": {**ENABLED, "minReplicas": 2, "targetCPUUtilizationPercentage": 0, "targetRequestsInFlight": 3},
        "podDisruptionBudget": {**ENABLED, "maxUnavailable": "", "minAvailable": 1},
    }
    shutil.copytree(CHART, tmp_path / "charts" / "open-inference-service")
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    (tmp_path / "values.yaml").write_text(json.dumps({"open-inference-service": values}))
    done = helm("template", "demo", tmp_path)
    assert done.returncode == 0, done.stderr
    specs = {each["kind"]: each["spec"] for each in yaml.safe_load_all(done.stdout) if "spec" in each}
    assert specs["PodDisruptionBudget"]["minAvailable"] == 1
    assert "maxUnavailable" not in specs["PodDisruptionBudget"]
    assert [each["type"] for each in specs["HorizontalPodAutoscaler"]["metrics"]] == ["Pods"]
    assert not helm("template", "demo", tmp_path, "--set", "open-inference-service.enabled=false").stdout.strip()


def test_version_with_build_metadata(render: Render, tmp_path: Path):
    """In the image tag and label, `+` in the version becomes `_`. The label is cut to 63 characters."""
    shutil.copytree(CHART, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "Chart.yaml"
    file.write_text(re.sub("^appVersion: .*", f"appVersion: 1.2.3+{'4' * 70}", file.read_text(), flags=re.MULTILINE))
    manifests = render(tmp_path)
    assert container_of(manifests)["image"] == f"open-inference-service:1.2.3_{'4' * 70}"
    label = manifests["Deployment"]["metadata"]["labels"]["app.kubernetes.io/version"]
    assert label == f"1.2.3_{'4' * 57}"


def test_rejects_older_kubernetes(helm: Helm):
    """helm rejects a Kubernetes version that the chart does not support, before it installs anything."""
    done = helm("template", "demo", CHART, "--kube-version", "1.24")
    assert done.returncode != 0
    assert "kubeVersion" in done.stderr
