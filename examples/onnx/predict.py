"""The model. This is the file to edit: METADATA says what goes in and out, load() and predict() do the work.

Threads of a session do not outlive a fork: with PRELOAD_MODEL=on it has none of its own, and a call runs on one core.
"""

from __future__ import annotations

import io
import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # its thread would break forked workers

import numpy as np
import onnxruntime
from PIL import Image

from app.config import read_settings
from app.errors import InvalidInput
from app.types import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name="digits",
    version="1",
    platform="onnxruntime_onnx",
    inputs=[MetadataTensor("image", "BYTES", [-1], content_type="base64")],
    outputs=[MetadataTensor("digit", "INT64", [-1]), MetadataTensor("probabilities", "FP32", [-1, 10])],
)
EXAMPLE = {  # what the service warms up with, and shows at its start: a 0
    "image": [
        "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAASklEQVR42gXBMRVAQAAA0P/OYjwNRBBBBA1oJAINaMBos9pOgzsN"
        "/F/Rbs0FcsoTTEvfpqgyfGtp6icoODvBPhJfmI8+dRDvPPMDxxoTuW/3AgoAAAAASUVORK5CYII="
    ]
}
LONGEST_SIDE = 1024


def load():
    """Return the model, the first argument of predict(). Each worker calls this once, before it is ready."""
    settings = read_settings()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1 if settings.preload_model else int(os.environ.get("OMP_NUM_THREADS", 0))
    return onnxruntime.InferenceSession(settings.model_file("digits.onnx"), options, ["CPUExecutionProvider"])


def predict(session, image: list[bytes]):
    """Return each output by name. Each input is a parameter. Several threads may call this at once.

    `image`: PNG files, white on black. They come as base64 text, or as bytes where the client calls them "np".
    """
    rows = [pixels(file, row) for row, file in enumerate(image)]
    (probabilities,) = session.run(["probabilities"], {"pixels": np.array(rows, np.float32).reshape(-1, 64)})
    return {"digit": probabilities.argmax(axis=1), "probabilities": probabilities}


def pixels(file: bytes, row: int) -> np.ndarray:
    """An image as the network was trained on: 8 by 8, in grey from 0 to 1."""
    try:
        image = Image.open(io.BytesIO(file), formats=["PNG"])
        if max(image.size) > LONGEST_SIDE:  # before its pixels take memory
            raise ValueError
        grey = image.convert("L")
    except Exception:  # a damaged file may raise any
        raise InvalidInput(f"image {row}: expected a PNG file, of at most {LONGEST_SIDE} pixels a side") from None
    return np.asarray(grey.resize((8, 8), Image.Resampling.BOX)) / 255
