"""The service called by existing clients: tritonclient, KServe, grpcio, MLServer and perf_analyzer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect

from tests.service.processes import Running, gunicorn
from tests.template.clients.echo import BF16, DATATYPES, TENSORS
from tests.template.clients.iris import CLASSES, FLOWERS, SPECIES
from tests.template.environments import LOCAL, ROOT, make_environment, make_mlserver, make_project, run
from tests.template.perf_analyzer.tool import Measure, input_data, make_perf_analyzer

CLIENTS = Path(__file__).parent / "clients"
ECHO_SCRIPTS = ["tritonclient_http.py", "tritonclient_grpc.py", "kserve_rest.py", "kserve_grpc.py"]
IRIS_SCRIPTS = [*ECHO_SCRIPTS, "plain_grpc.py"]
INSTALL = f"{sys.executable} -m uv pip install --quiet --python .venv/bin/python"  # faster than pip

pytestmark = pytest.mark.timeout(900)  # the first test of each client installs it


@pytest.fixture(scope="session")
def clients_python() -> Path:
    """Return the Python of .venv-clients, with the packages of clients/requirements.txt."""
    return make_environment("clients", CLIENTS / "requirements.txt")


@pytest.fixture(scope="session")
def mlserver() -> Path:
    """Return MLServer's command, in the environment that test_mlserver_codecs.py also uses."""
    return make_mlserver().parent / "mlserver"


@pytest.fixture(scope="session")
def perf_analyzer(tmp_path_factory: pytest.TempPathFactory) -> Measure:
    return make_perf_analyzer(tmp_path_factory.mktemp("perf-analyzer"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start gunicorn with two workers in a generated project with its own environment."""
    project = make_project(tmp_path_factory.mktemp("projects"))
    variables = [f"PYTHON={sys.executable}", "VENV=.venv", f"INSTALL={INSTALL}"]
    run("make", "-C", project, *variables, ".venv/.serve", MAKEFLAGS="")
    with gunicorn(project, python=project / ".venv/bin/python", WORKERS=2) as running:
        yield running


@pytest.fixture(scope="module")
def echoing() -> Iterator[Running]:
    """Start the conformance suite's model, which has every datatype, with two workers."""
    with gunicorn(ROOT, "conformance.servers.ours:create()", WORKERS=2) as running:
        yield running


def check_client(python: Path, script: str, service: Running, model: str) -> None:
    output = run(python, CLIENTS / script, service.http, service.grpc, model, **LOCAL)
    assert output.endswith(": ok\n"), output


@pytest.mark.parametrize("script", IRIS_SCRIPTS)
def test_client(script: str, clients_python: Path, service: Running) -> None:
    """The client receives correct results and readable errors for all forms of requests."""
    check_client(clients_python, script, service, "iris")


def test_python_call_of_page(clients_python: Path, service: Running, chromium: Browser) -> None:
    """The call with tritonclient on the model's page runs unchanged."""
    with chromium.new_page() as page:
        page.goto(f"http://{service.http}/")
        page.get_by_role("button", name="Predict").click()
        code = page.locator('[data-tool="python"] code')
        expect(code).to_contain_text("tritonclient")
        call = code.text_content() or ""
    output = run(clients_python, "-c", call, **LOCAL)
    assert re.match(r"label \[b'\w+'\]\nprobabilities \[\[", output)


@pytest.mark.parametrize("script", ECHO_SCRIPTS)
def test_client_datatypes(script: str, clients_python: Path, echoing: Running) -> None:
    """The client receives the tensors that it sent, for every datatype, rank, form and compression."""
    check_client(clients_python, script, echoing, "conformance")


def test_mlserver_stubs(mlserver: Path, service: Running, echoing: Running) -> None:
    """R6: MLServer's stubs read every response, except the metadata of a model with properties."""
    python = mlserver.parent / "python"
    check_client(python, "mlserver_grpc.py", service, "iris")
    check_client(python, "mlserver_grpc.py", echoing, "conformance")


def head(name: str, datatype: str, array: np.ndarray) -> dict[str, Any]:
    """Return an input as flat JSON, because MLServer concatenates the data of a batch."""
    return {"name": name, "datatype": datatype, "shape": array.shape, "data": as_json(array)}


def as_json(array: np.ndarray) -> list:
    if array.dtype == object:
        return [element.decode() for element in array.ravel()]
    return array.ravel().tolist()


def infer(mlserver: Path, service: Running, model: str, lines: list[dict], folder: Path, *options: str) -> list[dict]:
    """Return the responses of `mlserver infer` in the order of the requests."""
    requests, responses = folder / "requests.jsonl", folder / "responses.jsonl"
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    files = ["--input-data-path", requests, "--output-data-path", responses]
    run(mlserver, "infer", "--url", service.http, "--model-name", model, *files, *options, **LOCAL)
    found = {line["parameters"]["batch_index"]: line for line in map(json.loads, responses.read_text().splitlines())}
    assert sorted(found) == list(range(len(lines))), found
    return [found[index] for index in range(len(lines))]


def data(response: dict[str, Any]) -> dict[str, list]:
    """Return the data of each output by name. Fail if the response is an error."""
    assert "outputs" in response, response
    return {output["name"]: output["data"] for output in response["outputs"]}


# MLServer supports only --transport rest.
BATCHES = [
    ["--workers", "1", "--retries", "1"],
    ["--workers", "4", "--batch-size", "7", "--batch-interval", "0.01", "--batch-jitter", "0.01", "--extra-verbose"],
    ["--batch-size", "100", "--binary-data", "--request-headers", "colour: blue"],
]


@pytest.mark.parametrize("options", BATCHES, ids=["singly", "batches", "binary"])
def test_mlserver_infer(options: list[str], mlserver: Path, service: Running, tmp_path: Path) -> None:
    """Each request receives its own response, regardless of how MLServer batches them."""
    picked = [[(index + row) % 2 for row in range(1 + index % 3)] for index in range(20)]
    lines = [{"inputs": [head("features", "FP32", FLOWERS[rows])]} for rows in picked]
    for index in range(0, 20, 2):
        lines[index]["id"] = f"flower-{index}"
    responses = infer(mlserver, service, "iris", lines, tmp_path, *options)
    for line, response, rows in zip(lines, responses, picked, strict=True):
        assert response["id"] == line.get("id", response["id"])
        found = data(response)
        assert found["label"] == [SPECIES[row] for row in rows]
        probabilities = np.reshape(found["probabilities"], (-1, 3))
        assert probabilities.argmax(axis=1).tolist() == [CLASSES[row] for row in rows]


@pytest.mark.parametrize("options", BATCHES, ids=["singly", "batches", "binary"])
def test_mlserver_infer_datatypes(options: list[str], mlserver: Path, echoing: Running, tmp_path: Path) -> None:
    """Each request receives the tensors that it sent, in every datatype, from a batch."""
    sent = []
    for index in range(10):
        columns = {name: np.resize(array, (3, *array.shape[1:])) for name, array in TENSORS.items()}
        sent.append({name: np.roll(array, index, axis=0)[: 1 + index % 3] for name, array in columns.items()})
    lines = [
        {
            "inputs": [head(f"{name}_in", DATATYPES[name], array) for name, array in tensors.items()],
            "outputs": [{"name": f"{name}_out"} for name in tensors],
        }
        for tensors in sent
    ]
    for response, tensors in zip(infer(mlserver, echoing, "conformance", lines, tmp_path, *options), sent, strict=True):
        assert data(response) == {f"{name}_out": as_json(array) for name, array in tensors.items()}


def test_mlserver_infer_errors(mlserver: Path, service: Running, tmp_path: Path) -> None:
    """A request that does not match the model receives the service's error. The other requests succeed."""
    lines = [{"inputs": [head("features", "FP32", rows)]} for rows in (FLOWERS, FLOWERS[:, :3], FLOWERS)]
    first, second, third = infer(mlserver, service, "iris", lines, tmp_path, "--retries", "1")
    assert data(first)["label"] == data(third)["label"] == SPECIES
    assert 'Input "features"' in second["error"]["msg"], second


# No JSON here: if an output has parameters, such as a content type, perf_analyzer requires binary_data_size.
@pytest.mark.parametrize("options", [["-i", "http"], ["-i", "grpc", "-x", "1"]], ids=["http", "grpc"])
def test_perf_analyzer(options: list[str], perf_analyzer: Measure, service: Running) -> None:
    """T1, T3: perf_analyzer reads from the configuration what to send, and no request fails. It shows server times."""
    perf_analyzer("iris", service, "--shape", "features:5,4", *options)


def test_perf_analyzer_error(perf_analyzer: Measure, service: Running) -> None:
    """perf_analyzer stops at a failed request and prints the service's error."""
    for protocol in "http", "grpc":
        with pytest.raises(AssertionError, match='Input "features": invalid shape. Expected .*, got'):
            perf_analyzer("iris", service, "-i", protocol, "--shape", "features:5,3")


def test_perf_analyzer_optional(perf_analyzer: Measure, echoing: Running, tmp_path: Path) -> None:
    """T1: perf_analyzer leaves out inputs that the configuration marks as optional and its data does not contain."""
    file = data_file(tmp_path, {"fp32": TENSORS["fp32"], "cube": TENSORS["cube"]})
    perf_analyzer("conformance", echoing, "--input-data", file)


@pytest.mark.parametrize(
    ("create", "options"),
    [
        ("create", ["-i", "http"]),
        ("create", ["-i", "http", "-a", "--concurrency-range", "4"]),
        ("jsonable", ["-i", "http", "--input-tensor-format", "json", "--output-tensor-format", "json"]),
        ("create", ["-i", "grpc", "--grpc-compression-algorithm", "gzip"]),
        ("create", ["-i", "grpc", "-a", "--concurrency-range", "4"]),
    ],
    ids=["http", "http-async", "json", "grpc-gzip", "grpc-async"],
)
def test_perf_analyzer_outputs(create: str, options: list[str], perf_analyzer: Measure, tmp_path: Path) -> None:
    """perf_analyzer finds the expected values of every datatype in each response."""
    sent = {name: array.reshape(1, 3) for name, array in TENSORS.items() if DATATYPES[name] == name.upper()}
    sent["bf16"] = BF16.reshape(1, 3).view("<u2")[:, 1::2]  # the bytes of BF16
    if create == "jsonable":
        del sent["fp16"], sent["bf16"]
    shifted = {name: np.roll(array, 1) for name, array in sent.items()}
    with gunicorn(ROOT, f"tests.template.perf_analyzer.model:{create}()", WORKERS=2) as running:
        perf_analyzer("test", running, "--input-data", data_file(tmp_path, sent, shifted, checked=True), *options)


def data_file(folder: Path, *steps: dict[str, np.ndarray], checked: bool = False) -> Path:
    """Write the data that perf_analyzer sends, and, if `checked`, the outputs that it expects."""
    described = {"data": [input_data(step) for step in steps]}
    if checked:
        described["validation_data"] = [input_data(step, "_out") for step in steps]
    file = folder / "data.json"
    file.write_text(json.dumps(described))
    return file
