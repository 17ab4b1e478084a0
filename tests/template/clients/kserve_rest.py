"""Check KServe's InferenceRESTClient with protocol v2: JSON and binary tensors, requested outputs and errors."""

import asyncio
import itertools

import echo
import httpx
import numpy as np
from common import raises
from kserve import InferenceRESTClient, InferInput, InferRequest, InferResponse, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

FORMS = list(itertools.product([False, True], repeat=2))  # binary input, binary output


def tensor(name: str, datatype: str, array: np.ndarray, binary: bool) -> InferInput:
    infer_input = InferInput(name, list(array.shape), datatype)
    infer_input.set_data_from_numpy(array, binary_data=binary)
    return infer_input


def array(response: InferResponse, name: str) -> np.ndarray:
    return response.get_output_by_name(name).as_numpy()


async def check_server(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check liveness and readiness, and that an unknown model is not ready."""
    assert await client.is_server_live(url) is True
    assert await client.is_server_ready(url) is True
    assert await client.is_model_ready(url, model) is True
    assert await client.is_model_ready(url, "no-such-model") is False


async def check_choices(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check requested outputs, in their forms, nested data, and a request that is a plain dict.

    httpx accepts compression, which applies to long JSON.
    """
    outputs = [RequestedOutput("pairs_out", {"binary_data": True}), RequestedOutput("bytes_out")]
    inputs = [
        tensor("bytes_in", "BYTES", echo.TENSORS["bytes"], binary=True),
        tensor("pairs_in", "FP32", echo.TENSORS["pairs"], binary=True),
    ]
    request = InferRequest(model, inputs, "flower-7", request_outputs=outputs)
    response = await client.infer(url, request, model_name=model)
    assert [output.name for output in response.outputs] == ["pairs_out", "bytes_out"], response
    assert (response.id, response.model_name) == ("flower-7", model), response
    for binary_output in False, True:
        fp32 = tensor("fp32_in", "FP32", echo.MANY["fp32"], binary=False)
        parameters = {"binary_data_output": binary_output}
        headers: dict[str, str] = {}
        response = await client.infer(
            url,
            InferRequest(
                model, [fp32], parameters=parameters, request_outputs=[RequestedOutput("fp32_out")]
            ),
            model_name=model,
            response_headers=headers,
        )
        echo.check(array(response, "fp32_out"), echo.MANY["fp32"])
        assert ("inference-header-content-length" in headers) is binary_output, headers
        if not binary_output:
            assert headers.get("content-encoding") in ("gzip", "deflate"), headers
    pairs = echo.TENSORS["pairs"]
    nested = InferInput("pairs_in", list(pairs.shape), "FP32", data=pairs.tolist())
    plain = {"name": "pairs_in", "datatype": "FP32", "shape": [2, 2], "data": pairs.tolist()}
    for request in (
        InferRequest(model, [nested], request_outputs=[RequestedOutput("pairs_out")]),
        {"inputs": [plain], "outputs": [{"name": "pairs_out"}]},
    ):
        response = await client.infer(url, request, model_name=model)
        assert [output.name for output in response.outputs] == ["pairs_out"], response
        echo.check(array(response, "pairs_out"), pairs)


async def check_error(status: int, names: str, calling) -> None:
    """Check that the call raises this status with a message that contains `names`."""
    with raises(httpx.HTTPStatusError) as caught:
        await calling
    assert caught[0].response.status_code == status, caught
    assert names in str(caught[0]).partition(f", '{status} ")[0], caught


async def check_errors(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check that the client receives each error message, and that the connection can be used again."""
    for binary in False, True:
        wrong = InferRequest(model, [tensor("pairs_in", "FP32", echo.WRONG_PAIRS, binary)])
        await check_error(400, "pairs_in", client.infer(url, wrong, model_name=model))
        await check_error(404, "no-such", client.infer(url, wrong, model_name="no-such"))
    pairs = {"pairs": echo.TENSORS["pairs"]}
    await check_echoed(client, url, model, pairs, binary=True, binary_out=True)


async def check_echoed(
    client: InferenceRESTClient,
    url: str,
    model: str,
    tensors: dict[str, np.ndarray],
    binary: bool,
    binary_out: bool,
) -> None:
    """Check that the tensors are returned unchanged."""
    inputs = [
        tensor(f"{name}_in", echo.DATATYPES[name], array, binary) for name, array in tensors.items()
    ]
    outputs = [RequestedOutput(f"{name}_out", {"binary_data": binary_out}) for name in tensors]
    headers: dict[str, str] = {}
    request = InferRequest(model, inputs, request_outputs=outputs)
    response = await client.infer(url, request, model_name=model, response_headers=headers)
    assert ("inference-header-content-length" in headers) is binary_out, headers
    for name, sent in tensors.items():
        echo.check(array(response, f"{name}_out"), sent)


async def check_tensors(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check every datatype, rank and empty tensor, separately and in one request."""
    for tensors in echo.TENSORS, echo.EMPTY:
        groups = [{name: array} for name, array in tensors.items()] + [tensors]
        for group, (binary, binary_out) in itertools.product(groups, FORMS):
            # KServe sends FP16 only as bytes.
            sent = (
                group
                if binary
                else {name: array for name, array in group.items() if name != "fp16"}
            )
            if sent:
                await check_echoed(client, url, model, sent, binary, binary_out)


async def check_special(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check NaN, which KServe sends as null in JSON, and infinities as bytes."""
    singles = {name: array for name, array in echo.NAN.items() if name != "fp16"}
    await check_echoed(client, url, model, singles, False, False)
    await check_echoed(client, url, model, echo.NAN, True, False)
    infinities = {name: array for name, array in echo.BINARY.items() if name != "bytes"}
    await check_echoed(client, url, model, infinities, True, True)


async def check_failures(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check that the client receives the model's error message, regardless of its length."""
    for text, expected in echo.FAILURES:
        fail = tensor("fail_in", "BYTES", np.array([text], object), binary=True)
        await check_error(
            500, expected, client.infer(url, InferRequest(model, [fail]), model_name=model)
        )


async def check_echo(client: InferenceRESTClient, url: str, model: str) -> None:
    await check_server(client, url, model)
    await check_choices(client, url, model)
    await check_errors(client, url, model)
    await check_tensors(client, url, model)
    await check_special(client, url, model)
    await check_failures(client, url, model)


async def check_all(url: str, model: str) -> None:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        await check_echo(client, url, model)


def main(http: str, _grpc: str, model: str) -> None:
    asyncio.run(check_all(f"http://{http}", model))
