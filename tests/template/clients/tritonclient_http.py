"""Check tritonclient.http and its asyncio client: JSON, binary tensors, compression, requested outputs, errors."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import echo
import numpy as np
from common import Blocking, raises
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.http.aio import InferenceServerClient as AioClient
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

FORMS = list(itertools.product([False, True], repeat=2))  # binary input, binary output
CODINGS = [None, "gzip", "deflate"]

Client = InferenceServerClient | Blocking


def tensor(name: str, datatype: str, array: np.ndarray, binary: bool) -> InferInput:
    infer_input = InferInput(name, list(array.shape), datatype)
    infer_input.set_data_from_numpy(array, binary_data=binary)
    return infer_input


def requested(**binary: bool) -> list[InferRequestedOutput]:
    """Return the requested outputs in this order, each with its binary flag."""
    return [
        InferRequestedOutput(name, binary_data=binary_data) for name, binary_data in binary.items()
    ]


def is_binary(result: Any, name: str) -> bool:
    return "binary_data_size" in result.get_output(name).get("parameters", {})


def infer_concurrently(client: Client, calls: list[dict[str, Any]]) -> list[Any]:
    """Run several infer(**call) concurrently and return their results."""
    if isinstance(client, Blocking):

        async def gather() -> list[Any]:
            return await asyncio.gather(*[client.client.infer(**call) for call in calls])

        return client.run(gather())
    waiting = [client.async_infer(**call) for call in calls]
    return [request.get_result() for request in waiting]


@contextmanager
def record_codings(client: Client) -> Iterator[list[str | None]]:
    """Record the Content-Encoding of each response to a POST while the block runs."""
    codings: list[str | None] = []
    inner = client.client if isinstance(client, Blocking) else client
    post = inner._post

    def sync_post(*args: Any, **kwargs: Any) -> Any:
        response = post(*args, **kwargs)
        codings.append(response.get("Content-Encoding"))
        return response

    async def aio_post(*args: Any, **kwargs: Any) -> Any:
        response = await post(*args, **kwargs)
        codings.append(response.headers.get("Content-Encoding"))
        return response

    inner._post = aio_post if isinstance(client, Blocking) else sync_post
    yield codings
    inner._post = post


def check_coding(client: Client, accepted: str | None, binary: bool, received: str | None) -> None:
    """Check that a long JSON response has the requested coding. aiohttp requests a coding by itself."""
    expected = [accepted] if accepted or not isinstance(client, Blocking) else CODINGS[1:]
    if binary:  # the service may leave a binary response uncompressed
        expected.append(None)
    assert received in expected, (accepted, binary, received)


def check_error(status: str, names: str, call: Any, *args: Any, **kwargs: Any) -> None:
    """Check that call(...) raises this status with a message that contains `names`."""
    with raises(InferenceServerException) as caught:
        call(*args, **kwargs)
    assert caught[0].status() == status, str(caught[0])
    assert names in caught[0].message(), str(caught[0])


def check_server(client: Client, model: str) -> str:
    """Check health, metadata, configuration, index and statistics, and return the version of the served model."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(model)
    assert not client.is_model_ready("no-such-model")
    server = client.get_server_metadata()
    assert {"binary_tensor_data", "model_configuration", "statistics"} <= set(
        server["extensions"]
    ), server
    metadata = client.get_model_metadata(model)
    assert metadata["name"] == model, metadata
    version = metadata["versions"][0]
    assert client.is_model_ready(model, version)
    assert client.get_model_metadata(model, version) == metadata
    config = client.get_model_config(model)
    assert (config["name"], config["max_batch_size"]) == (model, 0), config
    assert client.get_model_config(model, version) == config
    for declared, tensors in (
        (config["input"], metadata["inputs"]),
        (config["output"], metadata["outputs"]),
    ):
        assert [(declaration["name"], declaration["dims"]) for declaration in declared] == [
            (tensor_metadata["name"], tensor_metadata["shape"]) for tensor_metadata in tensors
        ]
    (indexed,) = client.get_model_repository_index()
    assert (indexed["name"], indexed["version"], indexed["state"]) == (model, version, "READY"), (
        indexed
    )
    for arguments in (), (model,), (model, version):
        (stats,) = client.get_inference_statistics(*arguments)["model_stats"]
        assert (stats["name"], stats["version"], stats["memory_usage"]) == (model, version, []), (
            stats
        )
    return version


def check_absent(client: Client, model: str) -> None:
    """Check that Triton calls outside the protocol return ordinary errors."""
    check_error("404", "path not found", client.load_model, model)
    check_error("404", "path not found", client.get_log_settings)
    check_error("404", "path not found", client.get_system_shared_memory_status)
    shared = InferInput("fp32_in", [3], "FP32")
    shared.set_shared_memory("region", 12)
    check_error("400", "data", client.infer, model, [shared])


def echo_call(
    model: str, tensors: dict[str, np.ndarray], binary: bool, binary_out: bool
) -> dict[str, Any]:
    """Return the arguments of an infer() whose outputs equal its inputs."""
    inputs = [
        tensor(f"{name}_in", echo.DATATYPES[name], array, binary) for name, array in tensors.items()
    ]
    outputs = requested(**{f"{name}_out": binary_out for name in tensors})
    return {"model_name": model, "inputs": inputs, "outputs": outputs}


def check_echoed(result: Any, tensors: dict[str, np.ndarray], binary: bool = True) -> None:
    for name, array in tensors.items():
        assert is_binary(result, f"{name}_out") is binary, name
        echo.check(result.as_numpy(f"{name}_out"), array)


def check_tensors(client: Client, model: str) -> None:
    """Check every datatype, rank and empty tensor, separately and in one request."""
    for tensors in echo.TENSORS, echo.EMPTY:
        groups = [{name: array} for name, array in tensors.items()] + [tensors]
        for group, (binary, binary_out) in itertools.product(groups, FORMS):
            check_echoed(
                client.infer(**echo_call(model, group, binary, binary_out)), group, binary_out
            )
    result = client.infer(model, [tensor("int8_in", "INT8", echo.TENSORS["int8"], binary=True)])
    check_echoed(
        result, {name: array[:0] for name, array in echo.TENSORS.items() if name == "fp16"}
    )


def check_bf16(client: Client, model: str) -> None:
    """Check BF16, which the client sends only as bytes, and reads in both forms."""
    sent = echo.BF16.astype(
        triton_to_np_dtype("BF16")
    )  # ml_dtypes.bfloat16, or float32 in older versions
    for array, binary_out in itertools.product([sent, sent[:0]], [False, True]):
        check_echoed(
            client.infer(**echo_call(model, {"bf16": array}, True, binary_out)),
            {"bf16": array},
            binary_out,
        )


def check_choices(client: Client, model: str, version: str) -> None:
    """Check the order of requested outputs, request ids, versions and unknown parameters."""
    sent = {name: echo.TENSORS[name] for name in ("fp32", "bytes")}
    for binary in False, True:
        call = echo_call(model, sent, binary, binary) | {
            "outputs": requested(bytes_out=binary, fp32_out=binary)
        }
        response = client.infer(
            **call,
            model_version=version,
            request_id="flower-7",
            sequence_id="a-sequence",
            sequence_start=True,
            priority=1,
            timeout=10_000_000,
            parameters={"colour": "blue", "petals": 5, "height": 0.5, "wild": True},
        ).get_response()
        assert [output["name"] for output in response["outputs"]] == ["bytes_out", "fp32_out"]
        assert (response["model_name"], response["model_version"], response["id"]) == (
            model,
            version,
            "flower-7",
        )
        assert "id" not in client.infer(**call).get_response()


def check_errors(client: Client, model: str) -> None:
    """Check that each error names the problem, and that the connection can be used again."""
    good = [tensor("pairs_in", "FP32", echo.TENSORS["pairs"], binary=True)]
    for binary in False, True:
        wrong = [tensor("pairs_in", "FP32", echo.WRONG_PAIRS, binary)]
        check_error("400", "pairs_in", client.infer, model, wrong)
    check_error("400", "petals", client.infer, model, good, outputs=requested(petals=True))
    check_error("404", "no-such-model", client.infer, "no-such-model", good)
    check_error("404", "no-such-version", client.infer, model, good, "no-such-version")
    check_error("404", "no-such-model", client.get_model_metadata, "no-such-model")
    check_error("404", "no-such-model", client.get_model_config, "no-such-model")
    check_echoed(client.infer(model, good), {"pairs": echo.TENSORS["pairs"]})


def check_mixed(client: Client, model: str) -> None:
    """Check binary and JSON tensors in the same request and response, in each order."""
    for first in False, True:
        binary = dict(zip(echo.TENSORS, itertools.cycle([first, not first]), strict=False))
        inputs = [
            tensor(f"{name}_in", echo.DATATYPES[name], echo.TENSORS[name], binary[name])
            for name in binary
        ]
        outputs = requested(**{f"{name}_out": not binary[name] for name in reversed(binary)})
        result = client.infer(model, inputs, outputs=outputs)
        for name in binary:
            check_echoed(result, {name: echo.TENSORS[name]}, not binary[name])


def check_special(client: Client, model: str) -> None:
    """Check that NaN can be sent as JSON, and that infinities and non-text bytes require the binary form."""
    check_echoed(client.infer(**echo_call(model, echo.NAN, True, False)), echo.NAN, binary=False)
    check_echoed(
        client.infer(**echo_call(model, echo.NAN | echo.BINARY, True, True)), echo.NAN | echo.BINARY
    )
    for name, array in echo.BINARY.items():
        check_error("400", "binary", client.infer, **echo_call(model, {name: array}, True, False))


def check_compression(client: Client, model: str) -> None:
    """Check every combination of request coding, response coding and form."""
    for sent, accepted, (binary, binary_out) in itertools.product(CODINGS, CODINGS, FORMS):
        with record_codings(client) as codings:
            result = client.infer(
                **echo_call(model, echo.MANY, binary, binary_out),
                request_compression_algorithm=sent,
                response_compression_algorithm=accepted,
            )
        check_echoed(result, echo.MANY, binary_out)
        check_coding(client, accepted, binary_out, codings[0])


def check_concurrent_requests(client: Client, model: str) -> None:
    """Check that each of several concurrent calls receives its own response."""
    sent = [{"int64": np.arange(i, i + 3), "bytes": np.array([str(i)], object)} for i in range(12)]
    calls = [
        echo_call(model, tensors, binary=i % 2 == 0, binary_out=i % 3 == 0)
        for i, tensors in enumerate(sent)
    ]
    for i, (result, tensors) in enumerate(
        zip(infer_concurrently(client, calls), sent, strict=True)
    ):
        check_echoed(result, tensors, binary=i % 3 == 0)


def check_failures(client: Client, model: str) -> None:
    """Check that the client receives the model's error message, regardless of its length and the requested coding."""
    for (text, expected), coding in itertools.product(echo.FAILURES, CODINGS):
        fail = tensor("fail_in", "BYTES", np.array([text], object), binary=True)
        check_error(
            "500", expected, client.infer, model, [fail], response_compression_algorithm=coding
        )
    mistaken = tensor("fp64_in", "FP32", echo.TENSORS["fp32"], binary=True)
    check_error("400", "fp64_in", client.infer, model, [mistaken])


def check_echo(client: Client, model: str) -> None:
    version = check_server(client, model)
    check_absent(client, model)
    check_choices(client, model, version)
    check_errors(client, model)
    check_tensors(client, model)
    check_bf16(client, model)
    check_mixed(client, model)
    check_special(client, model)
    check_compression(client, model)
    check_concurrent_requests(client, model)
    check_failures(client, model)


def main(address: str, _grpc: str, model: str) -> None:
    for make in partial(InferenceServerClient, concurrency=4), partial(Blocking, AioClient):
        with make(address) as client:
            check_echo(client, model)
