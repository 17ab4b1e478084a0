"""Models with their own input codecs and request codecs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing
import pytest

from app.codecs import (
    InputCodec,
    RequestCodec,
    find_request_codec,
    register_input_codec,
    register_request_codec,
)
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import ResponseOutput
from tests.kit import models
from tests.service.codecs.content_type_models import describing_model, got


def picture_model() -> Any:
    """Return a model that registers a codec for pictures of 4 pixels per row, which decodes to a read-only array."""

    @register_input_codec
    class PictureCodec(InputCodec):
        ContentType = "picture"
        TypeHint = np.ndarray

        @classmethod
        def encode(cls, payload: np.ndarray, **options: Any) -> tuple[str, np.ndarray]:
            return "BYTES", np.array([payload.tobytes()], object)

        @classmethod
        def decode(cls, tensor: Any) -> np.ndarray:
            return np.frombuffer(tensor.data.item(), "u1").reshape(-1, 4, 3)

    def predict(_: Any, picture: np.ndarray) -> dict[str, Any]:
        picture[0, 0] = 9
        return {"shape": np.array(picture.shape), "upside down": picture[::-1].copy()}

    outputs = [
        MetadataTensor("shape", "INT64", [3]),
        MetadataTensor("upside down", "BYTES", [1], content_type="picture"),
    ]
    return models.model(
        [MetadataTensor("picture", "BYTES", [1], content_type="picture")], outputs, predict
    )


@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_custom_input_codec(serve, bits: str) -> None:
    """C10: a codec that the model registers decodes inputs to writable arrays and encodes outputs."""
    client = serve(picture_model()).forms[bits]
    picture = np.arange(24, dtype="u1").reshape(2, 4, 3)
    response = client.infer([("picture", "BYTES", [1], [picture.tobytes()])])
    picture[0, 0] = 9
    assert response.is_success, response.text
    assert response.outputs == {
        "shape": ("INT64", [3], [2, 4, 3]),
        "upside down": ("BYTES", [1], [picture[::-1].tobytes()]),
    }
    assert response.content_types == {"upside down": "picture"}
    unknown = client.infer([("picture", "BYTES", [1], [b"a"])], content_types={"picture": "jpeg"})
    assert "np, pd_json, picture, str for an input or output" in unknown.text


def test_custom_input_codec_with_its_own_type(serve, form: str) -> None:
    """C10: a parameter can be annotated with the type that a custom codec returns."""

    class Point:
        def __init__(self, x: float, y: float):
            self.x, self.y = x, y

    @register_input_codec
    class PointCodec(InputCodec):
        ContentType = "point"
        TypeHint = Point

        @classmethod
        def decode(cls, tensor: Any) -> Point:
            return Point(*tensor.data.tolist())

    service = serve(describing_model(Point, MetadataTensor("x", "FP64", [2], content_type="point")))
    assert got(service.forms[form].infer([("x", "FP64", [2], [1.5, 2.5])])).startswith("Point ")
    response = service.forms[form].infer(
        [("x", "FP64", [2], [1.5, 2.5])], content_types={"x": "np"}
    )
    assert response.kind == "INVALID_ARGUMENT"
    assert (
        response.text
        == 'Input "x": invalid content_type. Expected one that decodes to Point, got ndarray.'
    )


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("no x")])
def test_exception_of_a_custom_input_codec(serve, form: str, error: Exception) -> None:
    """C10: an exception of encode_output() is an error of the model that names the output and the content type."""

    @register_input_codec
    class BrokenCodec(InputCodec):
        ContentType = "broken"

        @classmethod
        def encode_output(cls, name: str, payload: Any, **options: Any) -> ResponseOutput:
            raise error

    tensor = MetadataTensor("y", "FP32", [-1], content_type="broken")
    response = serve(models.model([], [tensor], lambda _: "value")).forms[form].infer([])

    assert (response.kind, response.text) == (
        "INTERNAL",
        'Output "y": predict() returned a result that does not match METADATA: '
        f"cannot encode str with content type broken. Got {type(error).__name__}: {error}.",
    )


@pytest.mark.parametrize("method", ["decode_request", "can_encode", "encode_response"])
def test_exception_of_a_custom_request_codec(
    serve, form: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C10: the client receives 400 if the inputs cannot be decoded, and 500 if the result cannot be encoded."""

    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("x")

    client = serve(sums_model()).forms[form]
    monkeypatch.setattr(find_request_codec("total"), method, fail)
    response = client.infer([("a", "FP64", [1], [1.5]), ("b", "INT8", [1], [3])])

    if method == "decode_request":
        text = "Invalid data for content type total. Got KeyError: 'x'."
        assert (response.kind, response.text) == ("INVALID_ARGUMENT", text)
    else:
        text = "cannot encode Total with content type total. Got KeyError: 'x'."
        assert response.kind == "INTERNAL"
        assert response.text.lower() == text.lower()


def sums_model() -> Any:
    """Return a model with its own request codec, which sums all inputs and encodes a Total."""

    class Total:
        def __init__(self, value: float):
            self.value = value

    @register_request_codec
    class TotalCodec(RequestCodec):
        ContentType = "total"
        TypeHint = Total

        @classmethod
        def decode_request(cls, request: InferenceRequest) -> Total:
            return Total(sum(float(tensor.data.sum()) for tensor in request.inputs))

        @classmethod
        def encode_response(
            cls, model_name: str, payload: Total, model_version: str | None = None, **options: Any
        ) -> InferenceResponse:
            output = ResponseOutput("y", "FP64", data=[payload.value])
            return InferenceResponse(
                [output], model_name, model_version, parameters={"content_type": "total"}
            )

    def predict(_, total: Total):
        return Total(total.value * 2)

    predict.__annotations__["total"] = Total
    module = models.model(
        [MetadataTensor("a", "FP64", [-1]), MetadataTensor("b", "INT8", [-1])],
        [MetadataTensor("y", "FP64", [1])],
        predict,
    )
    module.METADATA.content_type = "total"
    return module


def test_custom_request_codec(serve, form: str) -> None:
    """C10: a request codec that METADATA names decodes predict()'s only argument and encodes its return value."""
    service = serve(sums_model())
    sent = [("a", "FP64", [2], [1.5, 2.0]), ("b", "INT8", [1], [3])]
    response = service.forms[form].infer(sent)
    assert response.is_success, response.text
    assert response.outputs == {"y": ("FP64", [1], [13.0])}
    assert response.parameters["content_type"] == "total"
    assert (
        "np, pd, str, total for a request"
        in service.forms[form].infer(sent, parameters={"content_type": "x"}).text
    )
    assert (
        service.forms[form].infer(sent, parameters={"content_type": "np"}).kind
        == "INVALID_ARGUMENT"
    )
