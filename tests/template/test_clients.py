"""The service called by existing clients: tritonclient, KServe, grpcio, Node.js, grpcurl, MLServer and perf_analyzer.

A missing client fails its tests. Each client sends all datatypes that it supports.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from playwright.sync_api import Browser, expect

from grpc_service import messages
from oip_conformance.wires import CONTENTS_FIELDS, pack
from tests.kit.environments import (
    CLIENTS,
    LOCAL,
    ROOT,
    make_clients,
    make_mlserver,
    make_node_packages,
    make_project,
    run,
)
from tests.kit.processes import Running, gunicorn
from tests.template.clients.echo import BF16, BF16_BITS, DATATYPES, TENSORS, check
from tests.template.clients.iris import CLASSES, FLOWERS, SPECIES
from tests.template.perf_analyzer.tool import Measure, input_data, make_perf_analyzer

# The scripts of each process.
SCRIPTS = ["tritonclient_http,tritonclient_grpc", "kserve_rest,kserve_grpc", "plain_grpc"]
PROTO = ROOT / "protos" / "open_inference_grpc.proto"
SERVICE = "inference.GRPCInferenceService"
INSTALL = f"{sys.executable} -m uv pip install --quiet --python .venv/bin/python"  # faster than pip

pytestmark = pytest.mark.timeout(900)  # the first test of each client installs it


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
    with gunicorn(ROOT, "tests.conformance_model:create_service()", WORKERS=2) as running:
        yield running


def check_client(python: Path, scripts: str, *targets: tuple[Running, str]) -> None:
    """Run the scripts of clients against each service with its model."""
    words = [word for it, model in targets for word in (it.http_address, it.grpc_address, model)]
    assert run(python, CLIENTS / "run.py", scripts, *words, **LOCAL) == "ok\n"


@pytest.mark.parametrize("scripts", SCRIPTS)
def test_client(scripts: str, echoing: Running) -> None:
    """The client receives correct results and readable errors for every datatype, rank, form and compression."""
    check_client(make_clients(), scripts, (echoing, "conformance"))


def test_python_call_of_page(service: Running, chromium: Browser) -> None:
    """The call with tritonclient on the model's page runs unchanged."""
    with chromium.new_page() as page:
        page.goto(f"http://{service.http_address}/")
        page.get_by_role("button", name="Predict").click()
        code = page.locator('[data-tool="python"] code')
        expect(code).to_contain_text("tritonclient")
        call = code.text_content() or ""
    output = run(make_clients(), "-c", call, **LOCAL)
    assert re.match(r"label \[b'\w+'\]\nprobabilities \[\[", output)


def test_node_client(echoing: Running, tmp_path: Path) -> None:
    """A client for Node.js with code that ts-proto generates receives the tensors that it sent, typed and raw."""
    folder, packages = tmp_path / "node", make_node_packages()
    shutil.copytree(CLIENTS / "node", folder)
    (folder / "node_modules").symlink_to(packages)
    plugin = [
        "--plugin",
        packages / ".bin" / "protoc-gen-ts_proto",
        "--ts_proto_out",
        folder,
        "--ts_proto_opt",
    ]
    options = "outputServices=grpc-js,esModuleInterop=true,env=node,forceLong=bigint"
    run(
        make_clients(),
        "-m",
        "grpc_tools.protoc",
        *plugin,
        options,
        "--proto_path",
        PROTO.parent,
        PROTO,
    )
    run(packages / ".bin" / "tsc", "--project", folder)
    assert run("node", folder / "client.js", echoing.grpc_address, "conformance", **LOCAL) == "ok\n"


def grpcurl(*arguments: str) -> str:
    return run(make_clients().with_name("grpcurl"), "-plaintext", *arguments, **LOCAL)


def test_grpcurl_metadata(echoing: Running) -> None:
    """G7: grpcurl, which has no copy of the proto, lists the methods and reads the metadata of the model."""
    methods = grpcurl(echoing.grpc_address, "list", SERVICE).split()
    assert methods == [
        f"{SERVICE}.{method.name}"
        for method in sorted(messages.SERVICE.methods, key=lambda method: method.name)
    ]
    metadata = json.loads(
        grpcurl("-d", '{"name": "conformance"}', echoing.grpc_address, f"{SERVICE}/ModelMetadata")
    )
    datatypes = {declaration["name"]: declaration["datatype"] for declaration in metadata["inputs"]}
    assert (
        datatypes.items()
        >= {f"{name}_in": datatype for name, datatype in DATATYPES.items()}.items()
    )


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
def test_grpcurl_datatypes(echoing: Running, raw: bool) -> None:
    """G7: grpcurl receives the tensors that it sent, in every datatype."""
    request = messages.ModelInferRequest(model_name="conformance")
    tensors = {**TENSORS, "bf16": BF16}
    sent = {
        name: array for name, array in tensors.items() if raw or DATATYPES[name] in CONTENTS_FIELDS
    }
    for name, array in sent.items():
        datatype, elements = DATATYPES[name], array.ravel().tolist()
        tensor = request.inputs.add(name=f"{name}_in", datatype=datatype, shape=array.shape)
        request.outputs.add(name=f"{name}_out")
        if raw:
            request.raw_input_contents.append(pack(datatype, elements))
        else:
            getattr(tensor.contents, CONTENTS_FIELDS[datatype]).extend(elements)
    message = json_format.MessageToDict(request)
    response = json.loads(
        grpcurl("-d", json.dumps(message), echoing.grpc_address, f"{SERVICE}/ModelInfer")
    )
    assert response.get("rawOutputContents") == message.get("rawInputContents")
    for output, (name, array) in zip(response["outputs"], sent.items(), strict=True):
        assert (output["name"], output["datatype"]) == (f"{name}_out", DATATYPES[name])
        assert list(map(int, output["shape"])) == list(array.shape)
        if not raw:
            (elements,) = output["contents"].values()  # 64-bit integers are strings
            is_bytes = DATATYPES[name] == "BYTES"
            received = (
                np.array([*map(b64decode, elements)], object)
                if is_bytes
                else np.array(elements).astype(array.dtype)
            )
            check(received.reshape(array.shape), array)


def test_grpcurl_error(echoing: Running) -> None:
    """G1: grpcurl prints the status and the service's error message."""
    with pytest.raises(
        AssertionError,
        match=r'Code: NotFound\n +Message: Model not found. Expected "conformance", got',
    ):
        grpcurl("-d", '{"model_name": "other"}', echoing.grpc_address, f"{SERVICE}/ModelInfer")


def test_mlserver_stubs(service: Running, echoing: Running) -> None:
    """R6: MLServer's stubs read every response, except the metadata of a model with properties."""
    targets = (service, "iris"), (echoing, "conformance")
    check_client(make_mlserver(), "mlserver_grpc", *targets)


def head(name: str, datatype: str, array: np.ndarray) -> dict[str, Any]:
    """Return an input as flat JSON, because MLServer concatenates the data of a batch."""
    return {"name": name, "datatype": datatype, "shape": array.shape, "data": as_json(array)}


def as_json(array: np.ndarray) -> list:
    if array.dtype == object:
        return [element.decode() for element in array.ravel()]
    return array.ravel().tolist()


def infer(
    service: Running, model: str, lines: list[dict], folder: Path, *options: str
) -> list[dict]:
    """Return the responses of `mlserver infer` in the order of the requests."""
    requests, responses = folder / "requests.jsonl", folder / "responses.jsonl"
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    files = ["--input-data-path", requests, "--output-data-path", responses]
    mlserver = make_mlserver().with_name("mlserver")
    run(
        mlserver,
        "infer",
        "--url",
        service.http_address,
        "--model-name",
        model,
        *files,
        *options,
        **LOCAL,
    )
    lines_by_index = {
        line["parameters"]["batch_index"]: line
        for line in map(json.loads, responses.read_text().splitlines())
    }
    assert sorted(lines_by_index) == list(range(len(lines))), lines_by_index
    return [lines_by_index[index] for index in range(len(lines))]


def data(response: dict[str, Any]) -> dict[str, list]:
    """Return the data of each output by name. Fail if the response is an error."""
    assert "outputs" in response, response
    return {output["name"]: output["data"] for output in response["outputs"]}


# MLServer supports only --transport rest.
BATCHES = [
    ["--workers", "1", "--retries", "1"],
    [
        "--workers",
        "4",
        "--batch-size",
        "7",
        "--batch-interval",
        "0.01",
        "--batch-jitter",
        "0.01",
        "--extra-verbose",
    ],
    ["--batch-size", "100", "--binary-data", "--request-headers", "colour: blue"],
]


def test_mlserver_infer(service: Running, tmp_path: Path) -> None:
    """Each request receives its own response. One that does not match the model receives the service's error."""
    picked = [[(index + row) % 2 for row in range(1 + index % 3)] for index in range(20)]
    lines = [{"inputs": [head("features", "FP32", FLOWERS[rows])]} for rows in picked]
    wrong = {"inputs": [head("features", "FP32", FLOWERS[:, :3])]}
    responses = infer(service, "iris", [*lines[:10], wrong, *lines[10:]], tmp_path, *BATCHES[0])
    assert 'Input "features"' in responses.pop(10)["error"]["msg"]
    for response, rows in zip(responses, picked, strict=True):
        outputs = data(response)
        assert outputs["label"] == [SPECIES[row] for row in rows]
        probabilities = np.reshape(outputs["probabilities"], (-1, 3))
        assert probabilities.argmax(axis=1).tolist() == [CLASSES[row] for row in rows]


@pytest.mark.parametrize("options", BATCHES, ids=["singly", "batches", "binary"])
def test_mlserver_infer_datatypes(options: list[str], echoing: Running, tmp_path: Path) -> None:
    """Each request receives the tensors that it sent, in every datatype, regardless of how MLServer batches them."""
    sent = []
    for index in range(10):
        columns = {name: np.resize(array, (3, *array.shape[1:])) for name, array in TENSORS.items()}
        sent.append(
            {
                name: np.roll(array, index, axis=0)[: 1 + index % 3]
                for name, array in columns.items()
            }
        )
    lines: list[dict[str, Any]] = [
        {
            "inputs": [
                head(f"{name}_in", DATATYPES[name], array) for name, array in tensors.items()
            ],
            "outputs": [{"name": f"{name}_out"} for name in tensors],
        }
        for tensors in sent
    ]
    for index in range(0, 10, 2):
        lines[index]["id"] = f"tensors-{index}"
    responses = infer(echoing, "conformance", lines, tmp_path, *options)
    for response, line, tensors in zip(responses, lines, sent, strict=True):
        assert response["id"] == line.get("id", response["id"])
        assert data(response) == {f"{name}_out": as_json(array) for name, array in tensors.items()}


# No JSON here: if an output has parameters, such as a content type, perf_analyzer requires binary_data_size.
@pytest.mark.parametrize(
    "options", [["-i", "http"], ["-i", "grpc", "-x", "1"]], ids=["http", "grpc"]
)
def test_perf_analyzer(options: list[str], perf_analyzer: Measure, service: Running) -> None:
    """T1, T3: perf_analyzer reads from the configuration what to send, and no request fails. It shows server times."""
    perf_analyzer("iris", service, "--shape", "features:5,4", *options)


def test_perf_analyzer_error(perf_analyzer: Measure, service: Running) -> None:
    """perf_analyzer stops at a failed request and prints the service's error."""
    for protocol in "http", "grpc":
        with pytest.raises(
            AssertionError, match='Input "features": invalid shape. Expected .*, got'
        ):
            perf_analyzer("iris", service, "-i", protocol, "--shape", "features:5,3")


def test_perf_analyzer_optional(perf_analyzer: Measure, echoing: Running, tmp_path: Path) -> None:
    """T1: perf_analyzer leaves out inputs that the configuration marks as optional and its data does not contain."""
    file = data_file(tmp_path, {"fp32": TENSORS["fp32"], "cube": TENSORS["cube"]})
    perf_analyzer("conformance", echoing, "--input-data", file)


@pytest.fixture(scope="module")
def fixed_shapes(request: pytest.FixtureRequest) -> Iterator[Running]:
    with gunicorn(
        ROOT, f"tests.template.perf_analyzer.model:{request.param}()", WORKERS=2
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("fixed_shapes", "options"),
    [
        ("create", ["-i", "http"]),
        ("create", ["-i", "http", "-a", "--concurrency-range", "4"]),
        ("create", ["-i", "grpc", "--grpc-compression-algorithm", "gzip"]),
        ("create", ["-i", "grpc", "-a", "--concurrency-range", "4"]),
        (
            "jsonable",
            ["-i", "http", "--input-tensor-format", "json", "--output-tensor-format", "json"],
        ),
    ],
    ids=["http", "http-async", "grpc-gzip", "grpc-async", "json"],
    indirect=["fixed_shapes"],
    scope="module",
)
def test_perf_analyzer_outputs(
    fixed_shapes: Running, options: list[str], perf_analyzer: Measure, tmp_path: Path
) -> None:
    """perf_analyzer finds the expected values of every datatype in each response."""
    sent = {
        name: array.reshape(1, 3)
        for name, array in TENSORS.items()
        if DATATYPES[name] == name.upper()
    }
    sent["bf16"] = BF16_BITS.reshape(1, 3)
    if "json" in options:
        del sent["fp16"], sent["bf16"]
    shifted = {name: np.roll(array, 1) for name, array in sent.items()}
    perf_analyzer(
        "test",
        fixed_shapes,
        "--input-data",
        data_file(tmp_path, sent, shifted, checked=True),
        *options,
    )


def data_file(folder: Path, *steps: dict[str, np.ndarray], checked: bool = False) -> Path:
    """Write the data that perf_analyzer sends, and, if `checked`, the outputs that it expects."""
    described = {"data": [input_data(step) for step in steps]}
    if checked:
        described["validation_data"] = [input_data(step, "_out") for step in steps]
    file = folder / "data.json"
    file.write_text(json.dumps(described))
    return file
