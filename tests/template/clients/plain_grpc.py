"""Check grpcio with stubs that protoc generates from protos/: typed and raw contents, health and reflection."""

import importlib
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import grpc
import iris
import numpy as np
from common import SECONDS, done, raises
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc

PROTO = Path(__file__).resolve().parents[3] / "protos" / "open_inference_grpc.proto"
SERVICE = "inference.GRPCInferenceService"


def make_stubs(folder: str) -> tuple[Any, Any]:
    """Generate the message and stub modules into `folder`, and return them."""
    arguments = [f"--proto_path={PROTO.parent}", f"--python_out={folder}", f"--grpc_python_out={folder}", str(PROTO)]
    assert protoc.main(["protoc", *arguments]) == 0
    sys.path.insert(0, folder)
    try:
        return tuple(importlib.import_module(f"{PROTO.stem}_{kind}") for kind in ("pb2", "pb2_grpc"))
    finally:
        sys.path.remove(folder)


def make_request(messages: Any, model: str, rows: np.ndarray, raw: bool, **fields: Any) -> Any:
    request = messages.ModelInferRequest(model_name=model, **fields)
    tensor = request.inputs.add(name="features", datatype="FP32", shape=rows.shape)
    if raw:
        request.raw_input_contents.append(rows.astype("<f4").tobytes())
    else:
        tensor.contents.fp32_contents.extend(rows.ravel().tolist())
    return request


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
    found = {}
    for index, tensor in enumerate(response.outputs):
        if raw:
            assert not tensor.HasField("contents"), tensor
            blob = response.raw_output_contents[index]
            values = split(blob) if tensor.datatype == "BYTES" else np.frombuffer(blob, "<f4")
        else:
            filled = {field.name: each for field, each in tensor.contents.ListFields()}
            assert list(filled) == ["bytes_contents" if tensor.datatype == "BYTES" else "fp32_contents"], tensor
            (values,) = filled.values()
        kind = object if tensor.datatype == "BYTES" else np.float32
        found[tensor.name] = np.array(values, kind).reshape(tensor.shape)
    return found


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
    tensors = [(each.name, each.datatype, list(each.shape)) for each in (*metadata.inputs, *metadata.outputs)]
    assert tensors == [iris.INPUT, *iris.OUTPUTS], metadata
    version = metadata.versions[0]
    assert stub.ModelReady(messages.ModelReadyRequest(name=model, version=version), timeout=SECONDS).ready
    again = stub.ModelMetadata(messages.ModelMetadataRequest(name=model, version=version), timeout=SECONDS)
    assert again == metadata, again
    return version


def check_infer(stub: Any, messages: Any, model: str, version: str) -> None:
    """Check typed and raw requests with few and many rows, requested outputs, ids and versions."""
    for raw in False, True:
        for rows, times in (iris.FLOWERS, 1), (iris.MANY, 50):
            request = make_request(messages, model, rows, raw, id="flower-7")
            response = stub.ModelInfer(request, timeout=SECONDS)
            found = arrays(response, raw)
            assert list(found) == ["label", "probabilities"], response
            iris.check(found["label"], found["probabilities"], times)
            assert (response.model_name, response.model_version) == (model, version), response
            assert response.id == "flower-7", response
        request = make_request(messages, model, iris.FLOWERS, raw, model_version=version)
        for name in "probabilities", "label":
            request.outputs.add(name=name)
        response = stub.ModelInfer(request, timeout=SECONDS, compression=grpc.Compression.Gzip)
        found = arrays(response, raw)
        assert list(found) == ["probabilities", "label"], response
        iris.check(found["label"], found["probabilities"])


def check_error(code: grpc.StatusCode, names: str, method: Any, request: Any) -> None:
    """Check that the call raises this status code with a message that contains `names`."""
    with raises(grpc.RpcError) as caught:
        method(request, timeout=SECONDS)
    assert caught[0].code() is code, caught
    assert names in caught[0].details(), caught


def check_errors(stub: Any, messages: Any, model: str) -> None:
    """Check that each error names the problem, and that the channel can be used again."""
    invalid, lost = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    for raw in False, True:
        check_error(invalid, "features", stub.ModelInfer, make_request(messages, model, iris.WRONG, raw))
        check_error(lost, "no-such", stub.ModelInfer, make_request(messages, "no-such", iris.FLOWERS, raw))
    both = make_request(messages, model, iris.FLOWERS, raw=False)
    both.raw_input_contents.append(iris.FLOWERS.tobytes())
    check_error(invalid, "features", stub.ModelInfer, both)
    check_error(lost, "no-such", stub.ModelReady, messages.ModelReadyRequest(name="no-such"))
    check_error(lost, "no-such", stub.ModelMetadata, messages.ModelMetadataRequest(name=model, version="no-such"))
    response = stub.ModelInfer(make_request(messages, model, iris.FLOWERS, raw=True), timeout=SECONDS)
    found = arrays(response, raw=True)
    iris.check(found["label"], found["probabilities"])


def check_health(channel: grpc.Channel) -> None:
    """Check the health of the server and of the inference service, and that an unknown service is NOT_FOUND."""
    stub = health_pb2_grpc.HealthStub(channel)
    for name in "", SERVICE:
        response = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS)
        assert response.status == health_pb2.HealthCheckResponse.SERVING, (name, response)
    check_error(grpc.StatusCode.NOT_FOUND, "", stub.Check, health_pb2.HealthCheckRequest(service="no.such"))


def fields(message: Any) -> dict[int, tuple[str, int]]:
    return {each.number: (each.name, each.type) for each in message.fields}


def check_reflection(channel: grpc.Channel, messages: Any) -> None:
    """Check that reflection lists the services, and that ours matches the .proto file in this repository."""
    database = ProtoReflectionDescriptorDatabase(channel)
    names = set(database.get_services())
    assert {SERVICE, "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"} <= names, names
    reflected = DescriptorPool(database).FindServiceByName(SERVICE).methods_by_name
    expected = messages.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    assert set(reflected) == set(expected), list(reflected)
    for name, method in expected.items():
        for end in "input_type", "output_type":
            ours, theirs = fields(getattr(method, end)), fields(getattr(reflected[name], end))
            assert ours == theirs, (name, ours, theirs)


def main(_http: str, address: str, model: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        messages, stubs = make_stubs(folder)
    with grpc.insecure_channel(address) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        version = check_server(stub, messages, model)
        check_infer(stub, messages, model, version)
        check_errors(stub, messages, model)
        check_health(channel)
        check_reflection(channel, messages)
    done("grpcio", "grpcio")


if __name__ == "__main__":
    main(*sys.argv[1:])
