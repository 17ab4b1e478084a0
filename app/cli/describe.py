"""The describe command: print METADATA for predict.py, from sample inputs or from a model."""

import json
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from textwrap import fill
from typing import Any

import click

from app.cli.common import BROKEN, Failure
from app.cli.options import PATH
from app.inference.startup_errors import describe_error, import_remedy
from app.protocol.errors import InvalidInput

SAMPLES = (".csv", ".json", ".npy", ".parquet")
PLATFORMS = {".joblib": "sklearn_joblib", ".onnx": "onnx_onnxv1", ".ubj": "xgboost_ubj"}
Tensors = list[Any]  # of MetadataTensor, which is imported late to keep `--help` fast
# Datatypes by the names of types in ONNX, XGBoost and NumPy that are not also the name of the datatype.
DATATYPES = {
    "float": "FP32",
    "float32": "FP32",
    "q": "FP32",
    "double": "FP64",
    "float64": "FP64",
    "float16": "FP16",
}
DATATYPES |= {"bfloat16": "BF16", "int": "INT64", "i": "BOOL", "bool_": "BOOL"}
DATATYPES |= dict.fromkeys(("c", "string", "str", "str_"), "BYTES")


@click.command(
    epilog="\b\nExamples:\n  PROGRAM describe rows.csv\n  PROGRAM describe rows.csv --model model.joblib"
)
@click.argument("sample", type=PATH, required=False)
@click.option(
    "--model",
    type=PATH,
    help="Model: .joblib, .onnx or .ubj. Loading a .joblib file runs the code in it.",
)
def command(sample: Path | None, model: Path | None) -> None:
    """Print METADATA for app/predict.py, from a table (.csv, .json, .parquet), an array (.npy) or a request (.json)."""
    if not (file := model or sample):
        raise click.UsageError("Missing SAMPLE or --model.")
    if (model and model.suffix not in PLATFORMS) or (sample and sample.suffix not in SAMPLES):
        raise click.UsageError(
            "Unknown file type. Expected .csv, .json, .npy or .parquet. Models need --model."
        )
    try:
        inputs, outputs = read_model(path := model) if model else ([], [])
        inputs, example = read_sample(path := sample, inputs) if sample else (inputs, {})
    except ImportError as error:
        raise Failure(f"{path}: {error}. {import_remedy(error.name or '')}", BROKEN) from None
    except Exception as error:  # a pickle can raise any exception
        raise Failure(f"{path}: {describe_error(error)}") from None
    click.echo(write_code(file, inputs, outputs, example))


def declare(
    name: str, kind: str, shape: Sequence[Any], content_type: str = "str", gaps: bool = False
) -> Any:
    """Return the MetadataTensor for a type of ONNX, XGBoost or NumPy. Dimensions that are not numbers are variable."""
    from app.protocol.metadata import MetadataTensor

    datatype, sizes = (
        DATATYPES.get(kind, kind.upper()),
        [each if isinstance(each, int) else -1 for each in shape],
    )
    options = (content_type, "" if gaps else None) if datatype == "BYTES" else ()
    return MetadataTensor(name, datatype, sizes, *options)


def read_model(path: Path) -> tuple[Tensors, Tensors]:
    """Return the inputs and outputs of a model. The outputs are empty if the file does not contain them."""
    if path.suffix == ".onnx":
        session = import_module("onnxruntime").InferenceSession(
            path, providers=["CPUExecutionProvider"]
        )
        nodes = session.get_inputs(), session.get_outputs()
        tensors = [
            [each for each in group if each.type.startswith("tensor(")] for group in nodes
        ]  # no map of labels
        inputs, outputs = (
            [declare(x.name, x.type[len("tensor(") : -1], x.shape) for x in each]
            for each in tensors
        )
        return inputs, outputs
    if path.suffix == ".ubj":
        booster = import_module("xgboost").Booster(model_file=path)
        count, names = booster.num_features(), booster.feature_names or []
        kinds = booster.feature_types or ["float"] * count
        classes = int(
            json.loads(booster.save_config())["learner"]["learner_model_param"]["num_class"]
        )
        outputs = [declare("prediction", "float", [-1, classes] if classes else [-1])]
    else:
        model = import_module("joblib").load(path)
        count, names = getattr(model, "n_features_in_", -1), getattr(model, "feature_names_in_", [])
        kinds, labels = ["double"] * len(names), getattr(model, "classes_", [])
        outputs = [declare("label", type(labels[0]).__name__, [-1])] if len(labels) else []
        outputs += [declare("probabilities", "double", [-1, len(labels)])] if outputs else []
    columns = [declare(name, kind, [-1]) for name, kind in zip(names, kinds, strict=False)]
    return columns or [declare("features", "double", [-1, count])], outputs


def read_sample(path: Path, known: Tensors) -> tuple[Tensors, dict[str, Any]]:
    """Return the inputs and EXAMPLE. Arrays have the datatype of the model's inputs, `known`, and columns their own."""
    from app.protocol.messages import InferenceRequest

    tensors = read_tensors(path, known)
    if not tensors or len({each.name for each in tensors if each.data.size}) < len(tensors):
        raise InvalidInput(
            "unsuitable sample", expected="a row of values, and inputs with different names"
        )
    arrays = {each.name: each for each in known if each.shape != [-1]}
    message = json.loads(InferenceRequest(tensors).to_http(binary=False, nonfinite="null")[0])
    pairs = [describe_input(each) for each in message["inputs"]]
    return [arrays.get(each.name, each) for each, _ in pairs], {
        each.name: first for each, first in pairs
    }


def read_tensors(path: Path, known: Tensors) -> list[Any]:
    """Return the tensors of a request, an array or a table. Select the columns of the model, in its order."""
    import numpy as np

    from app.codecs import StringCodec
    from app.codecs.frames import encode_array, encode_column
    from app.protocol.messages import InferenceRequest
    from app.protocol.tensors import RequestInput

    if path.suffix == ".npy":
        columns = [
            (known[0].name if known else "features", encode_array(np.load(path, mmap_mode="r")[:1]))
        ]
    elif path.suffix == ".json" and isinstance(content := json.loads(path.read_bytes()), dict):
        return InferenceRequest.from_dict(content).inputs
    else:
        frame = read_table(path)
        frame = frame[[each.name for each in known if each.shape == [-1]] or [*frame]]
        columns = [
            (str(name), encode_column(column, StringCodec)) for name, column in frame.items()
        ]
    return [
        RequestInput(name, kind, None, data, {"content_type": text})
        for name, (kind, data, text) in columns
    ]


def read_table(path: Path) -> Any:
    """Return the DataFrame in a file. In JSON, it is a list of objects."""
    import pandas as pd

    if path.suffix == ".csv":
        frame = pd.read_csv(path, low_memory=False, index_col=False)
        # pandas renames duplicate columns
        frame.columns = pd.read_csv(
            path, header=None, nrows=1, dtype=str, keep_default_na=False
        ).iloc[0]
    elif path.suffix == ".parquet":
        frame = pd.read_parquet(path, engine="pyarrow")
    else:
        frame = pd.DataFrame([{**row} for row in json.loads(path.read_bytes())])
    return frame


def describe_input(sent: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Return the declaration of an input in JSON form, and its first row."""
    import numpy as np

    from app.codecs.frames import MOMENT, NO_TIME

    rows = np.array(sent["data"], object).reshape(sent["shape"])
    texts = [each for each in rows.flat if each not in (None, NO_TIME)]
    is_date = bool(texts) and all(MOMENT.fullmatch(str(each)) for each in texts)
    kind = "datetime" if is_date else sent.get("parameters", {}).get("content_type", "str")
    declared = declare(
        sent["name"], sent["datatype"], [-1, *rows.shape[1:]], kind, len(texts) < rows.size
    )
    return declared, rows[:1].tolist()


def write_code(file: Path, inputs: Tensors, outputs: Tensors, example: dict[str, Any]) -> str:
    """Return the beginning of predict.py: imports, METADATA, EXAMPLE and the signature of predict()."""
    platform, names = PLATFORMS.get(file.suffix, "python"), [each.name for each in inputs]
    library, parameters = "numpy as np", ", ".join(f"{each}: np.ndarray" for each in names)
    are_valid = all(
        each.isidentifier() and not iskeyword(each) and each != "model" for each in names
    )
    if all(each.shape == [-1] for each in inputs):
        library, parameters = "pandas as pd", "frame: pd.DataFrame"
    elif not are_valid or len(parameters) > 96:
        parameters = "inputs: dict[str, np.ndarray]"
    placeholder = "" if outputs else "  # placeholder: declare the result of predict()"
    lines = [f"import {library}", "", "from app.api import MetadataTensor, ModelMetadata", ""]
    lines += ["METADATA = ModelMetadata("]
    lines += [
        f"    name={to_code(file.stem)},",
        '    version="1",',
        f"    platform={to_code(platform)},",
    ]
    lines += ["    inputs=[", *map(tensor_line, inputs), "    ],", f"    outputs=[{placeholder}"]
    lines += [*map(tensor_line, outputs or [declare("prediction", "double", [-1])]), "    ],", ")"]
    lines += ["EXAMPLE = {", *map(example_line, example, example.values()), "}"] if example else []
    return "\n".join(
        [
            *lines,
            "",
            "",
            f"def predict(model, {parameters}):",
            '    """Return the outputs by name."""',
        ]
    )


def tensor_line(tensor: Any) -> str:
    options = {"content_type": tensor.content_type, "missing": tensor.missing}
    arguments = [to_code(tensor.name), to_code(tensor.datatype), to_code(tensor.shape)]
    arguments += [f"{key}={to_code(value)}" for key, value in options.items() if value is not None]
    return f"        MetadataTensor({', '.join(arguments)}),"


def example_line(name: str, values: list[Any]) -> str:
    code = to_code(values)
    line = f"    {to_code(name)}: {code},"
    return (
        line if '"' in code else fill(line, 120, subsequent_indent=" " * 8, break_long_words=False)
    )


def to_code(value: Any) -> str:
    """Return a value of JSON as Python code, with text in double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(to_code, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
