"""Check grpcio with stubs that protoc generates from protos/: typed and raw contents, health and reflection."""

import importlib
import struct
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import echo
import grpc
import numpy as np
from common import SECONDS, raises
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[3] / "protos" / "open_inference_grpc.proto"
SERVICE = "inference.GRPCInferenceService"
TENSORS = {**echo.TENSORS, "bf16": echo.BF16_BITS}
DTYPES = {echo.DATATYPES[name]: array.dtype for name, array in TENSORS.items()}
# Datatypes in the metadata of the model, by the names of inputs and outputs.
DECLARED = {
    f"{name}_{end}": datatype for name, datatype in echo.DATATYPES.items() for end in ("in", "out")
}
# The field of `contents` for each datatype. The others have raw contents only.
CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


@cache
def make_stubs() -> tuple[Any, Any]:
    """Generate the message and stub modules, and return them."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            f"--proto_path={PROTO.parent}",
            f"--python_out={folder}",
            f"--grpc_python_out={folder}",
            str(PROTO),
        ]
        assert protoc.main(["protoc", *arguments]) == 0
        sys.path.insert(0, folder)
        try:
            return tuple(
                importlib.import_module(f"{PROTO.stem}_{kind}") for kind in ("pb2", "pb2_grpc")
            )
        finally:
            sys.path.remove(folder)


def make_request(
    messages: Any, model: str, tensors: dict[str, tuple[str, np.ndarray]], raw: bool, **fields: Any
) -> Any:
    """Return a request with inputs by name, each as its datatype and its elements."""
    request = messages.ModelInferRequest(model_name=model, **fields)
    for name, (datatype, array) in tensors.items():
        tensor = request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        if raw:
            request.raw_input_contents.append(
                join(array) if datatype == "BYTES" else array.tobytes()
            )
        else:
            getattr(tensor.contents, CONTENTS[datatype]).extend(array.ravel().tolist())
    return request


def join(array: np.ndarray) -> bytes:
    """Return the elements of a BYTES tensor as raw data."""
    return b"".join(struct.pack("<I", len(element)) + element for element in array.ravel())


def split(blob: bytes) -> list[bytes]:
    """Split a raw BYTES tensor into its elements."""
    elements = []
    while blob:
        (length,) = struct.unpack_from("<I", blob)
        assert 4 + length <= len(blob), blob
        elements.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return elements


def arrays(response: Any, raw: bool) -> dict[str, np.ndarray]:
    """Return the outputs by name, and check that they are in the expected form."""
    assert len(response.raw_output_contents) == (len(response.outputs) if raw else 0), response
    arrays_by_name = {}
    for index, tensor in enumerate(response.outputs):
        dtype = DTYPES[tensor.datatype]
        if raw:
            assert not tensor.HasField("contents"), tensor
            blob = response.raw_output_contents[index]
            values = split(blob) if tensor.datatype == "BYTES" else np.frombuffer(blob, dtype)
        else:
            filled = {field.name: contents for field, contents in tensor.contents.ListFields()}
            assert list(filled) == ([CONTENTS[tensor.datatype]] if 0 not in tensor.shape else []), (
                tensor
            )
            values = next(iter(filled.values()), [])
        arrays_by_name[tensor.name] = np.array(values, dtype).reshape(tensor.shape)
    return arrays_by_name


def check_server(stub: Any, messages: Any, model: str) -> str:
    """Check health and metadata, and return the version of the served model."""
    assert stub.ServerLive(messages.ServerLiveRequest(), timeout=SECONDS).live
    assert stub.ServerReady(messages.ServerReadyRequest(), timeout=SECONDS).ready
    assert stub.ModelReady(messages.ModelReadyRequest(name=model), timeout=SECONDS).ready
    server = stub.ServerMetadata(messages.ServerMetadataRequest(), timeout=SECONDS)
    assert server.name, server
    assert server.version, server
    metadata = stub.ModelMetadata(messages.ModelMetadataRequest(name=model), timeout=SECONDS)
    assert metadata.name == model, metadata
    datatypes = {
        declaration.name: declaration.datatype
        for declaration in (*metadata.inputs, *metadata.outputs)
    }
    assert datatypes.items() >= DECLARED.items(), metadata
    version = metadata.versions[0]
    assert stub.ModelReady(
        messages.ModelReadyRequest(name=model, version=version), timeout=SECONDS
    ).ready
    again = stub.ModelMetadata(
        messages.ModelMetadataRequest(name=model, version=version), timeout=SECONDS
    )
    assert again == metadata, again
    return version


def check_choices(stub: Any, messages: Any, model: str, version: str) -> None:
    """Check the order of requested outputs, ids, versions and compression, typed and raw."""
    sent = {name: echo.TENSORS[name] for name in ("fp32", "bytes")}
    inputs = {f"{name}_in": (echo.DATATYPES[name], array) for name, array in sent.items()}
    for raw in False, True:
        request = make_request(messages, model, inputs, raw, id="flower-7", model_version=version)
        for name in "bytes_out", "fp32_out":
            request.outputs.add(name=name)
        response = stub.ModelInfer(request, timeout=SECONDS, compression=grpc.Compression.Gzip)
        assert list(arrays(response, raw)) == ["bytes_out", "fp32_out"], response
        assert (response.model_name, response.model_version) == (model, version), response
        assert response.id == "flower-7", response


def check_error(code: grpc.StatusCode, names: str, method: Any, request: Any) -> None:
    """Check that the call raises this status code with a message that contains `names`."""
    with raises(grpc.RpcError) as caught:
        method(request, timeout=SECONDS)
    assert caught[0].code() is code, caught
    assert names in caught[0].details(), caught


def check_errors(stub: Any, messages: Any, model: str) -> None:
    """Check that each error names the problem, and that the channel can be used again."""
    invalid, lost = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    pairs, wrong = echo.TENSORS["pairs"], {"pairs_in": ("FP32", echo.WRONG_PAIRS)}
    for raw in False, True:
        request = make_request(messages, model, wrong, raw)
        check_error(invalid, "pairs_in", stub.ModelInfer, request)
        request = make_request(messages, "no-such", wrong, raw)
        check_error(lost, "no-such", stub.ModelInfer, request)
    both = make_request(messages, model, {"pairs_in": ("FP32", pairs)}, raw=False)
    both.raw_input_contents.append(pairs.tobytes())
    check_error(invalid, "pairs_in", stub.ModelInfer, both)
    check_error(lost, "no-such", stub.ModelReady, messages.ModelReadyRequest(name="no-such"))
    check_error(
        lost,
        "no-such",
        stub.ModelMetadata,
        messages.ModelMetadataRequest(name=model, version="no-such"),
    )
    check_echoed(stub, messages, model, {"pairs": pairs}, raw=True)


def check_health(channel: grpc.Channel) -> None:
    """Check the health of the server and of the inference service, and that an unknown service is NOT_FOUND."""
    stub = health_pb2_grpc.HealthStub(channel)
    for name in "", SERVICE:
        response = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
        assert response.status == health_pb2.HealthCheckResponse.SERVING, (name, response)
    check_error(
        grpc.StatusCode.NOT_FOUND, "", stub.Check, health_pb2.HealthCheckRequest(service="no.such")
    )


def fields(message: Any) -> dict[int, tuple[str, int]]:
    return {field.number: (field.name, field.type) for field in message.fields}


def check_reflection(channel: grpc.Channel, messages: Any) -> None:
    """Check that reflection lists the services, and that ours matches the .proto file in this repository."""
    database = ProtoReflectionDescriptorDatabase(channel)
    names = set(database.get_services())
    assert {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    } <= names, names
    reflected = DescriptorPool(database).FindServiceByName(SERVICE).methods_by_name
    expected = messages.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    assert set(reflected) == set(expected), list(reflected)
    for name, method in expected.items():
        for end in "input_type", "output_type":
            ours, theirs = fields(getattr(method, end)), fields(getattr(reflected[name], end))
            assert ours == theirs, (name, ours, theirs)


def check_tensors(stub: Any, messages: Any, model: str) -> None:
    """Check each datatype, rank, empty tensor and value without a JSON form, separately and in one request."""
    for tensors in TENSORS, echo.EMPTY, echo.NAN, echo.BINARY:
        for group in [{name: array} for name, array in tensors.items()] + [tensors]:
            check_echoed(stub, messages, model, group, raw=True)
            typed = {
                name: array for name, array in group.items() if echo.DATATYPES[name] in CONTENTS
            }
            check_echoed(stub, messages, model, typed, raw=False)


def check_echoed(
    stub: Any, messages: Any, model: str, tensors: dict[str, np.ndarray], raw: bool
) -> None:
    """Check that the tensors are returned unchanged. `tensors` can be empty."""
    inputs = {f"{name}_in": (echo.DATATYPES[name], array) for name, array in tensors.items()}
    request = make_request(messages, model, inputs, raw)
    for name in tensors:
        request.outputs.add(name=f"{name}_out")
    if tensors:
        echoed = arrays(stub.ModelInfer(request, timeout=SECONDS), raw)
        for name, array in tensors.items():
            echo.check(echoed[f"{name}_out"], array)


def main(_http: str, address: str, model: str) -> None:
    messages, stubs = make_stubs()
    with grpc.insecure_channel(address) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        version = check_server(stub, messages, model)
        check_choices(stub, messages, model, version)
        check_errors(stub, messages, model)
        check_health(channel)
        check_reflection(channel, messages)
        check_tensors(stub, messages, model)
