"""Protocol rules that apply to both transports, tested with each of the four transport forms."""

from __future__ import annotations

from typing import Any

import pytest

from app.protocol.types import InferenceRequest, MetadataTensor
from oip_conformance.wires import error_message
from tests.kit import models

ROWS = ("a", "FP32", [2, 2], [1.0, 2.0, 3.0, 4.0])
NUMBERS = ("b", "INT64", [2], [5, 6])


@pytest.mark.parametrize(
    ("inputs", "requested", "kind", "text"),
    [
        ([ROWS], {"model": "Test"}, "NOT_FOUND", 'Model not found. Expected "test", got "Test"'),
        ([("A", *ROWS[1:])], {}, "INVALID_ARGUMENT", 'Unknown input. Expected "a", "b", got "A"'),
        (
            [("a", "fp32", [0, 2], [])],
            {},
            "INVALID_ARGUMENT",
            'Input "a": invalid datatype. Expected one of BOOL, UINT8',
        ),
        (
            [ROWS],
            {"outputs": ["Sum"]},
            "INVALID_ARGUMENT",
            'Unknown output. Expected "sum", "double"',
        ),
    ],
)
def test_strings_are_case_sensitive(
    service, form: str, inputs: list, requested: dict, kind: str, text: str
) -> None:
    """R1: names and datatypes are case-sensitive."""
    response = service.forms[form].infer(inputs, **requested)
    assert response.kind == kind
    assert text in response.text


@pytest.mark.parametrize("version", ["", "1"])
def test_accepts_the_models_version(service, form: str, version: str) -> None:
    """R3, G5: the model responds to its own version, and to a request without a version."""
    response = service.forms[form].infer([ROWS], version=version)
    assert (response.kind, response.model_name, response.model_version) == ("ok", "test", "1")


@pytest.mark.parametrize("version", ["2", "v1", "1.0", "01"])
def test_rejects_unknown_versions(service, form: str, version: str) -> None:
    """R3: an unknown version is not found."""
    response = service.forms[form].infer([ROWS], version=version)
    assert response.kind == "NOT_FOUND"
    assert response.text == f'Model "test": version not found. Expected "1", got "{version}".'


def test_versions_are_strings(serve, form: str) -> None:
    """R3: a version need not be a number."""
    service = serve(models.two_by_two(), model_version="v10")
    assert service.forms[form].infer([ROWS], version="v10").model_version == "v10"
    assert service.forms[form].infer([ROWS], version="10").kind == "NOT_FOUND"


@pytest.mark.parametrize("request_id", ["42", "ü 🌷", " ", None])
def test_echoes_the_id(service, form: str, request_id: str | None) -> None:
    """R8, G5: the response has the request's id, or none if the request has none."""
    assert service.forms[form].infer([ROWS], request_id=request_id).id == request_id


@pytest.mark.parametrize("inputs", [[ROWS, NUMBERS], [NUMBERS, ROWS]])
def test_accepts_inputs_in_any_order(service, form: str, inputs: list) -> None:
    """R15: inputs are identified by name, in any order."""
    response = service.forms[form].infer(inputs)
    assert response.outputs == {"sum": ("FP32", [2], [3, 7]), "double": ("INT64", [2], [10, 12])}


def test_accepts_absent_optional_inputs(service, form: str) -> None:
    """R15: an input may be absent if its parameter of predict() has a default."""
    assert service.forms[form].infer([ROWS]).outputs["double"] == ("INT64", [1], [14])


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ([], 'Input "a": missing. Expected "a" (optional: "b"), got none'),
        ([NUMBERS], 'Input "a": missing. Expected "a" (optional: "b"), got "b"'),
        ([ROWS, ("c", "FP32", [1], [1.0])], 'Unknown input. Expected "a", "b", got "c"'),
        ([ROWS, ("", "FP32", [1], [1.0])], 'Unknown input. Expected "a", "b", got ""'),
        ([ROWS, ROWS], 'Input "a": sent twice'),
        ([ROWS, NUMBERS, ("b", "INT64", [1], [1])], 'Input "b": sent twice'),
        (
            [("a", "FP64", [1, 2], [1.0, 2.0])],
            'Input "a": invalid datatype. Expected FP32, got FP64',
        ),
        ([("a", "BYTES", [0, 2], [])], 'Input "a": invalid datatype. Expected FP32, got BYTES'),
        ([("a", "FP32", [2], [1.0, 2.0])], 'Input "a": invalid shape. Expected [-1,2], got [2]'),
        (
            [("a", "FP32", [1, 3], [1.0, 2.0, 3.0])],
            'Input "a": invalid shape. Expected [-1,2], got [1,3]',
        ),
        (
            [("a", "FP32", [1, 1, 2], [1.0, 2.0])],
            'Input "a": invalid shape. Expected [-1,2], got [1,1,2]',
        ),
        ([("a", "FP32", [], [1.0])], 'Input "a": invalid shape. Expected [-1,2], got []'),
        (
            [ROWS, ("b", "INT64", [1, 2], [1, 2])],
            'Input "b": invalid shape. Expected [-1], got [1,2]',
        ),
        ([ROWS, ("b", "INT64", [], [1])], 'Input "b": invalid shape. Expected [-1], got []'),
    ],
)
def test_rejects_inputs_that_do_not_match_metadata(
    service, form: str, inputs: list, text: str
) -> None:
    """R15: an input that is missing, unknown, duplicate or of another datatype, rank or size is rejected by name."""
    response = service.forms[form].infer(inputs)
    assert (response.kind, response.text) == ("INVALID_ARGUMENT", f"{text}.")


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (None, ["sum", "double"]),
        ([], ["sum", "double"]),
        (["double"], ["double"]),
        (["double", "sum"], ["double", "sum"]),
        (["sum", "double"], ["sum", "double"]),
    ],
)
def test_returns_requested_outputs(
    service, form: str, requested: list[str] | None, expected: list[str]
) -> None:
    """R16: only the requested outputs are returned, in that order, or all in the order of the metadata."""
    assert list(service.forms[form].infer([ROWS], requested).outputs) == expected


def test_predict_may_omit_outputs_that_are_not_requested(serve, form: str) -> None:
    """R16: predict() may omit an output that the request does not ask for, but not one that it does."""

    def predict(_: Any, request: InferenceRequest) -> dict[str, Any]:
        requested = {output.name for output in request.outputs}
        return {"cheap": [1.0]} | ({"costly": [2.0]} if "costly" in requested else {})

    tensors = [MetadataTensor(name, "FP32", [1]) for name in ("cheap", "costly")]
    client = serve(models.model([MetadataTensor("x", "FP32", [1])], tensors, predict)).forms[form]
    assert list(client.infer([("x", "FP32", [1], [0])], ["cheap"]).outputs) == ["cheap"]
    assert list(client.infer([("x", "FP32", [1], [0])], ["costly", "cheap"]).outputs) == [
        "costly",
        "cheap",
    ]
    assert (
        'Output "costly": not returned by predict()' in client.infer([("x", "FP32", [1], [0])]).text
    )


@pytest.mark.parametrize(
    ("requested", "text"),
    [
        (["sum", "sum"], 'Output "sum": requested twice'),
        (["product"], 'Unknown output. Expected "sum", "double", got "product"'),
        (["sum", ""], 'Unknown output. Expected "sum", "double", got ""'),
    ],
)
def test_rejects_unknown_and_duplicate_outputs(
    service, form: str, requested: list[str], text: str
) -> None:
    """R16: an unknown or duplicate requested output is rejected by name."""
    response = service.forms[form].infer([ROWS], requested)
    assert (response.kind, response.text) == ("INVALID_ARGUMENT", f"{text}.")


def test_ignores_unknown_parameters(service, form: str) -> None:
    """R17: unknown parameters of any type are ignored."""
    parameters: dict[str, Any] = {"priority": 3, "ratio": 0.5, "user": "me", "fast": True, "": ""}
    assert service.forms[form].infer([ROWS], parameters=parameters).kind == "ok"


def test_rejects_requests_until_ready(serve, form: str) -> None:
    """R5, R19, G1: inference requests are rejected while the model is not ready."""
    service = serve(models.two_by_two())
    service.plane.is_warm = False
    response = service.forms[form].infer([ROWS])
    assert (response.kind, response.text) == (
        "UNAVAILABLE",
        'Model "test": not ready. Retry later.',
    )
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
    assert "not ready" in error_message(service.rest.post({"inputs": []}), 503)
    assert not service.grpc.call("ServerReady").ready
    assert not service.grpc.call("ModelReady", name="test").ready
    for path in ["/v2/health/live", "/v2", "/v2/models/test"]:
        assert service.client.get(path).status_code == 200
    assert service.grpc.call("ServerLive").live
    assert service.grpc.call("ModelMetadata", name="test").name == "test"


def test_rejects_too_large_requests(serve, form: str) -> None:
    """R19, G6: both transports reject a request larger than MAX_REQUEST_BYTES."""
    service = serve(models.echo("BYTES", [-1]), max_request_bytes=1000)
    response = service.forms[form].infer([("x", "BYTES", [1], [b"x" * 1000])])
    assert response.kind == "RESOURCE_EXHAUSTED"
    assert "1000" in response.text
    assert service.forms[form].infer([("x", "BYTES", [1], [b"x" * 700])]).kind == "ok"
