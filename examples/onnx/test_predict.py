"""The model in app/predict.py. Edit this file along with it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app import create_app
from app.errors import InvalidInput
from app.predict import METADATA
from app.testing import Infer, serve
from app.types import InferenceRequest, RequestInput

EXAMPLE = Path(__file__).parents[1] / "examples" / "onnx"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Asks the model as clients do: over REST, by JSON and by binary tensors, and over gRPC. Images go as base64."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def digits() -> list[list[Image.Image]]:
    """30 images of each digit, that the network has not seen."""
    sheet = Image.open(EXAMPLE / "digits.png")
    return [[sheet.crop((x, y, x + 8, y + 8)) for x in range(0, 240, 8)] for y in range(0, 80, 8)]


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def test_accuracy(infer: Infer, digits: list[list[Image.Image]]) -> None:
    """Of 300 digits, by hands that it was not trained on, the network reads 273."""
    answer = infer(image=[png(image) for row in digits for image in row])
    assert sum(answer["digit"] == np.repeat(np.arange(10), 30)) == 273
    assert answer["probabilities"].shape == (300, 10)
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1, rtol=1e-5)


def test_the_request_of_the_example() -> None:
    """JSON has images as base64: here a 0 of 8 by 8 pixels, and a 7 of 64 by 64."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    assert answer.json["outputs"][0]["data"] == [0, 7]


def test_sizes_and_colours(infer: Infer, digits: list[list[Image.Image]]) -> None:
    """An image may have any size and colours; a batch may mix them."""
    image = digits[3][0]
    forms = [image, image.resize((64, 64), Image.Resampling.NEAREST), image.convert("RGB"), image.convert("P")]
    answer = infer(image=[png(each) for each in forms])
    assert answer["digit"].tolist() == [3, 3, 3, 3]
    np.testing.assert_allclose(answer["probabilities"], answer["probabilities"][[0, 0, 0, 0]], atol=1e-6)


def test_files_as_they_are(infer: Infer, digits: list[list[Image.Image]]) -> None:
    """Where the client says "np", a file travels as its bytes, a quarter less; JSON cannot carry them."""
    file = png(digits[5][0])
    request = InferenceRequest([RequestInput("image", "BYTES", [1], [file], {"content_type": "np"})])
    with serve(forms=["binary", "grpc"]) as infer_bytes:
        np.testing.assert_equal(infer_bytes(request), infer(image=[file]))


def test_base64_called_text(infer: Infer, digits: list[list[Image.Image]]) -> None:
    """Under "str" it stays the text that it is, which is no image."""
    text = base64.b64encode(png(digits[5][0]))
    with pytest.raises(InvalidInput, match="image 0: expected a PNG file"):
        infer(InferenceRequest([RequestInput("image", "BYTES", [1], [text], {"content_type": "str"})]))
    with pytest.raises(InvalidInput, match='input "image": data: not base64'):
        infer(InferenceRequest([RequestInput("image", "BYTES", [1], ["a picture"])]))


def test_an_empty_batch(infer: Infer) -> None:
    """No images in, no rows out."""
    answer = infer(image=[])
    assert answer["digit"].shape == (0,)
    assert answer["probabilities"].shape == (0, 10)


@pytest.mark.parametrize("fault", ["empty", "text", "cut short", "damaged", "a GIF", "too large"])
def test_no_image(infer: Infer, digits: list[list[Image.Image]], fault: str) -> None:
    """What is no PNG is refused, and the client reads which one of its images it is."""
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
    with pytest.raises(InvalidInput, match="image 1: expected a PNG file, of at most 1024 pixels a side"):
        infer(image=[good, bad[fault]])
