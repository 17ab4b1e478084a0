"""deploy/helm: the manifests are valid, linters find no problems, and the README lists every value."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.kit.environments import make_environment, make_project, run

from .chart_values import ENABLED, FEATURES, KEDA
from .charts import CUSTOM, KUBERNETES, budget
from .helm import ROOT, Helm
from .manifests import CHART, DEPLOY, Render, container_of, validator_of


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


@pytest.mark.parametrize(
    "feature", [name for name in FEATURES if name in ("routes", "keda") or "all" in name]
)
def test_custom_resources_are_valid(render: Render, feature: str):
    """Custom resources are valid for their CRDs, and the validator rejects a misspelled member."""
    manifests = [
        manifest for manifest in render(**FEATURES[feature]).values() if manifest["kind"] in CUSTOM
    ]
    assert manifests
    for manifest in manifests:
        validator = validator_of(*CUSTOM[manifest["kind"]])
        validator.validate(manifest)
        manifest["spec"]["misspelt"] = True
        assert not validator.is_valid(manifest)


def test_every_custom_resource_is_validated(render: Render):
    """The features render every custom resource that has a schema."""
    kinds = {
        manifest["kind"] for values in FEATURES.values() for manifest in render(**values).values()
    }
    assert kinds >= CUSTOM.keys()


@pytest.mark.slow
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
    printed = run(
        python,
        python.parent / "checkov",
        "--config-file",
        config,
        "--directory",
        rendered,
        "-o",
        "json",
    )
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
    assert {manifest["metadata"]["name"][:10] for manifest in manifests.values()} == {"demo-other"}
    assert "open-inference" not in json.dumps(manifests)


@pytest.mark.parametrize("name", ["n" * 63, f"{'n' * 45}{'-' * 17}n"])
def test_long_names_are_shortened(render: Render, name: str):
    """Names and labels from a long chart name have at most 63 characters and end with a letter or digit."""
    manifests = render(
        nameOverride=name, canary=ENABLED, **FEATURES["service"], **FEATURES["monitoring"]
    )
    assert max(len(manifest["metadata"]["name"]) for manifest in manifests.values()) <= 63
    labels = [
        label
        for manifest in manifests.values()
        for label in manifest["metadata"]["labels"].values()
    ]
    assert max(map(len, labels)) <= 63
    assert not re.search("--", manifests["Deployment"]["metadata"]["name"])
    assert not [label for label in labels if re.search(r"^\W|\W$|--test$", label)]


def test_large_numbers_are_integers(helm: Helm, values_file):
    """A large number from a values file is rendered as an integer, not in exponent notation."""
    many = 1_000_000
    settings = {"replicaCount": many, "revisionHistoryLimit": many, "progressDeadlineSeconds": many}
    hpa = {
        **ENABLED,
        "minReplicas": many,
        "maxReplicas": many,
        "targetCPUUtilizationPercentage": many,
    }
    keda = {
        **KEDA["keda"],
        "minReplicaCount": many,
        "maxReplicaCount": many,
        "pollingInterval": many,
    }
    keda |= {"prometheus": {"serverAddress": "http://a", "targetRequestsInFlight": many}}
    files = [
        {**settings, **budget(maxUnavailable=many), "tmp": {"sizeLimit": many}},
        {
            "autoscaling": {**hpa, "targetRequestsInFlight": many},
            "livenessProbe": {"failureThreshold": many},
        },
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
    subprocess.run([sys.executable, ROOT / "dev/tools/values_table.py", into], check=True)
    return (into / "README.md").read_text()


def test_readme_has_current_table(tmp_path: Path):
    """The table in the chart's README matches values.yaml, in this repository and in the template."""
    for number, chart in enumerate((CHART, ROOT / "{{cookiecutter.project_slug}}/deploy/helm")):
        fresh = fresh_readme(chart, tmp_path / str(number))
        assert fresh == (chart / "README.md").read_text(), (
            f"{chart}/README.md is stale: make values"
        )


def test_readme_example_renders(render: Render):
    """The README's example values are valid and render the resources that it describes."""
    (example,) = re.findall(
        r"^```yaml\n(.*?)^```", (CHART / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    manifests = render(**yaml.safe_load(example))
    wanted = {"HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceMonitor", "PrometheusRule"}
    assert manifests.keys() > wanted
    validator_of(*CUSTOM["ServiceMonitor"]).validate(manifests["ServiceMonitor"])


def value_names(values: Any, path: str = "") -> set[str]:
    """Return the dotted names of all values."""
    if not isinstance(values, dict) or not values:
        return {path}
    return {
        name
        for key, value in values.items()
        for name in value_names(value, f"{path}.{key}".lstrip("."))
    }


def groups(values: Any, path: str = "") -> set[str]:
    """Return the dotted names of all values that contain others."""
    if not isinstance(values, dict):
        return set()
    return {path} | {
        name for key, value in values.items() for name in groups(value, f"{path}.{key}".lstrip("."))
    }


def test_table_lists_commented_values():
    """The table lists every value and every group of values that has a comment in values.yaml."""
    listed = set(re.findall(r"^\| `([\w.]+)` \|", (CHART / "README.md").read_text(), re.MULTILINE))
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert listed < value_names(values) | groups(values)
    commented = re.findall(r"^ *(\w+):.*  # ", (CHART / "values.yaml").read_text(), re.MULTILINE)
    assert {name.split(".")[-1] for name in listed} >= {*commented} - {*values["config"]}


def test_project_chart_uses_project_names(helm: Helm, tmp_path: Path):
    """The chart and README of a project use its names. The chart passes `helm lint`, and the table is current."""
    project = make_project(
        tmp_path, project_name="Churn of Customers", image_repository="ghcr.io/ada/churn"
    )
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


def test_chart_as_dependency(helm: Helm, tmp_path: Path):
    """A parent chart can use a value as the condition, and "" or 0 to unset defaults, where null is not passed on."""
    dependency = {
        "name": "open-inference-service",
        "version": ">=0",
        "condition": "open-inference-service.enabled",
    }
    chart = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    values = {
        "enabled": True,
        "autoscaling": {
            **ENABLED,
            "minReplicas": 2,
            "targetCPUUtilizationPercentage": 0,
            "targetRequestsInFlight": 3,
        },
        "podDisruptionBudget": {**ENABLED, "maxUnavailable": "", "minAvailable": 1},
    }
    shutil.copytree(CHART, tmp_path / "charts" / "open-inference-service")
    (tmp_path / "Chart.yaml").write_text(json.dumps(chart))
    (tmp_path / "values.yaml").write_text(json.dumps({"open-inference-service": values}))
    done = helm("template", "demo", tmp_path)
    assert done.returncode == 0, done.stderr
    specs = {
        document["kind"]: document["spec"]
        for document in yaml.safe_load_all(done.stdout)
        if "spec" in document
    }
    assert specs["PodDisruptionBudget"]["minAvailable"] == 1
    assert "maxUnavailable" not in specs["PodDisruptionBudget"]
    assert [metric["type"] for metric in specs["HorizontalPodAutoscaler"]["metrics"]] == ["Pods"]
    assert not helm(
        "template", "demo", tmp_path, "--set", "open-inference-service.enabled=false"
    ).stdout.strip()


def test_version_with_build_metadata(render: Render, tmp_path: Path):
    """In the image tag and label, `+` in the version becomes `_`. The label is cut to 63 characters."""
    shutil.copytree(CHART, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "Chart.yaml"
    file.write_text(
        re.sub(
            "^appVersion: .*", f"appVersion: 1.2.3+{'4' * 70}", file.read_text(), flags=re.MULTILINE
        )
    )
    manifests = render(tmp_path)
    assert container_of(manifests)["image"] == f"open-inference-service:1.2.3_{'4' * 70}"
    label = manifests["Deployment"]["metadata"]["labels"]["app.kubernetes.io/version"]
    assert label == f"1.2.3_{'4' * 57}"


def test_rejects_older_kubernetes(helm: Helm):
    """helm rejects a Kubernetes version that the chart does not support, before it installs anything."""
    done = helm("template", "demo", CHART, "--kube-version", "1.24")
    assert done.returncode != 0
    assert "kubeVersion" in done.stderr
