"""Group T: the model configuration, the repository index and the statistics."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.protobuf.json_format import ParseDict

from oip_conformance import messages
from oip_conformance.client import Http
from oip_conformance.inputs import SMALL_INPUT
from oip_conformance.model import INPUTS, OUTPUTS, TensorSpec
from oip_conformance.outcomes import check_error, check_success, check_type, expect_error, status_of
from oip_conformance.target import Target
from oip_conformance.wires import Grpc, InputTuple

FAILING_INPUT: InputTuple = ("fail_in", "BYTES", [1], [b"broken"])


@pytest.mark.needs("config")
def test_config(target: Target, http: Http) -> None:
    """T1: the model's configuration matches its metadata."""
    body = http.get(f"{target.path}/config").json
    assert body["name"] == target.model
    assert body["max_batch_size"] == 0
    assert config_specs(body["input"]) == expected_specs(target, INPUTS)
    assert config_specs(body["output"]) == expected_specs(target, OUTPUTS)


def expected_specs(target: Target, tensors: list[TensorSpec]) -> list[TensorSpec]:
    """Return the supported tensors, with the names of their datatypes in a configuration."""
    specs = []
    for name, datatype, shape in target.supported_tensors(tensors):
        type_name = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
        specs.append((name, type_name, shape))
    return specs


def config_specs(tensors: list[dict[str, Any]]) -> list[TensorSpec]:
    """Return the name, datatype and shape of each tensor in a configuration of REST."""
    return [(tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in tensors]


def grpc_config_specs(tensors: Any) -> list[TensorSpec]:
    """Return the name, datatype and shape of each tensor in a configuration of gRPC."""
    specs = []
    for tensor in tensors:
        datatypes = tensor.DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
        datatype = datatypes[tensor.data_type].name
        specs.append((tensor.name, datatype, list(tensor.dims)))
    return specs


@pytest.mark.needs("config", "rpc ModelConfig")
def test_same_config(target: Target, http: Http, rpc: Grpc) -> None:
    """T1: both transports return the same configuration."""
    response = rpc.call("ModelConfig", name=target.model)
    config = response.config
    body = http.get(f"{target.path}/config").json
    assert config.name == body["name"]
    assert config.platform == body["platform"]
    assert config.max_batch_size == 0
    assert grpc_config_specs(config.input) == config_specs(body["input"])
    assert grpc_config_specs(config.output) == config_specs(body["output"])


@pytest.mark.needs("config")
def test_config_of_unknown_model(http: Http) -> None:
    """T1: a request for the configuration of an unknown model is rejected with 404."""
    reply = http.get("/v2/models/no-such-model/config")
    check_error(reply, 404)


@pytest.mark.needs("rpc ModelConfig")
def test_config_of_unknown_model_over_grpc(rpc: Grpc) -> None:
    """T1: over gRPC, a request for the configuration of an unknown model is rejected with
    NOT_FOUND.
    """
    status = status_of(rpc.call, "ModelConfig", name="no-such-model")
    assert status == grpc.StatusCode.NOT_FOUND


@pytest.mark.needs("index")
@pytest.mark.parametrize("body", ["", "{}", '{"ready": true}', '{"ready": false}'])
def test_index(target: Target, http: Http, body: str) -> None:
    """T2: the index lists the model as ready."""
    reply = http.post("/v2/repository/index", body)
    check_success(reply)
    models = reply.json
    (entry,) = [model for model in models if model["name"] == target.model]
    assert entry["state"] == "READY"
    check_type(entry["version"], str)
    check_type(entry.get("reason", ""), str)


@pytest.mark.needs("index")
@pytest.mark.parametrize("body", ["[]", "{", "null", '{"ready": "yes"}', '{"ready": 1}'])
def test_invalid_index_request(http: Http, body: str) -> None:
    """T2: an invalid request for the index is rejected."""
    reply = http.post("/v2/repository/index", body)
    check_error(reply, 400)


@pytest.mark.needs("index", "rpc RepositoryIndex")
def test_same_index(http: Http, rpc: Grpc) -> None:
    """T2: both transports return the same index."""
    reply = http.post("/v2/repository/index", "{}")
    check_success(reply)
    response = rpc.call("RepositoryIndex")
    assert response == messages.RepositoryIndexResponse(models=reply.json)


COMPUTE_STATISTICS = ("compute_input", "compute_infer", "compute_output")
# Counts with a total time, in the member `inference_stats`, and counts without one.
DURATION_STATISTICS = ("success", "fail", "queue", *COMPUTE_STATISTICS, "cache_hit", "cache_miss")
COUNT_STATISTICS = ("inference_count", "execution_count")


def statistics(target: Target, http: Http, suffix: str = "") -> dict[str, Any]:
    """Return the statistics of the model. `suffix` follows the path of the model."""
    reply = http.get(f"{target.path}{suffix}/stats")
    check_success(reply)
    (stats,) = reply.json["model_stats"]
    return stats


def read_counts(stats: dict[str, Any]) -> dict[str, int]:
    """Return the counts of the model's requests, inferences and executions."""
    counts = {}
    for name in DURATION_STATISTICS:
        counts[name] = stats["inference_stats"][name]["count"]
    for name in COUNT_STATISTICS:
        counts[name] = stats[name]
    return counts


def increases(before: dict[str, Any], after: dict[str, Any]) -> dict[str, int]:
    """Return by how much each count of the statistics has increased."""
    differences = read_counts(after)
    for name, count in read_counts(before).items():
        differences[name] -= count
    return differences


@pytest.mark.needs("statistics")
def test_statistics(target: Target, http: Http) -> None:
    """T3: the statistics have every key, and numbers are integers."""
    target.infer_successfully("rest json", [SMALL_INPUT])
    stats = statistics(target, http)
    assert stats["name"] == target.model
    check_type(stats["version"], str)
    for name in ("last_inference", *COUNT_STATISTICS):
        check_type(stats[name], int)
        assert stats[name] > 0
    for name in DURATION_STATISTICS:
        check_duration(stats["inference_stats"][name])

    check_type(stats["memory_usage"], list)
    assert stats["batch_stats"]
    for batch in stats["batch_stats"]:
        check_type(batch["batch_size"], int)
        for name in COMPUTE_STATISTICS:
            check_duration(batch[name])


def check_duration(duration: dict[str, Any]) -> None:
    """Check the types of a count and of its total time."""
    check_type(duration["count"], int)
    check_type(duration["ns"], int)


@pytest.mark.needs("statistics")
def test_statistics_of_request(target: Target, http: Http, form: str) -> None:
    """T3: a successful request increases each count by one, except those of failures and of the
    cache.
    """
    before = statistics(target, http)
    target.infer_successfully(form, [SMALL_INPUT])
    after = statistics(target, http)
    counts = increases(before, after)
    unchanged = {"fail": 0, "cache_hit": 0, "cache_miss": 0}
    assert counts == dict.fromkeys(counts, 1) | unchanged
    assert after["last_inference"] >= before["last_inference"]
    assert success_nanoseconds(after) > success_nanoseconds(before)


def success_nanoseconds(stats: dict[str, Any]) -> int:
    """Return the total time of the successful requests."""
    return stats["inference_stats"]["success"]["ns"]


@pytest.mark.needs("statistics")
def test_statistics_of_failed_request(target: Target, http: Http, form: str) -> None:
    """T3: a failed request counts only in `fail`."""
    before = statistics(target, http)
    response = target.infer(form, [FAILING_INPUT], [])
    expect_error(response, "INTERNAL")
    counts = increases(before, statistics(target, http))
    assert counts == dict.fromkeys(counts, 0) | {"fail": 1}


@pytest.mark.needs("statistics", "versions")
def test_statistics_of_version(target: Target, http: Http) -> None:
    """T3: the path with the version returns the same statistics."""
    version = quote(target.version, safe="")
    stats_of_version = statistics(target, http, f"/versions/{version}")
    assert stats_of_version == statistics(target, http)
    reply = http.get(f"{target.path}/versions/no-such-version/stats")
    check_error(reply, 404)


@pytest.mark.needs("statistics", "rpc ModelStatistics")
@pytest.mark.parametrize("is_named", [True, False])
def test_same_statistics(target: Target, http: Http, rpc: Grpc, is_named: bool) -> None:
    """T3: both transports return the same statistics. Over gRPC, the name is optional."""
    name = target.model if is_named else ""
    response = rpc.call("ModelStatistics", name=name)
    (stats,) = [model for model in response.model_stats if model.name == target.model]
    expected = messages.ModelStatistics()
    rest_stats = statistics(target, http)
    ParseDict(rest_stats, expected, ignore_unknown_fields=True)
    assert stats == expected


@pytest.mark.needs("statistics")
def test_statistics_of_unknown_model(http: Http) -> None:
    """T3: a request for the statistics of an unknown model is rejected with 404."""
    reply = http.get("/v2/models/no-such-model/stats")
    check_error(reply, 404)


@pytest.mark.needs("rpc ModelStatistics")
def test_statistics_of_unknown_model_over_grpc(rpc: Grpc) -> None:
    """T3: over gRPC, a request for the statistics of an unknown model is rejected with
    NOT_FOUND.
    """
    status = status_of(rpc.call, "ModelStatistics", name="no-such-model")
    assert status == grpc.StatusCode.NOT_FOUND
