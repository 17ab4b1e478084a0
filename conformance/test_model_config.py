"""Group E: the model configuration and the repository index."""

from __future__ import annotations

import grpc
import pytest

from conformance.client import Http
from conformance.model import INPUTS, OUTPUTS
from conformance.outcomes import error_message, is_a, success
from conformance.target import Target, status_of
from grpc_service import messages
from tests.service.wires import Grpc


@pytest.mark.needs("config")
def test_config(target: Target, http: Http) -> None:
    """T1: the model's configuration matches its metadata."""
    body = http.get(f"{target.path}/config").json
    assert (body["name"], body["max_batch_size"]) == (target.model, 0)
    for tensors, expected in ((body["input"], INPUTS), (body["output"], OUTPUTS)):
        assert [(each["name"], each["data_type"], each["dims"]) for each in tensors] == [
            (name, "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}", shape)
            for name, datatype, shape in target.supported(expected)
        ]


@pytest.mark.needs("config", "rpc ModelConfig")
def test_same_config(target: Target, http: Http, rpc: Grpc) -> None:
    """T1: both transports return the same configuration."""
    config = rpc.call("ModelConfig", name=target.model).config
    body = http.get(f"{target.path}/config").json
    names = config.input[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    assert (config.name, config.platform, config.max_batch_size) == (body["name"], body["platform"], 0)
    for tensors, expected in ((config.input, body["input"]), (config.output, body["output"])):
        assert [(each.name, names[each.data_type].name, list(each.dims)) for each in tensors] == [
            (each["name"], each["data_type"], each["dims"]) for each in expected
        ]


@pytest.mark.needs("config")
def test_config_of_unknown_model(http: Http) -> None:
    """T1: a request for the configuration of an unknown model is rejected with 404."""
    error_message(http.get("/v2/models/no-such-model/config"), 404)


@pytest.mark.needs("rpc ModelConfig")
def test_config_of_unknown_model_over_grpc(rpc: Grpc) -> None:
    """T1: over gRPC, a request for the configuration of an unknown model is rejected with NOT_FOUND."""
    assert status_of(lambda: rpc.call("ModelConfig", name="no-such-model")) == grpc.StatusCode.NOT_FOUND


@pytest.mark.needs("index")
@pytest.mark.parametrize("body", ["", "{}", '{"ready": true}', '{"ready": false}'])
def test_index(target: Target, http: Http, body: str) -> None:
    """T2: the index lists the model as ready."""
    reply = success(http.post("/v2/repository/index", body))
    (found,) = [each for each in reply.json if each["name"] == target.model]
    assert found["state"] == "READY"
    is_a(found["version"], str)
    is_a(found["reason"], str)


@pytest.mark.needs("index")
@pytest.mark.parametrize("body", ["[]", "{", "null", '{"ready": "yes"}', '{"ready": 1}'])
def test_invalid_index_request(http: Http, body: str) -> None:
    """T2: an invalid request for the index is rejected."""
    error_message(http.post("/v2/repository/index", body), 400)


@pytest.mark.needs("index", "rpc RepositoryIndex")
def test_same_index(http: Http, rpc: Grpc) -> None:
    """T2: both transports return the same index."""
    reply = success(http.post("/v2/repository/index", "{}"))
    response = rpc.call("RepositoryIndex")
    assert response == messages.RepositoryIndexResponse(models=reply.json)
