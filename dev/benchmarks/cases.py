"""Benchmark cases: requests and checks of their responses."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dev.benchmarks.servers import models
from grpc_service.messages import ModelInferRequest, ModelInferResponse

LENGTH = "Inference-Header-Content-Length"
ELEMENTS, MEBIBYTE = 100_000, 2**18  # number of FP32 elements
# Texts of DataFrames. Some are not ASCII, so a model that receives bytes returns wrong lengths.
TOWNS = ["Delft", "Zürich", "Kraków", "San Sebastián", "Aix-en-Provence"]
generator = np.random.default_rng(0)


@dataclass(frozen=True)
class Case:
    """A request to measure. `check` raises an exception if the response is incorrect."""

    name: str
    title: str
    transport: str  # "http" or "grpc"
    model: str
    body: bytes
    check: Callable[[bytes, dict[str, str]], None]
    header_length: int | None = None
    is_secure: bool = False  # over HTTPS
    has_tracing_headers: bool = False  # new ones in each request, see tracing_headers()

    @property
    def path(self) -> str:
        if self.transport == "grpc":
            return "/inference.GRPCInferenceService/ModelInfer"
        return f"/v2/models/{self.model}/infer"

    @property
    def headers(self) -> dict[str, str]:
        """Return the HTTP headers of the request."""
        if self.header_length is None:
            return {"Content-Type": "application/json"}
        return {"Content-Type": "application/octet-stream", LENGTH: str(self.header_length)}


def tracing_headers() -> dict[str, str]:
    """Return headers with new ids, as a service mesh adds them. wrk.lua does the same."""
    trace_id = secrets.token_hex(16)
    span_id = secrets.token_hex(8)
    return {"traceparent": f"00-{trace_id}-{span_id}-01", "x-request-id": str(uuid.uuid4())}


def equal(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.ravel(got), np.ravel(expected), rtol=1e-6)


def rest_json(name: str, title: str, model: str, x: np.ndarray, y: np.ndarray) -> Case:
    def check(body: bytes, headers: dict[str, str]) -> None:
        equal(json.loads(body)["outputs"][0]["data"], y)

    tensor = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    return Case(name, title, "http", model, json.dumps({"inputs": [tensor]}).encode(), check)


def rest_binary(name: str, title: str, model: str, x: np.ndarray, y: np.ndarray) -> Case:
    def check(body: bytes, headers: dict[str, str]) -> None:
        equal(np.frombuffer(body[int(headers[LENGTH]) :], "<f4"), y)

    tensor = {
        "name": "x",
        "shape": x.shape,
        "datatype": "FP32",
        "parameters": {"binary_data_size": x.nbytes},
    }
    output = {"name": "y", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    return Case(name, title, "http", model, head + x.tobytes(), check, len(head))


def rest_frame(name: str, title: str, rows: int) -> Case:
    """Return a request with a tensor [rows,1] for each column.

    The codecs of MLServer and of this service send a DataFrame in this form.
    """
    columns: dict[str, list[float] | list[int] | list[str]] = {}
    for column in models.FLOATS:
        columns[column] = generator.normal(size=rows).tolist()
    for column in models.INTEGERS:
        columns[column] = generator.integers(1000, size=rows).tolist()
    for column in models.TEXTS:
        columns[column] = generator.choice(TOWNS, size=rows).tolist()

    tensors = []
    for column, data in columns.items():
        parameters = {"content_type": "str"} if column in models.TEXTS else {}
        tensors.append(
            {
                "name": column,
                "shape": [rows, 1],
                "datatype": models.COLUMNS[column],
                "parameters": parameters,
                "data": data,
            }
        )

    body = json.dumps({"parameters": {"content_type": "pd"}, "inputs": tensors}).encode()
    expected = models.frame_scores(columns)

    def check(body: bytes, headers: dict[str, str]) -> None:
        (output,) = json.loads(body)["outputs"]
        assert output["datatype"] == "FP64", output["datatype"]
        equal(output["data"], expected)

    return Case(name, title, "http", "frame", body, check)


def grpc(name: str, title: str, model: str, x: np.ndarray, y: np.ndarray, raw: bool) -> Case:
    def check(body: bytes, headers: dict[str, str]) -> None:
        answer = ModelInferResponse.FromString(body)
        contents = answer.outputs[0].contents.fp32_contents
        equal(
            np.frombuffer(answer.raw_output_contents[0], "<f4")
            if answer.raw_output_contents
            else contents,
            y,
        )

    request = ModelInferRequest(model_name=model)
    tensor = request.inputs.add(name="x", datatype="FP32", shape=x.shape)
    if raw:
        request.raw_input_contents.append(x.tobytes())
    else:
        tensor.contents.fp32_contents.extend(x.ravel().tolist())
    return Case(name, title, "grpc", model, request.SerializeToString(), check)


one, many = (generator.normal(size=(rows, 4)).astype("<f4") for rows in (1, 32))
# Numbers with all digits of an FP64, as many clients send them.
vector = generator.normal(size=ELEMENTS)
block = generator.normal(size=MEBIBYTE).astype("<f4")
single = vector.astype("<f4")

S1 = rest_json("S1", "REST JSON [1,4]", "linear", one, models.linear(one))
S1_TLS = replace(S1, name="S1-tls", title="REST JSON [1,4], TLS", is_secure=True)
U1 = replace(S1, name="U1", title="REST JSON [1,4], tracing headers", has_tracing_headers=True)

CASES = [
    S1,
    U1,
    rest_json("S2", "REST JSON [32,4]", "linear", many, models.linear(many)),
    rest_json("M1", "REST JSON 100,000", "echo", vector, single),
    rest_binary("B1", "REST binary 1 MiB", "echo", block, block),
    rest_frame("D1", "DataFrame, 1 row", rows=1),
    rest_frame("D100", "DataFrame, 100 rows", rows=100),
    grpc("G1", "gRPC raw [1,4]", "linear", one, models.linear(one), raw=True),
    grpc("G2", "gRPC typed [1,4]", "linear", one, models.linear(one), raw=False),
    grpc("G3", "gRPC raw 1 MiB", "echo", block, block, raw=True),
    grpc("G4", "gRPC typed 100,000", "echo", single, single, raw=False),
]
tensor = {"name": "y", "shape": [1, 3], "datatype": "FP32", "data": [0.5, -0.5, 0.25]}
S1_ANSWER = json.dumps({"model_name": "linear", "model_version": "1", "outputs": [tensor]}).encode()
