"""Check KServe's InferenceGRPCClient: typed and raw tensors, requested outputs, versions and errors."""

import asyncio

import echo
import grpc
import numpy as np
from common import SECONDS, raises
from kserve import InferenceGRPCClient, InferInput, InferRequest, InferResponse
from kserve.protocol.grpc.grpc_predict_v2_pb2 import ModelMetadataRequest
from kserve.protocol.grpc.grpc_predict_v2_pb2_grpc import GRPCInferenceServiceStub
from kserve.protocol.infer_type import RequestedOutput


def tensor(name: str, datatype: str, array: np.ndarray, raw: bool) -> InferInput:
    """Return an input with typed contents, or with raw bytes, for which KServe sets binary_data_size."""
    infer_input = InferInput(
        name, list(array.shape), datatype, data=None if raw else array.ravel().tolist()
    )
    if raw:
        infer_input.set_data_from_numpy(array)
    return infer_input


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


async def check_metadata(address: str, model: str) -> None:
    """Check that KServe's stubs, whose proto lacks some fields of the metadata, read the other fields."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = GRPCInferenceServiceStub(channel)
        metadata = await stub.ModelMetadata(ModelMetadataRequest(name=model), timeout=SECONDS)
    assert (metadata.name, list(metadata.versions)) == (model, ["1"]), metadata
    assert {tensor_metadata.name for tensor_metadata in metadata.inputs} >= {
        f"{name}_in" for name in echo.TENSORS
    }


async def check_choices(client: InferenceGRPCClient, model: str) -> None:
    """Check requested outputs, an id and a version, typed and raw."""
    outputs = [RequestedOutput("pairs_out"), RequestedOutput("bytes_out", {"binary_data": True})]
    for raw in False, True:
        inputs = [
            tensor("bytes_in", "BYTES", echo.TENSORS["bytes"], raw),
            tensor("pairs_in", "FP32", echo.TENSORS["pairs"], raw),
        ]
        request = InferRequest(
            model, inputs, "flower-7", request_outputs=outputs, model_version="1"
        )
        response = await client.infer(request)
        assert [output.name for output in response.outputs] == ["pairs_out", "bytes_out"], response
        assert (response.id, response.model_name, response.model_version) == (
            "flower-7",
            model,
            "1",
        ), response
        typed = [bool(output.data) for output in response.outputs]
        assert typed == [not raw, not raw], "raw in gives raw out, typed in gives typed out"


async def check_error(code: grpc.StatusCode, names: str, calling) -> None:
    """Check that the call raises this status code with a message that contains `names`."""
    with raises(grpc.RpcError) as caught:
        await calling
    assert caught[0].code() is code, caught
    assert names in caught[0].details(), caught


async def check_errors(client: InferenceGRPCClient, model: str) -> None:
    """Check that each error names the problem, and that the channel can be used again."""
    for raw in False, True:
        inputs = [tensor("pairs_in", "FP32", echo.WRONG_PAIRS, raw)]
        for name, code, word in (
            (model, grpc.StatusCode.INVALID_ARGUMENT, "pairs_in"),
            ("no-such-model", grpc.StatusCode.NOT_FOUND, "no-such-model"),
        ):
            await check_error(code, word, client.infer(InferRequest(name, inputs)))
    await check_echoed(client, model, {"pairs": echo.TENSORS["pairs"]}, raw=True)


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
    for text, expected in echo.FAILURES:
        fail = tensor("fail_in", "BYTES", np.array([text], object), raw=True)
        await check_error(
            grpc.StatusCode.INTERNAL, expected, client.infer(InferRequest(model, [fail]))
        )


async def check_echo(client: InferenceGRPCClient, model: str) -> None:
    await check_server(client, model)
    await check_choices(client, model)
    await check_errors(client, model)
    await check_tensors(client, model)
    await check_failures(client, model)


async def check_all(address: str, model: str) -> None:
    await check_metadata(address, model)
    async with InferenceGRPCClient(address, timeout=SECONDS) as client:
        await check_echo(client, model)


def main(_http: str, address: str, model: str) -> None:
    asyncio.run(check_all(address, model))
