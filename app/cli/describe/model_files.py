"""The inputs and outputs of a model, as far as its file contains them."""

import json
import re
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from app.protocol.metadata import MetadataTensor

# Datatypes by the names of types in ONNX, XGBoost and NumPy. For the other types, the datatype is
# the name in capitals.
_DATATYPES = {
    "bool_": "BOOL",
    "int": "INT64",
    "bfloat16": "BF16",
    "float16": "FP16",
    "float": "FP32",
    "float32": "FP32",
    "double": "FP64",
    "float64": "FP64",
    "str": "BYTES",
    "str_": "BYTES",
    "string": "BYTES",
    # XGBoost has letters: quantitative, indicator and categorical.
    "q": "FP32",
    "i": "BOOL",
    "c": "BYTES",
}


class Signature(NamedTuple):
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]


def read_model(path: Path) -> Signature:
    """Return the signature of the model. It has no outputs if the file does not contain them.

    Loading a .joblib file runs the code in it, which can raise any exception.
    """
    if path.suffix == ".onnx":
        return _read_onnx(path)
    if path.suffix == ".ubj":
        return _read_xgboost(path)
    return _read_scikit_learn(path)


def _read_onnx(path: Path) -> Signature:
    onnxruntime = import_module("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    inputs = _declare_nodes(session.get_inputs())
    outputs = _declare_nodes(session.get_outputs())
    return Signature(inputs, outputs)


def _declare_nodes(nodes: Sequence[Any]) -> list[MetadataTensor]:
    """Return the tensors among the inputs or outputs of an ONNX model.

    Classifiers can also have an output that maps labels to probabilities.
    """
    tensors = []
    for node in nodes:
        tensor_type = re.fullmatch(r"tensor\((.+)\)", node.type)
        if tensor_type:
            tensors.append(_declare(node.name, tensor_type[1], node.shape))
    return tensors


def _read_xgboost(path: Path) -> Signature:
    xgboost = import_module("xgboost")
    booster = xgboost.Booster(model_file=path)
    names = booster.feature_names or []
    types = booster.feature_types or ["float"] * len(names)
    inputs = _declare_features(names, types, booster.num_features())

    learner = json.loads(booster.save_config())["learner"]
    class_count = int(learner["learner_model_param"]["num_class"])  # 0 for a regression
    shape = [-1, class_count] if class_count else [-1]
    return Signature(inputs, [_declare("prediction", "float", shape)])


def _read_scikit_learn(path: Path) -> Signature:
    joblib = import_module("joblib")
    model = joblib.load(path)
    names = getattr(model, "feature_names_in_", [])
    types = ["double"] * len(names)
    inputs = _declare_features(names, types, getattr(model, "n_features_in_", -1))

    outputs = []
    labels = getattr(model, "classes_", [])
    if len(labels) > 0:
        label_type = type(labels[0]).__name__
        outputs.append(_declare("label", label_type, [-1]))
        outputs.append(_declare("probabilities", "double", [-1, len(labels)]))
    return Signature(inputs, outputs)


def _declare_features(
    names: Sequence[str], types: Sequence[str], count: int
) -> list[MetadataTensor]:
    """Return one column per feature, or one array of `count` features if they have no names."""
    if len(names) == 0:
        return [_declare("features", "double", [-1, count])]
    columns = []
    for name, type_name in zip(names, types, strict=True):
        columns.append(_declare(name, type_name, [-1]))
    return columns


def _declare(name: str, type_name: str, shape: Sequence[Any]) -> MetadataTensor:
    """Return the declaration for a type of ONNX, XGBoost or NumPy.

    Dimensions that are not numbers, such as names in ONNX, are variable.
    """
    datatype = _DATATYPES.get(type_name, type_name.upper())
    sizes = []
    for size in shape:
        sizes.append(size if isinstance(size, int) else -1)
    content_type = "str" if datatype == "BYTES" else None
    return MetadataTensor(name, datatype, sizes, content_type)
