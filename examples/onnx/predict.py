"""The served model. Edit this file: METADATA declares inputs and outputs, load() and predict() implement the model."""

import io
import os

# Set before the import: otherwise, onnxruntime sends usage data to Microsoft.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import numpy as np
import onnxruntime
from PIL import Image

# app/api.py lists all names that a model can import from the service.
# Other modules of app/ can change with each version.
from app.api import InvalidInput, MetadataTensor, ModelMetadata, read_settings

METADATA = ModelMetadata(
    name="digits",
    version="1",
    platform="onnx_onnxv1",
    inputs=[MetadataTensor("image", "BYTES", [-1], content_type="bytes")],
    outputs=[
        MetadataTensor("digit", "INT64", [-1]),
        MetadataTensor("probabilities", "FP32", [-1, 10]),
    ],
)
EXAMPLE = {  # a zero, for the warm-up call, for the startup message and for the documentation of the API
    "image": [
        "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAASklEQVR42gXBMRVAQAAA0P/OYjwNRBBBBA1oJAINaMBos9pOgzsN"
        "/F/Rbs0FcsoTTEvfpqgyfGtp6icoODvBPhJfmI8+dRDvPPMDxxoTuW/3AgoAAAAASUVORK5CYII="
    ]
}
LONGEST_SIDE = 1024
PROVIDERS = ["CUDAExecutionProvider", "CPUExecutionProvider"]  # in order of preference


def load():
    """Load and return the model, the first argument of predict(). Called once per worker at startup."""
    settings = read_settings()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    providers = [each for each in PROVIDERS if each in onnxruntime.get_available_providers()]
    return onnxruntime.InferenceSession(settings.model_file("digits.onnx"), options, providers)


def predict(session, image: list[bytes]):
    """Return the outputs by name. Each input is one parameter. Several threads can call this function concurrently.

    `image`: PNG files, white on black, sent as base64 text in JSON, and as bytes otherwise.
    """
    rows = [pixels(file, row) for row, file in enumerate(image)]
    (probabilities,) = session.run(
        ["probabilities"], {"pixels": np.array(rows, np.float32).reshape(-1, 64)}
    )
    return {"digit": probabilities.argmax(axis=1), "probabilities": probabilities}


def pixels(file: bytes, row: int) -> np.ndarray:
    """Return an image in the form of the training data: 8 by 8 pixels, gray values from 0 to 1."""
    try:
        image = Image.open(io.BytesIO(file), formats=["PNG"])
        if max(image.size) > LONGEST_SIDE:  # check before the pixels are decoded into memory
            raise ValueError
        grey = image.convert("L")
    except Exception:  # a damaged file may raise any exception
        raise InvalidInput(
            f"Image {row}: invalid file. Expected a PNG up to {LONGEST_SIDE} pixels per side."
        ) from None
    return np.asarray(grey.resize((8, 8), Image.Resampling.BOX)) / 255
