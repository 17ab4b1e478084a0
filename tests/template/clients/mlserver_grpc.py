"""Check MLServer's gRPC stubs: health, metadata with content types and properties, and typed requests.

Field 6 of ModelMetadataResponse is `parameters` in MLServer's proto, and `properties` in the protocol. MLServer's stubs
can therefore not read the metadata of a model that declares properties, such as `conformance`.
"""

import grpc
import iris
from common import SECONDS, raises
from mlserver.grpc import dataplane_pb2 as messages
from mlserver.grpc.dataplane_pb2_grpc import GRPCInferenceServiceStub

Stub = GRPCInferenceServiceStub


def check_server(stub: Stub, model: str) -> None:
    """Check health and the metadata of the server."""
    assert stub.ServerLive(messages.ServerLiveRequest(), timeout=SECONDS).live
    assert stub.ServerReady(messages.ServerReadyRequest(), timeout=SECONDS).ready
    assert stub.ModelReady(messages.ModelReadyRequest(name=model), timeout=SECONDS).ready
    assert (
        "binary_tensor_data"
        in stub.ServerMetadata(messages.ServerMetadataRequest(), timeout=SECONDS).extensions
    )


def check_iris(stub: Stub, model: str) -> None:
    """Check the metadata, its content types, and a request with few and many rows."""
    metadata = stub.ModelMetadata(messages.ModelMetadataRequest(name=model), timeout=SECONDS)
    tensors = [*metadata.inputs, *metadata.outputs]
    assert [
        (declaration.name, declaration.datatype, list(declaration.shape)) for declaration in tensors
    ] == [
        iris.INPUT,
        *iris.OUTPUTS,
    ], metadata
    content_types = {
        declaration.name: declaration.parameters["content_type"].string_param
        for declaration in tensors
        if declaration.parameters
    }
    assert content_types == {"label": "str"}, metadata
    for rows, times in (iris.FLOWERS, 1), (iris.MANY, 50):
        request = messages.ModelInferRequest(model_name=model)
        tensor = request.inputs.add(name="features", datatype="FP32", shape=rows.shape)
        tensor.contents.fp32_contents.extend(rows.ravel().tolist())
        label, probabilities = stub.ModelInfer(request, timeout=SECONDS).outputs
        assert label.parameters["content_type"].string_param == "str", label
        iris.check_labels(label.contents.bytes_contents, times)
        assert len(probabilities.contents.fp32_contents) == 6 * times


def check_properties(stub: Stub, model: str) -> None:
    with raises(grpc.RpcError) as caught:
        stub.ModelMetadata(messages.ModelMetadataRequest(name=model), timeout=SECONDS)
    assert "deserializing" in caught[0].details(), caught


def main(_http: str, address: str, model: str) -> None:
    with grpc.insecure_channel(address) as channel:
        stub = Stub(channel)
        check_server(stub, model)
        {"iris": check_iris, "conformance": check_properties}[model](stub, model)
