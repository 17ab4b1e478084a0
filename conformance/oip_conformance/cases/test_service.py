"""Metadata, health, configuration and index, and their paths (R1-R6, G1, T1, T2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from oip_conformance.client import Http, Reply
from oip_conformance.inputs import SMALL_INPUT, SMALL_JSON
from oip_conformance.model import INPUTS, OUTPUTS, TensorSpec
from oip_conformance.outcomes import (
    check_error,
    check_members,
    check_strings,
    check_success,
    check_type,
    describe,
    expect_error,
    status_of,
)
from oip_conformance.target import Target
from oip_conformance.wires import HEADER_LENGTH, Grpc, Rest, parameter_values

# Paths that the server supports, without and with a version.
GET_PATHS = ["/v2", "/v2/health/live", "/v2/health/ready", "{model}", "{model}/ready"]
VERSION_PATH = "{model}/versions/{version}"
VALID_REQUEST = json.dumps({"inputs": [SMALL_JSON]})


def fill(target: Target, path: str) -> str:
    """Replace {model} by the path of the model, and {version} by its version."""
    version = quote(target.version, safe="")
    return path.replace("{model}", target.path).replace("{version}", version)


def is_inference(path: str) -> bool:
    return path.endswith("/infer")


def open_path(http: Http, path: str, query: str = "") -> Reply:
    """Send the valid request to a path of inference requests, and a GET request to other paths."""
    if is_inference(path):
        return http.post(path + query, VALID_REQUEST)
    return http.get(path + query)


@pytest.mark.parametrize("change", [str.upper, str.title], ids=["upper", "title"])
def test_model_name_is_case_sensitive(
    target: Target, form: str, change: Callable[[str], str]
) -> None:
    """R1: the model's name is case-sensitive. R3 checks the status."""
    response = target.infer(form, [SMALL_INPUT], model=change(target.model))
    assert response.kind in ("NOT_FOUND", "INVALID_ARGUMENT"), (
        f"expected 404 or 400, got {describe(response)}"
    )


@pytest.mark.parametrize("datatype", ["fp32", "Fp32", "FP32 "])
def test_datatypes_are_case_sensitive(target: Target, form: str, datatype: str) -> None:
    """R1: datatypes are case-sensitive."""
    response = target.infer(form, [("fp32_in", datatype, [0], [])])
    expect_error(response, "INVALID_ARGUMENT")


def test_input_names_are_case_sensitive(target: Target, form: str) -> None:
    """R1: input names are case-sensitive."""
    response = target.infer(form, [("FP32_in", "FP32", [0], [])], [])
    expect_error(response, "INVALID_ARGUMENT")


def test_output_names_are_case_sensitive(target: Target, form: str) -> None:
    """R1: output names are case-sensitive."""
    response = target.infer(form, [SMALL_INPUT], ["FP32_out"])
    expect_error(response, "INVALID_ARGUMENT")


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("path", GET_PATHS)
def test_get(target: Target, http: Http, path: str, slash: str) -> None:
    """R2: responses on the protocol's paths are JSON, with or without a trailing slash."""
    reply = http.get(fill(target, path) + slash)
    check_success(reply)
    if path != "/v2":  # R4 checks its content
        assert reply.mimetype == "application/json"
        check_type(reply.json, dict)


@pytest.mark.needs("versions")
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("path", [VERSION_PATH, f"{VERSION_PATH}/ready"])
def test_get_version(target: Target, http: Http, path: str, slash: str) -> None:
    """R2: responses are the same with or without the model's version and a trailing slash in the
    path.
    """
    unversioned_path = path.replace("/versions/{version}", "")
    unversioned = http.get(fill(target, unversioned_path))
    versioned = http.get(fill(target, path) + slash)
    check_success(versioned)
    assert versioned.data == unversioned.data


@pytest.mark.needs("model names")
@pytest.mark.parametrize("slash", ["", "/"])
def test_model_names(target: Target, http: Http, slash: str) -> None:
    """R22: the list of models contains the name of the model."""
    reply = http.get(f"/v2/models{slash}")
    check_success(reply)
    assert target.model in reply.json["models"]


@pytest.mark.parametrize(
    "path", [*GET_PATHS, pytest.param("/v2/models", marks=pytest.mark.needs("model names"))]
)
def test_head(target: Target, http: Http, path: str) -> None:
    """R2: HEAD works like GET without a body, and the connection stays usable."""
    reply = http.open("HEAD", fill(target, path))
    check_success(reply)
    assert reply.data == b""
    check_success(http.get("/v2/health/live"))


@pytest.mark.parametrize("slash", ["", "/"])
def test_infer(target: Target, http: Http, slash: str) -> None:
    """R2: inference requests succeed with or without a trailing slash."""
    check_success(http.post(f"{target.path}/infer{slash}", VALID_REQUEST))


@pytest.mark.needs("versions")
@pytest.mark.parametrize("slash", ["", "/"])
def test_infer_version(target: Target, http: Http, slash: str) -> None:
    """R2: inference requests with the model's version succeed, with or without a trailing slash."""
    check_success(http.post(f"{fill(target, VERSION_PATH)}/infer{slash}", VALID_REQUEST))


@pytest.mark.parametrize("path", ["{model}", "{model}/ready", "{model}/infer"])
def test_percent_encoded(target: Target, http: Http, path: str) -> None:
    """R21: a percent-encoded name in a path equals the plain name."""
    encoded = "".join(f"%{octet:02X}" for octet in target.model.encode())
    check_success(open_path(http, path.replace("{model}", f"/v2/models/{encoded}")))


@pytest.mark.parametrize("path", [*GET_PATHS, "{model}/infer"])
def test_query_is_ignored(target: Target, http: Http, path: str) -> None:
    """R21: the query string is ignored."""
    check_success(open_path(http, fill(target, path), query="?a=1&b"))


@pytest.mark.parametrize("path", ["/v2", "{model}", "{model}/infer"])
def test_options(target: Target, http: Http, path: str) -> None:
    """R21: the response to OPTIONS lists the path's methods in Allow."""
    reply = http.open("OPTIONS", fill(target, path))
    assert reply.status_code in (200, 204, 405), f"expected 200, 204 or 405, got {reply}"
    method = "POST" if is_inference(path) else "GET"
    assert method in reply.headers.get("Allow", "")


@pytest.mark.needs("versions")
@pytest.mark.parametrize(
    "version", ["999", "v10", "01", "1.0", "+1", "-1", " ", "%00", "%ff", "x" * 300, "%F0%9F%8C%B7"]
)
@pytest.mark.parametrize("suffix", ["", "/ready", "/infer"])
def test_unknown_version_in_path(target: Target, http: Http, version: str, suffix: str) -> None:
    """R3: a version that the model does not have is rejected with 404, whatever its form."""
    version_in_path = version.replace(" ", "%20")
    path = f"{target.path}/versions/{version_in_path}{suffix}"
    check_error(open_path(http, path), 404)


def model_fields(method: str, model: str, version: str = "") -> dict[str, str]:
    """Return the fields for a model and its version in the request of a gRPC method."""
    if method == "ModelInfer":
        return {"model_name": model, "model_version": version}
    return {"name": model, "version": version}


@pytest.mark.needs("versions")
@pytest.mark.parametrize("version", ["999", "v10", "01", "1.0", " "])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelReady"])
def test_unknown_version_in_message(target: Target, rpc: Grpc, method: str, version: str) -> None:
    """R3: over gRPC, a version that the model does not have is rejected with NOT_FOUND."""
    fields = model_fields(method, target.model, version)
    assert status_of(rpc.call, method, **fields) == grpc.StatusCode.NOT_FOUND


@pytest.mark.needs("versions")
def test_response_version(target: Target, form: str) -> None:
    """R3, G5: without a version, the server selects one and returns it.

    A requested version is returned.
    """
    for version in ("", target.version):
        response = target.infer_successfully(form, [SMALL_INPUT], version=version)
        assert response.model_version == target.version


@pytest.mark.parametrize(
    "name", ["no-such-model", "%20", "%2e%2e", "%ff", "%00", "a%2Fb", "x" * 300, "%F0%9F%8C%B7"]
)
@pytest.mark.parametrize("suffix", ["", "/ready", "/infer"])
def test_unknown_model(http: Http, name: str, suffix: str) -> None:
    """R3: an unknown model is rejected with 404, whatever the form of its name."""
    reply = open_path(http, f"/v2/models/{name}{suffix}")
    check_error(reply, 404)


@pytest.mark.parametrize("name", ["", "no-such-model", "🌷", "\0"])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelReady"])
def test_unknown_model_in_message(rpc: Grpc, method: str, name: str) -> None:
    """R3: over gRPC, an unknown model is rejected with NOT_FOUND."""
    fields = model_fields(method, name)
    assert status_of(rpc.call, method, **fields) == grpc.StatusCode.NOT_FOUND


def test_server_metadata(http: Http) -> None:
    """R4: server metadata contains name, version and extensions. It can contain other members."""
    body = http.get("/v2").json
    assert set(body) >= {"name", "version", "extensions"}
    check_type(body["name"], str)
    check_type(body["version"], str)
    check_strings(body["extensions"])


def test_binary_extension_is_listed(target: Target, http: Http) -> None:
    """R4: binary_tensor_data is listed if and only if binary tensors are supported."""
    rest = Rest(http, model=target.rest.model)
    parameters = {"binary_data_output": True}
    reply = rest.post({"inputs": [SMALL_JSON], "parameters": parameters})
    is_supported = HEADER_LENGTH in reply.headers
    extensions = http.get("/v2").json["extensions"]
    assert ("binary_tensor_data" in extensions) == is_supported


def test_statistics_extension(target: Target, http: Http) -> None:
    """R4: `statistics` is listed only if the server supports them."""
    if "statistics" in http.get("/v2").json["extensions"]:
        check_success(http.get(f"{target.path}/stats"))


def test_same_server_metadata(http: Http, rpc: Grpc) -> None:
    """R4: both transports return the same server metadata."""
    response = rpc.call("ServerMetadata")
    body = http.get("/v2").json
    assert response.name == body["name"]
    assert response.version == body["version"]
    assert list(response.extensions) == body["extensions"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("{model}/ready", {"name": "{model}", "ready": True}),
    ],
)
def test_health(target: Target, http: Http, path: str, body: dict[str, Any]) -> None:
    """R5: a server that is live and ready reports this state."""
    expected = dict(body)
    if "name" in expected:
        expected["name"] = target.model
    reply = http.get(fill(target, path))
    check_success(reply)
    check_members(reply.json, expected)


def test_health_over_grpc(target: Target, rpc: Grpc) -> None:
    """R5, G1: a server that is live and ready reports this state over gRPC."""
    assert rpc.call("ServerLive").live
    assert rpc.call("ServerReady").ready
    assert rpc.call("ModelReady", name=target.model).ready


def test_model_metadata(target: Target, http: Http) -> None:
    """R6: model metadata contains name, platform and the tensors.

    It can contain versions and other members.
    """
    body = http.get(target.path).json
    assert set(body) >= {"name", "platform", "inputs", "outputs"}
    assert body["name"] == target.model
    check_type(body["platform"], str)
    versions = body.get("versions") or []
    check_type(versions, list)
    check_strings(versions)
    assert specs(body["inputs"]) == target.supported_tensors(INPUTS)
    assert specs(body["outputs"]) == target.supported_tensors(OUTPUTS)


def specs(tensors: list[dict[str, Any]]) -> list[TensorSpec]:
    """Return the name, datatype and shape of each tensor in the metadata of REST."""
    return [(tensor["name"], tensor["datatype"], tensor["shape"]) for tensor in tensors]


def grpc_specs(tensors: Any) -> list[TensorSpec]:
    """Return the name, datatype and shape of each tensor in the metadata of gRPC."""
    return [(tensor.name, tensor.datatype, list(tensor.shape)) for tensor in tensors]


def test_metadata_parameters(target: Target, http: Http) -> None:
    """R6: the parameters of the model and of its tensors, if any, are strings, numbers and
    booleans.
    """
    body = http.get(target.path).json
    for holder in (body, *body["inputs"], *body["outputs"]):
        parameters = holder.get("parameters") or {}
        for value in parameters.values():
            assert isinstance(value, str | int | float), f"expected scalars, got {holder}"


def test_metadata_properties(target: Target, http: Http) -> None:
    """R6: the properties of the model, if any, are an object of strings."""
    properties = http.get(target.path).json.get("properties") or {}
    check_type(properties, dict)
    for value in properties.values():
        assert isinstance(value, str), f"expected strings, got {properties}"


def test_same_model_metadata(target: Target, http: Http, rpc: Grpc) -> None:
    """R6: both transports return the same model metadata."""
    response = rpc.call("ModelMetadata", name=target.model)
    body = http.get(target.path).json
    assert response.name == body["name"]
    assert response.platform == body["platform"]
    assert list(response.versions) == (body.get("versions") or [])
    assert grpc_specs(response.inputs) == specs(body["inputs"])
    assert grpc_specs(response.outputs) == specs(body["outputs"])


def test_same_parameters_and_properties(target: Target, http: Http, rpc: Grpc) -> None:
    """R6: gRPC returns the parameters of tensors and the properties of REST, or none if it lacks
    the field.
    """
    response = rpc.call("ModelMetadata", name=target.model)
    body = http.get(target.path).json
    assert dict(response.properties) in ({}, body.get("properties") or {})

    grpc_tensors = [*response.inputs, *response.outputs]
    rest_tensors = [*body["inputs"], *body["outputs"]]
    for tensor, expected in zip(grpc_tensors, rest_tensors, strict=True):
        parameters = expected.get("parameters") or {}
        is_same = parameter_values(tensor.parameters) in ({}, parameters)
        assert is_same, f"expected {expected}, got {tensor}"
