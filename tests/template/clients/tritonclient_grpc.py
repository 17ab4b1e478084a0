"""Check tritonclient.grpc and its asyncio client: raw tensors, compression, requested outputs, versions and errors."""

import asyncio
import queue
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import echo
import grpc
import numpy as np
from common import SECONDS, Blocking, raises
from tritonclient.grpc import (
    InferenceServerClient,
    InferInput,
    InferRequestedOutput,
    model_config_pb2,
)
from tritonclient.grpc.aio import InferenceServerClient as AioClient
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

CODINGS = [None, "gzip", "deflate"]

Client = InferenceServerClient | Blocking


def tensor(name: str, datatype: str, array: np.ndarray) -> InferInput:
    infer_input = InferInput(name, list(array.shape), datatype)
    infer_input.set_data_from_numpy(array)
    return infer_input


def requested(*names: str) -> list[InferRequestedOutput]:
    return [InferRequestedOutput(name) for name in names]


def infer_concurrently(client: Client, calls: list[dict[str, Any]]) -> list[Any]:
    """Run several infer(**call) concurrently and return their results."""
    if isinstance(client, Blocking):

        async def gather() -> list[Any]:
            return await asyncio.gather(*[client.client.infer(**call) for call in calls])

        return client.run(gather())
    responses: queue.Queue = queue.Queue()
    for i, call in enumerate(calls):
        client.async_infer(
            callback=lambda i=i, **response: responses.put(
                (i, response["result"], response["error"])
            ),
            **call,
        )
    results = dict.fromkeys(range(len(calls)))
    for _ in calls:
        i, results[i], error = responses.get(timeout=SECONDS)
        assert error is None, error
    return list(results.values())


def stream(client: Client) -> str:
    """Return the status that the client reports for an inference stream before it sends a request."""
    if isinstance(client, Blocking):
        with raises(grpc.RpcError) as caught:
            client.run(aio_stream(client.client))
        return str(caught[0].code())
    responses: queue.Queue = queue.Queue()
    client.start_stream(lambda **response: responses.put(response))
    error = responses.get(timeout=SECONDS)["error"]
    client.stop_stream()
    return error.status()


async def aio_stream(client: AioClient) -> None:
    rejected = asyncio.Event()

    async def requests() -> AsyncIterator[dict[str, Any]]:
        await (
            rejected.wait()
        )  # if the rejection arrives during a request, grpcio may report INTERNAL
        return
        yield

    try:
        await anext(client.stream_infer(requests(), stream_timeout=SECONDS))
    finally:
        rejected.set()


def check_error(code: str, names: str, call: Any, *args: Any, **kwargs: Any) -> None:
    """Check that call(...) raises this status code with a message that contains `names`."""
    with raises(InferenceServerException) as caught:
        call(*args, **kwargs, client_timeout=SECONDS)
    assert caught[0].status() == f"StatusCode.{code}", str(caught[0])
    assert names in caught[0].message(), str(caught[0])


def check_server(client: Client, model: str) -> str:
    """Check health, metadata, configuration, index and statistics, and return the version of the served model."""
    assert client.is_server_live(client_timeout=SECONDS)
    assert client.is_server_ready(client_timeout=SECONDS)
    assert client.is_model_ready(model, client_timeout=SECONDS)
    server = client.get_server_metadata(client_timeout=SECONDS)
    assert {"model_configuration", "statistics"} <= set(server.extensions), server
    metadata = client.get_model_metadata(model, client_timeout=SECONDS)
    assert metadata.name == model, metadata
    version = metadata.versions[0]
    assert client.is_model_ready(model, version, client_timeout=SECONDS)
    assert client.get_model_metadata(model, version, client_timeout=SECONDS) == metadata
    config = client.get_model_config(model, client_timeout=SECONDS).config
    assert (config.name, config.max_batch_size) == (model, 0), config
    assert client.get_model_config(model, version, client_timeout=SECONDS).config == config
    for declared, tensors in (config.input, metadata.inputs), (config.output, metadata.outputs):
        assert [describe_config(declaration) for declaration in declared] == [
            describe(tensor_metadata) for tensor_metadata in tensors
        ], config
    (indexed,) = client.get_model_repository_index(client_timeout=SECONDS).models
    assert (indexed.name, indexed.version, indexed.state) == (model, version, "READY"), indexed
    for arguments in (), (model,), (model, version):
        (stats,) = client.get_inference_statistics(*arguments, client_timeout=SECONDS).model_stats
        assert (stats.name, stats.version, list(stats.memory_usage)) == (model, version, []), stats
    return version


def describe(tensor: Any) -> tuple[str, str, list[int]]:
    """Return the name, datatype and shape of a tensor in the metadata."""
    return tensor.name, tensor.datatype, list(tensor.shape)


def describe_config(tensor: Any) -> tuple[str, str, list[int]]:
    """Return the name, datatype and shape of a tensor in the configuration, decoded by tritonclient's proto."""
    datatype = model_config_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    return tensor.name, {"STRING": "BYTES"}.get(datatype, datatype), list(tensor.dims)


def check_absent(client: Client, model: str) -> None:
    """Check that Triton methods outside the protocol return UNIMPLEMENTED."""
    assert stream(client) == "StatusCode.UNIMPLEMENTED"
    check_error("UNIMPLEMENTED", "", client.load_model, model)
    for call in client.get_log_settings, client.get_system_shared_memory_status:
        check_error("UNIMPLEMENTED", "", call)
    shared = InferInput("fp32_in", [3], "FP32")
    shared.set_shared_memory("region", 12)
    check_error("INVALID_ARGUMENT", "fp32_in", client.infer, model, [shared])


def echo_call(model: str, tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the arguments of an infer() whose outputs equal its inputs."""
    inputs = [tensor(f"{name}_in", echo.DATATYPES[name], array) for name, array in tensors.items()]
    outputs = requested(*[f"{name}_out" for name in tensors])
    return {"model_name": model, "inputs": inputs, "outputs": outputs, "client_timeout": SECONDS}


def check_echoed(result: Any, tensors: dict[str, np.ndarray]) -> None:
    for name, array in tensors.items():
        echo.check(result.as_numpy(f"{name}_out"), array)


def check_choices(client: Client, model: str, version: str) -> None:
    """Check the order of requested outputs, request ids, versions and unknown parameters."""
    call = echo_call(model, {name: echo.TENSORS[name] for name in ("fp32", "bytes")})
    response = client.infer(
        **call | {"outputs": requested("bytes_out", "fp32_out")},
        model_version=version,
        request_id="flower-7",
        sequence_id="a-sequence",
        sequence_start=True,
        priority=1,
        timeout=10_000_000,
        parameters={"colour": "blue", "petals": 5, "height": 0.5, "wild": True},
        headers={"colour": "blue"},
    ).get_response()
    assert [output.name for output in response.outputs] == ["bytes_out", "fp32_out"]
    assert len(response.raw_output_contents) == 2
    assert (response.model_name, response.model_version, response.id) == (
        model,
        version,
        "flower-7",
    ), response


def check_errors(client: Client, model: str) -> None:
    """Check that each error names the problem, and that the channel can be used again."""
    good = [tensor("pairs_in", "FP32", echo.TENSORS["pairs"])]
    wrong = [tensor("pairs_in", "FP32", echo.WRONG_PAIRS)]
    check_error("INVALID_ARGUMENT", "pairs_in", client.infer, model, wrong)
    check_error(
        "INVALID_ARGUMENT", "petals", client.infer, model, good, outputs=requested("petals")
    )
    check_error("NOT_FOUND", "no-such-model", client.infer, "no-such-model", good)
    check_error("NOT_FOUND", "no-such-version", client.infer, model, good, "no-such-version")
    for call in client.get_model_metadata, client.get_model_config, client.is_model_ready:
        check_error("NOT_FOUND", "no-such-model", call, "no-such-model")
    result = client.infer(model, good, client_timeout=SECONDS)
    check_echoed(result, {"pairs": echo.TENSORS["pairs"]})


def check_tensors(client: Client, model: str) -> None:
    """Check each datatype, rank, empty tensor and value without a JSON form, separately and in one request."""
    for tensors in echo.TENSORS, echo.EMPTY, echo.NAN, echo.BINARY:
        for group in [{name: array} for name, array in tensors.items()] + [tensors]:
            check_echoed(client.infer(**echo_call(model, group)), group)
    result = client.infer(
        model, [tensor("int8_in", "INT8", echo.TENSORS["int8"])], client_timeout=SECONDS
    )
    check_echoed(
        result,
        {"int8": echo.TENSORS["int8"], "fp16": echo.EMPTY["fp16"], "bytes": echo.EMPTY["bytes"]},
    )


def check_bf16(client: Client, model: str) -> None:
    """Check BF16, also together with a tensor of another datatype."""
    sent = echo.BF16.astype(
        triton_to_np_dtype("BF16")
    )  # ml_dtypes.bfloat16, or float32 in older versions
    for tensors in {"bf16": sent}, {"bf16": sent[:0]}, {"bf16": sent, "fp32": echo.TENSORS["fp32"]}:
        check_echoed(client.infer(**echo_call(model, tensors)), tensors)


def check_compression(client: Client, model: str) -> None:
    """Check every compression algorithm of the client."""
    for algorithm in CODINGS:
        check_echoed(
            client.infer(**echo_call(model, echo.MANY), compression_algorithm=algorithm), echo.MANY
        )


def check_concurrent_requests(client: Client, model: str) -> None:
    """Check that each of several concurrent calls receives its own response."""
    sent = [{"int64": np.arange(i, i + 3), "bytes": np.array([str(i)], object)} for i in range(12)]
    for result, tensors in zip(
        infer_concurrently(client, [echo_call(model, tensors) for tensors in sent]),
        sent,
        strict=True,
    ):
        check_echoed(result, tensors)


def check_failures(client: Client, model: str) -> None:
    """Check that the client receives the model's error message, regardless of its length."""
    for text, expected in echo.FAILURES:
        fail = tensor("fail_in", "BYTES", np.array([text], object))
        check_error("INTERNAL", expected, client.infer, model, [fail])
    mistaken = tensor("fp64_in", "FP32", echo.TENSORS["fp32"])
    check_error("INVALID_ARGUMENT", "fp64_in", client.infer, model, [mistaken])


def check_echo(client: Client, model: str) -> None:
    version = check_server(client, model)
    check_absent(client, model)
    check_choices(client, model, version)
    check_errors(client, model)
    check_tensors(client, model)
    check_bf16(client, model)
    check_compression(client, model)
    check_concurrent_requests(client, model)
    check_failures(client, model)


def main(_http: str, address: str, model: str) -> None:
    for make in InferenceServerClient, partial(Blocking, AioClient):
        with make(address) as client:
            check_echo(client, model)
