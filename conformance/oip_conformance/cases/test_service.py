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


def fill_path(target: Target, path: str) -> str:
    """Replace {model} by the path of the model, and {version} by its version."""
    version = quote(target.version, safe="")
    path_with_model = path.replace("{model}", target.path)
    return path_with_model.replace("{version}", version)


def is_inference(path: str) -> bool:
    return path.endswith("/infer")


def send_valid_request(http: Http, path: str, query: str = "") -> Reply:
    """Send the valid request to a path of inference requests, and a GET request to other paths."""
    url = path + query
    if is_inference(path):
        return http.post(url, VALID_REQUEST)
    return http.get(url)


@pytest.mark.parametrize("change", [str.upper, str.title], ids=["upper", "title"])
def test_model_name_is_case_sensitive(
    target: Target, form: str, change: Callable[[str], str]
) -> None:
    """R1: the model's name is case-sensitive. R3 checks the status."""
    other_name = change(target.model)
    response = target.infer(form, [SMALL_INPUT], model=other_name)
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
    full_path = fill_path(target, path)
    reply = http.get(full_path + slash)
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
    full_path = fill_path(target, path)
    path_without_version = path.replace("/versions/{version}", "")
    full_path_without_version = fill_path(target, path_without_version)

    expected = http.get(full_path_without_version)
    reply = http.get(full_path + slash)
    check_success(reply)
    assert reply.data == expected.data


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
    full_path = fill_path(target, path)
    reply = http.open("HEAD", full_path)
    check_success(reply)
    assert reply.data == b""

    next_reply = http.get("/v2/health/live")
    check_success(next_reply)


@pytest.mark.parametrize("slash", ["", "/"])
def test_infer(target: Target, http: Http, slash: str) -> None:
    """R2: inference requests succeed with or without a trailing slash."""
    reply = http.post(f"{target.path}/infer{slash}", VALID_REQUEST)
    check_success(reply)


@pytest.mark.needs("versions")
@pytest.mark.parametrize("slash", ["", "/"])
def test_infer_version(target: Target, http: Http, slash: str) -> None:
    """R2: inference requests with the model's version succeed, with or without a trailing slash."""
    version_path = fill_path(target, VERSION_PATH)
    reply = http.post(f"{version_path}/infer{slash}", VALID_REQUEST)
    check_success(reply)


@pytest.mark.parametrize("path", ["{model}", "{model}/ready", "{model}/infer"])
def test_percent_encoded(target: Target, http: Http, path: str) -> None:
    """R21: a percent-encoded name in a path equals the plain name."""
    encoded_name = ""
    for octet in target.model.encode():
        encoded_name += f"%{octet:02X}"
    encoded_path = path.replace("{model}", f"/v2/models/{encoded_name}")
    reply = send_valid_request(http, encoded_path)
    check_success(reply)


@pytest.mark.parametrize("path", [*GET_PATHS, "{model}/infer"])
def test_query_is_ignored(target: Target, http: Http, path: str) -> None:
    """R21: the query string is ignored."""
    full_path = fill_path(target, path)
    reply = send_valid_request(http, full_path, query="?a=1&b")
    check_success(reply)


@pytest.mark.parametrize("path", ["/v2", "{model}", "{model}/infer"])
def test_options(target: Target, http: Http, path: str) -> None:
    """R21: the response to OPTIONS lists the path's methods in Allow."""
    full_path = fill_path(target, path)
    reply = http.open("OPTIONS", full_path)
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
    reply = send_valid_request(http, path)
    check_error(reply, 404)


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
    status = status_of(rpc.call, method, **fields)
    assert status == grpc.StatusCode.NOT_FOUND


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
    reply = send_valid_request(http, f"/v2/models/{name}{suffix}")
    check_error(reply, 404)


@pytest.mark.parametrize("name", ["", "no-such-model", "🌷", "\0"])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelReady"])
def test_unknown_model_in_message(rpc: Grpc, method: str, name: str) -> None:
    """R3: over gRPC, an unknown model is rejected with NOT_FOUND."""
    fields = model_fields(method, name)
    status = status_of(rpc.call, method, **fields)
    assert status == grpc.StatusCode.NOT_FOUND


def test_server_metadata(http: Http) -> None:
    """R4: server metadata contains name, version and extensions. It can contain other members."""
    reply = http.get("/v2")
    body = reply.json
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

    metadata = http.get("/v2").json
    is_listed = "binary_tensor_data" in metadata["extensions"]
    assert is_listed == is_supported


def test_statistics_extension(target: Target, http: Http) -> None:
    """R4: `statistics` is listed only if the server supports them."""
    metadata = http.get("/v2").json
    if "statistics" in metadata["extensions"]:
        reply = http.get(f"{target.path}/stats")
        check_success(reply)


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
    full_path = fill_path(target, path)
    reply = http.get(full_path)
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
    assert rest_specs(body["inputs"]) == target.supported_tensors(INPUTS)
    assert rest_specs(body["outputs"]) == target.supported_tensors(OUTPUTS)


def rest_specs(tensors: list[dict[str, Any]]) -> list[TensorSpec]:
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
    holders = [body, *body["inputs"], *body["outputs"]]
    for holder in holders:
        parameters = holder.get("parameters") or {}
        for value in parameters.values():
            assert isinstance(value, str | int | float), f"expected scalars, got {holder}"


def test_metadata_properties(target: Target, http: Http) -> None:
    """R6: the properties of the model, if any, are an object of strings."""
    body = http.get(target.path).json
    properties = body.get("properties") or {}
    check_type(properties, dict)
    for value in properties.values():
        assert isinstance(value, str), f"expected strings, got {properties}"


def test_same_model_metadata(target: Target, http: Http, rpc: Grpc) -> None:
    """R6: both transports return the same model metadata."""
    response = rpc.call("ModelMetadata", name=target.model)
    body = http.get(target.path).json
    assert response.name == body["name"]
    assert response.platform == body["platform"]
    versions = body.get("versions") or []
    assert list(response.versions) == versions
    assert grpc_specs(response.inputs) == rest_specs(body["inputs"])
    assert grpc_specs(response.outputs) == rest_specs(body["outputs"])


def test_same_parameters_and_properties(target: Target, http: Http, rpc: Grpc) -> None:
    """R6: gRPC returns the parameters of tensors and the properties of REST, or none if it lacks
    the field.
    """
    response = rpc.call("ModelMetadata", name=target.model)
    body = http.get(target.path).json
    properties = body.get("properties") or {}
    assert dict(response.properties) in ({}, properties)

    grpc_tensors = [*response.inputs, *response.outputs]
    rest_tensors = [*body["inputs"], *body["outputs"]]
    for tensor, expected in zip(grpc_tensors, rest_tensors, strict=True):
        parameters = expected.get("parameters") or {}
        is_same = parameter_values(tensor.parameters) in ({}, parameters)
        assert is_same, f"expected {expected}, got {tensor}"
