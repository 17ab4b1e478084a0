"""The files and commands in the guides work as printed."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.service.processes import Running, free_ports, started

from .environments import ROOT, make_environment, make_mlserver
from .guides import GUIDES, make_folder, read_guide, run_command, run_guide

# These pages also start the service that a reader wants to replace.
MIGRATIONS = {"from-bentoml", "from-flask", "from-kserve", "from-mlserver"}
NAMES = sorted({page.stem for page in GUIDES.glob("*.md")} - MIGRATIONS - {"index"})


@pytest.mark.parametrize("name", NAMES)
def test_guide(tmp_path: Path, name: str) -> None:
    """The files and commands of the page give the printed output."""
    guide = read_guide(name)
    run_guide(guide, make_folder(guide, tmp_path))


def test_all_migrations_have_pages() -> None:
    """Each page that a test of its own reads exists."""
    assert {page.stem for page in GUIDES.glob("from-*.md")} == MIGRATIONS


def accepts_connections(running: Running) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", running.http_port)) == 0


def is_ready(running: Running) -> bool:
    return running.get("/v2/health/ready") is not None


def test_migration_from_flask(tmp_path: Path) -> None:
    """The old route and the service give the printed responses."""
    guide = read_guide("from-flask")
    folder = make_folder(guide, tmp_path)
    http, grpc = free_ports(2)
    command = [sys.executable, "-m", "flask", "--app", "server", "run", "--port", str(http)]
    with started(command, folder, {"HTTP_PORT": http, "GRPC_PORT": grpc}, accepts_connections) as old:
        run_guide(guide, folder, {"127.0.0.1:5000": old.http})


def test_migration_from_bentoml(tmp_path: Path) -> None:
    """The BentoML service and this service give the printed responses."""
    guide = read_guide("from-bentoml")
    folder = make_folder(guide, tmp_path)
    python = make_environment("bentoml", Path(__file__).parent / "bentoml" / "requirements.txt")
    http, grpc = free_ports(2)
    command = [python, "-m", "bentoml", "serve", "service:Parcels", "--host", "127.0.0.1", "--port", str(http)]
    variables = {"BENTOML_HOME": tmp_path / "home", "BENTOML_DO_NOT_TRACK": "true"}
    ports = {"HTTP_PORT": http, "GRPC_PORT": grpc}
    with started(command, folder, ports | variables, lambda old: old.get("/readyz") is not None) as old:
        run_guide(guide, folder, {"127.0.0.1:3000": old.http})


@contextmanager
def mlserver(folder: Path) -> Iterator[Running]:
    http, grpc, metrics = free_ports(3)
    variables = {"HTTP_PORT": http, "GRPC_PORT": grpc, "MLSERVER_HTTP_PORT": http, "MLSERVER_GRPC_PORT": grpc}
    variables |= {"MLSERVER_METRICS_PORT": metrics, "MLSERVER_PARALLEL_WORKERS": 0, "MLSERVER_HOST": "127.0.0.1"}
    with started([make_mlserver().parent / "mlserver", "start", "."], folder, variables, is_ready) as running:
        yield running


@contextmanager
def kserve(folder: Path) -> Iterator[Running]:
    python = make_environment("clients", ROOT / "tests/template/clients/requirements.txt")
    http, grpc = free_ports(2)
    command = [python, "parcels.py", "--http_port", str(http), "--grpc_port", str(grpc)]
    with started(command, folder, {"HTTP_PORT": http, "GRPC_PORT": grpc}, is_ready) as running:
        yield running


@pytest.mark.parametrize(("name", "serve_old"), [("from-mlserver", mlserver), ("from-kserve", kserve)])
def test_migration_with_same_protocol(tmp_path: Path, name: str, serve_old: Callable) -> None:
    """The old server responds to the request of the page with the same outputs as this service."""
    guide = read_guide(name)
    folder = make_folder(guide, tmp_path)
    with serve_old(folder) as old:
        calls = [step for step in guide.steps if step.command.startswith("curl ")]
        assert calls
        for step in calls:
            answer = json.loads(run_command(step.command, folder, {"127.0.0.1:8080": old.http}))
            assert essence(answer) == essence(json.loads(step.output))
    run_guide(guide, folder)


def essence(answer: dict) -> tuple:
    """Return the name of the model, the id of the request, and each output without its parameters."""
    outputs = [tuple(each[name] for name in ("name", "shape", "datatype", "data")) for each in answer["outputs"]]
    return answer["model_name"], answer["id"], outputs
