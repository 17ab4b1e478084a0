"""deploy/compose.yaml: the file is valid, and its services fit together."""

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

from app.config.settings import Settings

from .helm import ROOT, missing
from .manifests import DEPLOY


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """Return the file as docker compose parses it. It rejects unknown members and wrong types."""
    beside = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = shutil.which("docker-compose", path=beside)
    if command is None:
        missing("docker-compose")
    arguments = [command, "--file", DEPLOY / "compose.yaml", "config", "--format", "json"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def mounts(service: dict[str, Any]) -> dict[str, Path]:
    """Return the bind mounts of a service by target path."""
    return {
        volume["target"]: Path(volume["source"])
        for volume in service["volumes"]
        if volume["type"] == "bind"
    }


def test_service_is_restricted(compose: dict[str, Any]) -> None:
    """The service uses this project's image, is read-only, has no capabilities, has limits and has time to stop."""
    service = compose["services"]["service"]
    assert ROOT / service["build"]["dockerfile"] == DEPLOY / "Dockerfile"
    assert Path(service["build"]["context"]) == ROOT
    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp:size=256m"]
    assert service["stop_grace_period"] == "45s"
    assert Settings().shutdown_delay_seconds + Settings().shutdown_timeout_seconds + 10 <= 45
    assert {"cpus", "mem_limit", "pids_limit"} < set(service)
    for container in compose["services"].values():
        assert (container["cap_drop"], container["security_opt"]) == (
            ["ALL"],
            ["no-new-privileges:true"],
        )


def test_ports_bind_to_loopback(compose: dict[str, Any]) -> None:
    """All ports are published on loopback only. The service's ports match its settings."""
    services = compose["services"]
    assert {port["host_ip"] for container in services.values() for port in container["ports"]} == {
        "127.0.0.1"
    }
    assert [port["target"] for port in services["service"]["ports"]] == [
        Settings().http_port,
        Settings().grpc_port,
    ]


def test_mounted_files_exist(compose: dict[str, Any]) -> None:
    """Every mounted file exists. docker would create an empty directory for a missing path."""
    for name in ("prometheus", "grafana"):
        assert mounts(compose["services"][name])
        for source in mounts(compose["services"][name]).values():
            assert source.is_file()


def test_third_party_images_are_pinned(compose: dict[str, Any]) -> None:
    """Each third-party image has a version tag."""
    for name in ("prometheus", "grafana"):
        _, _, tag = compose["services"][name]["image"].partition(":")
        assert tag.lstrip("v").replace(".", "").isdigit()


def test_prometheus_scrapes_the_service(compose: dict[str, Any]) -> None:
    """Prometheus scrapes the service's REST port and loads the chart's rules."""
    files = mounts(compose["services"]["prometheus"])
    config = yaml.safe_load(files["/etc/prometheus/prometheus.yml"].read_text())
    (job,) = config["scrape_configs"]
    (targets,) = job["static_configs"]
    assert targets["targets"] == [f"service:{Settings().http_port}"]
    assert "service" in compose["services"]
    (rules,) = config["rule_files"]
    assert files[f"/etc/prometheus/{rules}"] == DEPLOY / "helm/monitoring/rules.yaml"


def test_grafana_shows_the_dashboard(compose: dict[str, Any]) -> None:
    """Grafana opens the chart's dashboard by default and reads from Prometheus."""
    grafana = compose["services"]["grafana"]
    files = mounts(grafana)
    provisioning = "/etc/grafana/provisioning"
    (provider,) = yaml.safe_load(files[f"{provisioning}/dashboards/inference.yaml"].read_text())[
        "providers"
    ]
    (source,) = yaml.safe_load(files[f"{provisioning}/datasources/prometheus.yaml"].read_text())[
        "datasources"
    ]
    (dashboard,) = (path for path in files if path.startswith(provider["options"]["path"] + "/"))
    assert files[dashboard] == DEPLOY / "helm/monitoring/dashboard.json"
    assert grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == dashboard
    (variable,) = (
        variable
        for variable in json.loads(files[dashboard].read_text())["templating"]["list"]
        if variable["name"] == "datasource"
    )
    assert (variable["type"], variable["query"]) == ("datasource", source["type"])
    assert source["isDefault"]
    (port,) = compose["services"]["prometheus"]["ports"]
    assert source["url"] == f"http://prometheus:{port['target']}"
