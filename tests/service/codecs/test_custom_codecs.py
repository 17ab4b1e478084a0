"""Models with their own input codecs and request codecs."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing
import pytest

from app.codecs import InputCodec, RequestCodec, register_input_codec, register_request_codec
from app.codecs.base import input_codecs
from app.protocol.types import InferenceRequest, InferenceResponse, MetadataTensor, ResponseOutput
from tests.kit import models
from tests.service.codecs.content_type_models import describing_model, got


def png_model() -> Any:
    """Return a model that registers a codec for PNG images, or for .npy data if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        Image = None  # noqa: N806

    @register_input_codec
    class Picture(InputCodec):
        ContentType = "png"
        TypeHint = np.ndarray

        @classmethod
        def encode(cls, payload: np.ndarray, **options: Any) -> tuple[str, np.ndarray]:
            file = io.BytesIO()
            if Image is None:
                np.save(file, payload)
            else:
                Image.fromarray(payload).save(file, "PNG")
            return "BYTES", np.array([file.getvalue()], object)

        @classmethod
        def decode(cls, tensor: Any) -> np.ndarray:
            file = io.BytesIO(tensor.data.item())
            return np.load(file) if Image is None else np.asarray(Image.open(file))

    def predict(_, picture: np.ndarray):
        picture[0, 0] = 9
        return {"shape": np.array(picture.shape), "upside down": picture[::-1].copy()}

    return models.model(
        [MetadataTensor("picture", "BYTES", [1], content_type="png")],
        [
            MetadataTensor("shape", "INT64", [3]),
            MetadataTensor("upside down", "BYTES", [1], content_type="png"),
        ],
        predict,
    )


@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_custom_input_codec(serve, bits: str) -> None:
    """C10: a codec that the model registers decodes inputs to writable arrays and encodes outputs."""
    service = serve(png_model())
    picture = np.arange(24, dtype="u1").reshape(2, 4, 3)
    codec = input_codecs["png"]
    sent = codec.encode_input("picture", picture)
    response = service.forms[bits].infer([("picture", "BYTES", [1], sent.data.tolist())])
    assert response.kind == "ok", response.text
    assert response.outputs["shape"] == ("INT64", [3], [2, 4, 3])
    (octets,) = response.outputs["upside down"][2]
    expected = picture.copy()
    expected[0, 0] = 9
    decoded = codec.decode(ResponseOutput("y", "BYTES", data=[octets]))
    np.testing.assert_array_equal(decoded, expected[::-1])
    assert response.content_types == {"upside down": "png"}
    unknown = service.forms[bits].infer(
        [("picture", "BYTES", [1], [b"a"])], content_types={"picture": "jpeg"}
    )
    assert "base64, bytes, datetime, np, pd_json, png, str for an input or output" in unknown.text


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
            return Total(sum(float(each.data.sum()) for each in request.inputs))

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
    assert response.kind == "ok", response.text
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
