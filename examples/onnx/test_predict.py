"""The model in app/predict.py. Edit this file along with it."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app import create_app
from app.api import InferenceRequest, InvalidInput, RequestInput
from app.predict import METADATA
from app.testing import Infer, serve

EXAMPLE = Path(__file__).parents[1] / "examples" / "onnx"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def digits() -> list[list[Image.Image]]:
    """Return 30 images of each digit that were not used for training."""
    sheet = Image.open(EXAMPLE / "digits.png")
    return [[sheet.crop((x, y, x + 8, y + 8)) for x in range(0, 240, 8)] for y in range(0, 80, 8)]


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_accuracy(infer: Infer, digits: list[list[Image.Image]]) -> None:
    """The network recognizes 273 of 300 digits by writers that were not in the training data."""
    answer = infer(image=[png(image) for row in digits for image in row])
    assert sum(answer["digit"] == np.repeat(np.arange(10), 30)) == 273
    assert answer["probabilities"].shape == (300, 10)
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_example_request() -> None:
    """The example request contains base64 images: a 0 of 8 by 8 pixels and a 7 of 64 by 64 pixels."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    assert answer.json["outputs"][0]["data"] == [0, 7]


def test_sizes_and_color_modes(infer: Infer, digits: list[list[Image.Image]]) -> None:
    """Images may have any size and color mode, and a batch may mix them."""
    image = digits[3][0]
    forms = [
        image,
        image.resize((64, 64), Image.Resampling.NEAREST),
        image.convert("RGB"),
        image.convert("P"),
    ]
    answer = infer(image=[png(each) for each in forms])
    assert answer["digit"].tolist() == [3, 3, 3, 3]
    np.testing.assert_allclose(
        answer["probabilities"], answer["probabilities"][[0, 0, 0, 0]], atol=1e-6
    )


def test_rejects_base64_as_an_image(infer: Infer, digits: list[list[Image.Image]]) -> None:
    """Base64 text with content type "str" is not decoded and is rejected. JSON that is not base64 is rejected, too."""
    text = base64.b64encode(png(digits[5][0]))
    with pytest.raises(InvalidInput, match="Image 0: invalid file. Expected a PNG"):
        infer(
            InferenceRequest([RequestInput("image", "BYTES", [1], [text], {"content_type": "str"})])
        )
    with (
        serve(forms=["json"]) as infer_json,
        pytest.raises(InvalidInput, match='Input "image": invalid base64'),
    ):
        infer_json(InferenceRequest([RequestInput("image", "BYTES", [1], ["a picture"])]))


def test_empty_batch(infer: Infer) -> None:
    """A request without images returns outputs without rows."""
    answer = infer(image=[])
    assert answer["digit"].shape == (0,)
    assert answer["probabilities"].shape == (0, 10)


@pytest.mark.parametrize("fault", ["empty", "text", "cut short", "damaged", "a GIF", "too large"])
def test_rejects_invalid_images(infer: Infer, digits: list[list[Image.Image]], fault: str) -> None:
    """A file that is not a valid PNG is rejected with an error that names its position."""
    good, gif = png(digits[0][0]), io.BytesIO()
    digits[0][0].save(gif, "GIF")
    bad = {
        "empty": b"",
        "text": b"a picture",
        "cut short": good[:-30],
        "damaged": good.replace(b"IDAT", b"IDAX"),
        "a GIF": gif.getvalue(),
        "too large": png(Image.new("L", (1, 1025))),
    }
    with pytest.raises(
        InvalidInput, match="Image 1: invalid file. Expected a PNG up to 1024 pixels per side"
    ):
        infer(image=[good, bad[fault]])
