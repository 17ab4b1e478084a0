"""KServe's InferenceRESTClient with protocol v2: JSON and binary tensors both ways, chosen outputs and errors."""

import asyncio
import itertools
import sys

import httpx
import iris
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, InferResponse, RESTConfig
from kserve.protocol.infer_type import RequestedOutput


def features(rows: np.ndarray, binary: bool) -> list[InferInput]:
    tensor = InferInput("features", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    return [tensor]


def array(response: InferResponse, name: str) -> np.ndarray:
    return response.get_output_by_name(name).as_numpy()


async def check_server(client: InferenceRESTClient, url: str, model: str) -> None:
    """Liveness and readiness, and that an unknown model is not ready."""
    assert await client.is_server_live(url) is True
    assert await client.is_server_ready(url) is True
    assert await client.is_model_ready(url, model) is True
    assert await client.is_model_ready(url, "no-such-model") is False


async def check_forms(client: InferenceRESTClient, url: str, model: str) -> None:
    """JSON and binary, in and out; httpx asks for compression, and the many rows' JSON is long enough for it."""
    for binary, binary_output in itertools.product([False, True], repeat=2):
        for rows, times in (iris.FLOWERS, 1), (iris.MANY, 50):
            request = InferRequest(
                model, features(rows, binary), "flower-7", parameters={"binary_data_output": binary_output}
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
    """Chosen outputs, each in the form asked for it, and a plain dict for a request."""
    outputs = [RequestedOutput("probabilities", {"binary_data": True}), RequestedOutput("label")]
    request = InferRequest(model, features(iris.FLOWERS, binary=True), request_outputs=outputs)
    response = await client.infer(url, request, model_name=model)
    assert [each.name for each in response.outputs] == ["probabilities", "label"], response
    iris.check(array(response, "label"), array(response, "probabilities"))
    tensor = {"name": "features", "datatype": "FP32", "shape": [2, 4], "data": iris.FLOWERS.tolist()}
    response = await client.infer(url, {"inputs": [tensor], "outputs": [{"name": "label"}]}, model_name=model)
    assert [each.name for each in response.outputs] == ["label"], response
    iris.check_labels(array(response, "label"))


async def check_error(status: int, names: str, calling) -> None:
    """The call raises with this status and a text that has `names` in it."""
    with iris.raises(httpx.HTTPStatusError) as caught:
        await calling
    assert caught[0].response.status_code == status, caught
    assert names in str(caught[0]).partition(f", '{status} ")[0], caught


async def check_errors(client: InferenceRESTClient, url: str, model: str) -> None:
    """Each error's text reaches the caller, and the connection is good for another call."""
    for binary in False, True:
        request = InferRequest(model, features(iris.WRONG, binary))
        await check_error(400, "features", client.infer(url, request, model_name=model))
    good = InferRequest(model, features(iris.FLOWERS, binary=True))
    await check_error(404, "no-such-model", client.infer(url, good, model_name="no-such-model"))
    response = await client.infer(url, good, model_name=model)
    iris.check(array(response, "label"), array(response, "probabilities"))


async def check_all(url: str, model: str) -> None:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        await check_server(client, url, model)
        await check_forms(client, url, model)
        await check_choices(client, url, model)
        await check_errors(client, url, model)


def main(http: str, _grpc: str, model: str) -> None:
    asyncio.run(check_all(f"http://{http}", model))
    iris.done("kserve InferenceRESTClient", "kserve")


if __name__ == "__main__":
    main(*sys.argv[1:])
