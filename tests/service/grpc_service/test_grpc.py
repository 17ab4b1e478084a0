"""The gRPC server: overload, large responses, limits on fields, and a second copy of the protocol's messages."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc import _server

from app.protocol.metadata import MetadataTensor
from grpc_service import messages
from oip_conformance.wires import message_of_size
from tests.kit import models
from tests.kit.processes import wait_for

ROOT = Path(__file__).parents[3]
LIMIT = 10_000


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two())


def code_of(call: Any, *args: Any, **fields: Any) -> tuple[str, str]:
    """Return the status and the details of a call, which must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*args, **fields)
    return caught.value.code().name, caught.value.details()


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
    good = messages.ModelInferRequest(model_name="test")
    good.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(1)
    running = infer.future(good.SerializeToString(), timeout=30)
    assert begun.wait(30)
    hints = []
    for size in (LIMIT, LIMIT + 1):
        with pytest.raises(grpc.RpcError) as caught:
            infer(message_of_size(good, size), timeout=30)
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
def test_limits_inputs_and_outputs(service, member: str) -> None:
    """R20: too many inputs or outputs are rejected before any of them is validated."""
    empty = {"inputs": b"\x2a\x00", "outputs": b"\x32\x00"}[member]
    code, text = code_of(service.grpc.call, "ModelInfer", b"\x0a\x04test" + empty * 70_000)
    assert (code, text) == (
        "INVALID_ARGUMENT",
        f"{member.title()}: too many. Expected at most 65536, got 70000.",
    )
    envelope = {"inputs": [], "outputs": [], member: [{}] * 70_000}
    assert service.rest.post(envelope).get_json() == {"error": text}


@pytest.mark.parametrize("empty", [b"\x2a\x00", b"\x32\x00", b"\x3a\x00", b"\x08\x00"])
def test_limits_fields_of_message(service, empty: bytes) -> None:
    """R20: a message with too many fields is rejected before they take memory."""
    expected = ("INVALID_ARGUMENT", "Too many fields in the message. Expected at most 262144.")
    body = b"\x0a\x04test" + empty * 300_000
    assert code_of(service.grpc.call, "ModelInfer", body) == expected


def test_rejects_groups(service) -> None:
    """R20: a large message with groups is rejected."""
    expected = ("INVALID_ARGUMENT", "Groups in the message. Expected no groups.")
    assert code_of(service.grpc.call, "ModelInfer", b"\x7b\x7c" * 20_000) == expected


COMPRESSIONS = [grpc.Compression.NoCompression, grpc.Compression.Deflate, grpc.Compression.Gzip]
SMALL_METHODS = [
    f"/{messages.SERVICE_NAME}/{method.name}"
    for method in messages.SERVICE.methods
    if method.name != "ModelInfer"
] + ["/grpc.health.v1.Health/Check"]
# The name of the model is the first field of all requests that have one.
NAME = b"\x0a\x04test"


def unknown_text(size: int) -> bytes:
    """Return a field of `size` bytes that all methods ignore. Its length needs two bytes."""
    text_size = size - 4
    return bytes([0xFA, 0x01, text_size & 0x7F | 0x80, text_size >> 7]) + bytes(text_size)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("path", SMALL_METHODS)
def test_compressed_small_messages(service, path: str, compression: grpc.Compression) -> None:
    """G6: methods other than ModelInfer accept messages of 4 KiB, compressed or not, and no larger ones."""
    invoke = service.channel.unary_unary(path)
    # A health check contains the name of a service instead.
    name = b"" if "Health" in path else NAME
    largest = name + unknown_text(2**12 - len(name))
    assert invoke(name, timeout=30, compression=compression) is not None
    assert invoke(largest, timeout=30, compression=compression) is not None
    code, text = code_of(invoke, largest + b"\0", timeout=30, compression=compression)
    if "Health" in path:  # grpcio's own method
        assert code == "INTERNAL"
    else:
        assert (code, text) == (
            "RESOURCE_EXHAUSTED",
            "Message too large. Expected at most 4096 bytes.",
        )


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_reflection_with_compression(service, compression: grpc.Compression) -> None:
    """G7: reflection accepts compressed messages."""
    invoke = service.channel.stream_stream(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    )
    responses = invoke(iter([b"\x3a\x00"]), timeout=30, compression=compression)  # list_services
    assert messages.SERVICE_NAME.encode() in next(responses)


@pytest.mark.parametrize("start", [b"\x1f\x8b\x08\x00", b"\x78\x9c"])
def test_malformed_compression(service, start: bytes) -> None:
    """G1: a message that is not what its compression promises is rejected, and the next call succeeds."""
    code, text = code_of(service.grpc.call, "ModelInfer", start + b"a" * 100)
    assert code == "INVALID_ARGUMENT"
    assert text.startswith("Invalid ")
    assert service.grpc.call("ServerLive").live


def test_rejects_call_without_message(service) -> None:
    """A call that ends without a request message is rejected, and the next call succeeds."""
    path = "/inference.GRPCInferenceService/ModelReady"
    code, text = code_of(service.channel.stream_unary(path), iter([]), timeout=30)
    assert code == "UNIMPLEMENTED"
    assert "requires exactly one request message" in text
    message = messages.ModelReadyRequest(name="test").SerializeToString()
    assert service.channel.stream_unary(path)(iter([message]), timeout=30)


def test_rejected_calls_leave_no_garbage(service) -> None:
    """Rejected calls leave no objects for the garbage collector, which would be slow in a flood of them."""
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            assert code_of(service.grpc.call, "ModelReady", name="other")[0] == "NOT_FOUND"
        wait_for(
            lambda: sum(isinstance(value, _server._RPCState) for value in gc.get_objects()) <= 10
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
