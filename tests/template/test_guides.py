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
from .guides import GUIDES, REST, local_addresses, make_folder, port_of, read_guide, run_command, run_guide

# The tests of these pages start other servers, too.
MIGRATIONS = {"from-bentoml", "from-flask", "from-kserve", "from-mlserver"}
NAMES = sorted({page.stem for page in GUIDES.glob("*.md")} - MIGRATIONS - {"index"})


@pytest.mark.parametrize("name", NAMES)
def test_guide(tmp_path: Path, name: str) -> None:
    """The files and commands of the page give the printed output."""
    guide, actual = read_guide(name), local_addresses()
    run_guide(guide, make_folder(guide, tmp_path, actual), actual)


@contextmanager
def other_server(
    command: list[str | Path],
    folder: Path,
    address: str,
    is_ready: Callable[[Running], bool] = lambda server: server.get("/v2/health/ready") is not None,
    **variables: object,
) -> Iterator[Running]:
    """Run a server that is not this service, and yield it when it is ready."""
    (grpc,) = free_ports(1)
    ports = {"HTTP_PORT": port_of(address), "GRPC_PORT": grpc}
    with started(command, folder, {**ports, **variables}, is_ready) as server:
        yield server


def accepts_connections(server: Running) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.http_port)) == 0


def test_migration_from_flask(tmp_path: Path) -> None:
    """The old route and the service give the printed responses."""
    shown = "127.0.0.1:5000"
    guide, actual = read_guide("from-flask"), local_addresses(shown)
    folder = make_folder(guide, tmp_path, actual)
    command = [sys.executable, "-m", "flask", "--app", "server", "run", "--port", str(port_of(actual[shown]))]
    with other_server(command, folder, actual[shown], accepts_connections):
        run_guide(guide, folder, actual)


def test_migration_from_bentoml(tmp_path: Path) -> None:
    """The BentoML service and this service give the printed responses."""
    shown = "127.0.0.1:3000"
    guide, actual = read_guide("from-bentoml"), local_addresses(shown)
    folder = make_folder(guide, tmp_path, actual)
    python = make_environment("bentoml", Path(__file__).parent / "bentoml" / "requirements.txt")
    command = [python, "-m", "bentoml", "serve", "service:Parcels", "--host", "127.0.0.1", "--port"]
    variables = {"BENTOML_HOME": tmp_path / "home", "BENTOML_DO_NOT_TRACK": "true"}
    with other_server(
        [*command, str(port_of(actual[shown]))],
        folder,
        actual[shown],
        lambda server: server.get("/readyz") is not None,
        **variables,
    ):
        run_guide(guide, folder, actual)


@contextmanager
def mlserver(folder: Path, address: str) -> Iterator[Running]:
    grpc, metrics = free_ports(2)
    ports = {"HTTP_PORT": port_of(address), "GRPC_PORT": grpc, "METRICS_PORT": metrics}
    variables = {"HOST": "127.0.0.1", "PARALLEL_WORKERS": 0, **ports}
    command = [make_mlserver().parent / "mlserver", "start", "."]
    with other_server(command, folder, address, **{f"MLSERVER_{name}": value for name, value in variables.items()}):
        yield


@contextmanager
def kserve(folder: Path, address: str) -> Iterator[Running]:
    python = make_environment("clients", ROOT / "tests/template/clients/requirements.txt")
    (grpc,) = free_ports(1)
    command = [python, "parcels.py", "--http_port", str(port_of(address)), "--grpc_port", str(grpc)]
    with other_server(command, folder, address):
        yield


@pytest.mark.parametrize(("name", "serve_old"), [("from-mlserver", mlserver), ("from-kserve", kserve)])
def test_migration_with_same_protocol(tmp_path: Path, name: str, serve_old: Callable) -> None:
    """The old server responds to the requests of the page with the same outputs as this service."""
    guide, actual = read_guide(name), local_addresses()
    folder = make_folder(guide, tmp_path, actual)
    calls = [step for step in guide.steps if step.command.startswith("curl ")]
    assert calls
    with serve_old(folder, actual[REST]):
        for step in calls:
            answer = json.loads(run_command(step.command, folder, actual))
            assert essence(answer) == essence(json.loads(step.output))
    run_guide(guide, folder, actual)


def essence(answer: dict) -> tuple:
    """Return the name of the model, the id of the request, and each output without its parameters."""
    outputs = [tuple(each[name] for name in ("name", "shape", "datatype", "data")) for each in answer["outputs"]]
    return answer["model_name"], answer["id"], outputs
