"""Values that add each custom resource to the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from .chart_values import ENABLED

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


def budget(**values: Any) -> dict[str, Any]:
    return {"podDisruptionBudget": {**ENABLED, "maxUnavailable": None, **values}}
