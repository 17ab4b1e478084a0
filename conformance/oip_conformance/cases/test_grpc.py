"""gRPC: messages, limits, cancelled and expired calls, health and reflection (G1-G7)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from oip_conformance import messages
from oip_conformance.frames import Connection
from oip_conformance.grpc_requests import grpc_input
from oip_conformance.inputs import SMALL_INPUT, SMALL_OUTPUTS
from oip_conformance.outcomes import expect_success, status_of
from oip_conformance.target import Target
from oip_conformance.wires import Grpc, message_of_size

SERVER_LIVE = f"/{messages.SERVICE_NAME}/ServerLive"
MODEL_INFER = f"/{messages.SERVICE_NAME}/ModelInfer"
METHODS = [
    "ServerLive",
    "ServerReady",
    "ServerMetadata",
    "ModelReady",
    "ModelMetadata",
    "ModelInfer",
]
DELAY_SECONDS = 0.5


@pytest.fixture(autouse=True)
def check_valid_call_afterward(target: Target, rpc: Grpc) -> Iterator[None]:
    """G1: after any request, the channel accepts the next call."""
    yield
    response = target.infer_successfully("grpc raw", [SMALL_INPUT])
    assert response.outputs == SMALL_OUTPUTS


def infer_request(rpc: Grpc, name: str, datatype: str, **contents: list) -> Any:
    """Return a message with one element as the input `name`, and with its output."""
    tensor = grpc_input(name, datatype, [1], **contents)
    output = {"name": f"{name}_out"}
    return messages.ModelInferRequest(model_name=rpc.model, inputs=[tensor], outputs=[output])


def fp32_request(rpc: Grpc) -> Any:
    return infer_request(rpc, "fp32", "FP32", fp32_contents=[1.5])


@pytest.mark.parametrize("name", METHODS)
def test_calls(target: Target, rpc: Grpc, name: str) -> None:
    """G1: the service implements the protocol's methods."""
    fields = {}
    expected = [grpc.StatusCode.OK]
    if name in ("ModelReady", "ModelMetadata"):
        fields["name"] = target.model
    if name == "ModelInfer":
        fields["model_name"] = target.model
        expected.append(grpc.StatusCode.INVALID_ARGUMENT)  # the request has no inputs
    status = status_of(rpc.call, name, **fields)
    assert status in expected


@pytest.mark.parametrize(
    "path", ["/inference.GRPCInferenceService/NoSuchCall", "/inference.NoSuchService/ServerLive"]
)
def test_unknown_method(rpc: Grpc, path: str) -> None:
    """G1: an unknown method is rejected with UNIMPLEMENTED."""
    call = rpc.channel.unary_unary(path)
    status = status_of(call, b"", timeout=rpc.timeout)
    assert status == grpc.StatusCode.UNIMPLEMENTED


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
    message = bytes.fromhex(body)
    status = status_of(rpc.call, name, message)
    assert status == grpc.StatusCode.INVALID_ARGUMENT


def test_unknown_fields(rpc: Grpc) -> None:
    """G1: fields of a later version of the protocol are ignored."""
    assert rpc.call("ServerLive", b"\xfa\x7f\x03abc").live


@pytest.mark.parametrize("request_id", ["", "42", "ü 🌷"])
def test_id(target: Target, rpc: Grpc, request_id: str) -> None:
    """G5: the response has the request's id."""
    response = target.infer_successfully("grpc typed", [SMALL_INPUT], request_id=request_id)
    assert response.raw.id == request_id


# The second value is field 6, which InferParameter does not have.
@pytest.mark.parametrize("value", [b"", b"\x32\x01a"])
@pytest.mark.parametrize("place", ["request", "input", "output"])
@pytest.mark.parametrize("name", ["odd", "content_type", "timeout"])
def test_parameter_without_value(rpc: Grpc, name: str, place: str, value: bytes) -> None:
    """R17: a parameter without a value or of an unknown kind is ignored on the request, an input or
    an output.
    """
    message = fp32_request(rpc)
    holders = {"request": message, "input": message.inputs[0], "output": message.outputs[0]}
    parameter = holders[place].parameters[name]
    parameter.MergeFromString(value)
    response = rpc.send(message)
    expect_success(response)


def test_parameter_of_each_type(rpc: Grpc) -> None:
    """R17: a parameter may have any of the five types."""
    message = fp32_request(rpc)
    (tensor,) = message.inputs
    for parameters in (message.parameters, tensor.parameters):
        parameters["bool"].bool_param = True
        parameters["int64"].int64_param = -1
        parameters["string"].string_param = ""
        parameters["double"].double_param = math.nan
        parameters["uint64"].uint64_param = 2**64 - 1
    response = rpc.send(message)
    expect_success(response)


@pytest.mark.parametrize(
    "coding", [grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate]
)
def test_message_limit(target: Target, rpc: Grpc, limit: int, coding: grpc.Compression) -> None:
    """G6: a decompressed message of exactly the limit is accepted.

    A larger one is rejected with RESOURCE_EXHAUSTED.
    """
    invoke = rpc.channel.unary_unary(MODEL_INFER)
    message = fp32_request(rpc)

    def status_for(size: int) -> grpc.StatusCode:
        body = message_of_size(message, size)
        return status_of(invoke, body, timeout=rpc.timeout, compression=coding)

    assert status_for(limit) == grpc.StatusCode.OK
    assert status_for(limit + 1) == grpc.StatusCode.RESOURCE_EXHAUSTED
    far_beyond_limit = min(2 * limit, limit + 2**20)
    assert status_for(far_beyond_limit) == grpc.StatusCode.RESOURCE_EXHAUSTED


def start_slow_call(rpc: Grpc, timeout: float | None) -> Any:
    """Start a call that takes half a second, and return its future."""
    message = infer_request(rpc, "delay", "FP32", fp32_contents=[DELAY_SECONDS])
    message.outputs[0].name = "fp32_out"  # the model does not return the delay
    invoke = rpc.channel.unary_unary(MODEL_INFER)
    return invoke.future(message.SerializeToString(), timeout=timeout)


def test_cancelled_calls(target: Target, rpc: Grpc) -> None:
    """G1: calls that the client cancels end with CANCELLED, and the server keeps working."""
    calls = [start_slow_call(rpc, rpc.timeout) for _ in range(3)]
    for call in calls:
        assert call.cancel()
    for call in calls:
        assert call.code() == grpc.StatusCode.CANCELLED
    target.infer_successfully("grpc typed", [SMALL_INPUT])


def test_expired_deadline(rpc: Grpc) -> None:
    """G1: a call that takes longer than its deadline is DEADLINE_EXCEEDED."""
    call = start_slow_call(rpc, timeout=DELAY_SECONDS / 10)
    assert status_of(call.result) == grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize("timeout", ["0n", "1n", "1u"])
def test_deadline_expired_on_arrival(target: Target, rpc: Grpc, timeout: str) -> None:
    """G1: a call whose deadline has passed on arrival ends, and its connection accepts the next
    call.
    """
    with Connection(target.address, target.timeout, target.last_exchange) as connection:
        connection.call(1, SERVER_LIVE, message=b"", timeout=timeout)
        connection.end_of(1)
        check_live(connection, stream=3)


def test_reset_calls(target: Target, rpc: Grpc) -> None:
    """G1: calls that are reset before their message is complete do not affect their connection."""
    with Connection(target.address, target.timeout, target.last_exchange) as connection:
        for stream in range(1, 41, 2):  # the streams of a client have odd numbers
            connection.call(stream, MODEL_INFER, message=None, timeout="10S")
            connection.reset(stream)
        check_live(connection, stream=41)


def check_live(connection: Connection, *, stream: int) -> None:
    """Check that the connection accepts a call."""
    connection.call(stream, SERVER_LIVE, message=b"", timeout="10S")
    message = connection.end_of(stream)
    response = messages.ServerLiveResponse.FromString(message)
    assert response.live


@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_message(rpc: Grpc, coding: grpc.Compression) -> None:
    """G1: messages with gRPC compression are accepted."""
    text = b"x" * 5000
    message = infer_request(rpc, "bytes", "BYTES", bytes_contents=[text])
    request = message.SerializeToString()
    invoke = rpc.channel.unary_unary(MODEL_INFER)
    body = invoke(request, timeout=rpc.timeout, compression=coding)
    response = messages.ModelInferResponse.FromString(body)

    # G4 checks that the response is typed.
    elements = list(response.outputs[0].contents.bytes_contents)
    for entry in response.raw_output_contents:
        elements.append(entry[4:])
    assert elements == [text]


@pytest.mark.needs("health")
@pytest.mark.parametrize("service", ["", "inference.GRPCInferenceService"])
def test_health(rpc: Grpc, service: str) -> None:
    """G7: the health service reports SERVING for the server and the inference service."""
    request = health_pb2.HealthCheckRequest(service=service)
    stub = health_pb2_grpc.HealthStub(rpc.channel)
    response = stub.Check(request, timeout=rpc.timeout)
    assert response.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.needs("health")
def test_health_of_unknown_service(rpc: Grpc) -> None:
    """G7: the health service reports NOT_FOUND for other services."""
    request = health_pb2.HealthCheckRequest(service="no.such.Service")
    stub = health_pb2_grpc.HealthStub(rpc.channel)
    status = status_of(stub.Check, request, timeout=rpc.timeout)
    assert status == grpc.StatusCode.NOT_FOUND


def reflect(rpc: Grpc, **fields: str) -> Any:
    """Send a request to the reflection service, and return its response."""
    stub = reflection_pb2_grpc.ServerReflectionStub(rpc.channel)
    request = reflection_pb2.ServerReflectionRequest(**fields)
    responses = stub.ServerReflectionInfo(iter([request]), timeout=rpc.timeout)
    return next(responses)


@pytest.mark.needs("reflection")
def test_reflection_lists_services(rpc: Grpc) -> None:
    """G7: reflection lists the inference service and the health service."""
    response = reflect(rpc, list_services="").list_services_response
    names = {service.name for service in response.service}
    assert {"inference.GRPCInferenceService", "grpc.health.v1.Health"} <= names


@pytest.mark.needs("reflection")
def test_reflection_describes_methods(rpc: Grpc) -> None:
    """G7: reflection returns the file that describes the service."""
    response = reflect(rpc, file_containing_symbol="inference.GRPCInferenceService")
    file = response.file_descriptor_response.file_descriptor_proto[0]
    assert b"GRPCInferenceService" in file
    assert b"ModelInferRequest" in file
