"""The files and commands in the guides work as printed."""

from __future__ import annotations

import json
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from app.config.settings import Settings
from tests.kit.environments import (
    ROOT,
    link_packages,
    make_clients,
    make_environment,
    make_mlserver,
    make_project,
)
from tests.kit.processes import Running, free_ports

from .guides import (
    GUIDES,
    REST,
    local_addresses,
    make_folder,
    other_server,
    port_of,
    read_guide,
    run_command,
    run_guide,
)
from .manifests import Render, container_of, environment

# The tests of these pages start other servers, or need other packages. test_guide_proxies.py tests the proxies.
OTHER_TESTS = {
    "envoy",
    "from-bentoml",
    "from-flask",
    "from-kserve",
    "from-mlserver",
    "mlflow",
    "nginx",
    "secrets",
}
OTHER_TESTS |= {"canary"}  # test_canary.py renders the chart with its values
NAMES = sorted({page.stem for page in GUIDES.glob("*.md")} - OTHER_TESTS - {"index"})


@pytest.mark.parametrize("name", NAMES)
def test_guide(tmp_path: Path, linked_project: Path, name: str) -> None:
    """The files and commands of the page give the printed output."""
    guide, actual = read_guide(name), local_addresses()
    run_guide(guide, make_folder(guide, tmp_path, linked_project, actual), actual)


@pytest.mark.slow
def test_mlflow(tmp_path: Path) -> None:
    """A project for MLflow serves the model that the page saves."""
    python = make_environment("mlflow", ROOT / "examples/mlflow/lock.txt")
    project = link_packages(make_project(tmp_path, framework="mlflow", model_name="fares"), python)
    run_guide(read_guide("mlflow"), project, local_addresses())


def accepts_connections(server: Running) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", server.http_port)) == 0


def test_migration_from_flask(tmp_path: Path, linked_project: Path) -> None:
    """The old route and the service give the printed responses."""
    page_address = "127.0.0.1:5000"
    guide, actual = read_guide("from-flask"), local_addresses(page_address)
    folder = make_folder(guide, tmp_path, linked_project, actual)
    command = [
        sys.executable,
        "-m",
        "flask",
        "--app",
        "server",
        "run",
        "--port",
        str(port_of(actual[page_address])),
    ]
    with other_server(command, folder, actual[page_address], accepts_connections):
        run_guide(guide, folder, actual)


@pytest.mark.slow
def test_migration_from_bentoml(tmp_path: Path, linked_project: Path) -> None:
    """The BentoML service and this service give the printed responses."""
    page_address = "127.0.0.1:3000"
    guide, actual = read_guide("from-bentoml"), local_addresses(page_address)
    folder = make_folder(guide, tmp_path, linked_project, actual)
    python = make_environment("bentoml", ROOT / "dev/benchmarks/servers/bentoml/requirements.txt")
    command = [python, "-m", "bentoml", "serve", "service:Parcels", "--host", "127.0.0.1", "--port"]
    variables = {"BENTOML_HOME": tmp_path / "home", "BENTOML_DO_NOT_TRACK": "true"}
    with other_server(
        [*command, str(port_of(actual[page_address]))],
        folder,
        actual[page_address],
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
    with other_server(
        command, folder, address, **{f"MLSERVER_{name}": value for name, value in variables.items()}
    ):
        yield


@contextmanager
def kserve(folder: Path, address: str) -> Iterator[Running]:
    python = make_clients()
    (grpc,) = free_ports(1)
    command = [python, "parcels.py", "--http_port", str(port_of(address)), "--grpc_port", str(grpc)]
    with other_server(command, folder, address):
        yield


@pytest.mark.parametrize(
    ("name", "serve_old"), [("from-mlserver", mlserver), ("from-kserve", kserve)]
)
def test_migration_with_same_protocol(
    tmp_path: Path, linked_project: Path, name: str, serve_old: Callable
) -> None:
    """The old server responds to the requests of the page with the same outputs as this service."""
    guide, actual = read_guide(name), local_addresses()
    folder = make_folder(guide, tmp_path, linked_project, actual)
    calls = [step for step in guide.steps if step.commands[0].startswith("curl ")]
    assert calls
    with serve_old(folder, actual[REST]):
        for step in calls:
            answer = json.loads(run_command(*step.commands, folder, actual))
            assert essence(answer) == essence(json.loads(step.output))
            if name == "from-mlserver":
                assert [output["parameters"] for output in answer["outputs"]] == [
                    {"content_type": "np"}
                ]
    run_guide(guide, folder, actual)


def essence(answer: dict) -> tuple:
    """Return the name of the model, the id of the request, and each output without its parameters."""
    outputs = [
        tuple(output[name] for name in ("name", "shape", "datatype", "data"))
        for output in answer["outputs"]
    ]
    return answer["model_name"], answer["id"], outputs


class Store(BaseHTTPRequestHandler):
    """Responds with the weights of a model if the request has the token of the page."""

    weights = b""

    def do_GET(self) -> None:
        is_permitted = self.headers["Authorization"] == "Bearer example-token"
        self.send_response(200 if is_permitted else 401)
        self.end_headers()
        self.wfile.write(self.weights if is_permitted else b"")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_secrets(tmp_path: Path, linked_project: Path, render: Render) -> None:
    """The model is loaded with the token, requests need the key, git ignores both, and the chart mounts both Secrets.

    The store of the test checks the token. Python's web server on the page does not.
    """
    page_address = "127.0.0.1:9000"
    guide, actual = read_guide("secrets"), local_addresses(page_address)
    folder = make_folder(guide, tmp_path, linked_project, actual)
    store = type("StoreOfPage", (Store,), {"weights": guide.files["store/parcels.json"].encode()})
    with ThreadingHTTPServer(("127.0.0.1", port_of(actual[page_address])), store) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            run_guide(guide, folder, actual)
        finally:
            server.shutdown()
    written = {path.relative_to(folder) for path in folder.rglob("*.txt")}
    assert {path.parent.name for path in written if not (linked_project / path).exists()} == {
        "secrets"
    }
    assert "secrets/" in (ROOT / ".gitignore").read_text().splitlines()
    pod = render(**yaml.safe_load(guide.files["my-values.yaml"]))["Deployment"]["spec"]["template"][
        "spec"
    ]
    (container,) = pod["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    secrets = {
        volume["secret"]["secretName"]: volume["name"]
        for volume in pod["volumes"]
        if "secret" in volume
    }
    assert variables["API_KEYS_FILE"] == f"{mounts[secrets['api-keys']]}/keys.txt"
    assert variables["WEIGHTS_TOKEN_FILE"] == f"{mounts[secrets['weights-token']]}/token"
    created = re.findall(
        r"create secret generic (\S+) --from-file=(\S+)=(\S+)", (GUIDES / "secrets.md").read_text()
    )
    assert created == [
        ("api-keys", "keys.txt", "secrets/keys.txt"),
        ("weights-token", "token", "secrets/token.txt"),
    ]


def test_gpus_values(render: Render) -> None:
    """The chart accepts the values of the page, which give each pod two GPUs and need no others in a rollout."""
    manifests = render(**yaml.safe_load(read_guide("gpus").files["gpus.yaml"]))
    container = container_of(manifests)
    assert (
        container["resources"]["limits"]["nvidia.com/gpu"],
        environment(container)["DEVICES"],
    ) == (2, "0,1")
    assert manifests["Deployment"]["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0


def test_capture_values(render: Render) -> None:
    """The chart mounts a volume that the service may write to as CAPTURE_DIR, and the files fit into it."""
    values = yaml.safe_load(read_guide("capture").files["capture.yaml"])
    pod = render(**values)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    (mount,) = [
        mount
        for mount in container["volumeMounts"]
        if mount["mountPath"] == variables["CAPTURE_DIR"]
    ]
    assert mount["name"] in [volume["name"] for volume in pod["volumes"] if "emptyDir" in volume]
    assert 2 * int(variables["WORKERS"]) * int(variables["CAPTURE_MAX_BYTES"]) == 200 * 2**20


def test_large_models_values(render: Render) -> None:
    """The chart passes the settings of the page, and the startup probe permits the minutes that the page names."""
    values = yaml.safe_load(read_guide("large-models").files["large-model.yaml"])
    deployment = render(**values)["Deployment"]["spec"]
    (container,) = deployment["template"]["spec"]["containers"]
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert variables["WORKERS"] == "4"
    probe = container["startupProbe"]
    assert (
        probe["failureThreshold"] * probe["periodSeconds"]
        == 20 * 60
        < deployment["progressDeadlineSeconds"]
    )
    assert container["resources"]["limits"]["memory"] == "13Gi"
    settings = Settings()
    in_flight = settings.max_concurrency + settings.max_queue_size
    assert 4 * in_flight * 12 * values["config"]["MAX_REQUEST_BYTES"] / 2**30 == pytest.approx(
        3.2, abs=0.05
    )
