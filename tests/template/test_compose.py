"""deploy/compose.yaml: what docker compose makes of it, and whether its parts fit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config import Settings

from .helm import ROOT, missing
from .manifests import DEPLOY


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The file as docker compose reads it, which knows every member's name and type."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = shutil.which("docker-compose", path=beside)
    if command is None:
        missing("docker-compose")
    arguments = [command, "--file", DEPLOY / "compose.yaml", "config", "--format", "json"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """What a service has of the files here, by its paths."""
    return {each["target"]: Path(each["source"]) for each in service["volumes"] if each["type"] == "bind"}


def test_the_service_is_confined(compose: dict[str, Any]) -> None:
    """The image is this project's, read-only and without rights, gets time to stop, and has limits."""
    service = compose["services"]["service"]
    assert ROOT / service["build"]["dockerfile"] == DEPLOY / "Dockerfile"
    assert Path(service["build"]["context"]) == ROOT
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp:size=256m"]
    assert service["stop_grace_period"] == "45s"
    assert Settings().shutdown_delay_seconds + Settings().shutdown_timeout_seconds + 10 <= 45
    assert {"cpus", "mem_limit", "pids_limit"} < set(service)
    for each in compose["services"].values():
        assert (each["cap_drop"], each["security_opt"]) == (["ALL"], ["no-new-privileges:true"])


def test_ports_are_of_this_machine(compose: dict[str, Any]) -> None:
    """Nobody else reaches a port; the service's are those of its settings."""
    services = compose["services"]
    assert {port["host_ip"] for each in services.values() for port in each["ports"]} == {"127.0.0.1"}
    assert [port["target"] for port in services["service"]["ports"]] == [Settings().http_port, Settings().grpc_port]


def test_what_is_mounted_is_there(compose: dict[str, Any]) -> None:
    """A path that is missing would become an empty folder."""
    for name in ("prometheus", "grafana"):
        assert mounts(compose["services"][name])
        for source in mounts(compose["services"][name]).values():
            assert source.is_file()


def test_images_of_others_are_pinned(compose: dict[str, Any]) -> None:
    """Each has a tag that says its version."""
    for name in ("prometheus", "grafana"):
        _, _, tag = compose["services"][name]["image"].partition(":")
        assert tag.lstrip("v").replace(".", "").isdigit()


def test_prometheus_scrapes_the_service(compose: dict[str, Any]) -> None:
    """Its target is the service's port of REST, and its rules are those of the chart."""
    files = mounts(compose["services"]["prometheus"])
    config = yaml.safe_load(files["/etc/prometheus/prometheus.yml"].read_text())
    (job,) = config["scrape_configs"]
    (targets,) = job["static_configs"]
    assert targets["targets"] == [f"service:{Settings().http_port}"]
    assert "service" in compose["services"]
    (rules,) = config["rule_files"]
    assert files[f"/etc/prometheus/{rules}"] == DEPLOY / "helm/monitoring/rules.yaml"


def test_grafana_shows_the_dashboard(compose: dict[str, Any]) -> None:
    """The chart's dashboard is where Grafana looks, its data source is Prometheus, and it is what opens first."""
    grafana = compose["services"]["grafana"]
    files = mounts(grafana)
    provisioning = "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load(files[f"{provisioning}/dashboards/inference.yaml"].read_text())["providers"]
    (source,) = yaml.safe_load(files[f"{provisioning}/datasources/prometheus.yaml"].read_text())["datasources"]
    (dashboard,) = (path for path in files if path.startswith(provider["options"]["path"] + "/"))
    assert files[dashboard] == DEPLOY / "helm/monitoring/dashboard.json"
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    (variable,) = (
        each for each in json.loads(files[dashboard].read_text())["templating"]["list"] if each["name"] == "datasource"
    )
    assert (variable["type"], variable["query"]) == ("datasource", source["type"])
    assert source["isDefault"]
    (port,) = compose["services"]["prometheus"]["ports"]
    assert source["url"] == f"http://prometheus:{port['target']}"
