"""A network for images in several frameworks, such as gunicorn "dev.benchmarks.servers.frameworks.models:onnx('EXAMPLE')".

Each of its blocks has two convolutions and halves the width and the height. The weights are random.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.types import MetadataTensor, ModelMetadata

CHANNELS = [3, 32, 64, 128]
CLASSES, SIDE = 10, 224
# The convolutions: channels of the input and of the output, and the stride.
LAYERS = [
    layer for taken, given in pairwise(CHANNELS) for layer in ((taken, given, 2), (given, given, 1))
]
# Numbers of rows of the requests.
ROWS = (1, 4)
WARM_UPS = ("none", "EXAMPLE", "warm_up(model)")


def images(rows: int) -> np.ndarray:
    return (
        np.random.default_rng(rows).normal(size=(rows, CHANNELS[0], SIDE, SIDE)).astype(np.float32)
    )


def pytorch(warm_up: str) -> Flask:
    return create(load_pytorch, run_pytorch, warm_up)


def compiled(warm_up: str) -> Flask:
    """Return the PyTorch model with torch.compile()."""

    def load() -> Any:
        import torch

        return torch.compile(load_pytorch())

    return create(load, run_pytorch, warm_up)


def onnx(warm_up: str) -> Flask:
    def predict(model: Any, x: np.ndarray) -> np.ndarray:
        (y,) = model.run(["y"], {"x": x})
        return y

    return create(load_onnx, predict, warm_up)


def load_pytorch() -> Any:
    from torch import nn

    layers: list[nn.Module] = []
    for taken, given, stride in LAYERS:
        layers += [nn.Conv2d(taken, given, 3, stride, 1), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], CLASSES)]
    return nn.Sequential(*layers, *head).eval()


def run_pytorch(model: Any, x: np.ndarray) -> np.ndarray:
    import torch

    with torch.inference_mode():
        return model(torch.from_numpy(x)).numpy()


def load_onnx() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", 0))
    return onnxruntime.InferenceSession(make_onnx(), options, ["CPUExecutionProvider"])


def make_onnx() -> bytes:
    """Return the network as an ONNX file."""
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"

    def add_weights(name: str, *shape: int) -> str:
        array = generator.normal(0, 0.02, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    for number, (taken, given, stride) in enumerate(LAYERS):
        named = [
            add_weights(f"kernel{number}", given, taken, 3, 3),
            add_weights(f"bias{number}", given),
        ]
        options = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1] * 4}
        nodes.append(helper.make_node("Conv", [last, *named], [f"sums{number}"], **options))
        nodes.append(helper.make_node("Relu", [f"sums{number}"], [last := f"layer{number}"]))
    named = [add_weights("kernel", CHANNELS[-1], CLASSES), add_weights("bias", CLASSES)]
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["pooled"]))
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", *named], ["y"]))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", CHANNELS[0], SIDE, SIDE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", CLASSES])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()


def create(load: Callable[[], Any], predict: Callable[..., np.ndarray], warm_up: str) -> Flask:
    """Return the service with one of the WARM_UPS."""

    def call_with_all_shapes(model: Any) -> None:
        for rows in ROWS:
            predict(model, images(rows))

    members: dict[str, dict[str, Any]] = {
        "none": {"warm_up": lambda model: None},
        "EXAMPLE": {"EXAMPLE": {"x": images(1)}},
        "warm_up(model)": {"warm_up": call_with_all_shapes},
    }
    metadata = ModelMetadata(
        "network",
        "1",
        "network",
        [MetadataTensor("x", "FP32", [-1, CHANNELS[0], SIDE, SIDE])],
        [MetadataTensor("y", "FP32", [-1, CLASSES])],
    )
    module = SimpleNamespace(
        __name__="network", METADATA=metadata, load=load, predict=predict, **members[warm_up]
    )
    return create_app(module=module)
