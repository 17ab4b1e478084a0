"""The health and reflection services."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.kit import models

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
CALLS = [
    *("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer"),
    *("ModelConfig", "RepositoryIndex", "ModelStatistics"),
]


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two())


@pytest.mark.parametrize("name", ["", "inference.GRPCInferenceService"])
def test_health(serve, name: str) -> None:
    """G7: grpc.health.v1.Health reports the readiness of the server and of the service."""
    service = serve(models.two_by_two())
    stub = health_pb2_grpc.HealthStub(service.channel)
    for ready, status in [(True, SERVING), (False, NOT_SERVING), (True, SERVING)]:
        service.server.report_ready(ready)
        request = health_pb2.HealthCheckRequest(service=name)
        assert stub.Check(request, timeout=30).status == status


def test_watch_reports_changes(serve) -> None:
    """G7: a watch receives each change of readiness, or SERVICE_UNKNOWN, and a canceled watch has no effect."""
    service = serve(models.two_by_two())
    stub = health_pb2_grpc.HealthStub(service.channel)
    watches = [
        stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=180)
        for name in ("", "inference.GRPCInferenceService", "iris")
    ]
    assert [next(watch).status for watch in watches] == [SERVING, SERVING, SERVICE_UNKNOWN]
    stub.Watch(health_pb2.HealthCheckRequest()).cancel()
    service.server.report_ready(False)
    assert [next(watch).status for watch in watches[:2]] == [NOT_SERVING] * 2
    service.server.report_ready(True)
    assert [next(watch).status for watch in watches[:2]] == [SERVING] * 2
    service.server.report_stopping()
    service.server.report_ready(True)  # has no effect after report_stopping()
    assert [next(watch).status for watch in watches[:2]] == [NOT_SERVING] * 2


def test_concurrent_watches_do_not_block_calls(serve) -> None:
    """G7: calls of other clients succeed while one watch begins and another ends."""
    service = serve(models.two_by_two())
    stub = health_pb2_grpc.HealthStub(service.channel)
    for _ in range(100):
        ending = stub.Watch(health_pb2.HealthCheckRequest(), timeout=180)
        next(ending)
        beginning = stub.Watch(health_pb2.HealthCheckRequest(), timeout=180)
        ending.cancel()
        assert service.grpc.call("ServerLive").live
        beginning.cancel()


def test_reflection_describes_all_messages(service) -> None:
    """G7: a client without the proto file can build and parse all messages by reflection."""
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(service.channel))
    descriptor = pool.FindServiceByName("inference.GRPCInferenceService")
    assert [method.name for method in descriptor.methods] == CALLS
    for name in ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"):
        assert pool.FindServiceByName(name).methods
    infer = descriptor.methods_by_name["ModelInfer"]
    request_message = GetMessageClass(infer.input_type)(model_name="test")
    request_message.inputs.add(
        name="a", datatype="FP32", shape=[1, 2]
    ).contents.fp32_contents.extend([1, 2])
    call = service.channel.unary_unary(f"/{descriptor.full_name}/{infer.name}")
    response = GetMessageClass(infer.output_type).FromString(
        call(request_message.SerializeToString(), timeout=30)
    )
    assert response.outputs[0].contents.fp32_contents == [3]


def test_reflection_of_unknown_symbol(service) -> None:
    """G7: reflection returns NOT_FOUND for an unknown symbol, and continues with the next request."""
    stub = reflection_pb2_grpc.ServerReflectionStub(service.channel)
    asks = [
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
        for symbol in ("inference.Nothing", "inference.ModelInferRequest")
    ]
    missing, known = stub.ServerReflectionInfo(iter(asks), timeout=30)
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert known.file_descriptor_response.file_descriptor_proto
