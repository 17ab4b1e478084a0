"""deploy/helm: a canary has its own objects, and does not change those of the first version. Its guide works."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kit.processes import gunicorn

from .blocks import read_guide as read_text
from .chart_values import ENABLED, FEATURES, GATEWAY, Values
from .charts import CUSTOM
from .guides import GUIDES, Session, local_addresses, read_guide
from .helm import ROOT, Helm
from .manifests import CHART, NAME, Render, by_kind, container_of, environment, validator_of

CANARY: Values = FEATURES["canary"]["canary"]
HEADER = CANARY["header"]
ROUTES = {"HTTPRoute": 8080, "GRPCRoute": 8081}


def with_canary(**values: Any) -> Values:
    return {**FEATURES["canary"], "canary": {**CANARY, **values}}


def rendered(helm: Helm, values_file, values: Values) -> set[str]:
    """Return the text of each object."""
    done = helm("template", "demo", CHART, "--values", values_file(values))
    assert done.returncode == 0, done.stderr
    return {
        text.partition("\n")[2] for text in re.split(r"^---\n", done.stdout, flags=re.MULTILINE)
    }


@pytest.mark.parametrize("feature", ["all, behind TLS", "all, in the clear"])
def test_first_version_stays_the_same(helm: Helm, values_file, feature: str):
    """The canary changes only the routes. Without it, all objects are those of the plain chart again.

    After a promotion, they are those of the plain chart with the new tag.
    """
    values = {**FEATURES[feature], "image": {"tag": "0.1.0"}}
    plain = rendered(helm, values_file, {**values, "canary": {}})
    changed = plain - rendered(helm, values_file, values)
    assert {re.search(r"^kind: (.*)$", text, re.MULTILINE)[1] for text in changed} == {*ROUTES}
    rolled_back = {**values, "canary": {**CANARY, "enabled": False}}
    assert rendered(helm, values_file, rolled_back) == plain
    promoted = rendered(helm, values_file, {**rolled_back, "image": {"tag": "0.2.0"}})
    image = 'image: "open-inference-service:0.{}.0"'.format
    assert promoted == {text.replace(image(1), image(2)) for text in plain}
    assert promoted != plain


@pytest.mark.parametrize("feature", ["all, behind TLS", "all, in the clear"])
def test_canary_equals_first_version_with_its_values(render: Render, feature: str):
    """Apart from its name, each object of the canary is that of a first version with the canary's values."""
    values = FEATURES[feature]
    config = {**values["config"], **CANARY["config"]}
    overrides = {name: CANARY[name] for name in ("image", "extraEnv", "replicaCount")}
    budget, service = {**ENABLED, "maxUnavailable": 1}, {**values["service"], "type": "ClusterIP"}
    alone = {
        **values,
        **overrides,
        "config": config,
        "canary": {},
        "podDisruptionBudget": budget,
        "service": service,
    }
    expected, actual = render(**alone), render(**values)
    kinds = {
        key.replace("/canary-", "/").removesuffix("/canary"): key
        for key in actual
        if "canary" in key
    }
    expected.pop("Service/headless")
    for kind, key in kinds.items():
        text = json.dumps(actual[key]).replace(
            "open-inference-service-canary", "open-inference-service"
        )
        assert json.loads(text) == expected[kind], key
    shared = {
        "ServiceAccount",
        "Ingress",
        "Ingress/grpc",
        "HTTPRoute",
        "GRPCRoute",
        "ConfigMap/dashboard",
    }
    assert expected.keys() - kinds.keys() == shared & expected.keys()


def test_account_and_certificate_are_shared(render: Render):
    """The canary uses the ServiceAccount of the first version, and the certificate for the first Service's name."""
    manifests = render(**FEATURES["all, behind TLS"])
    for kind in ("rest", "grpc"):
        first, canary = (
            manifests[f"Pod/{prefix}test-{kind}"]["spec"] for prefix in ("", "canary-")
        )
        assert canary["serviceAccountName"] == first["serviceAccountName"] == NAME
        names = [environment(pod["containers"][0])["SERVER_NAME"] for pod in (first, canary)]
        assert names == [f"{NAME}.default.svc"] * 2
    (endpoint,) = manifests["ServiceMonitor/canary"]["spec"]["endpoints"]
    assert endpoint["tlsConfig"] == {"serverName": f"{NAME}.default.svc"}


@pytest.mark.parametrize("weight", [0, 10, 100])
def test_weights(render: Render, weight: int):
    """Both routes divide the requests by the weight, and send those with the header to the canary."""
    manifests = render(**with_canary(weight=weight))
    for kind, port in ROUTES.items():
        validator_of(*CUSTOM[kind]).validate(manifests[kind])
        first, second = {"name": NAME, "port": port}, {"name": f"{NAME}-canary", "port": port}
        by_header, by_weight = manifests[kind]["spec"]["rules"]
        assert by_header["backendRefs"] == [second]
        assert by_weight["backendRefs"] == [
            {**first, "weight": 100 - weight},
            {**second, "weight": weight},
        ]
        (plain,) = render(**FEATURES["routes"])[kind]["spec"]["rules"]
        assert by_weight == {**plain, "backendRefs": by_weight["backendRefs"]}
        matches = [{**match, "headers": [HEADER]} for match in plain["matches"]]
        assert by_header == {**plain, "backendRefs": [second], "matches": matches}


def test_header_is_added_to_each_match(render: Render):
    """The header is required in addition to each match of the route, or alone if the route has none."""
    given = [
        {"headers": [{"name": "tenant", "value": "a"}]},
        {"path": {"type": "Exact", "value": "/v2"}},
    ]
    values = with_canary()
    values |= {
        "httpRoute": {**values["httpRoute"], "matches": given},
        "grpcRoute": {**ENABLED, "parentRefs": GATEWAY},
    }
    manifests = render(
        **{**values, "grpcRoute": {**values["grpcRoute"], "hostnames": ["grpc.example.com"]}}
    )
    first, _ = manifests["HTTPRoute"]["spec"]["rules"]
    assert first["matches"] == [
        {"headers": [*given[0]["headers"], HEADER]},
        {**given[1], "headers": [HEADER]},
    ]
    first, second = manifests["GRPCRoute"]["spec"]["rules"]
    assert first["matches"] == [{"headers": [HEADER]}]
    assert "matches" not in second
    (only,) = render(**with_canary(header={}))["HTTPRoute"]["spec"]["rules"]
    assert [backend["weight"] for backend in only["backendRefs"]] == [90, 10]


def test_empty_values_are_those_of_first_version(render: Render):
    """A canary without an image has the first one's. A tag replaces a digest, and a volume only the given members."""
    digest = f"sha256:{'0' * 64}"
    volume = {"persistentVolumeClaim": {"claimName": "models", "subPath": "1"}}
    values = {
        "image": {"tag": "0.1.0", "digest": digest},
        "model": volume,
        "extraEnv": [{"name": "A", "value": "b"}],
    }

    def container(**canary: Any) -> dict[str, Any]:
        return container_of(
            {"Deployment": render(**values, canary={**ENABLED, **canary})["Deployment/canary"]}
        )

    assert container() == container_of(render(**values))
    assert container(image={"tag": "0.2.0"})["image"] == "open-inference-service:0.2.0"
    changed = container(
        model={"persistentVolumeClaim": {"subPath": "2"}}, config={"MODEL_VERSION": "2"}
    )
    assert changed["image"] == f"open-inference-service@{digest}"
    assert environment(changed) == {**environment(container()), "MODEL_VERSION": "2"}
    assert {mount.get("subPath") for mount in changed["volumeMounts"]} == {None, "2"}


def test_each_version_is_scraped_alone(render: Render):
    """Each monitor selects one of the Services, so that the metrics have the version's name as `job`."""
    manifests = render(canary=ENABLED, monitoring={"serviceMonitor": ENABLED, "rules": ENABLED})
    services = [manifest for manifest in manifests.values() if manifest["kind"] == "Service"]
    for version, job in (("", NAME), ("/canary", f"{NAME}-canary")):
        labels = manifests[f"ServiceMonitor{version}"]["spec"]["selector"]["matchLabels"].items()
        names = [
            service["metadata"]["name"]
            for service in services
            if labels <= service["metadata"]["labels"].items()
        ]
        assert names == [job]
        assert (
            f'job="{job}"'
            in manifests[f"PrometheusRule{version}"]["spec"]["groups"][0]["rules"][0]["expr"]
        )


def upgrades(text: str) -> list[list[str]]:
    """Return the release, the chart and the options of each upgrade on the page, without those that need a cluster."""
    commands = [
        command.replace("\\\n", " ") for step in read_text(text).steps for command in step.commands
    ]
    upgrade = re.compile(r"helm upgrade (?:--install )?(.*) --wait --timeout 10m (.*)")
    return [
        shlex.split(f"{match[1]} {match[2]}") for match in map(upgrade.fullmatch, commands) if match
    ]


def test_guide_upgrades(helm: Helm, tmp_path: Path):
    """Each upgrade of the guide gives both versions the tags and shares that the page describes."""
    guide = read_guide("canary")
    for name, content in guide.files.items():
        (tmp_path / name).write_text(content)
    seen = []
    for release, chart, *options in upgrades((GUIDES / "canary.md").read_text()):
        paths = [tmp_path / option if option in guide.files else option for option in options]
        done = helm("template", release, ROOT / chart, *paths)
        assert done.returncode == 0, done.stderr
        manifests = by_kind(yaml.safe_load_all(done.stdout))
        deployments = [
            manifests[key] for key in ("Deployment", "Deployment/canary") if key in manifests
        ]
        tags = [
            container_of({"Deployment": deployment})["image"].rpartition(":")[2]
            for deployment in deployments
        ]
        *_, rule = manifests["HTTPRoute"]["spec"]["rules"]
        seen.append((*tags, *(backend.get("weight") for backend in rule["backendRefs"])))
    assert seen == [
        ("0.1.0", None),
        ("0.1.0", "0.2.0", 90, 10),
        ("0.1.0", "0.2.0", 50, 50),
        ("0.2.0", "0.2.0", 50, 50),
        ("0.1.0", "0.2.0", 100, 0),
        ("0.1.0", None),
    ]


def test_guide_calls(tmp_path: Path, linked_project: Path):
    """The request of the guide shows the version that responds, and the header of the page is that of the values."""
    guide, actual = read_guide("canary"), local_addresses()
    header = yaml.safe_load(guide.files["canary.yaml"])["canary"]["header"]
    (step,) = guide.steps
    assert f"-H '{header['name']}: {header['value']}'" in step.commands[0]
    with gunicorn(linked_project, MODEL_VERSION=2) as service:
        Session(
            tmp_path, actual, variables={"GATEWAY": service.http_address.removeprefix("http://")}
        ).run(guide)
