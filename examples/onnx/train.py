"""Train this example's model, a network that recognizes digits: python examples/onnx/train.py [model folder]

The digits are those of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", 1998
(CC BY 4.0), which scikit-learn includes: 1,797 images of 8 by 8 pixels. The first 1,437 are used
for training. digits.png contains others, by other writers: one row of 30 images for each digit.
seven.png is one of them. The script requires: pip install onnx scikit-learn
"""

import sys
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto, checker
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

HERE = Path(__file__).resolve().parent
TRAINING = 1437


def read_digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the images in shades of gray, [1797, 8, 8], white on black, and the digits, [1797]."""
    digits = load_digits()
    return np.rint(digits.images * (255 / 16)).astype(np.uint8), digits.target


def train(pictures: np.ndarray, digits: np.ndarray) -> MLPClassifier:
    """Return a network with one hidden layer. Its input is pixels from 0 to 1, [rows, 64]."""
    pixels = pictures.reshape(-1, 64).astype(np.float32) / 255
    return MLPClassifier([64], alpha=0.1, max_iter=1000, random_state=0).fit(pixels, digits)


def to_onnx(network: MLPClassifier) -> ModelProto:
    """Return the network as a graph from `pixels` to `probabilities`."""
    nodes = [
        make_node("Gemm", ["pixels", "weights_0", "bias_0"], ["sums"]),
        make_node("Relu", ["sums"], ["hidden"]),
        make_node("Gemm", ["hidden", "weights_1", "bias_1"], ["scores"]),
        make_node("Softmax", ["scores"], ["probabilities"], axis=1),
    ]
    named = {"weights": network.coefs_, "bias": network.intercepts_}
    weights = [
        from_array(array, f"{name}_{layer}")
        for name in named
        for layer, array in enumerate(named[name])
    ]
    pixels = make_tensor_value_info("pixels", TensorProto.FLOAT, ["rows", 64])
    probabilities = make_tensor_value_info("probabilities", TensorProto.FLOAT, ["rows", 10])
    graph = make_graph(nodes, "digits", [pixels], [probabilities], weights)
    model = make_model(
        graph, opset_imports=[make_opsetid("", 17)], ir_version=8
    )  # for older runtimes, too
    checker.check_model(model, full_check=True)
    return model


def sheet(pictures: np.ndarray, digits: np.ndarray, columns: int = 30) -> Image.Image:
    """Return an image with one row of `columns` images for each digit."""
    return Image.fromarray(
        np.vstack([np.hstack(pictures[digits == digit][:columns]) for digit in range(10)])
    )


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    pictures, digits = read_digits()
    network = train(pictures[:TRAINING], digits[:TRAINING])
    (folder / "digits.onnx").write_bytes(to_onnx(network).SerializeToString())
    unseen = sheet(pictures[TRAINING:], digits[TRAINING:])
    unseen.save(HERE / "digits.png", optimize=True)
    unseen.crop((0, 7 * 8, 8, 8 * 8)).save(HERE / "seven.png", optimize=True)
    print(f"wrote {folder / 'digits.onnx'}, and digits.png and seven.png in {HERE}")
