"""gRPC: raw and typed contents, limits, cancelled and expired calls, health and reflection (G1-G7)."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from oip_conformance import messages
from oip_conformance.frames import Connection
from oip_conformance.grpc_requests import tensor
from oip_conformance.inputs import SMALL
from oip_conformance.outcomes import expect, status_of
from oip_conformance.target import Target
from oip_conformance.wires import Grpc, sized

SERVER_LIVE = f"/{messages.SERVICE_NAME}/ServerLive"
MODEL_INFER = f"/{messages.SERVICE_NAME}/ModelInfer"
CALLS = ["ServerLive", "ServerReady", "ServerMetadata", "ModelReady", "ModelMetadata", "ModelInfer"]


@pytest.fixture(autouse=True)
def check_valid_call_afterward(target: Target, rpc: Grpc) -> Any:
    """G1: after any request, the channel accepts the next call."""
    yield
    assert expect(target.infer("grpc raw", [SMALL])).outputs == {"fp32_out": SMALL[1:]}


@pytest.mark.parametrize("name", CALLS)
def test_calls(target: Target, rpc: Grpc, name: str) -> None:
    """G1: the service implements the protocol's methods."""
    members: dict[str, Any] = {
        "ModelInfer": {"model_name": target.model},
        "ModelReady": {"name": target.model},
    }
    members["ModelMetadata"] = members["ModelReady"]
    expected = (
        (grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT)
        if name == "ModelInfer"
        else (grpc.StatusCode.OK,)
    )
    assert status_of(lambda: rpc.call(name, **members.get(name, {}))) in expected


@pytest.mark.parametrize(
    "path", ["/inference.GRPCInferenceService/NoSuchCall", "/inference.NoSuchService/ServerLive"]
)
def test_unknown_method(rpc: Grpc, path: str) -> None:
    """G1: an unknown method is rejected with UNIMPLEMENTED."""
    call = rpc.channel.unary_unary(path)
    assert status_of(lambda: call(b"", timeout=rpc.timeout)) == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("ServerLive", "ff"),
        ("ServerReady", "0a056162"),
        ("ModelReady", "0a02fffe"),
        ("ModelMetadata", "0a7f"),
        ("ModelInfer", "0affffffff0f"),
        ("ModelInfer", "2a020a05"),
        ("ModelInfer", "0000"),
        ("ModelInfer", "7b7d"),
    ],
)
def test_malformed_message(rpc: Grpc, name: str, body: str) -> None:
    """G1: bytes that are not a valid message are INVALID_ARGUMENT, not INTERNAL."""
    assert (
        status_of(lambda: rpc.call(name, bytes.fromhex(body))) == grpc.StatusCode.INVALID_ARGUMENT
    )


def test_unknown_fields(rpc: Grpc) -> None:
    """G1: fields of a later version of the protocol are ignored."""
    assert rpc.call("ServerLive", b"\xfa\x7f\x03abc").live


@pytest.mark.parametrize("request_id", ["", "42", "ü 🌷"])
def test_id(target: Target, rpc: Grpc, request_id: str) -> None:
    """G5: the response has the request's id."""
    response = expect(target.infer("grpc typed", [SMALL], request_id=request_id))
    assert response.raw.id == request_id


@pytest.mark.parametrize(
    "value", [b"", b"\x32\x01a"]
)  # the second is field 6, which InferParameter does not have
@pytest.mark.parametrize("place", ["request", "input", "output"])
@pytest.mark.parametrize("name", ["odd", "content_type", "timeout"])
def test_parameter_without_value(rpc: Grpc, name: str, place: str, value: bytes) -> None:
    """R17: a parameter without a value or of an unknown kind is ignored on the request, an input or an output."""
    inputs = [tensor("fp32", "FP32", [1], fp32_contents=[1.5])]
    message = messages.ModelInferRequest(
        model_name=rpc.model, inputs=inputs, outputs=[{"name": "fp32_out"}]
    )
    holder = {"request": message, "input": message.inputs[0], "output": message.outputs[0]}[place]
    holder.parameters[name].MergeFromString(value)
    expect(rpc.send(message))


def test_parameter_of_each_type(rpc: Grpc) -> None:
    """R17: a parameter may have any of the five types."""
    inputs = [tensor("fp32", "FP32", [1], fp32_contents=[1.5])]
    message = messages.ModelInferRequest(model_name=rpc.model, inputs=inputs)
    message.outputs.add(name="fp32_out")
    for kind, value in [
        ("bool", True),
        ("int64", -1),
        ("string", ""),
        ("double", math.nan),
        ("uint64", 2**64 - 1),
    ]:
        setattr(message.parameters[kind], f"{kind}_param", value)
        setattr(message.inputs[0].parameters[kind], f"{kind}_param", value)
    expect(rpc.send(message))


@pytest.mark.parametrize(
    "coding", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
def test_message_limit(target: Target, rpc: Grpc, limit: int, coding: grpc.Compression) -> None:
    """G6: a decompressed message of exactly the limit is accepted. A larger one is rejected with RESOURCE_EXHAUSTED."""
    call = rpc.channel.unary_unary(MODEL_INFER)
    good = messages.ModelInferRequest(model_name=target.model, outputs=[{"name": "fp32_out"}])
    good.inputs.add(name="fp32_in", datatype="FP32", shape=[1]).contents.fp32_contents.append(1.5)

    def outcome(size: int) -> grpc.StatusCode:
        return status_of(lambda: call(sized(good, size), timeout=rpc.timeout, compression=coding))

    assert outcome(limit) == grpc.StatusCode.OK
    assert outcome(limit + 1) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert outcome(min(2 * limit, limit + 2**20)) == grpc.StatusCode.RESOURCE_EXHAUSTED


def slow(rpc: Grpc, timeout: float | None) -> Any:
    """Start a call that takes half a second, and return its future."""
    message = messages.ModelInferRequest(model_name=rpc.model, outputs=[{"name": "fp32_out"}])
    message.inputs.add(name="delay_in", datatype="FP32", shape=[1]).contents.fp32_contents.append(
        0.5
    )
    call = rpc.channel.unary_unary(MODEL_INFER)
    return call.future(message.SerializeToString(), timeout=timeout)


def test_cancelled_calls(target: Target, rpc: Grpc) -> None:
    """G1: calls that the client cancels end with CANCELLED, and the server keeps working."""
    calls = [slow(rpc, rpc.timeout) for _ in range(3)]
    assert all(call.cancel() for call in calls)
    assert {call.code() for call in calls} == {grpc.StatusCode.CANCELLED}
    expect(target.infer("grpc typed", [SMALL]))


def test_expired_deadline(rpc: Grpc) -> None:
    """G1: a call that takes longer than its deadline is DEADLINE_EXCEEDED."""
    assert status_of(slow(rpc, 0.05).result) == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("timeout", ["0n", "1n", "1u"])
def test_deadline_expired_on_arrival(target: Target, rpc: Grpc, timeout: str) -> None:
    """G1: a call whose deadline has passed on arrival ends, and its connection accepts the next call."""
    with Connection(target.address, target.timeout, target.last) as connection:
        connection.call(1, SERVER_LIVE, message=b"", timeout=timeout)
        connection.end_of(1)
        connection.call(3, SERVER_LIVE, message=b"", timeout="10S")
        assert messages.ServerLiveResponse.FromString(connection.end_of(3)).live


def test_reset_calls(target: Target, rpc: Grpc) -> None:
    """G1: calls that are reset before their message is complete do not affect their connection."""
    with Connection(target.address, target.timeout, target.last) as connection:
        for stream in range(1, 41, 2):
            connection.call(stream, MODEL_INFER, message=None, timeout="10S")
            connection.reset(stream)
        connection.call(41, SERVER_LIVE, message=b"", timeout="10S")
        assert messages.ServerLiveResponse.FromString(connection.end_of(41)).live


@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_message(rpc: Grpc, coding: grpc.Compression) -> None:
    """G1: messages with gRPC compression are accepted."""
    message = messages.ModelInferRequest(model_name=rpc.model, outputs=[{"name": "bytes_out"}])
    message.inputs.add(name="bytes_in", datatype="BYTES", shape=[1]).contents.bytes_contents.append(
        b"x" * 5000
    )
    call = rpc.channel.unary_unary(MODEL_INFER)
    response = call(message.SerializeToString(), timeout=rpc.timeout, compression=coding)
    read = messages.ModelInferResponse.FromString(response)
    contents = [
        *read.outputs[0].contents.bytes_contents,
        *(entry[4:] for entry in read.raw_output_contents),
    ]
    assert contents == [b"x" * 5000]


@pytest.mark.needs("health")
@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService"])
def test_health(rpc: Grpc, service: str) -> None:
    """G7: the health service reports SERVING for the server and the inference service."""
    response = health_pb2_grpc.HealthStub(rpc.channel).Check(
        health_pb2.HealthCheckRequest(service=service), timeout=rpc.timeout
    )
    assert response.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.needs("health")
def test_health_of_unknown_service(rpc: Grpc) -> None:
    """G7: the health service reports NOT_FOUND for other services."""
    stub = health_pb2_grpc.HealthStub(rpc.channel)
    requested_output = health_pb2.HealthCheckRequest(service="no.such.Service")
    assert (
        status_of(lambda: stub.Check(requested_output, timeout=rpc.timeout))
        == grpc.StatusCode.NOT_FOUND
    )


def reflected(rpc: Grpc, **requested_output: str) -> Any:
    stub = reflection_pb2_grpc.ServerReflectionStub(rpc.channel)
    requests = iter([reflection_pb2.ServerReflectionRequest(**requested_output)])
    return next(stub.ServerReflectionInfo(requests, timeout=rpc.timeout))


@pytest.mark.needs("reflection")
def test_reflection_lists_services(rpc: Grpc) -> None:
    """G7: reflection lists the inference service and the health service."""
    listed = {each.name for each in reflected(rpc, list_services="").list_services_response.service}
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= listed


@pytest.mark.needs("reflection")
def test_reflection_describes_methods(rpc: Grpc) -> None:
    """G7: reflection returns the file that describes the service."""
    (file,) = reflected(
        rpc, file_containing_symbol="inference.GRPCInferenceService"
    ).file_descriptor_response.file_descriptor_proto[:1]
    assert b"GRPCInferenceService" in file
    assert b"ModelInferRequest" in file
