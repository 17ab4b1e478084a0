"""Group T: the model configuration, the repository index and the statistics."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import grpc
import pytest
from google.protobuf.json_format import ParseDict

from oip_conformance import messages
from oip_conformance.client import Http
from oip_conformance.inputs import SMALL
from oip_conformance.model import INPUTS, OUTPUTS
from oip_conformance.outcomes import check_type, error_message, expect, status_of, success
from oip_conformance.target import Target
from oip_conformance.wires import Grpc


@pytest.mark.needs("config")
def test_config(target: Target, http: Http) -> None:
    """T1: the model's configuration matches its metadata."""
    body = http.get(f"{target.path}/config").json
    assert (body["name"], body["max_batch_size"]) == (target.model, 0)
    for tensors, expected in ((body["input"], INPUTS), (body["output"], OUTPUTS)):
        assert [(each["name"], each["data_type"], each["dims"]) for each in tensors] == [
            (name, "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}", shape)
            for name, datatype, shape in target.supported_tensors(expected)
        ]


@pytest.mark.needs("config", "rpc ModelConfig")
def test_same_config(target: Target, http: Http, rpc: Grpc) -> None:
    """T1: both transports return the same configuration."""
    config = rpc.call("ModelConfig", name=target.model).config
    body = http.get(f"{target.path}/config").json
    names = config.input[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    assert (config.name, config.platform, config.max_batch_size) == (
        body["name"],
        body["platform"],
        0,
    )
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
    assert status_of(rpc.call, "ModelConfig", name="no-such-model") == grpc.StatusCode.NOT_FOUND


@pytest.mark.needs("index")
@pytest.mark.parametrize("body", ["", "{}", '{"ready": true}', '{"ready": false}'])
def test_index(target: Target, http: Http, body: str) -> None:
    """T2: the index lists the model as ready."""
    reply = success(http.post("/v2/repository/index", body))
    (found,) = [each for each in reply.json if each["name"] == target.model]
    assert found["state"] == "READY"
    check_type(found["version"], str)
    check_type(found.get("reason", ""), str)


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


COMPUTE = ("compute_input", "compute_infer", "compute_output")
INFER_STATS = ("success", "fail", "queue", *COMPUTE, "cache_hit", "cache_miss")


def statistics(target: Target, http: Http, suffix: str = "") -> dict[str, Any]:
    (stats,) = success(http.get(f"{target.path}{suffix}/stats")).json["model_stats"]
    return stats


def counts(stats: dict[str, Any]) -> dict[str, int]:
    """Return the counts of the model's requests, inferences and executions."""
    names = ("inference_count", "execution_count")
    return {name: stats["inference_stats"][name]["count"] for name in INFER_STATS} | {
        name: stats[name] for name in names
    }


@pytest.mark.needs("statistics")
def test_statistics(target: Target, http: Http) -> None:
    """T3: the statistics have every key, and numbers are integers."""
    expect(target.infer("rest json", [SMALL]))
    stats = statistics(target, http)
    assert stats["name"] == target.model
    check_type(stats["version"], str)
    for name in ("last_inference", "inference_count", "execution_count"):
        check_type(stats[name], int)
        assert stats[name] > 0
    assert stats["batch_stats"]
    check_type(stats["memory_usage"], list)
    for batch in stats["batch_stats"]:
        check_type(batch["batch_size"], int)
    durations = [stats["inference_stats"][name] for name in INFER_STATS]
    durations += [batch[name] for batch in stats["batch_stats"] for name in COMPUTE]
    for each in durations:
        check_type(each["count"], int)
        check_type(each["ns"], int)


@pytest.mark.needs("statistics")
def test_statistics_of_request(target: Target, http: Http, form: str) -> None:
    """T3: a successful request increases each count by one, except those of failures and of the cache."""
    before = statistics(target, http)
    expect(target.infer(form, [SMALL]))
    after = statistics(target, http)
    others = {"fail": 0, "cache_hit": 0, "cache_miss": 0}
    now = counts(after)
    assert {name: now[name] - count for name, count in counts(before).items()} == dict.fromkeys(
        now, 1
    ) | others
    assert after["last_inference"] >= before["last_inference"]
    assert after["inference_stats"]["success"]["ns"] > before["inference_stats"]["success"]["ns"]


@pytest.mark.needs("statistics")
def test_statistics_of_failed_request(target: Target, http: Http, form: str) -> None:
    """T3: a failed request counts only in `fail`."""
    before = counts(statistics(target, http))
    expect(target.infer(form, [("fail_in", "BYTES", [1], [b"broken"])], []), "INTERNAL")
    after = counts(statistics(target, http))
    assert {name: after[name] - count for name, count in before.items()} == dict.fromkeys(
        after, 0
    ) | {"fail": 1}


@pytest.mark.needs("statistics", "versions")
def test_statistics_of_version(target: Target, http: Http) -> None:
    """T3: the path with the version returns the same statistics."""
    assert statistics(target, http, f"/versions/{quote(target.version, safe='')}") == statistics(
        target, http
    )
    error_message(http.get(f"{target.path}/versions/no-such-version/stats"), 404)


@pytest.mark.needs("statistics", "rpc ModelStatistics")
@pytest.mark.parametrize("named", [True, False])
def test_same_statistics(target: Target, http: Http, rpc: Grpc, named: bool) -> None:
    """T3: both transports return the same statistics. Over gRPC, the name is optional."""
    response = rpc.call("ModelStatistics", name=target.model if named else "")
    (stats,) = [each for each in response.model_stats if each.name == target.model]
    expected = ParseDict(
        statistics(target, http), messages.ModelStatistics(), ignore_unknown_fields=True
    )
    assert stats == expected


@pytest.mark.needs("statistics")
def test_statistics_of_unknown_model(http: Http) -> None:
    """T3: a request for the statistics of an unknown model is rejected with 404."""
    error_message(http.get("/v2/models/no-such-model/stats"), 404)


@pytest.mark.needs("rpc ModelStatistics")
def test_statistics_of_unknown_model_over_grpc(rpc: Grpc) -> None:
    """T3: over gRPC, a request for the statistics of an unknown model is rejected with NOT_FOUND."""
    assert status_of(rpc.call, "ModelStatistics", name="no-such-model") == grpc.StatusCode.NOT_FOUND
