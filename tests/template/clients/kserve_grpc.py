"""Check KServe's InferenceGRPCClient: typed and raw tensors, requested outputs, versions and errors."""

import asyncio

import echo
import grpc
import iris
import numpy as np
from common import SECONDS, raises
from kserve import InferenceGRPCClient, InferInput, InferRequest, InferResponse
from kserve.protocol.grpc.grpc_predict_v2_pb2 import ModelMetadataRequest
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub
from kserve.protocol.infer_type import RequestedOutput


def tensor(name: str, datatype: str, array: np.ndarray, raw: bool) -> InferInput:
    """Return an input with typed contents, or with raw bytes, for which KServe sets binary_data_size."""
    made = InferInput(
        name, list(array.shape), datatype, data=None if raw else array.ravel().tolist()
    )
    if raw:
        made.set_data_from_numpy(array)
    return made


def features(rows: np.ndarray, raw: bool) -> list[InferInput]:
    return [tensor("features", "FP32", rows, raw)]


def array(response: InferResponse, name: str) -> np.ndarray:
    return response.get_output_by_name(name).as_numpy()


async def check_server(client: InferenceGRPCClient, model: str) -> None:
    """Check liveness and readiness, and that an unknown model is an error."""
    assert await client.is_server_live() is True
    assert await client.is_server_ready() is True
    assert await client.is_model_ready(model) is True
    await check_error(
        grpc.StatusCode.NOT_FOUND, "no-such-model", client.is_model_ready("no-such-model")
    )


async def check_metadata(address: str, model: str, tensors: set[str]) -> None:
    """Check that KServe's stubs, whose proto lacks some fields of the metadata, read the other fields."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        metadata = await stub.ModelMetadata(ModelMetadataRequest(name=model), timeout=SECONDS)
    assert (metadata.name, list(metadata.versions)) == (model, ["1"]), metadata
    assert {each.name for each in (*metadata.inputs, *metadata.outputs)} >= tensors, metadata


async def check_infer(client: InferenceGRPCClient, model: str) -> None:
    """Check typed and raw requests with few and many rows, requested outputs and a version."""
    for raw in False, True:
        for rows, times in (iris.FLOWERS, 1), (iris.MANY, 50):
            response = await client.infer(InferRequest(model, features(rows, raw), "flower-7"))
            iris.check(array(response, "label"), array(response, "probabilities"), times)
            assert (response.id, response.model_name) == ("flower-7", model), response
            typed = [bool(output.data) for output in response.outputs]
            assert typed == [not raw, not raw], "raw in gives raw out, typed in gives typed out"
        request = InferRequest(
            model,
            features(iris.FLOWERS, raw),
            request_outputs=[
                RequestedOutput("probabilities"),
                RequestedOutput("label", {"binary_data": True}),
            ],
            model_version=response.model_version,
        )
        chosen = await client.infer(request)
        assert [each.name for each in chosen.outputs] == ["probabilities", "label"], chosen
        assert chosen.model_version == response.model_version != "", chosen
        iris.check(array(chosen, "label"), array(chosen, "probabilities"))


async def check_error(code: grpc.StatusCode, names: str, calling) -> None:
    """Check that the call raises this status code with a message that contains `names`."""
    with raises(grpc.RpcError) as caught:
        await calling
    assert caught[0].code() is code, caught
    assert names in caught[0].details(), caught


async def check_errors(client: InferenceGRPCClient, model: str) -> None:
    """Check that each error names the problem, and that the channel can be used again."""
    for raw in False, True:
        request = InferRequest(model, features(iris.WRONG, raw))
        await check_error(grpc.StatusCode.INVALID_ARGUMENT, "features", client.infer(request))
    lost = InferRequest("no-such-model", features(iris.FLOWERS, raw=True))
    await check_error(grpc.StatusCode.NOT_FOUND, "no-such-model", client.infer(lost))
    response = await client.infer(InferRequest(model, features(iris.FLOWERS, raw=True)))
    iris.check(array(response, "label"), array(response, "probabilities"))


async def check_iris(client: InferenceGRPCClient, model: str) -> None:
    await check_server(client, model)
    await check_infer(client, model)
    await check_errors(client, model)


async def check_echoed(
    client: InferenceGRPCClient, model: str, tensors: dict[str, np.ndarray], raw: bool
) -> None:
    """Check that the tensors are returned unchanged."""
    inputs = [
        tensor(f"{name}_in", echo.DATATYPES[name], array, raw) for name, array in tensors.items()
    ]
    outputs = [RequestedOutput(f"{name}_out") for name in tensors]
    response = await client.infer(InferRequest(model, inputs, request_outputs=outputs))
    for name, sent in tensors.items():
        echo.check(array(response, f"{name}_out"), sent)


async def check_tensors(client: InferenceGRPCClient, model: str) -> None:
    """Check each datatype, rank, empty tensor and value without a JSON form, separately and in one request."""
    for tensors in echo.TENSORS, echo.EMPTY, echo.NAN, echo.BINARY:
        for group in [{name: array} for name, array in tensors.items()] + [tensors]:
            await check_echoed(client, model, group, raw=True)
            # The protocol does not have typed contents for FP16.
            if typed := {name: array for name, array in group.items() if name != "fp16"}:
                await check_echoed(client, model, typed, raw=False)


async def check_failures(client: InferenceGRPCClient, model: str) -> None:
    """Check that the client receives the model's error message, regardless of its length."""
    for text, shown in echo.FAILURES:
        fail = tensor("fail_in", "BYTES", np.array([text], object), raw=True)
        await check_error(
            grpc.StatusCode.INTERNAL, shown, client.infer(InferRequest(model, [fail]))
        )


async def check_echo(client: InferenceGRPCClient, model: str) -> None:
    await check_server(client, model)
    await check_tensors(client, model)
    await check_failures(client, model)


async def check_all(address: str, model: str) -> None:
    tensors = {
        "iris": {"features", "label"},
        "conformance": {f"{name}_in" for name in echo.TENSORS},
    }
    await check_metadata(address, model, tensors[model])
    async with InferenceGRPCClient(address, timeout=SECONDS) as client:
        await {"iris": check_iris, "conformance": check_echo}[model](client, model)


def main(_http: str, address: str, model: str) -> None:
    asyncio.run(check_all(address, model))
