"""tritonclient.http, the sync client: JSON and binary tensors, compression, chosen outputs, versions and errors."""

import itertools
import sys

import iris
import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

ENCODINGS = [None, "gzip", "deflate"]


def features(rows: np.ndarray, binary: bool) -> list[InferInput]:
    tensor = InferInput("features", list(rows.shape), "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    return [tensor]


def requested(**binary: bool) -> list[InferRequestedOutput]:
    """The outputs to ask for, in this order, and whether each is to come as binary."""
    return [InferRequestedOutput(name, binary_data=each) for name, each in binary.items()]


def is_binary(result, name: str) -> bool:
    return "binary_data_size" in result.get_output(name).get("parameters", {})


def check_server(client: InferenceServerClient, model: str) -> str:
    """Health and metadata; returns the version that the model is served as."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(model)
    assert not client.is_model_ready("no-such-model")
    server = client.get_server_metadata()
    assert "binary_tensor_data" in server["extensions"], server
    metadata = client.get_model_metadata(model)
    assert metadata["name"] == model, metadata
    tensors = [(each["name"], each["datatype"], each["shape"]) for each in metadata["inputs"] + metadata["outputs"]]
    assert tensors == [iris.INPUT, *iris.OUTPUTS], metadata
    version = metadata["versions"][0]
    assert client.is_model_ready(model, version)
    assert client.get_model_metadata(model, version) == metadata
    return version


def check_forms(client: InferenceServerClient, model: str) -> None:
    """Every mix of JSON and binary: of the input, and of each output."""
    for binary, label, probabilities in itertools.product([False, True], repeat=3):
        outputs = requested(label=label, probabilities=probabilities)
        result = client.infer(model, features(iris.FLOWERS, binary), outputs=outputs)
        iris.check(result.as_numpy("label"), result.as_numpy("probabilities"))
        assert is_binary(result, "label") is label
        assert is_binary(result, "probabilities") is probabilities
    for binary in False, True:
        result = client.infer(model, features(iris.FLOWERS, binary))
        iris.check(result.as_numpy("label"), result.as_numpy("probabilities"))
        assert is_binary(result, "label"), "without outputs, tritonclient sends binary_data_output"


def check_compression(client: InferenceServerClient, model: str) -> None:
    """Every mix of encodings with each form; a long JSON answer comes in the encoding that was asked for."""
    answered = []
    post = client._post

    def watched_post(*args, **kwargs):
        response = post(*args, **kwargs)
        answered.append(response.get("Content-Encoding"))
        return response

    client._post = watched_post
    for sent, asked, binary in itertools.product(ENCODINGS, ENCODINGS, [False, True]):
        result = client.infer(
            model,
            features(iris.MANY, binary),
            outputs=requested(label=binary, probabilities=binary),
            request_compression_algorithm=sent,
            response_compression_algorithm=asked,
        )
        iris.check(result.as_numpy("label"), result.as_numpy("probabilities"), times=50)
        # Whether a binary answer is worth compressing is the service's to say.
        assert answered[-1] in ([None, asked] if binary else [asked]), (sent, asked, binary, answered[-1])
    client._post = post


def check_choices(client: InferenceServerClient, model: str, version: str) -> None:
    """Chosen outputs in their order, request ids, versions, and parameters the service does not know."""
    for binary in False, True:
        inputs = features(iris.FLOWERS, binary)
        result = client.infer(model, inputs, outputs=requested(probabilities=binary))
        iris.check_probabilities(result.as_numpy("probabilities"))
        assert result.as_numpy("label") is None
        result = client.infer(model, inputs, outputs=requested(probabilities=binary, label=binary))
        assert [each["name"] for each in result.get_response()["outputs"]] == ["probabilities", "label"]
        iris.check(result.as_numpy("label"), result.as_numpy("probabilities"))
        response = client.infer(
            model, inputs, version, request_id="flower-7", priority=1, timeout=10_000_000, parameters={"colour": "blue"}
        ).get_response()
        assert response["model_name"] == model, response
        assert response["model_version"] == version, response
        assert response["id"] == "flower-7", response
        assert "id" not in client.infer(model, inputs).get_response()


def check_error(status: str, names: str, call, *args, **kwargs) -> None:
    """call(...) raises with this status and a text that has `names` in it."""
    with iris.raises(InferenceServerException) as caught:
        call(*args, **kwargs)
    assert caught[0].status() == status, caught
    assert names in caught[0].message(), caught


def check_errors(client: InferenceServerClient, model: str) -> None:
    """Each error says what is wrong, and the connection is good for another call."""
    good = features(iris.FLOWERS, binary=True)
    for binary in False, True:
        check_error("400", "features", client.infer, model, features(iris.WRONG, binary))
    check_error("400", "petals", client.infer, model, good, outputs=requested(petals=True))
    check_error("404", "no-such-model", client.infer, "no-such-model", good)
    check_error("404", "no-such-version", client.infer, model, good, "no-such-version")
    check_error("404", "no-such-model", client.get_model_metadata, "no-such-model")
    result = client.infer(model, good)
    iris.check(result.as_numpy("label"), result.as_numpy("probabilities"))


def main(http: str, _grpc: str, model: str) -> None:
    with InferenceServerClient(http) as client:
        version = check_server(client, model)
        check_forms(client, model)
        check_compression(client, model)
        check_choices(client, model, version)
        check_errors(client, model)
    iris.done("tritonclient.http", "tritonclient")


if __name__ == "__main__":
    main(*sys.argv[1:])
