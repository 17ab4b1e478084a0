"""tritonclient.grpc, the sync client: raw tensors both ways, compression, chosen outputs, versions and errors."""

import sys

import iris
import numpy as np
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

SECONDS = 30


def features(rows: np.ndarray) -> list[InferInput]:
    tensor = InferInput("features", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows)
    return [tensor]


def check_server(client: InferenceServerClient, model: str) -> str:
    """Health and metadata; returns the version that the model is served as."""
    assert client.is_server_live(client_timeout=SECONDS)
    assert client.is_server_ready(client_timeout=SECONDS)
    assert client.is_model_ready(model, client_timeout=SECONDS)
    server = client.get_server_metadata(client_timeout=SECONDS)
    assert server.name, server
    metadata = client.get_model_metadata(model, client_timeout=SECONDS)
    assert metadata.name == model, metadata
    tensors = [(each.name, each.datatype, list(each.shape)) for each in (*metadata.inputs, *metadata.outputs)]
    assert tensors == [iris.INPUT, *iris.OUTPUTS], metadata
    version = metadata.versions[0]
    assert client.is_model_ready(model, version, client_timeout=SECONDS)
    assert client.get_model_metadata(model, version, client_timeout=SECONDS) == metadata
    return version


def check_infer(client: InferenceServerClient, model: str, version: str) -> None:
    """Plain and compressed, few rows and many; then chosen outputs, ids, versions and unknown parameters."""
    for algorithm in None, "gzip", "deflate":
        for rows, times in (iris.FLOWERS, 1), (iris.MANY, 50):
            result = client.infer(model, features(rows), compression_algorithm=algorithm, client_timeout=SECONDS)
            iris.check(result.as_numpy("label"), result.as_numpy("probabilities"), times)
            assert len(result.get_response().raw_output_contents) == 2
    inputs = features(iris.FLOWERS)
    result = client.infer(
        model,
        inputs,
        outputs=[InferRequestedOutput("probabilities"), InferRequestedOutput("label")],
        client_timeout=SECONDS,
    )
    assert [each.name for each in result.get_response().outputs] == ["probabilities", "label"]
    iris.check(result.as_numpy("label"), result.as_numpy("probabilities"))
    result = client.infer(model, inputs, outputs=[InferRequestedOutput("label")], client_timeout=SECONDS)
    iris.check_labels(result.as_numpy("label"))
    assert result.as_numpy("probabilities") is None
    response = client.infer(
        model,
        inputs,
        version,
        request_id="flower-7",
        priority=1,
        timeout=10_000_000,
        parameters={"colour": "blue"},
        client_timeout=SECONDS,
    ).get_response()
    assert (response.model_name, response.model_version, response.id) == (model, version, "flower-7"), response


def check_error(code: str, names: str, call, *args, **kwargs) -> None:
    """call(...) raises with this status code and a text that has `names` in it."""
    with iris.raises(InferenceServerException) as caught:
        call(*args, **kwargs, client_timeout=SECONDS)
    assert caught[0].status() == f"StatusCode.{code}", caught
    assert names in caught[0].message(), caught


def check_errors(client: InferenceServerClient, model: str) -> None:
    """Each error says what is wrong, and the channel is good for another call."""
    good = features(iris.FLOWERS)
    check_error("INVALID_ARGUMENT", "features", client.infer, model, features(iris.WRONG))
    check_error("INVALID_ARGUMENT", "petals", client.infer, model, good, outputs=[InferRequestedOutput("petals")])
    check_error("NOT_FOUND", "no-such-model", client.infer, "no-such-model", good)
    check_error("NOT_FOUND", "no-such-version", client.infer, model, good, "no-such-version")
    check_error("NOT_FOUND", "no-such-model", client.get_model_metadata, "no-such-model")
    check_error("NOT_FOUND", "no-such-model", client.is_model_ready, "no-such-model")
    result = client.infer(model, good, client_timeout=SECONDS)
    iris.check(result.as_numpy("label"), result.as_numpy("probabilities"))


def main(_http: str, grpc: str, model: str) -> None:
    with InferenceServerClient(grpc) as client:
        version = check_server(client, model)
        check_infer(client, model, version)
        check_errors(client, model)
    iris.done("tritonclient.grpc", "tritonclient")


if __name__ == "__main__":
    main(*sys.argv[1:])
