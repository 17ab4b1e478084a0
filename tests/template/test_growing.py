"""docs/growing.md: its figures, the chart's targets and the example of a channel are correct."""

from __future__ import annotations

import json
import re

import grpc
import yaml

from app.config.settings import Settings
from dev.benchmarks import factors
from oip_conformance.wires import Grpc
from tests.kit.processes import gunicorn

from .helm import ROOT
from .manifests import CHART

PAGE = (ROOT / "docs" / "growing.md").read_text()


def test_chart_has_the_targets_of_the_page() -> None:
    """The chart's default targets are those of the page, and the chart has the values that the page names."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["autoscaling"]["targetCPUUtilizationPercentage"] == 75
    target = values["keda"]["prometheus"]["targetRequestsInFlight"]
    assert target == 0.75 * Settings().max_concurrency

    for name in re.findall(r"`((?:autoscaling|keda)[\w.]*)`", PAGE):
        value = values
        for part in name.split("."):
            value = value[part]


def test_page_quotes_benchmarks() -> None:
    """Each benchmark figure on the page is in the file that the page names."""
    rows = re.findall(r"^\|[^|]*\| ([\d,.]+) \| `(dev/benchmarks/\S+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 9
    for figure, file in rows:
        assert f" {figure} " in (ROOT / file).read_text().replace("|", " "), (figure, file)


def test_page_quotes_factors() -> None:
    """The factors for any request are those that the measurement checks, and its results are below them."""
    labels = {
        "Binary tensors over REST": factors.BINARY,
        "JSON": factors.JSON,
        "gRPC's raw contents": factors.RAW,
        "gRPC's typed contents": factors.TYPED,
    }
    for label, kind in labels.items():
        (factor,) = re.findall(rf"^\| {label} \|.*\| (\d+) \|$", PAGE, re.MULTILINE)
        assert int(factor) == factors.MAX_FACTORS[kind]

    results = json.loads((ROOT / "dev/benchmarks/results/factors.json").read_text())
    for row in results["requests"]:
        assert row["factor"] <= factors.MAX_FACTORS[row["kind"]], row


def test_channel_example_works() -> None:
    """The page's example of a channel to all addresses connects to the service."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with gunicorn(ROOT, WORKERS=1) as service:
        namespace: dict[str, grpc.Channel] = {}
        assert "dns:///my-service-headless:8081" in block
        exec(block.replace("my-service-headless:8081", service.grpc_address), namespace)
        with namespace["channel"] as channel:
            assert Grpc(channel).call("ServerReady").ready
