"""The content type `bytes`: base64 text in JSON, and the bytes themselves in other forms."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.codecs import BytesCodec, NumpyRequestCodec, PandasCodec
from app.protocol.errors import InvalidInput
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import RequestInput, ResponseOutput
from grpc_service import converters
from tests.kit import models
from tests.service.codecs.batched import ALL_FORMS, infer_in_one_batch
from tests.service.codecs.content_type_models import declared, describing_model, got, returning

FILES = [b"\x89PNG\r\n", b"", b"\xff\x00", b"text"]
RAW = MetadataTensor("y", "BYTES", [-1], content_type="bytes")


def in_form(form: str, files: list[bytes] = FILES) -> list[Any]:
    """Return the elements that a client of this form sends or receives."""
    return [b64encode(content) for content in files] if form == "rest json" else files


def echo(annotation: Any = list[bytes], content_type: str | None = "bytes") -> Any:
    def predict(_: Any, x: Any) -> Any:
        return x

    predict.__annotations__["x"] = annotation
    outputs = [MetadataTensor("y", "BYTES", [-1], content_type=content_type)]
    return models.model(
        [MetadataTensor("x", "BYTES", [-1], content_type=content_type)], outputs, predict
    )


def test_raw_binary_request_sends_a_file(serve) -> None:
    """B8, C12: in a raw binary request, the body is the bytes of the file. The output is also binary."""
    headers = {"Inference-Header-Content-Length": "0"}
    response = serve(echo()).client.post("/v2/models/test/infer", data=FILES[0], headers=headers)
    assert (
        BytesCodec.decode_output(
            InferenceResponse.from_http(response.data, response.headers).outputs[0]
        )
        == FILES[:1]
    )
    assert response.data.endswith(FILES[0])


@pytest.mark.parametrize(
    ("annotation", "metadata", "named"),
    [
        (list[bytes], "bytes", None),
        (list[bytes], None, "bytes"),
        (list[bytes], "base64", "bytes"),
        (list[bytes], "str", "bytes"),
        (np.ndarray, "bytes", None),
        (np.ndarray, None, "bytes"),
        (dict[str, np.ndarray], "bytes", None),
        (pd.DataFrame, "bytes", None),
        (pd.DataFrame, "np", "bytes"),
        (pd.DataFrame, "base64", "bytes"),
    ],
)
def test_predict_receives_bytes(
    serve, form: str, annotation: Any, metadata: str | None, named: str | None
) -> None:
    """C2, C12: METADATA or the client selects `bytes`, and predict() receives bytes from every transport."""
    tensor = declared(metadata)

    def predict(_: Any, x: Any) -> Any:
        value = x["x"] if isinstance(x, dict | pd.DataFrame) else x
        return [repr(list(value))]

    predict.__annotations__["x"] = annotation
    service = serve(models.model([tensor], [MetadataTensor("y", "BYTES", [1])], predict))
    sent = ("x", "BYTES", [4, 1], in_form(form))
    response = service.forms[form].infer([sent], content_types={"x": named} if named else None)
    assert got(response) == repr(FILES)


def test_base64_keeps_its_meaning(serve, form: str) -> None:
    """C12: a client that names `base64` sends base64 text in every form, also if METADATA declares `bytes`."""
    sent = ("x", "BYTES", [4], [b64encode(content) for content in FILES])
    for metadata in "bytes", "base64":
        service = serve(describing_model(list[bytes], declared(metadata)))
        assert (
            got(service.forms[form].infer([sent], content_types={"x": "base64"}))
            == f"list {FILES!r}"
        )


@pytest.mark.parametrize(
    "value",
    [
        FILES,
        np.array(FILES, object),
        pd.Series(FILES),
        pd.DataFrame({"y": FILES}),
        (FILES,),
        InferenceResponse([BytesCodec.encode_output("y", FILES)]),
        InferenceResponse(
            [ResponseOutput("y", "BYTES", data=[b64encode(content).decode() for content in FILES])]
        ),
        np.array(FILES, object).reshape(2, 2),
    ],
    ids=["list", "array", "series", "frame", "tuple", "response", "base64", "matrix"],
)
def test_outputs_accept_every_type_of_result(serve, form: str, value: Any) -> None:
    """C12: an output with content type `bytes` accepts bytes in each form of a result, and base64 text in a tensor."""
    shape = [2, 2] if np.shape(value) == (2, 2) else [4]
    tensor = MetadataTensor("y", "BYTES", [-1] * len(shape), content_type="bytes")
    response = serve(returning(value, tensor)).forms[form].infer([])
    assert response.is_success, response.text
    assert response.outputs == {"y": ("BYTES", shape, in_form(form))}
    assert response.content_types == {"y": "bytes"}


@pytest.mark.parametrize("metadata", ["bytes", None])
def test_batches_mix_all_forms(serve, metadata: str | None) -> None:
    """C12: requests of all forms can share a batch, and each response has the form of its request."""
    calls = []

    def predict(_: Any, x: list[bytes]) -> list[bytes]:
        calls.append(len(x))
        return x

    module = models.model([declared(metadata)], [RAW], predict)
    content_types = None if metadata else {"x": "bytes"}
    sent = [
        {
            "form": form,
            "inputs": [("x", "BYTES", [1], in_form(form, [content]))],
            "content_types": content_types,
        }
        for form, content in zip(ALL_FORMS, FILES, strict=True)
    ]
    responses = infer_in_one_batch(serve, module, sent)
    assert calls == [4]
    assert [response.outputs["y"][2] for response in responses] == [
        in_form(form, [content]) for form, content in zip(ALL_FORMS, FILES, strict=True)
    ]


@pytest.mark.parametrize("element", ["YQ=", "Y Q==", "é", "_-==", None])
def test_rejects_json_that_is_not_base64(serve, element: str) -> None:
    """C12: in JSON, an element that is not base64 is rejected."""
    response = serve(echo()).rest.infer([("x", "BYTES", [1], [element])])
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text.startswith('Input "x": invalid base64. Send ')


@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_error_for_raw_bytes_as_base64_names_bytes(serve, bits: str) -> None:
    """C12: if base64 text was expected and the data is not base64, the error message mentions `bytes`."""
    response = (
        serve(describing_model(list[bytes], declared("base64")))
        .forms[bits]
        .infer([("x", "BYTES", [4], FILES)])
    )
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text.startswith('Input "x": invalid base64. Send ')
    assert response.text.endswith(
        'Send base64 text, or declare content_type="bytes" in METADATA for raw bytes.'
    )


def test_messages_of_clients(serve) -> None:
    """C4, C12: a request has base64 text in JSON, and each codec of a client decodes the response of the service."""
    request = InferenceRequest([BytesCodec.encode_input("x", FILES)])
    texts = [content.decode() for content in in_form("rest json")]
    assert json.loads(request.to_json())["inputs"][0]["data"] == texts
    client = serve(echo()).client
    for body, headers in (request.to_http(), request.to_http(binary=False)):
        reply = client.post("/v2/models/test/infer", data=body, headers=headers)
        response = InferenceResponse.from_http(reply.data, reply.headers)
        assert BytesCodec.decode_output(response.outputs[0]) == FILES
        assert NumpyRequestCodec.decode_response(response) == FILES
        assert PandasCodec.decode_response(response)["y"].tolist() == FILES


def test_base64_text_in_a_tensor_is_sent_as_bytes() -> None:
    """C12: str elements of a tensor with content type `bytes` are base64 text, also if the tensor is sent in binary."""
    texts = [content.decode() for content in in_form("rest json")]
    request = InferenceRequest(
        [RequestInput("x", "BYTES", data=texts, parameters={"content_type": "bytes"})]
    )
    assert request.to_dict()["inputs"][0]["data"] == texts
    message, raws = converters.parse_request(converters.write_request(request))
    assert converters.read_request(message, raws).inputs[0].data.tolist() == FILES
    request.inputs[0].data[0] = "no base64"
    with pytest.raises(InvalidInput, match='Input "x": invalid base64'):
        request.to_http()


def test_example_is_in_json_form(serve) -> None:
    """C12: bytes in EXAMPLE are base64 text in the example request. EXAMPLE can also contain base64 text."""
    for files in (FILES, [content.decode() for content in in_form("rest json")]):
        module = echo()
        module.EXAMPLE = {"x": files}
        del module.warm_up
        service = serve(module)
        service.core.model.load()
        service.core.model.warm_up()
        (tensor,) = service.core.info.example()["inputs"]
        assert tensor["data"] == [content.decode() for content in in_form("rest json")]
