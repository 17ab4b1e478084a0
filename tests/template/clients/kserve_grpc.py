"""KServe's InferenceGRPCClient: typed and raw tensors, chosen outputs, versions and errors."""

import asyncio
import sys

import grpc
import iris
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest, InferResponse
from kserve.protocol.infer_type import RequestedOutput


def features(rows: np.ndarray, raw: bool) -> list[InferInput]:
    """Typed contents of a flat list, or the bytes of an array, which KServe marks with binary_data_size here too."""
    tensor = InferInput("features", list(rows.shape), "FP32", data=None if raw else rows.ravel().tolist())
    if raw:
        tensor.set_data_from_numpy(rows)
    return [tensor]


def array(response: InferResponse, name: str) -> np.ndarray:
    return response.get_output_by_name(name).as_numpy()


async def check_server(client: InferenceGRPCClient, model: str) -> None:
    """Liveness and readiness, and that an unknown model is an error."""
    assert await client.is_server_live() is True
    assert await client.is_server_ready() is True
    assert await client.is_model_ready(model) is True
    await check_error(grpc.StatusCode.NOT_FOUND, "no-such-model", client.is_model_ready("no-such-model"))


async def check_infer(client: InferenceGRPCClient, model: str) -> None:
    """Typed and raw, few rows and many; then chosen outputs and a version."""
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
            request_outputs=[RequestedOutput("probabilities"), RequestedOutput("label", {"binary_data": True})],
            model_version=response.model_version,
        )
        chosen = await client.infer(request)
        assert [each.name for each in chosen.outputs] == ["probabilities", "label"], chosen
        assert chosen.model_version == response.model_version != "", chosen
        iris.check(array(chosen, "label"), array(chosen, "probabilities"))


async def check_error(code: grpc.StatusCode, names: str, calling) -> None:
    """The call raises with this status code and a text that has `names` in it."""
    with iris.raises(grpc.RpcError) as caught:
        await calling
    assert caught[0].code() is code, caught
    assert names in caught[0].details(), caught


async def check_errors(client: InferenceGRPCClient, model: str) -> None:
    """Each error says what is wrong, and the channel is good for another call."""
    for raw in False, True:
        request = InferRequest(model, features(iris.WRONG, raw))
        await check_error(grpc.StatusCode.INVALID_ARGUMENT, "features", client.infer(request))
    lost = InferRequest("no-such-model", features(iris.FLOWERS, raw=True))
    await check_error(grpc.StatusCode.NOT_FOUND, "no-such-model", client.infer(lost))
    response = await client.infer(InferRequest(model, features(iris.FLOWERS, raw=True)))
    iris.check(array(response, "label"), array(response, "probabilities"))


async def check_all(address: str, model: str) -> None:
    async with InferenceGRPCClient(address, timeout=30) as client:
        await check_server(client, model)
        await check_infer(client, model)
        await check_errors(client, model)


def main(_http: str, address: str, model: str) -> None:
    asyncio.run(check_all(address, model))
    iris.done("kserve InferenceGRPCClient", "kserve")


if __name__ == "__main__":
    main(*sys.argv[1:])
