"""The describe command: print METADATA for predict.py, from sample inputs or from a model."""

from importlib import import_module
from keyword import kwlist
from pathlib import Path
from pprint import pformat

import click
import orjson

from app.cli.common import BROKEN, Failure
from app.cli.options import PATH
from app.inference.startup_errors import describe_error, import_remedy
from app.protocol.errors import InvalidInput

SAMPLES = (".csv", ".json", ".npy", ".parquet")
PLATFORMS = {".joblib": "sklearn_joblib", ".onnx": "onnx_onnxv1", ".ubj": "xgboost_ubj"}
# The types of ONNX, XGBoost and NumPy that do not have the name of the datatype
DATATYPES = {"float": "FP32", "double": "FP64", "float64": "FP64", "float16": "FP16", "bfloat16": "BF16"}
DATATYPES |= {"int": "INT64", "i": "BOOL", "c": "BYTES", "string": "BYTES", "str": "BYTES", "str_": "BYTES"}
OUTPUT = "  # placeholder: declare the result of predict()\n        MetadataTensor('prediction', 'FP64', [-1]),"


@click.command(epilog="\b\nExamples:\n  PROGRAM describe rows.csv\n  PROGRAM describe rows.csv --model model.joblib")
@click.argument("sample", type=PATH, required=False)
@click.option("--model", type=PATH, help="Model: .joblib, .onnx or .ubj. Loading a .joblib file runs the code in it.")
@click.option("--name", help="Name of the model.  [default: that of the file]")
def command(sample: Path | None, model: Path | None, name: str | None) -> None:
    """Print METADATA for app/predict.py, from a table (.csv, .json, .parquet), an array (.npy) or a request (.json)."""
    if not (file := model or sample):
        raise click.UsageError("Missing SAMPLE or --model.")
    if (model and model.suffix not in PLATFORMS) or (sample and sample.suffix not in SAMPLES):
        raise click.UsageError("Unknown type of file. Expected .csv, .json, .npy or .parquet. Use --model for a model.")
    try:
        inputs, outputs = read_model(path := file) if model else ({}, "")
        inputs, example = read_sample(path := sample, inputs) if sample else (inputs, "")
    except ImportError as error:
        raise Failure(f"{path}: {error}. {import_remedy(error.name or '')}", BROKEN) from None
    except Exception as error:  # a pickle can raise any exception
        raise Failure(f"{path}: {describe_error(error)}") from None
    library, platform, name = "numpy as np", PLATFORMS.get(file.suffix, "python"), name or file.stem
    parameters = ", ".join(f"{each}: np.ndarray" for each in inputs)
    if all(", [-1]" in code for code in inputs.values()):
        library, parameters = "pandas as pd", "frame: pd.DataFrame"
    elif len(parameters) > 96 or not all(map(str.isidentifier, inputs)) or {*kwlist, "model"} & inputs.keys():
        parameters = "inputs: dict[str, np.ndarray]"
    text = f"import {library}\n\nfrom app.api import MetadataTensor, ModelMetadata\n\nMETADATA = ModelMetadata(\n"
    text += f"    name={name!r},\n    version='1',\n    platform={platform!r},\n    inputs=[{''.join(inputs.values())}"
    text += f"\n    ],\n    outputs=[{outputs or OUTPUT}\n    ],\n){example}\n\n\ndef predict(model, {parameters}):"
    for line in f"{text}\n    '''Return the outputs by name.'''".split("\n"):
        click.echo(line if '"' in line else line.replace("'", '"'))


def declare(name: str, kind: str, shape: list[int], content_type: str = "str", gaps: object = None) -> str:
    datatype, sizes = DATATYPES.get(kind, kind.upper()), [each if isinstance(each, int) else -1 for each in shape]
    options = f", content_type={content_type!r}" + ", missing=''" * bool(gaps) if datatype == "BYTES" else ""
    return f"\n        MetadataTensor({name!r}, {datatype!r}, {sizes}{options}),"


def read_model(path: Path) -> tuple[dict[str, str], str]:
    """Return the code of the inputs by name, and of the outputs."""
    if path.suffix == ".onnx":
        model = import_module("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
        inputs = {each.name: declare(each.name, each.type[7:-1], each.shape) for each in model.get_inputs()}
        return inputs, "".join(declare(each.name, each.type[7:-1], each.shape) for each in model.get_outputs())
    if path.suffix == ".ubj":
        model = import_module("xgboost").Booster(model_file=path)
        count, names = model.num_features(), model.feature_names or []
        columns = dict(zip(names, model.feature_types or ["float"] * count, strict=False))
        size = int(orjson.loads(model.save_config())["learner"]["learner_model_param"]["num_class"])
        outputs = declare("prediction", "float", [-1, size] if size else [-1])
    else:
        model = import_module("joblib").load(path)
        columns = dict.fromkeys(getattr(model, "feature_names_in_", []), "double")
        count, classes = getattr(model, "n_features_in_", -1), getattr(model, "classes_", [])
        outputs = declare("label", type(classes[0]).__name__, [-1]) if len(classes) else ""
        outputs += declare("probabilities", "double", [-1, len(classes)]) if outputs else ""
    inputs = {name: declare(name, kind, [-1]) for name, kind in columns.items()}
    return inputs or {"features": declare("features", "double", [-1, count])}, outputs


def read_sample(path: Path, inputs: dict[str, str]) -> tuple[dict[str, str], str]:
    """Return the code of the inputs by name, and of EXAMPLE. `inputs` are those of the model."""
    import numpy as np
    import pandas as pd

    from app.codecs import StringCodec
    from app.codecs.frames import MOMENT, encode_array, encode_column
    from app.protocol.types import InferenceRequest, RequestInput

    frame, encoded, tensors, codes, example = pd.DataFrame(), {}, [], {}, "\nEXAMPLE = {"
    if path.suffix == ".csv":
        frame = pd.read_csv(path, low_memory=False, index_col=False)
        frame.columns = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False).iloc[0]
    elif path.suffix == ".parquet":
        frame = pd.read_parquet(path, engine="pyarrow")
    elif path.suffix == ".npy":
        encoded = {next(iter(inputs), "features"): encode_array(np.lib.format.open_memmap(path, mode="r")[:1])}
    elif isinstance(content := orjson.loads(path.read_bytes()), list):
        frame = pd.DataFrame([{**row} for row in content])
    else:
        tensors = InferenceRequest.from_dict(content).inputs
    frame = frame[[*inputs]] if min(len(inputs), len(frame.columns)) > 1 or {*inputs} & {*frame} else frame
    encoded |= {str(key): encode_column(each, StringCodec) for key, each in frame.items()}
    tensors += [RequestInput(key, c[0], None, c[1], {"content_type": c[2] or "str"}) for key, c in encoded.items()]
    if not len({each.name for each in tensors if each.data.size}) == len(tensors) >= max(1, frame.shape[1]):
        raise InvalidInput("unsuitable sample", expected="a row of values, and inputs with different names")
    for each in orjson.loads(InferenceRequest(tensors).to_http(binary=False, nonfinite="null")[0])["inputs"]:
        name, rows = each["name"], np.array(each["data"], object).reshape(each["shape"])
        is_date = any(rows.flat) and all(MOMENT.fullmatch(str(text)) for text in rows.flat if text is not None)
        kind = "datetime" if is_date else each.get("parameters", {}).get("content_type", "str")
        codes[name] = declare(name, each["datatype"], [-1, *rows.shape[1:]], kind, {None, "NaT"} & {*rows.flat})
        first = pformat(rows[:1].tolist(), width=max(9, 110 - len(name)), compact=True).replace("\n", "\n       ")
        example += f"\n    {name!r}: {first},"
    return codes | {key: code for key, code in inputs.items() if key in codes and ", [-1]" not in code}, example + "\n}"
