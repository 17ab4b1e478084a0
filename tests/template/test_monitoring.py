"""deploy/helm/monitoring: dashboard and rules use existing metrics, and the chart's objects contain them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
import yaml

from oip_conformance.wires import Grpc
from tests.kit.processes import gunicorn, wait_for
from tests.kit.scrapes import Scrape, scrape
from tests.kit.waiting_client import rest

from .helm import ROOT, Helm
from .manifests import CHART, Render, container_of

MONITORING = CHART / "monitoring"
# Labels that Prometheus adds to all scraped metrics, and the label of histogram buckets.
ADDED = {"namespace", "job", "instance", "le"}
# Keywords of PromQL that are not followed by a parenthesis.
WORDS = {
    "by",
    "without",
    "and",
    "or",
    "unless",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "bool",
    "offset",
}
ALL = {name: {"enabled": True} for name in ("serviceMonitor", "rules", "dashboard")}


@pytest.fixture(scope="module")
def scrape_of_service() -> Iterator[Scrape]:
    """Return the metrics after a call over each protocol and a rejected call."""
    with gunicorn(ROOT, "tests.service.apps:numbers()", WORKERS=1, MAX_CONCURRENCY=1) as service:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
        assert rest(service, "POST", "/v2/models/test/infer", {"inputs": [tensor]})[0] == 200
        with grpc.insecure_channel(service.grpc_address) as channel:
            client = Grpc(channel)
            assert client.infer([("x", "FP32", [1], [1.0])]).is_success
            late = {"parameters": {"timeout": 1}}
            wait_for(
                lambda: (
                    client.infer([("x", "FP32", [1], [1.0])], **late).kind == "DEADLINE_EXCEEDED"
                )
            )
        wait_for(lambda: scrape(service)("inference_requests_rejected_total") > 0)
        yield scrape(service)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    return json.loads((MONITORING / "dashboard.json").read_text())


def expressions() -> list[str]:
    """Return every PromQL expression of the rules and the dashboard."""
    promql = [rule["expr"] for rule in rules()]
    promql += [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])
    ]
    queries = [
        variable["definition"]
        for variable in dashboard()["templating"]["list"]
        if variable["type"] == "query"
    ]
    return promql + [
        re.fullmatch(r"label_values\((.*), \w+\)", query).group(1) for query in queries
    ]


def queries() -> list[str]:
    """Return every PromQL expression on the pages."""
    pages = [ROOT / "docs/monitoring.md", ROOT / "docs/guides/canary.md"]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"```text\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    return [block for block in blocks if "rate(" in block]


def names_in(expression: str) -> tuple[set[str], set[str]]:
    """Return the names of metrics and of labels in an expression."""
    without_texts = re.sub(r'"(\\.|[^"\\])*"', '""', expression)
    selectors = re.findall(r"\{(.*?)\}", without_texts, re.DOTALL)
    groupings = re.findall(r"\b(?:by|without|on|ignoring)\s*\((.*?)\)", without_texts)
    labels = {
        name for selector in selectors for name in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)
    }
    labels |= {name for grouping in groupings for name in re.findall(r"\w+", grouping)}
    bare = re.sub(
        r"\{.*?\}|\[.*?\]|\b(?:by|without|on|ignoring)\s*\(.*?\)",
        " ",
        without_texts,
        flags=re.DOTALL,
    )
    return set(re.findall(r"\b[a-zA-Z_:][\w:]*\b(?!\s*\()", bare)) - WORDS, labels


def test_every_metric_exists(scrape_of_service: Scrape) -> None:
    """The dashboard, the rules and the pages use only metrics and labels of /metrics."""
    assert len(expressions()) > 20
    assert len(queries()) == 5
    for expression in [*expressions(), *queries()]:
        names, labels = names_in(expression)
        assert names, expression
        assert names <= scrape_of_service.names(), expression
        known = {
            label
            for name, have, _ in scrape_of_service.samples()
            if name in names
            for label in have
        }
        assert labels <= known | ADDED, expression


def test_every_metric_is_shown(scrape_of_service: Scrape) -> None:
    """The dashboard and the rules together use every metric of the service."""
    used = {name for expression in expressions() for name in names_in(expression)[0]}
    families = {
        re.sub("_(bucket|sum|count|created)$", "", name)
        for name in scrape_of_service.names()
        if "inference_" in name
    }
    assert families == {re.sub("_(bucket|sum|count)$", "", name) for name in used}


def test_every_alert_is_listed() -> None:
    """The table in docs/monitoring.md has a row for each alert, and no other."""
    listed = re.findall(
        r"^\| `(Inference\w+)` \|", (ROOT / "docs/monitoring.md").read_text(), re.MULTILINE
    )
    assert listed == [rule["alert"] for rule in rules()]


def test_every_name_in_a_text_exists(scrape_of_service: Scrape) -> None:
    """The files of the chart, docs and the model page name only metrics that the service has."""
    known = {re.sub("_(bucket|sum|count|created)$", "", name) for name in scrape_of_service.names()}
    known |= {name.removesuffix("_total") for name in known}  # as the code names counters
    files = [
        *(ROOT / "docs").glob("*.md"),
        *CHART.rglob("*.*"),
        *(ROOT / "deploy/kserve").glob("*.yaml"),
        ROOT / "README.md",
    ]
    for path in files:
        names = re.findall(
            r"\binference_(?:request|response|batch|model|worker)\w*", path.read_text()
        )
        assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} <= known, path


def test_every_label_in_a_text_exists(scrape_of_service: Scrape) -> None:
    """A label in a legend or annotation is kept by the expression's grouping."""
    texts = [(str(rule["annotations"]), rule["expr"]) for rule in rules()]
    texts += [
        (target["legendFormat"], target["expr"])
        for panel in dashboard()["panels"]
        for target in panel.get("targets", [])
    ]
    for text, expression in texts:
        wanted = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)", text))
        left = {
            name
            for grouping in re.findall(r"\bby \((.*?)\)", expression)
            for name in re.findall(r"\w+", grouping)
        }
        assert wanted <= left, (text, expression)


def test_dashboard_is_valid_for_grafana() -> None:
    """Panels have unique ids and positions, and use the data source of the variable."""
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells
        for target in panel.get("targets", []):
            assert (
                target["datasource"]
                == panel["datasource"]
                == {"type": "prometheus", "uid": "${datasource}"}
            )


def test_service_monitor_selects_service(render: Render) -> None:
    """The ServiceMonitor selects the Service and its REST port, and passes on labels and additional members."""
    extra = {"enabled": True, "labels": {"release": "prometheus"}, "endpoint": {"scheme": "https"}}
    manifests = render(monitoring={**ALL, "serviceMonitor": extra})
    monitor, service = manifests["ServiceMonitor"], manifests["Service"]
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "15s", "scheme": "https"}
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_pod_monitor_selects_pods(render: Render) -> None:
    """The PodMonitor selects the pods and their port, and sets the job that the rules query."""
    relabeling = {"targetLabel": "team", "replacement": "iris"}
    extra = {
        "enabled": True,
        "interval": "5s",
        "endpoint": {"relabelings": [relabeling], "honorLabels": True},
    }
    manifests = render(monitoring={"podMonitor": extra, "rules": {"enabled": True}})
    monitor, template = manifests["PodMonitor"], manifests["Deployment"]["spec"]["template"]
    assert (
        monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    )
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    job, added = endpoint.pop("relabelings")
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "5s", "honorLabels": True}
    assert endpoint["port"] in [port["name"] for port in container_of(manifests)["ports"]]
    assert (job["targetLabel"], added) == ("job", relabeling)
    assert (
        f'job="{job["replacement"]}"'
        in manifests["PrometheusRule"]["spec"]["groups"][0]["rules"][0]["expr"]
    )


def test_rules_select_release(render: Render, helm: Helm) -> None:
    """Each alert equals the one in the file, restricted to this release's pods."""
    manifest = render(monitoring=ALL)["PrometheusRule"]
    (group,) = manifest["spec"]["groups"]
    assert len(group["rules"]) == len(rules())
    for rule, plain in zip(group["rules"], rules(), strict=True):
        selector = 'job="demo-open-inference-service", namespace="default"'
        assert rule == {**plain, "expr": plain["expr"].replace('job=~".+"', selector)}
        assert rule["expr"].count(selector) == len(re.findall(r"inference_\w+\{", rule["expr"]))


def test_dashboard_belongs_to_release(render: Render) -> None:
    """The ConfigMap has the sidecar's label, and its file, title and id are specific to the release."""
    manifest = render(monitoring=ALL)["ConfigMap/dashboard"]
    assert manifest["metadata"]["labels"]["grafana_dashboard"] == "1"
    ((file, text),) = manifest["data"].items()
    name = "demo-open-inference-service.default"
    uid = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    assert file == f"{name}.json"
    assert json.loads(text) == {**dashboard(), "title": name, "uid": uid}
