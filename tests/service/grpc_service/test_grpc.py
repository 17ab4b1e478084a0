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
from grpc import _server

from app.protocol.types import MetadataTensor
from grpc_service import messages
from oip_conformance.wires import sized
from tests.kit import models
from tests.kit.processes import wait_for
from tests.service.grpc_service.requests import CALLS, LIMIT, UNKNOWN, code_of, request, x

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def check_valid_request_afterward(service):
    """R20: check after each test that a valid call succeeds."""
    yield
    assert service.grpc.infer([("a", "FP32", [1, 2], [1, 2])], ["sum"]).outputs == {
        "sum": ("FP32", [1], [3])
    }


def test_names_of_service_and_methods() -> None:
    """G1, T1, T2, T3: the service and its methods have the names of the protocol."""
    assert messages.SERVICE.full_name == "inference.GRPCInferenceService"
    assert [method.name for method in messages.SERVICE.methods] == CALLS


def test_health_and_metadata(service) -> None:
    """G1: the calls for the health and the metadata of the server and the model succeed."""
    assert service.grpc.call("ServerLive").live
    assert service.grpc.call("ServerReady").ready
    assert "binary_tensor_data" in service.grpc.call("ServerMetadata").extensions
    for version in ("", "1"):
        assert service.grpc.call("ModelReady", name="test", version=version).ready
        assert service.grpc.call("ModelMetadata", name="test", version=version).inputs[0].shape == [
            -1,
            2,
        ]


@pytest.mark.parametrize("call", ["ModelReady", "ModelMetadata"])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "Test"}, 'Model not found. Expected "test", got "Test".'),
        ({}, 'Model not found. Expected "test", got "".'),
        (
            {"name": "test", "version": "v1"},
            'Model "test": version not found. Expected "1", got "v1".',
        ),
    ],
)
def test_unknown_model_or_version(service, call: str, fields: dict, text: str) -> None:
    """G1, R3: a call for an unknown model or version returns NOT_FOUND."""
    assert code_of(service.grpc.call, call, **fields) == ("NOT_FOUND", text)


@pytest.mark.parametrize(
    "path", ["/inference.GRPCInferenceService/ModelStreamInfer", "/inference.Other/ServerLive"]
)
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
    assert text.startswith(f"Invalid {call}Request message. ")


def test_ignores_unknown_fields(service) -> None:
    """G1: unknown fields, as of a later version of the protocol, are ignored."""
    assert service.grpc.call("ServerLive", UNKNOWN).live


def test_missing_id(service) -> None:
    """G5: the response to a request without an id has no id."""
    assert service.grpc.infer([("a", "FP32", [0, 2], [])]).raw.id == ""


@pytest.mark.parametrize("name", ["odd", "content_type", "timeout"])
@pytest.mark.parametrize("value", [b"", UNKNOWN])
def test_ignores_parameter_without_value(service, name: str, value: bytes) -> None:
    """R17: a parameter without a value or of an unknown kind is ignored in the request, an input and an output."""
    message = request({"name": "a", "datatype": "FP32", "shape": [0, 2]}, outputs=[{"name": "sum"}])
    for holder in (message, message.inputs[0], message.outputs[0]):
        holder.parameters[name].MergeFromString(value)
    assert service.grpc.send(message).kind == "ok"


def test_parameter_types(service) -> None:
    """R17: a parameter may have any of the five types."""
    message = request({"name": "a", "datatype": "FP32", "shape": [0, 2]})
    for kind, value in [
        ("bool", True),
        ("int64", -1),
        ("string", ""),
        ("double", math.nan),
        ("uint64", 2**64 - 1),
    ]:
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
    service = serve(
        models.model(*tensors, predict),
        max_concurrency=1,
        max_queue_size=0,
        max_request_bytes=LIMIT,
    )
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
    response = (
        serve(module, max_request_bytes=1000)
        .forms["grpc raw"]
        .infer([("n", "INT32", [1], [5_000_000])])
    )
    assert response.raw.outputs[0].shape == [5_000_000]


@pytest.mark.parametrize("member", ["inputs", "outputs"])
def test_limits_inputs_and_outputs(serve, member: str) -> None:
    """R20: too many inputs or outputs are rejected before any of them is validated."""
    service = serve(models.two_by_two())
    empty = {"inputs": b"\x2a\x00", "outputs": b"\x32\x00"}[member]
    code, text = code_of(service.grpc.call, "ModelInfer", b"\x0a\x04test" + empty * 70_000)
    assert (code, text) == (
        "INVALID_ARGUMENT",
        f"{member.title()}: too many. Expected at most 65536, got 70000.",
    )
    envelope = {"inputs": [], "outputs": [], member: [{}] * 70_000}
    assert service.rest.post(envelope).get_json() == {"error": text}


@pytest.mark.parametrize("empty", [b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x08\x00"])
def test_limits_fields_of_message(serve, empty: bytes) -> None:
    """R20: a message with too many fields is rejected before they take memory."""
    call = serve(models.two_by_two()).grpc.call
    expected = ("INVALID_ARGUMENT", "Too many fields in the message. Expected at most 262144.")
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
        wait_for(
            lambda: sum(isinstance(each, _server._RPCState) for each in gc.get_objects()) <= 10
        )
    finally:
        gc.enable()


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
