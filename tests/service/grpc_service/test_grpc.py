"""Protocol rules of gRPC, and the agreement of its errors with those of REST."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc import _server
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from app.protocol.types import MetadataTensor
from grpc_service import messages
from tests.service import models
from tests.service.conftest import FORMS
from tests.service.processes import wait_for
from tests.service.wires import CONTENTS, NUMPY, Answer, pack, sized

CALLS = [
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelConfig",
    "RepositoryIndex",
]  # fmt: skip
FIELDS = sorted(set(CONTENTS.values()))
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
ROOT = Path(__file__).parents[3]
LIMIT = 10_000
# A field that none of the messages has.
UNKNOWN = b"\xfa\x7f\x03abc"


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two(), max_request_bytes=LIMIT)


@pytest.fixture(autouse=True)
def good_afterwards(service):
    """R20: check after each test that a valid call succeeds."""
    yield
    assert service.grpc.infer([("a", "FP32", [1, 2], [1, 2])], ["sum"]).outputs == {"sum": ("FP32", [1], [3])}


def request(*inputs: dict[str, Any], **fields: Any) -> Any:
    """Return a ModelInferRequest with these inputs. `contents` is a dict of fields."""
    return messages.ModelInferRequest(model_name="test", inputs=inputs, **fields)


def x(datatype: str, shape: list[int], **contents: Any) -> dict[str, Any]:
    """Return an input `x` with these fields of contents."""
    return {"name": "x", "datatype": datatype, "shape": shape, **({"contents": contents} if contents else {})}


def refused(answer: Answer, text: str) -> None:
    assert answer.kind == "INVALID_ARGUMENT", answer
    assert text in answer.text


def code_of(call: Any, *args: Any, **fields: Any) -> tuple[str, str]:
    """Return the status and the details of a call, which must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*args, **fields)
    return caught.value.code().name, caught.value.details()


def test_names_of_service_and_methods() -> None:
    """G1, T1, T2: the service and its methods have the names of the protocol."""
    assert messages.SERVICE.full_name == "inference.GRPCInferenceService"
    assert [method.name for method in messages.SERVICE.methods] == CALLS


def test_health_and_metadata(service) -> None:
    """G1: the calls for the health and the metadata of the server and the model succeed."""
    assert service.grpc.call("ServerLive").live
    assert service.grpc.call("ServerReady").ready
    assert "binary_tensor_data" in service.grpc.call("ServerMetadata").extensions
    for version in ("", "1"):
        assert service.grpc.call("ModelReady", name="test", version=version).ready
        assert service.grpc.call("ModelMetadata", name="test", version=version).inputs[0].shape == [-1, 2]


@pytest.mark.parametrize("call", ["ModelReady", "ModelMetadata"])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "Test"}, 'unknown model: expected "test", got "Test"'),
        ({}, 'unknown model: expected "test", got ""'),
        ({"name": "test", "version": "v1"}, 'model "test": unknown version: expected "1", got "v1"'),
    ],
)
def test_unknown_model_or_version(service, call: str, fields: dict, text: str) -> None:
    """G1, R3: a call for an unknown model or version returns NOT_FOUND."""
    assert code_of(service.grpc.call, call, **fields) == ("NOT_FOUND", text)


@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/ModelStreamInfer", "/inference.Other/ServerLive"])
def test_unknown_method(service, path: str) -> None:
    """G1: a call of an unknown method or service returns UNIMPLEMENTED."""
    assert code_of(service.channel.unary_unary(path), b"", timeout=30)[0] == "UNIMPLEMENTED"


@pytest.mark.parametrize(
    ("call", "body"),
    [
        ("ServerLive", b"\xff"),
        ("ServerReady", b"\x0a\x05ab"),
        ("ServerMetadata", b"\x08"),
        ("ModelReady", b"\x0a\x02\xff\xfe"),
        ("ModelMetadata", b"\x0a\x7f"),
        ("ModelInfer", b"\x0a\xff\xff\xff\xff\x0f"),
        ("ModelInfer", b"\x2a\x02\x0a\x05"),
        ("ModelInfer", b"\x00\x00"),
        ("ModelInfer", b'{"inputs": []}'),
    ],
)
def test_rejects_malformed_message(service, call: str, body: bytes) -> None:
    """G1: bytes that are not a request of the method return INVALID_ARGUMENT, not INTERNAL."""
    code, text = code_of(service.grpc.call, call, body)
    assert code == "INVALID_ARGUMENT"
    assert text.startswith(f"the message is not a {call}Request")


def test_ignores_unknown_fields(service) -> None:
    """G1: unknown fields, as of a later version of the protocol, are ignored."""
    assert service.grpc.call("ServerLive", UNKNOWN).live


@pytest.mark.parametrize("count", [1, 3])
def test_rejects_wrong_number_of_raw_entries(service, count: int) -> None:
    """G2: raw_input_contents must have exactly one entry per input."""
    inputs = [
        {"name": "a", "datatype": "FP32", "shape": [1, 2]},
        {"name": "b", "datatype": "INT64", "shape": [1]},
    ]
    answer = service.grpc.send(request(*inputs, raw_input_contents=[bytes(8)] * count))
    refused(answer, f"raw_input_contents: expected one entry per input, got {count} for 2")


def test_rejects_raw_entries_without_inputs(service) -> None:
    """G2: raw_input_contents without inputs is rejected."""
    refused(service.grpc.send(request(raw_input_contents=[b""])), "raw_input_contents: ")


@pytest.mark.parametrize(("size", "datatype"), [(7, "FP32"), (9, "FP32"), (0, "FP32"), (16, "FP32"), (4, "FP64")])
def test_rejects_raw_entry_of_wrong_size(echoes, size: int, datatype: str) -> None:
    """G2: the size of a raw entry must match the shape and datatype of its tensor."""
    client = echoes(datatype).grpc
    answer = client.send(request(x(datatype, [2]), raw_input_contents=[bytes(size)]))
    text = f"wrong number of bytes: expected the size of the shape, got {size}; {datatype} [2] takes "
    refused(answer, f'input "x": data: {text}{len(pack(datatype, [0, 0]))}')


def test_rejects_raw_entries_with_contents(service) -> None:
    """G2: raw entries and contents exclude each other, in one input and across inputs."""
    a = {"name": "a", "datatype": "FP32", "shape": [1, 2], "contents": {"fp32_contents": [1, 2]}}
    b = {"name": "b", "datatype": "INT64", "shape": [1]}
    text = 'input "a": data: expected either contents or raw_input_contents, got both'
    refused(service.grpc.send(request(a, raw_input_contents=[bytes(8)])), text)
    refused(service.grpc.send(request(a, b, raw_input_contents=[bytes(8)] * 2)), text)
    refused(service.grpc.send(request(a, b, raw_input_contents=[bytes(8)])), "raw_input_contents: ")


def test_ignores_empty_contents(echoes) -> None:
    """G2: an empty contents message in addition to raw entries is ignored."""
    message = request(x("FP32", [1]), raw_input_contents=[bytes(4)])
    message.inputs[0].contents.SetInParent()
    assert message.inputs[0].HasField("contents")
    assert echoes("FP32").grpc.send(message).outputs == {"y": ("FP32", [1], [0.0])}


@pytest.mark.parametrize("datatype", CONTENTS)
@pytest.mark.parametrize("field", FIELDS)
def test_rejects_contents_in_wrong_field(echoes, datatype: str, field: str) -> None:
    """G3: contents are accepted in the field of the datatype, and the error for any other field names it."""
    value = b"a" if field == "bytes_contents" else 1
    answer = echoes(datatype).grpc.send(request(x(datatype, [1], **{field: [value]})))
    if field == CONTENTS[datatype]:
        assert answer.outputs == {"y": (datatype, [1], [value])}
    else:
        refused(answer, f'input "x": data: expected {CONTENTS[datatype]} for {datatype}, got {field}')


@pytest.mark.parametrize("shape", [[1], [2], [0]])
def test_rejects_second_field_of_contents(echoes, shape: list[int]) -> None:
    """G3: contents in a second field, in addition to the right one, are rejected."""
    answer = echoes("INT32").grpc.send(request(x("INT32", shape, int_contents=[1] * shape[0], int64_contents=[1])))
    refused(answer, 'input "x": data: expected int_contents for INT32, got int64_contents')


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize("datatype", ["BOOL", "INT64", "FP32"])
def test_ignores_unknown_fields_of_contents(echoes, datatype: str, count: int) -> None:
    """G3: unknown fields of contents are ignored, with few elements and with many."""
    message = request(x(datatype, [count], **{CONTENTS[datatype]: [0, 1] * (count // 2)}))
    message.inputs[0].contents.MergeFromString(UNKNOWN)
    assert echoes(datatype).grpc.send(message).outputs == {"y": (datatype, [count], [0, 1] * (count // 2))}


@pytest.mark.parametrize("contents", [{}, {"int_contents": []}])
def test_rejects_missing_contents(echoes, contents: dict) -> None:
    """G3: missing or empty contents are rejected if the shape has elements."""
    text = "expected as many elements as the shape has, got 0 for shape [1], which has 1 elements"
    refused(echoes("INT32").grpc.send(request(x("INT32", [1], **contents))), f'input "x": data: {text}')


@pytest.mark.parametrize(
    ("datatype", "field", "low", "high"),
    [
        ("UINT8", "uint_contents", 0, 2**8 - 1),
        ("UINT16", "uint_contents", 0, 2**16 - 1),
        ("UINT32", "uint_contents", 0, 2**32 - 1),
        ("UINT64", "uint64_contents", 0, 2**64 - 1),
        ("INT8", "int_contents", -(2**7), 2**7 - 1),
        ("INT16", "int_contents", -(2**15), 2**15 - 1),
        ("INT32", "int_contents", -(2**31), 2**31 - 1),
        ("INT64", "int64_contents", -(2**63), 2**63 - 1),
    ],
)
def test_integer_ranges(echoes, datatype: str, field: str, low: int, high: int) -> None:
    """G3, R11: the limits of a datatype are accepted, and values beyond them in a wider field are rejected."""
    client = echoes(datatype).grpc
    assert client.send(request(x(datatype, [2], **{field: [low, high]}))).outputs == {"y": (datatype, [2], [low, high])}
    beyond = {"int_contents": [low - 1, high + 1, -(2**31), 2**31 - 1], "uint_contents": [high + 1, 2**32 - 1]}
    for stray in beyond.get(field, []) if datatype[-2:] != "32" else []:
        text = f'input "x": data: expected {datatype} from {low} to {high}, got {stray}'
        refused(client.send(request(x(datatype, [3], **{field: [0, stray, 1]}))), text)


@pytest.mark.parametrize("field", FIELDS)
def test_rejects_contents_of_fp16(echoes, field: str) -> None:
    """G3: contents of FP16 are rejected, because it has only a raw form."""
    value = b"ab" if field == "bytes_contents" else 1
    answer = echoes("FP16").grpc.send(request(x("FP16", [1], **{field: [value]})))
    refused(answer, 'input "x": data: FP16 has no contents; use raw_input_contents')


def test_fp16_raw(echoes) -> None:
    """G2, G4: FP16 is accepted and returned in raw form."""
    answer = echoes("FP16").forms["grpc raw"].infer([("x", "FP16", [2], [1.5, math.inf])])
    assert answer.outputs == {"y": ("FP16", [2], [1.5, math.inf])}


@pytest.mark.parametrize(
    ("asked", "form", "raw"),
    [
        (["single"], "grpc typed", False),
        (["half"], "grpc typed", True),
        (["single", "half"], "grpc typed", True),
        (None, "grpc typed", True),
        (["single"], "grpc raw", True),
        (None, "grpc raw", True),
    ],
)
def test_response_has_form_of_request(serve, asked: list[str] | None, form: str, raw: bool) -> None:
    """G4: the response is raw or typed like the request, but always raw if a requested output is FP16."""
    answer = serve(models.halves()).forms[form].infer([("x", "FP32", [2], [1.0, 3.0])], asked)
    assert len(answer.raw.raw_output_contents) == (len(answer.outputs) if raw else 0)
    assert [each.HasField("contents") for each in answer.raw.outputs] == [not raw] * len(answer.outputs)
    assert [values for _, _, values in answer.outputs.values()] == [[0.5, 1.5]] * len(answer.outputs)


def test_response_without_inputs_is_raw(serve) -> None:
    """G4: the response to a request without inputs is raw."""
    module = models.model([], [MetadataTensor("y", "INT32", [-1])], lambda _: np.array([1, 2], "i4"))
    answer = serve(module).grpc.infer([])
    assert list(answer.raw.raw_output_contents) == [b"\1\0\0\0\2\0\0\0"]


@pytest.mark.parametrize("datatype", NUMPY)
def test_zero_size_tensors(echoes, datatype: str) -> None:
    """G4, G5: an empty raw tensor has an empty raw entry, and an empty typed one has no contents."""
    raw = echoes(datatype, -1, -1).forms["grpc raw"].infer([("x", datatype, [0, 2], [])])
    assert list(raw.raw.raw_output_contents) == [b""]
    assert raw.outputs == {"y": (datatype, [0, 2], [])}
    if datatype != "FP16":
        typed = echoes(datatype, -1, -1).grpc.infer([("x", datatype, [2, 0], [])])
        assert list(typed.raw.raw_output_contents) == []
        assert typed.outputs == {"y": (datatype, [2, 0], [])}


def test_missing_id(service) -> None:
    """G5: the response to a request without an id has no id."""
    assert service.grpc.infer([("a", "FP32", [0, 2], [])]).raw.id == ""


def test_rejects_parameter_without_value(service) -> None:
    """R17: a parameter without a value is rejected in the request, an input or an output."""
    a = {"name": "a", "datatype": "FP32", "shape": [0, 2]}
    on_request, on_input, on_output = (request(a, outputs=[{"name": "sum"}]) for _ in range(3))
    for holder in (on_request, on_input.inputs[0], on_output.outputs[0]):
        holder.parameters["odd"].SetInParent()
    for message in (on_request, on_input, on_output):
        refused(service.grpc.send(message), '"odd": expected a string, number or boolean, got none')


def test_parameter_types(service) -> None:
    """R17: a parameter may have any of the five types."""
    message = request({"name": "a", "datatype": "FP32", "shape": [0, 2]})
    for kind, value in [("bool", True), ("int64", -1), ("string", ""), ("double", math.nan), ("uint64", 2**64 - 1)]:
        setattr(message.parameters[kind], f"{kind}_param", value)
        setattr(message.inputs[0].parameters[kind], f"{kind}_param", value)
    assert service.grpc.send(message).kind == "ok"


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_message_size_limit(service, compression: grpc.Compression) -> None:
    """G6: a message of MAX_REQUEST_BYTES is accepted and one more byte is rejected, compressed or not."""
    infer = service.channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    good = request({"name": "a", "datatype": "FP32", "shape": [0, 2]})
    assert infer(sized(good, LIMIT), compression=compression, timeout=30)
    code, text = code_of(infer, sized(good, LIMIT + 1), compression=compression, timeout=30)
    assert code == "RESOURCE_EXHAUSTED"
    assert str(LIMIT) in text


def test_only_overload_has_retry_after(serve) -> None:
    """G1: RESOURCE_EXHAUSTED has `retry-after` in the trailing metadata only if the service is overloaded."""
    begun, end = threading.Event(), threading.Event()

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        begun.set()
        end.wait(30)
        return x

    tensors = [MetadataTensor("x", "FP32", [-1])], [MetadataTensor("y", "FP32", [-1])]
    service = serve(models.model(*tensors, predict), max_concurrency=1, max_queue_size=0, max_request_bytes=LIMIT)
    infer = service.channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
    good = request(x("FP32", [1], fp32_contents=[1]))
    running = infer.future(good.SerializeToString(), timeout=30)
    assert begun.wait(30)
    hints = []
    for size in (LIMIT, LIMIT + 1):
        with pytest.raises(grpc.RpcError) as caught:
            infer(sized(good, size), timeout=30)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        hints.append(dict(caught.value.trailing_metadata()).get("retry-after"))
    end.set()
    assert running.result()
    assert hints == ["1", None]


def test_large_responses(serve) -> None:
    """G6: the limit does not apply to responses, which may also exceed grpcio's default of 4 MiB."""
    module = models.model(
        [MetadataTensor("n", "INT32", [1])],
        [MetadataTensor("y", "UINT8", [-1])],
        lambda _, n: np.zeros(int(n[0]), "u1"),
    )
    answer = serve(module, max_request_bytes=1000).forms["grpc raw"].infer([("n", "INT32", [1], [5_000_000])])
    assert answer.raw.outputs[0].shape == [5_000_000]


@pytest.mark.parametrize("name", ["", "inference.GRPCInferenceService"])
def test_health(serve, name: str) -> None:
    """G7: grpc.health.v1.Health reports the readiness of the server and of the service."""
    service = serve(models.two_by_two())
    stub = health_pb2_grpc.HealthStub(service.channel)
    for ready, status in [(True, "SERVING"), (False, "NOT_SERVING"), (True, "SERVING")]:
        service.server.report_ready(ready)
        answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=30)
        assert health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status) == status


def test_health_of_unknown_service(service) -> None:
    """G7: a health check of an unknown service returns NOT_FOUND."""
    stub = health_pb2_grpc.HealthStub(service.channel)
    assert code_of(stub.Check, health_pb2.HealthCheckRequest(service="iris"), timeout=30)[0] == "NOT_FOUND"


def test_watch_reports_changes(serve) -> None:
    """G7: a watch receives each change of readiness, or SERVICE_UNKNOWN, and a canceled watch has no effect."""
    service = serve(models.two_by_two())
    stub = health_pb2_grpc.HealthStub(service.channel)
    watches = [
        stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)
        for name in ("", "inference.GRPCInferenceService", "iris")
    ]
    assert [next(each).status for each in watches] == [SERVING, SERVING, SERVICE_UNKNOWN]
    stub.Watch(health_pb2.HealthCheckRequest()).cancel()
    service.server.report_ready(False)
    assert [next(each).status for each in watches[:2]] == [NOT_SERVING] * 2
    service.server.report_ready(True)
    assert [next(each).status for each in watches[:2]] == [SERVING] * 2
    service.server.report_stopping()
    service.server.report_ready(True)  # has no effect after report_stopping()
    assert [next(each).status for each in watches[:2]] == [NOT_SERVING] * 2


def test_concurrent_watches_do_not_block_calls(serve) -> None:
    """G7: calls of other clients succeed while one watch begins and another ends."""
    service = serve(models.two_by_two())
    stub = health_pb2_grpc.HealthStub(service.channel)
    for _ in range(100):
        ending = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        next(ending)
        beginning = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        ending.cancel()
        assert service.grpc.call("ServerLive").live
        beginning.cancel()


@pytest.mark.parametrize("member", ["inputs", "outputs"])
def test_limits_inputs_and_outputs(serve, member: str) -> None:
    """R20: too many inputs or outputs are rejected before any of them is validated."""
    service = serve(models.two_by_two())
    empty = {"inputs": b"\x2a\x00", "outputs": b"\x32\x00"}[member]
    code, text = code_of(service.grpc.call, "ModelInfer", b"\x0a\x04test" + empty * 70_000)
    assert (code, text) == ("INVALID_ARGUMENT", f"{member}: expected at most 65536, got 70000")
    envelope = {"inputs": [], "outputs": [], member: [{}] * 70_000}
    assert service.rest.post(envelope).get_json() == {"error": text}


@pytest.mark.parametrize("empty", [b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x08\x00"])
def test_limits_fields_of_message(serve, empty: bytes) -> None:
    """R20: a message with too many fields is rejected before they take memory."""
    call = serve(models.two_by_two()).grpc.call
    expected = ("INVALID_ARGUMENT", "the message has too many fields: expected at most 262144")
    assert code_of(call, "ModelInfer", b"\x0a\x04test" + empty * 300_000) == expected


def test_rejects_call_without_message(service) -> None:
    """A call that ends without a request message is rejected, and the next call succeeds."""
    path = "/inference.GRPCInferenceService/ServerLive"
    code, text = code_of(service.channel.stream_unary(path), iter([]), timeout=30)
    assert code == "UNIMPLEMENTED"
    assert "requires exactly one request message" in text
    assert service.channel.stream_unary(path)(iter([b""]), timeout=30)


def test_rejected_calls_leave_no_garbage(service) -> None:
    """Rejected calls leave no objects for the garbage collector, which would be slow in a flood of them."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            assert code_of(service.grpc.call, "ModelReady", name="other")[0] == "NOT_FOUND"
        wait_for(lambda: sum(isinstance(each, _server._RPCState) for each in gc.get_objects()) <= 10)
    finally:
        gc.enable()


def test_reflection_lists_the_services(service) -> None:
    """G7: reflection lists the services on the port."""
    stub = reflection_pb2_grpc.ServerReflectionStub(service.channel)
    ask = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([ask]), timeout=30)
    assert {each.name for each in answer.list_services_response.service} == {
        "inference.GRPCInferenceService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


def test_reflection_describes_all_messages(service) -> None:
    """G7: a client without the proto file can build and parse all messages by reflection."""
    pool = DescriptorPool(ProtoReflectionDescriptorDatabase(service.channel))
    found = pool.FindServiceByName("inference.GRPCInferenceService")
    assert [method.name for method in found.methods] == CALLS
    for name in ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"):
        assert pool.FindServiceByName(name).methods
    infer = found.methods_by_name["ModelInfer"]
    asked = GetMessageClass(infer.input_type)(model_name="test")
    asked.inputs.add(name="a", datatype="FP32", shape=[1, 2]).contents.fp32_contents.extend([1, 2])
    call = service.channel.unary_unary(f"/{found.full_name}/{infer.name}")
    answer = GetMessageClass(infer.output_type).FromString(call(asked.SerializeToString(), timeout=30))
    assert answer.outputs[0].contents.fp32_contents == [3]


def test_reflection_of_unknown_symbol(service) -> None:
    """G7: reflection returns NOT_FOUND for an unknown symbol, and continues with the next request."""
    stub = reflection_pb2_grpc.ServerReflectionStub(service.channel)
    asks = [
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
        for symbol in ("inference.Nothing", "inference.ModelInferRequest")
    ]
    missing, found = stub.ServerReflectionInfo(iter(asks), timeout=30)
    assert missing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    assert found.file_descriptor_response.file_descriptor_proto


GOOD = ("a", "FP32", [1, 2], [1.0, 2.0])


@pytest.mark.parametrize(
    ("inputs", "asked", "kind", "text"),
    [
        ([GOOD], {"model": "other"}, "NOT_FOUND", 'unknown model: expected "test", got "other"'),
        ([GOOD], {"version": "2"}, "NOT_FOUND", 'model "test": unknown version: expected "1", got "2"'),
        (
            [GOOD],
            {"outputs": ["y"]},
            "INVALID_ARGUMENT",
            'output "y": unknown output: expected "sum", "double", got "y"',
        ),
        ([GOOD], {"outputs": ["sum", "sum"]}, "INVALID_ARGUMENT", 'output "sum": requested twice'),
        ([], {}, "INVALID_ARGUMENT", 'input "a": missing: expected "a", and may take "b", got none'),
        ([GOOD, GOOD], {}, "INVALID_ARGUMENT", 'input "a": sent twice'),
        (
            [GOOD, ("c 🌷\n", "FP32", [0], [])],
            {},
            "INVALID_ARGUMENT",
            'input "c 🌷\n": unknown input: expected "a", "b"',
        ),
        ([("a", "FP33", [0, 2], [])], {}, "INVALID_ARGUMENT", 'input "a": datatype: expected one of BOOL, UINT8, '),
        ([("a", "", [0, 2], [])], {}, "INVALID_ARGUMENT", 'input "a": datatype: expected one of BOOL, UINT8, '),
        ([("a", "INT8", [0, 2], [])], {}, "INVALID_ARGUMENT", 'input "a": datatype: expected FP32, got INT8'),
        ([("a", "FP32", [2], [1.0, 2.0])], {}, "INVALID_ARGUMENT", 'input "a": shape: expected [-1,2], got [2]'),
        ([("a", "FP32", [0, 3], [])], {}, "INVALID_ARGUMENT", 'input "a": shape: expected [-1,2], got [0,3]'),
        ([("a", "FP32", [-1, 2], [])], {}, "INVALID_ARGUMENT", 'input "a": shape: expected integers of at least 0'),
        ([("a", "FP32", [1] * 65, [])], {}, "INVALID_ARGUMENT", 'input "a": shape: expected at most 64 dimensions'),
        (
            [("a", "FP32", [2**62, 0], [])],
            {},
            "INVALID_ARGUMENT",
            'input "a": shape: larger than an array can be: got [4611686018427387904,0]',
        ),
        ([("n" * 9000, "FP32", [0], [])], {}, "INVALID_ARGUMENT", 'input "nnnnnn'),
    ],
)
def test_same_error_in_all_forms(service, inputs: list, asked: dict, kind: str, text: str) -> None:
    """G1: an error has the same status and message in all four forms."""
    answers = [client.infer(inputs, **asked) for client in map(service.forms.__getitem__, FORMS)]
    assert {(answer.kind, answer.text) for answer in answers} == {(kind, answers[0].text)}
    assert answers[0].text.startswith(text)


@pytest.mark.parametrize(
    ("datatype", "shape", "values"),
    [
        ("INT8", [2], [1, 300]),
        ("UINT16", [2], [70000, 1]),
        ("INT32", [2], [1]),
        ("BYTES", [1], ["a", "b"]),
        ("FP64", [2**40, 2**40], [1.0]),
        ("BOOL", [0], [True]),
    ],
)
def test_same_error_for_elements(echoes, datatype: str, shape: list[int], values: list) -> None:
    """G1, G3: an invalid element has the same error message in JSON and in contents."""
    service = echoes(datatype, *[-1] * len(shape))
    rest, typed = (service.forms[form].infer([("x", datatype, shape, values)]) for form in ("rest json", "grpc typed"))
    assert rest.kind == typed.kind == "INVALID_ARGUMENT"
    assert rest.text == typed.text
    assert rest.text.startswith('input "x": data: ')


@pytest.mark.parametrize(
    ("datatype", "shape", "blob"),
    [
        ("BOOL", [2], b"\1\2"),
        ("INT8", [2], b"\1\2\3"),
        ("FP16", [2], b"\1\2\3"),
        ("FP64", [2**40, 2**40], bytes(8)),
        ("BYTES", [1], b"\1\0\0"),
        ("BYTES", [1], b"\xff\xff\xff\xff"),
        ("BYTES", [2], b"\1\0\0\0a"),
        ("INT32", [2], b"\0"),
    ],
)
def test_same_error_for_binary_data(echoes, datatype: str, shape: list[int], blob: Any) -> None:
    """G1, G2, B5: invalid binary data have the same error message in REST and in raw entries."""
    service = echoes(datatype, *[-1] * len(shape))
    rest, raw = (service.forms[form].infer([("x", datatype, shape, blob)]) for form in ("rest binary", "grpc raw"))
    assert rest.kind == raw.kind == "INVALID_ARGUMENT"
    assert rest.text == raw.text
    assert rest.text.startswith('input "x": data: ')


SECOND_COPY = """
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message_factory import GetMessageClass

def ours():
    from grpc_service import messages
    import grpc_service.server
    return messages.ModelInferRequest

def theirs():
    with open("grpc_service/open_inference_grpc.binpb", "rb") as file:
        (proto,) = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    proto.name = "grpc_predict_v2.proto"
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(proto.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("inference.ModelInferRequest"))

first, second = [make() for make in ({order})]
assert first is not second
assert first.DESCRIPTOR.full_name == second.DESCRIPTOR.full_name == "inference.ModelInferRequest"
one, other = first(model_name="test", id="42"), second()
one.inputs.add(name="x", datatype="INT32", shape=[2]).contents.int_contents.extend([1, 2])
one.parameters["p"].bool_param = True
other.ParseFromString(one.SerializeToString())
assert other.inputs[0].contents.int_contents == [1, 2]
assert first.FromString(other.SerializeToString()) == one
"""


@pytest.mark.parametrize("order", ["ours, theirs", "theirs, ours"])
def test_second_copy_of_proto(order: str) -> None:
    """G: a second copy of the proto in the default pool, as in tritonclient, works before and after ours."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SECOND_COPY.replace("{order}", order)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
