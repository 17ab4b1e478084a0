"""Check KServe's InferenceRESTClient with protocol v2: JSON and binary tensors, requested outputs and errors."""

import asyncio
import itertools

import echo
import httpx
import iris
import numpy as np
from common import raises
from kserve import InferenceRESTClient, InferInput, InferRequest, InferResponse, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

FORMS = list(itertools.product([False, True], repeat=2))  # binary input, binary output


def tensor(name: str, datatype: str, array: np.ndarray, binary: bool) -> InferInput:
    made = InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def features(rows: np.ndarray, binary: bool) -> list[InferInput]:
    return [tensor("features", "FP32", rows, binary)]


def array(response: InferResponse, name: str) -> np.ndarray:
    return response.get_output_by_name(name).as_numpy()


async def check_server(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check liveness and readiness, and that an unknown model is not ready."""
    assert await client.is_server_live(url) is True
    assert await client.is_server_ready(url) is True
    assert await client.is_model_ready(url, model) is True
    assert await client.is_model_ready(url, "no-such-model") is False


async def check_forms(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check JSON and binary inputs and outputs. httpx accepts compression, which applies to the JSON of many rows."""
    for binary, binary_output in FORMS:
        for rows, times in (iris.FLOWERS, 1), (iris.MANY, 50):
            request = InferRequest(
                model,
                features(rows, binary),
                "flower-7",
                parameters={"binary_data_output": binary_output},
            )
            headers: dict[str, str] = {}
            response = await client.infer(url, request, model_name=model, response_headers=headers)
            iris.check(array(response, "label"), array(response, "probabilities"), times)
            assert (response.id, response.model_name) == ("flower-7", model), response
            assert ("inference-header-content-length" in headers) is binary_output, headers
            if times > 1 and not binary_output:
                assert headers.get("content-encoding") in ("gzip", "deflate"), headers
    nested = InferInput("features", list(iris.FLOWERS.shape), "FP32", data=iris.FLOWERS.tolist())
    response = await client.infer(url, InferRequest(model, [nested]), model_name=model)
    iris.check(array(response, "label"), array(response, "probabilities"))


async def check_choices(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check requested outputs, each in its requested form, and a request that is a plain dict."""
    outputs = [RequestedOutput("probabilities", {"binary_data": True}), RequestedOutput("label")]
    request = InferRequest(model, features(iris.FLOWERS, binary=True), request_outputs=outputs)
    response = await client.infer(url, request, model_name=model)
    assert [each.name for each in response.outputs] == ["probabilities", "label"], response
    iris.check(array(response, "label"), array(response, "probabilities"))
    tensor = {
        "name": "features",
        "datatype": "FP32",
        "shape": [2, 4],
        "data": iris.FLOWERS.tolist(),
    }
    response = await client.infer(
        url, {"inputs": [tensor], "outputs": [{"name": "label"}]}, model_name=model
    )
    assert [each.name for each in response.outputs] == ["label"], response
    iris.check_labels(array(response, "label"))


async def check_error(status: int, names: str, calling) -> None:
    """Check that the call raises this status with a message that contains `names`."""
    with raises(httpx.HTTPStatusError) as caught:
        await calling
    assert caught[0].response.status_code == status, caught
    assert names in str(caught[0]).partition(f", '{status} ")[0], caught


async def check_errors(client: InferenceRESTClient, url: str, model: str) -> None:
    """Check that the client receives each error message, and that the connection can be used again."""
    for binary in False, True:
        request = InferRequest(model, features(iris.WRONG, binary))
        await check_error(400, "features", client.infer(url, request, model_name=model))
    good = InferRequest(model, features(iris.FLOWERS, binary=True))
    await check_error(404, "no-such-model", client.infer(url, good, model_name="no-such-model"))
    response = await client.infer(url, good, model_name=model)
    iris.check(array(response, "label"), array(response, "probabilities"))


async def check_iris(client: InferenceRESTClient, url: str, model: str) -> None:
    await check_server(client, url, model)
    await check_forms(client, url, model)
    await check_choices(client, url, model)
    await check_errors(client, url, model)


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
    for text, shown in echo.FAILURES:
        fail = tensor("fail_in", "BYTES", np.array([text], object), binary=True)
        await check_error(
            500, shown, client.infer(url, InferRequest(model, [fail]), model_name=model)
        )


async def check_echo(client: InferenceRESTClient, url: str, model: str) -> None:
    await check_server(client, url, model)
    await check_tensors(client, url, model)
    await check_special(client, url, model)
    await check_failures(client, url, model)


async def check_all(url: str, model: str) -> None:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        await {"iris": check_iris, "conformance": check_echo}[model](client, url, model)


def main(http: str, _grpc: str, model: str) -> None:
    asyncio.run(check_all(f"http://{http}", model))
