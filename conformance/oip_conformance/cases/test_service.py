"""Metadata, health, configuration and index, and their paths (R1-R6, G1, T1, T2)."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from oip_conformance.client import Http
from oip_conformance.inputs import SMALL, json_input
from oip_conformance.model import INPUTS, OUTPUTS
from oip_conformance.outcomes import check_type, describe, error_message, expect, status_of, success
from oip_conformance.target import Target
from oip_conformance.wires import Grpc, Rest, plain

# Paths that the server supports, without and with a version.
GETS = ["/v2", "/v2/health/live", "/v2/health/ready", "{model}", "{model}/ready"]
VERSIONED = ["{model}/versions/{version}", "{model}/versions/{version}/ready"]
GOOD = json.dumps({"inputs": [json_input(*SMALL)]})


def full(target: Target, path: str) -> str:
    return path.replace("{model}", target.path).replace("{version}", quote(target.version, safe=""))


@pytest.mark.parametrize("change", [str.upper, str.title], ids=["upper", "title"])
def test_model_name_is_case_sensitive(target: Target, form: str, change: Any) -> None:
    """R1: the model's name is case-sensitive. R3 checks the status."""
    response = target.infer(form, [SMALL], model=change(target.model))
    assert response.kind in ("NOT_FOUND", "INVALID_ARGUMENT"), (
        f"expected 404 or 400, got {describe(response)}"
    )


@pytest.mark.parametrize("datatype", ["fp32", "Fp32", "FP32 "])
def test_datatypes_are_case_sensitive(target: Target, form: str, datatype: str) -> None:
    """R1: datatypes are case-sensitive."""
    expect(target.infer(form, [("fp32_in", datatype, [0], [])]), "INVALID_ARGUMENT")


def test_input_names_are_case_sensitive(target: Target, form: str) -> None:
    """R1: input names are case-sensitive."""
    expect(target.infer(form, [("FP32_in", "FP32", [0], [])], []), "INVALID_ARGUMENT")


def test_output_names_are_case_sensitive(target: Target, form: str) -> None:
    """R1: output names are case-sensitive."""
    expect(target.infer(form, [SMALL], ["FP32_out"]), "INVALID_ARGUMENT")


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("path", GETS)
def test_get(target: Target, http: Http, path: str, slash: str) -> None:
    """R2: responses on the protocol's paths are JSON, with or without a trailing slash."""
    reply = success(http.get(full(target, path) + slash))
    if path != "/v2":  # R4 checks its content
        assert reply.mimetype == "application/json"
        check_type(reply.json, dict)


@pytest.mark.needs("versions")
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("path", VERSIONED)
def test_get_version(target: Target, http: Http, path: str, slash: str) -> None:
    """R2: responses are the same with or without the model's version and a trailing slash in the path."""
    plain = http.get(full(target, path.replace("/versions/{version}", "")))
    assert success(http.get(full(target, path) + slash)).data == plain.data


@pytest.mark.needs("model names")
@pytest.mark.parametrize("slash", ["", "/"])
def test_model_names(target: Target, http: Http, slash: str) -> None:
    """R22: the list of models contains the name of the model."""
    assert target.model in success(http.get(f"/v2/models{slash}")).json["models"]


@pytest.mark.parametrize(
    "path", [*GETS, pytest.param("/v2/models", marks=pytest.mark.needs("model names"))]
)
def test_head(target: Target, http: Http, path: str) -> None:
    """R2: HEAD works like GET without a body, and the connection stays usable."""
    assert success(http.open("HEAD", full(target, path))).data == b""
    success(http.get("/v2/health/live"))


@pytest.mark.parametrize("slash", ["", "/"])
def test_infer(target: Target, http: Http, slash: str) -> None:
    """R2: inference requests succeed with or without a trailing slash."""
    success(http.post(f"{target.path}/infer{slash}", GOOD))


@pytest.mark.needs("versions")
@pytest.mark.parametrize("slash", ["", "/"])
def test_infer_version(target: Target, http: Http, slash: str) -> None:
    """R2: inference requests with the model's version succeed, with or without a trailing slash."""
    success(http.post(f"{full(target, VERSIONED[0])}/infer{slash}", GOOD))


@pytest.mark.parametrize("path", ["{model}", "{model}/ready", "{model}/infer"])
def test_percent_encoded(target: Target, http: Http, path: str) -> None:
    """R21: a percent-encoded name in a path equals the plain name."""
    encoded = "/v2/models/" + "".join(f"%{octet:02X}" for octet in target.model.encode())
    method = "POST" if path.endswith("infer") else "GET"
    success(http.open(method, path.replace("{model}", encoded), GOOD if method == "POST" else b""))


@pytest.mark.parametrize("path", [*GETS, "{model}/infer"])
def test_query_is_ignored(target: Target, http: Http, path: str) -> None:
    """R21: the query string is ignored."""
    is_inference = path.endswith("infer")
    success(
        http.open(
            "POST" if is_inference else "GET",
            full(target, path) + "?a=1&b",
            GOOD if is_inference else b"",
        )
    )


@pytest.mark.parametrize("path", ["/v2", "{model}", "{model}/infer"])
def test_options(target: Target, http: Http, path: str) -> None:
    """R21: the response to OPTIONS lists the path's methods in Allow."""
    reply = http.open("OPTIONS", full(target, path))
    assert reply.status_code in (200, 204, 405), f"expected 200, 204 or 405, got {reply}"
    assert ("POST" if path.endswith("infer") else "GET") in reply.headers.get("Allow", "")


@pytest.mark.needs("versions")
@pytest.mark.parametrize(
    "version", ["999", "v10", "01", "1.0", "+1", "-1", " ", "%00", "%ff", "x" * 300, "%F0%9F%8C%B7"]
)
@pytest.mark.parametrize("suffix", ["", "/ready", "/infer"])
def test_unknown_version_in_path(target: Target, http: Http, version: str, suffix: str) -> None:
    """R3: a version that the model does not have is rejected with 404, whatever its form."""
    method = "POST" if suffix == "/infer" else "GET"
    path = f"{target.path}/versions/{version.replace(' ', '%20')}{suffix}"
    error_message(http.open(method, path, GOOD if method == "POST" else b""), 404)


@pytest.mark.needs("versions")
@pytest.mark.parametrize("version", ["999", "v10", "01", "1.0", " "])
@pytest.mark.parametrize("name", ["ModelInfer", "ModelMetadata", "ModelReady"])
def test_unknown_version_in_message(target: Target, rpc: Grpc, name: str, version: str) -> None:
    """R3: over gRPC, a version that the model does not have is rejected with NOT_FOUND."""
    field = {"model_name" if name == "ModelInfer" else "name": target.model}
    field["model_version" if name == "ModelInfer" else "version"] = version
    assert status_of(rpc.call, name, **field) == grpc.StatusCode.NOT_FOUND


@pytest.mark.needs("versions")
def test_response_version(target: Target, form: str) -> None:
    """R3, G5: without a version, the server selects one and returns it. A requested version is returned."""
    for version in ("", target.version):
        response = target.infer(form, [SMALL], version=version)
        assert expect(response).model_version == target.version


@pytest.mark.parametrize(
    "name", ["no-such-model", "%20", "%2e%2e", "%ff", "%00", "a%2Fb", "x" * 300, "%F0%9F%8C%B7"]
)
@pytest.mark.parametrize("suffix", ["", "/ready", "/infer"])
def test_unknown_model(http: Http, name: str, suffix: str) -> None:
    """R3: an unknown model is rejected with 404, whatever the form of its name."""
    method = "POST" if suffix == "/infer" else "GET"
    error_message(
        http.open(method, f"/v2/models/{name}{suffix}", GOOD if method == "POST" else b""), 404
    )


@pytest.mark.parametrize("name", ["", "no-such-model", "🌷", "\0"])
@pytest.mark.parametrize("method", ["ModelInfer", "ModelMetadata", "ModelReady"])
def test_unknown_model_in_message(rpc: Grpc, method: str, name: str) -> None:
    """R3: over gRPC, an unknown model is rejected with NOT_FOUND."""
    field = {"model_name" if method == "ModelInfer" else "name": name}
    assert status_of(rpc.call, method, **field) == grpc.StatusCode.NOT_FOUND


def test_server_metadata(http: Http) -> None:
    """R4: server metadata contains name, version and extensions. It can contain other members."""
    body = http.get("/v2").json
    assert set(body) >= {"name", "version", "extensions"}
    check_type(body["name"], str)
    check_type(body["version"], str)
    assert all(isinstance(each, str) for each in body["extensions"])


def test_binary_extension_is_listed(target: Target, http: Http) -> None:
    """R4: binary_tensor_data is listed if and only if binary tensors are supported."""
    envelope = {"inputs": [json_input(*SMALL)], "parameters": {"binary_data_output": True}}
    understood = (
        "Inference-Header-Content-Length"
        in Rest(http, model=target.rest.model).post(envelope).headers
    )
    assert ("binary_tensor_data" in http.get("/v2").json["extensions"]) == understood


def test_statistics_extension(target: Target, http: Http) -> None:
    """R4: `statistics` is listed only if the server supports them."""
    if "statistics" in http.get("/v2").json["extensions"]:
        success(http.get(f"{target.path}/stats"))


def test_same_server_metadata(http: Http, rpc: Grpc) -> None:
    """R4: both transports return the same server metadata."""
    response, body = rpc.call("ServerMetadata"), http.get("/v2").json
    both = (response.name, response.version, list(response.extensions))
    assert both == (body["name"], body["version"], body["extensions"])


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
    expected = {name: target.model if value == "{model}" else value for name, value in body.items()}
    found = success(http.get(full(target, path))).json
    assert {name: found.get(name) for name in expected} == expected


def test_health_over_grpc(target: Target, rpc: Grpc) -> None:
    """R5, G1: a server that is live and ready reports this state over gRPC."""
    assert rpc.call("ServerLive").live
    assert rpc.call("ServerReady").ready
    assert rpc.call("ModelReady", name=target.model).ready


def test_model_metadata(target: Target, http: Http) -> None:
    """R6: model metadata contains name, platform and the tensors. It can contain versions and other members."""
    body = http.get(target.path).json
    assert set(body) >= {"name", "platform", "inputs", "outputs"}
    assert body["name"] == target.model
    versions = body.get("versions") or []
    check_type(versions, list)
    assert all(isinstance(each, str) for each in versions)
    check_type(body["platform"], str)
    for listed, expected in ((body["inputs"], INPUTS), (body["outputs"], OUTPUTS)):
        assert [
            (each["name"], each["datatype"], each["shape"]) for each in listed
        ] == target.supported_tensors(expected)


def test_metadata_parameters(target: Target, http: Http) -> None:
    """R6: the parameters of the model and of its tensors, if any, are strings, numbers and booleans."""
    body = http.get(target.path).json
    for each in (body, *body["inputs"], *body["outputs"]):
        values = (each.get("parameters") or {}).values()
        assert all(isinstance(value, str | int | float) for value in values), (
            f"expected scalars, got {each}"
        )


def test_metadata_properties(target: Target, http: Http) -> None:
    """R6: the properties of the model, if any, are an object of strings."""
    properties = http.get(target.path).json.get("properties") or {}
    check_type(properties, dict)
    assert all(isinstance(each, str) for each in properties.values()), (
        f"expected strings, got {properties}"
    )


def test_same_model_metadata(target: Target, http: Http, rpc: Grpc) -> None:
    """R6: both transports return the same model metadata."""
    response, body = rpc.call("ModelMetadata", name=target.model), http.get(target.path).json
    versions = body.get("versions") or []
    assert (response.name, list(response.versions), response.platform) == (
        body["name"],
        versions,
        body["platform"],
    )
    for tensors, expected in (
        (response.inputs, body["inputs"]),
        (response.outputs, body["outputs"]),
    ):
        assert [(each.name, each.datatype, list(each.shape)) for each in tensors] == [
            (each["name"], each["datatype"], each["shape"]) for each in expected
        ]


def test_same_parameters_and_properties(target: Target, http: Http, rpc: Grpc) -> None:
    """R6: gRPC returns the parameters of tensors and the properties of REST, or none if it lacks the field."""
    response, body = rpc.call("ModelMetadata", name=target.model), http.get(target.path).json
    assert dict(response.properties) in ({}, body.get("properties") or {})
    tensors = zip(
        (*response.inputs, *response.outputs), (*body["inputs"], *body["outputs"]), strict=True
    )
    for tensor, expected in tensors:
        assert plain(tensor.parameters) in ({}, expected.get("parameters") or {}), (
            f"expected {expected}, got {tensor}"
        )
