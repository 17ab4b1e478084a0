"""Protocol rules that apply to both transports, tested with each of the four transport forms."""

from __future__ import annotations

import json
import math
from typing import Any

import grpc
import numpy as np
import pytest

from app.api import InferenceRequest, MetadataTensor
from grpc_service import messages
from tests.service import models
from tests.service.cases import ODD_SHAPES, VALUES
from tests.service.wires import exact, refusal

ROWS = ("a", "FP32", [2, 2], [1.0, 2.0, 3.0, 4.0])
NUMBERS = ("b", "INT64", [2], [5, 6])


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two())


def takes(form: str, datatype: str) -> str:
    """Return `form`, or the raw form if `form` has no field for the datatype (G3)."""
    return "grpc raw" if (form, datatype) == ("grpc typed", "FP16") else form


@pytest.mark.parametrize(
    ("inputs", "asked", "kind", "text"),
    [
        ([ROWS], {"model": "Test"}, "NOT_FOUND", 'unknown model: expected "test", got "Test"'),
        ([("A", *ROWS[1:])], {}, "INVALID_ARGUMENT", 'input "A": unknown input: expected "a", "b", got "A"'),
        ([("a", "fp32", [0, 2], [])], {}, "INVALID_ARGUMENT", 'input "a": datatype: expected one of BOOL, UINT8'),
        (
            [ROWS],
            {"outputs": ["Sum"]},
            "INVALID_ARGUMENT",
            'output "Sum": unknown output: expected "sum", "double"',
        ),
    ],
)
def test_strings_are_case_sensitive(service, form: str, inputs: list, asked: dict, kind: str, text: str) -> None:
    """R1: names and datatypes are case-sensitive."""
    answer = service.forms[form].infer(inputs, **asked)
    assert answer.kind == kind
    assert text in answer.text


@pytest.mark.parametrize("version", ["", "1"])
def test_accepts_the_models_version(service, form: str, version: str) -> None:
    """R3, G5: the model responds to its own version, and to a request without a version."""
    answer = service.forms[form].infer([ROWS], version=version)
    assert (answer.kind, answer.model_name, answer.model_version) == ("ok", "test", "1")


@pytest.mark.parametrize("version", ["2", "v1", "1.0", "01"])
def test_rejects_unknown_versions(service, form: str, version: str) -> None:
    """R3: an unknown version is not found."""
    answer = service.forms[form].infer([ROWS], version=version)
    assert answer.kind == "NOT_FOUND"
    assert answer.text == f'model "test": unknown version: expected "1", got "{version}"'


def test_versions_are_strings(serve, form: str) -> None:
    """R3: a version need not be a number."""
    service = serve(models.two_by_two(), model_version="v10")
    assert service.forms[form].infer([ROWS], version="v10").model_version == "v10"
    assert service.forms[form].infer([ROWS], version="10").kind == "NOT_FOUND"


@pytest.mark.parametrize("request_id", ["42", "ü 🌷", " ", None])
def test_echoes_the_id(service, form: str, request_id: str | None) -> None:
    """R8, G5: the response has the request's id, or none if the request has none."""
    assert service.forms[form].infer([ROWS], request_id=request_id).id == request_id


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize("shape", [[2], [2, 1], [1, 2, 1]])
def test_every_datatype_is_unchanged(echoes, form: str, datatype: str, shape: list[int]) -> None:
    """R8: a tensor of any datatype and rank is returned unchanged, with the same shape."""
    service = echoes(datatype, *[-1] * len(shape))
    answer = service.forms[takes(form, datatype)].infer([("x", datatype, shape, VALUES[datatype])])
    got_datatype, got_shape, values = answer.outputs["y"]
    assert (got_datatype, got_shape) == (datatype, shape)
    assert exact(datatype, values) == exact(datatype, VALUES[datatype])


def test_scalar_has_one_element(serve, form: str) -> None:
    """R9: the shape [] has one element and does not match [1]."""
    client = serve(models.echo("FP32", [])).forms[form]
    assert client.infer([("x", "FP32", [], [1.5])]).outputs == {"y": ("FP32", [], [1.5])}
    assert client.infer([("x", "FP32", [1], [1.5])]).text == 'input "x": shape: expected [], got [1]'
    assert client.infer([("x", "FP32", [], [])]).kind == "INVALID_ARGUMENT"
    assert client.infer([("x", "FP32", [], [1.5, 2.5])]).kind == "INVALID_ARGUMENT"


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize("shape", [[0, 3], [3, 0], [0, 0]])
def test_accepts_zero_size_tensors(echoes, form: str, datatype: str, shape: list[int]) -> None:
    """R9, G5: a tensor without elements is valid."""
    answer = echoes(datatype, -1, -1).forms[takes(form, datatype)].infer([("x", datatype, shape, [])])
    assert answer.outputs == {"y": (datatype, shape, [])}


@pytest.mark.parametrize(
    ("shape", "values", "text"),
    ODD_SHAPES,
)
def test_rejects_invalid_shapes(echoes, form: str, shape: list[int], values: list, text: str) -> None:
    """R9: a shape that is negative, too large or does not match the size of the data is rejected."""
    answer = echoes("FP64", -1, -1).forms[form].infer([("x", "FP64", shape, values)])
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text.startswith(f'input "x": {text}')


@pytest.mark.parametrize("datatype", VALUES)
@pytest.mark.parametrize("shape", [[1], [3], [0]])
def test_rejects_data_that_does_not_match_the_shape(echoes, form: str, datatype: str, shape: list[int]) -> None:
    """R9, B5, G2, G3: a tensor with more or less data than its shape requires is rejected."""
    answer = echoes(datatype).forms[takes(form, datatype)].infer([("x", datatype, shape, VALUES[datatype])])
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text.startswith('input "x": data: ')
    assert f"[{shape[0]}]" in answer.text
    assert "got " in answer.text


@pytest.mark.parametrize(
    ("datatype", "value", "text"),
    [
        ("UINT8", 256, "UINT8 from 0 to 255, got 256"),
        ("UINT16", 65536, "UINT16 from 0 to 65535, got 65536"),
        ("INT8", 300, "INT8 from -128 to 127, got 300"),
        ("INT8", -129, "INT8 from -128 to 127, got -129"),
        ("INT16", 32768, "INT16 from -32768 to 32767, got 32768"),
        ("INT16", -32769, "INT16 from -32768 to 32767, got -32769"),
    ],
)
@pytest.mark.parametrize("written", ["rest json", "grpc typed"])
def test_rejects_numbers_out_of_range(echoes, written: str, datatype: str, value: int, text: str) -> None:
    """R11, G3: a number outside the datatype's range is rejected with the same message on both transports."""
    answer = echoes(datatype).forms[written].infer([("x", datatype, [2], [1, value])])
    assert (answer.kind, answer.text) == ("INVALID_ARGUMENT", f'input "x": data: expected {text}')


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_nan_is_unchanged(echoes, form: str, datatype: str) -> None:
    """R12: NaN is returned as NaN in every form, and is null in JSON."""
    answer = echoes(datatype).forms[takes(form, datatype)].infer([("x", datatype, [2], [math.nan, 1.5])])
    assert exact(datatype, answer.outputs["y"][2]) == exact(datatype, [math.nan, 1.5])


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_infinity_needs_binary_data(echoes, bits: str, datatype: str) -> None:
    """R12: infinities are returned unchanged in binary data and on gRPC."""
    answer = echoes(datatype).forms[takes(bits, datatype)].infer([("x", datatype, [2], [math.inf, -math.inf])])
    assert answer.outputs["y"] == (datatype, [2], [math.inf, -math.inf])


@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_invalid_utf8_needs_binary_data(echoes, bits: str) -> None:
    """R14: arbitrary bytes, including invalid UTF-8, are returned unchanged in binary data and on gRPC."""
    values = [b"\xff\x00\xfe", b"", b"\x00", bytes(range(256))]
    assert echoes("BYTES").forms[bits].infer([("x", "BYTES", [4], values)]).outputs["y"] == ("BYTES", [4], values)


@pytest.mark.parametrize("inputs", [[ROWS, NUMBERS], [NUMBERS, ROWS]])
def test_accepts_inputs_in_any_order(service, form: str, inputs: list) -> None:
    """R15: inputs are identified by name, in any order."""
    answer = service.forms[form].infer(inputs)
    assert answer.outputs == {"sum": ("FP32", [2], [3, 7]), "double": ("INT64", [2], [10, 12])}


def test_accepts_absent_optional_inputs(service, form: str) -> None:
    """R15: an input may be absent if its parameter of predict() has a default."""
    assert service.forms[form].infer([ROWS]).outputs["double"] == ("INT64", [1], [14])


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([], 'input "a": missing: expected "a", and may take "b", got none'),
        ([NUMBERS], 'input "a": missing: expected "a", and may take "b", got "b"'),
        ([ROWS, ("c", "FP32", [1], [1.0])], 'input "c": unknown input: expected "a", "b", got "c"'),
        ([ROWS, ("", "FP32", [1], [1.0])], 'input "": unknown input: expected "a", "b", got ""'),
        ([ROWS, ROWS], 'input "a": sent twice'),
        ([ROWS, NUMBERS, ("b", "INT64", [1], [1])], 'input "b": sent twice'),
        ([("a", "FP64", [1, 2], [1.0, 2.0])], 'input "a": datatype: expected FP32, got FP64'),
        ([("a", "BYTES", [0, 2], [])], 'input "a": datatype: expected FP32, got BYTES'),
        ([("a", "FP32", [2], [1.0, 2.0])], 'input "a": shape: expected [-1,2], got [2]'),
        ([("a", "FP32", [1, 3], [1.0, 2.0, 3.0])], 'input "a": shape: expected [-1,2], got [1,3]'),
        ([("a", "FP32", [1, 1, 2], [1.0, 2.0])], 'input "a": shape: expected [-1,2], got [1,1,2]'),
        ([("a", "FP32", [], [1.0])], 'input "a": shape: expected [-1,2], got []'),
        ([ROWS, ("b", "INT64", [1, 2], [1, 2])], 'input "b": shape: expected [-1], got [1,2]'),
        ([ROWS, ("b", "INT64", [], [1])], 'input "b": shape: expected [-1], got []'),
    ],
)
def test_rejects_inputs_that_do_not_match_metadata(service, form: str, inputs: list, text: str) -> None:
    """R15: an input that is missing, unknown, duplicate or of another datatype, rank or size is rejected by name."""
    answer = service.forms[form].infer(inputs)
    assert (answer.kind, answer.text) == ("INVALID_ARGUMENT", text)


@pytest.mark.parametrize(
    ("declared", "sent"),
    [
        *(([-1], [3, 1]), ([-1], [0, 1]), ([-1], [1, 1]), ([1], [1, 1]), ([3], [3, 1])),
        *(([-1, 1], [3]), ([-1, 1], [0]), ([1, 1], [1]), ([3, 1], [3])),
    ],
)
def test_columns_match_vectors(serve, form: str, declared: list[int], sent: list[int]) -> None:
    """R15: [N,1] matches a declared rank 1, [N] matches [-1,1] and [N,1], and predict() receives the declared rank."""
    shapes = []

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        shapes.append(list(x.shape))
        return x

    tensors = [MetadataTensor("x", "INT32", declared)], [MetadataTensor("y", "INT32", declared)]
    values, shape = list(range(sent[0])), [sent[0], 1][: len(declared)]
    answer = serve(models.model(*tensors, predict)).forms[form].infer([("x", "INT32", sent, values)])
    assert answer.outputs["y"] == ("INT32", shape, values)
    assert shapes == [shape]


@pytest.mark.parametrize(
    ("declared", "sent"),
    [([2], [3, 1]), ([1], [3, 1]), ([2, 1], [3]), ([-1], [1, 3]), ([3], [1, 3]), ([-1, 2], [3]), ([-1, -1], [3])],
)
def test_rejects_other_ranks(echoes, form: str, declared: list[int], sent: list[int]) -> None:
    """R15: other ranks and sizes are rejected, and the message has the shape that the client sent."""
    answer = echoes("INT32", *declared).forms[form].infer([("x", "INT32", sent, [1, 2, 3])])
    shapes = [f"[{','.join(map(str, shape))}]" for shape in (declared, sent)]
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text == f'input "x": shape: expected {shapes[0]}, got {shapes[1]}'


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, ["sum", "double"]),
        ([], ["sum", "double"]),
        (["double"], ["double"]),
        (["double", "sum"], ["double", "sum"]),
        (["sum", "double"], ["sum", "double"]),
    ],
)
def test_returns_requested_outputs(service, form: str, asked: list[str] | None, expected: list[str]) -> None:
    """R16: only the requested outputs are returned, in that order, or all in the order of the metadata."""
    assert list(service.forms[form].infer([ROWS], asked).outputs) == expected


def test_predict_may_omit_outputs_that_are_not_requested(serve, form: str) -> None:
    """R16: predict() may omit an output that the request does not ask for, but not one that it does."""

    def predict(_: Any, request: InferenceRequest) -> dict[str, Any]:
        asked = {output.name for output in request.outputs}
        return {"cheap": [1.0]} | ({"costly": [2.0]} if "costly" in asked else {})

    tensors = [MetadataTensor(name, "FP32", [1]) for name in ("cheap", "costly")]
    client = serve(models.model([MetadataTensor("x", "FP32", [1])], tensors, predict)).forms[form]
    assert list(client.infer([("x", "FP32", [1], [0])], ["cheap"]).outputs) == ["cheap"]
    assert list(client.infer([("x", "FP32", [1], [0])], ["costly", "cheap"]).outputs) == ["costly", "cheap"]
    assert 'output "costly": predict() did not return it' in client.infer([("x", "FP32", [1], [0])]).text


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (["sum", "sum"], 'output "sum": requested twice'),
        (["product"], 'output "product": unknown output: expected "sum", "double", got "product"'),
        (["sum", ""], 'output "": unknown output: expected "sum", "double", got ""'),
    ],
)
def test_rejects_unknown_and_duplicate_outputs(service, form: str, asked: list[str], text: str) -> None:
    """R16: an unknown or duplicate requested output is rejected by name."""
    answer = service.forms[form].infer([ROWS], asked)
    assert (answer.kind, answer.text) == ("INVALID_ARGUMENT", text)


def test_ignores_unknown_parameters(service, form: str) -> None:
    """R17: unknown parameters of any type are ignored."""
    parameters: dict[str, Any] = {"priority": 3, "ratio": 0.5, "user": "me", "fast": True, "": ""}
    assert service.forms[form].infer([ROWS], parameters=parameters).kind == "ok"


def test_rejects_requests_until_ready(serve, form: str) -> None:
    """R5, R19, G1: inference requests are rejected while the model is not ready."""
    service = serve(models.two_by_two())
    service.plane.is_warm = False
    answer = service.forms[form].infer([ROWS])
    assert (answer.kind, answer.text) == ("UNAVAILABLE", 'model "test": not ready')
    service.plane.is_warm = True
    assert service.forms[form].infer([ROWS]).kind == "ok"


def test_health_checks_report_not_ready(serve) -> None:
    """R5: while the model is not ready, readiness checks fail, and liveness checks and metadata succeed."""
    service = serve(models.two_by_two())
    service.plane.is_warm = False
    for path, body in [
        ("/v2/health/ready", {"live": True, "ready": False}),
        ("/v2/models/test/ready", {"name": "test", "ready": False}),
        ("/v2/models/test/versions/1/ready", {"name": "test", "ready": False}),
    ]:
        response = service.client.get(path)
        assert (response.status_code, response.json) == (503, body)
        assert int(response.headers["Retry-After"]) > 0
    assert "not ready" in refusal(service.rest.post({"inputs": []}), 503)
    assert not service.grpc.call("ServerReady").ready
    assert not service.grpc.call("ModelReady", name="test").ready
    for path in ["/v2/health/live", "/v2", "/v2/models/test"]:
        assert service.client.get(path).status_code == 200
    assert service.grpc.call("ServerLive").live
    assert service.grpc.call("ModelMetadata", name="test").name == "test"


def test_rejects_too_large_requests(serve, form: str) -> None:
    """R19, G6: both transports reject a request larger than MAX_REQUEST_BYTES."""
    service = serve(models.echo("BYTES", [-1]), max_request_bytes=1000)
    answer = service.forms[form].infer([("x", "BYTES", [1], [b"x" * 1000])])
    assert answer.kind == "RESOURCE_EXHAUSTED"
    assert "1000" in answer.text
    assert service.forms[form].infer([("x", "BYTES", [1], [b"x" * 700])]).kind == "ok"


def test_model_metadata_is_the_same_on_both_transports(service) -> None:
    """R6, G1: both transports return the same model metadata."""
    rest = service.client.get("/v2/models/test").json
    message = service.grpc.call("ModelMetadata", name="test", version="1")
    assert rest == {
        "name": "test",
        "versions": ["1"],
        "platform": "tests",
        "inputs": [
            {"name": "a", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "b", "datatype": "INT64", "shape": [-1]},
        ],
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [-1]},
            {"name": "double", "datatype": "INT64", "shape": [-1]},
        ],
    }
    assert (message.name, list(message.versions), message.platform) == ("test", ["1"], "tests")
    for tensors, expected in [(message.inputs, rest["inputs"]), (message.outputs, rest["outputs"])]:
        assert [
            {"name": each.name, "datatype": each.datatype, "shape": list(each.shape)} for each in tensors
        ] == expected


def test_server_metadata_is_the_same_on_both_transports(service) -> None:
    """R4, G1: both transports return the same server metadata."""
    rest = json.loads(service.client.get("/v2").data)
    message = service.grpc.call("ServerMetadata")
    assert rest == {"name": message.name, "version": message.version, "extensions": list(message.extensions)}
    assert "binary_tensor_data" in rest["extensions"]
    assert "statistics" not in rest["extensions"]


def test_returns_the_model_configuration(service) -> None:
    """T1: both transports return the model configuration in Triton's format."""
    expected = {
        "name": "test",
        "platform": "tests",
        "max_batch_size": 0,
        "input": [
            {"name": "a", "data_type": "TYPE_FP32", "dims": [-1, 2], "optional": False},
            {"name": "b", "data_type": "TYPE_INT64", "dims": [-1], "optional": True},
        ],
        "output": [
            {"name": "sum", "data_type": "TYPE_FP32", "dims": [-1]},
            {"name": "double", "data_type": "TYPE_INT64", "dims": [-1]},
        ],
    }
    for path in ("/v2/models/test/config", "/v2/models/test/versions/1/config"):
        assert service.client.get(path).json == expected
    message = service.grpc.call("ModelConfig", name="test", version="1").config
    assert message == messages.ModelConfig(**expected)
    assert "model_configuration" in service.client.get("/v2").json["extensions"]


def test_model_configuration_of_an_unknown_model(service) -> None:
    """T1, R3: an unknown model is not found, with the same message on both transports."""
    text = refusal(service.client.get("/v2/models/Test/config"), 404)
    with pytest.raises(grpc.RpcError) as caught:
        service.grpc.call("ModelConfig", name="Test")
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.NOT_FOUND, text)


@pytest.mark.parametrize("datatype", VALUES)
def test_model_configuration_uses_triton_datatypes(echoes, datatype: str) -> None:
    """T1: each datatype has Triton's name, the same on both transports."""
    expected = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    service = echoes(datatype)
    assert service.client.get("/v2/models/test/config").json["input"][0]["data_type"] == expected
    tensor = service.grpc.call("ModelConfig", name="test").config.input[0]
    assert tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number[tensor.data_type].name == expected


@pytest.mark.parametrize(
    ("body", "loaded", "state"),
    [
        ("", True, "READY"),
        ("{}", True, "READY"),
        ('{"ready": null, "more": 1}', True, "READY"),
        ('{"ready": true}', True, "READY"),
        ('{"ready": false}', False, "UNAVAILABLE"),
        ("", False, "UNAVAILABLE"),
        ('{"ready": true}', False, None),
    ],
)
def test_repository_index(serve, body: str, loaded: bool, state: str | None) -> None:
    """T2: the index lists the model and its state, or nothing if only ready models are requested."""
    service = serve(models.two_by_two())
    service.plane.is_warm = loaded
    answer = service.client.post("/v2/repository/index", data=body)
    reason = "" if loaded else "not loaded"
    expected = [{"name": "test", "version": "1", "state": state, "reason": reason}] if state else []
    assert (answer.status_code, answer.json) == (200, expected)
    index = service.grpc.call("RepositoryIndex", ready="true" in body)
    assert index == messages.RepositoryIndexResponse(models=expected)


@pytest.mark.parametrize("body", ["[]", "null", "{", '{"ready": 1}', '{"ready": "true"}', "true"])
def test_rejects_invalid_repository_index_requests(service, body: str) -> None:
    """T2, R19: an invalid body of a repository index request is rejected."""
    assert refusal(service.client.post("/v2/repository/index", data=body), 400)
