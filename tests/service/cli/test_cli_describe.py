"""describe: METADATA from sample inputs and from models."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from app.cli import main
from tests.kit.projects import ROOT, command, make_project
from tests.service.cli.service_command import run

HOUSES = """id,area,garden,floors,town name,built,"a ""b"" 'c'"
1,80.5,True,2,Utrecht,1990-05-01,x
2,,False,,,2015-01-01,y
"""
TABLE = '''import pandas as pd

from app.api import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name="houses",
    version="1",
    platform="python",
    inputs=[
        MetadataTensor("id", "INT64", [-1]),
        MetadataTensor("area", "FP64", [-1]),
        MetadataTensor("garden", "BOOL", [-1]),
        MetadataTensor("floors", "FP64", [-1]),
        MetadataTensor("town name", "BYTES", [-1], content_type="str", missing=""),
        MetadataTensor("built", "BYTES", [-1], content_type="datetime"),
        MetadataTensor("a \\"b\\" 'c'", "BYTES", [-1], content_type="str"),
    ],
    outputs=[  # placeholder: declare the result of predict()
        MetadataTensor("prediction", "FP64", [-1]),
    ],
)
EXAMPLE = {
    "id": [1],
    "area": [80.5],
    "garden": [True],
    "floors": [2.0],
    "town name": ["Utrecht"],
    "built": ["1990-05-01"],
    "a \\"b\\" 'c'": ["x"],
}


def predict(model, frame: pd.DataFrame):
    """Return the outputs by name."""
'''
BODY = '    return {"prediction": [0.0]}\n\n\ndef load():\n    return None\n'
REQUEST = {
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [2, 40], "data": [None, *[0.1] * 79]},
        {"name": "text", "datatype": "BYTES", "shape": [2], "data": ["a", None]},
        {"name": "built", "datatype": "BYTES", "shape": [1], "data": ["1990-05-01"]},
    ]
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def declared(*arguments: str) -> list[str]:
    """Return the arguments of MetadataTensor(...) and the parameters of predict() that the command prints."""
    done = run("describe", *arguments)
    assert done.exit_code == 0, done.stderr
    compile(done.stdout, "predict.py", "exec")
    assert max(map(len, done.stdout.splitlines())) <= 120
    heads = ("MetadataTensor(", "def predict(model, ")
    lines = [line.strip() for line in done.stdout.splitlines()]
    return [line.split("(", 1)[1].rstrip("),:") for line in lines if line.startswith(heads)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("project"))


def check(project: Path, text: str) -> None:
    (project / "app/predict.py").write_text(text + BODY)
    done = command("check", "--json", folder=project)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["request"] == "EXAMPLE"


def test_table(folder: Path, project: Path) -> None:
    """The dtypes of a CSV file determine METADATA, and check accepts the printed lines with a predict()."""
    (folder / "houses.csv").write_text(HOUSES)
    done = run("describe", "houses.csv")
    assert (done.exit_code, done.stdout) == (0, TABLE)
    check(project, done.stdout)


def test_request(folder: Path, project: Path) -> None:
    """A request determines names, datatypes and shapes. Missing values are None, and long rows are wrapped."""
    (folder / "request.json").write_text(json.dumps(REQUEST))
    assert declared("request.json") == [
        '"x", "FP32", [-1, 40]',
        '"text", "BYTES", [-1], content_type="str", missing=""',
        '"built", "BYTES", [-1], content_type="datetime"',
        '"prediction", "FP64", [-1]',
        "model, x: np.ndarray, text: np.ndarray, built: np.ndarray",
    ]
    done = run("describe", "request.json")
    check(project, done.stdout)


@pytest.mark.parametrize("names", ["class", "model", "a-b", f"{'a' * 50},{'b' * 50}"])
def test_names_that_are_not_parameters(folder: Path, project: Path, names: str) -> None:
    """If the names of the inputs are not valid parameters, or too long, predict() has one parameter for all inputs."""
    inputs = [
        {"name": name, "datatype": "INT8", "shape": [1, 1], "data": [1]}
        for name in names.split(",")
    ]
    (folder / "request.json").write_text(json.dumps({"inputs": inputs}))
    assert declared("request.json")[-1] == "model, inputs: dict[str, np.ndarray]"
    if names == "class":
        check(project, run("describe", "request.json").stdout)


def test_other_formats(folder: Path) -> None:
    """An array has one input. Objects in JSON and Parquet files are tables like CSV files."""
    np.save("pixels.npy", np.full((3, 2, 2), 0.1, np.float32))
    assert declared("pixels.npy")[0] == '"features", "FP32", [-1, 2, 2]'
    assert '"features": [[[0.1, 0.1], [0.1, 0.1]]],' in run("describe", "pixels.npy").stdout
    (folder / "rows.json").write_text(
        '[{"n": 1, "k": "a", "when": "2026-01-31"}, {"n": 2.5, "k": null}]'
    )
    columns = ['"n", "FP64", [-1]', '"k", "BYTES", [-1], content_type="str", missing=""']
    columns.append('"when", "BYTES", [-1], content_type="datetime", missing=""')
    assert declared("rows.json")[:3] == columns
    pytest.importorskip("pyarrow")
    when = pd.to_datetime(["2026-01-31", None])
    pd.DataFrame({"n": [1.0, 2.5], "k": ["a", None], "when": when}).to_parquet("rows.parquet")
    assert declared("rows.parquet")[:3] == columns


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        (
            "rows.txt",
            "a\n1\n",
            "Unknown file type. Expected .csv, .json, .npy or .parquet. Models need --model.",
        ),
        ("rows.csv", "", "rows.csv: EmptyDataError: No columns to parse from file"),
        ("rows.csv", "a,b\n", "Expected a row of values, and inputs with different names"),
        ("rows.csv", "a,a\n1,2\n", "Expected a row of values, and inputs with different names"),
        ("rows.csv", "\udcff", "rows.csv: UnicodeDecodeError: "),
        ("rows.json", "[", "rows.json: JSONDecodeError: "),
        (
            "rows.json",
            "{}",
            "rows.json: Missing inputs. Expected a list of tensors with name, shape, datatype and data",
        ),
        (
            "rows.json",
            json.dumps({"inputs": [REQUEST["inputs"][1]] * 2}),
            "Expected a row of values, and inputs with different names",
        ),
        ("rows.json", "[1]", "rows.json: TypeError: 'int' object is not a mapping"),
        ("rows.npy", "", "rows.npy: EOFError: "),
        ("rows.parquet", "", "rows.parquet: "),
        ("none.csv", None, "File 'none.csv' does not exist."),
    ],
)
def test_errors(folder: Path, name: str, content: str | None, line: str) -> None:
    """An invalid file is an error of one line that contains its name and the reason."""
    if content is not None:
        (folder / name).write_text(content, errors="surrogateescape")
    done = run("describe", name)
    assert done.exit_code in (1, 2)
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_needs_a_file() -> None:
    """Without a sample and a model, the command is invalid. A model needs its option."""
    assert run("describe").stderr == "Error: Missing SAMPLE or --model.\n"
    Path("m.onnx").touch()
    Path("rows.csv").touch()
    assert "Models need --model." in run("describe", "m.onnx").stderr
    assert "Unknown file type." in run("describe", "--model", "rows.csv").stderr


@pytest.mark.parametrize(
    ("file", "module", "named"),
    [
        ("m.joblib", "joblib", "joblib"),
        ("m.onnx", "onnxruntime", "onnxruntime"),
        ("m.ubj", "xgboost", "xgboost"),
        ("rows.parquet", "pyarrow", "pyarrow"),
    ],
)
def test_missing_library(
    monkeypatch: pytest.MonkeyPatch, file: str, module: str, named: str
) -> None:
    """If the library that reads a file is not installed, the error has a remedy."""
    Path(file).touch()
    monkeypatch.setitem(sys.modules, module, None)
    done = run("describe", *(["--model"] if file.startswith("m.") else []), file)
    assert (done.exit_code, done.stdout) == (4, "")
    assert named in done.stderr
    assert done.stderr.endswith("to install_requires in setup.cfg, and run make serve.\n")


def save_model(**attributes: object) -> None:
    joblib = pytest.importorskip("joblib")
    joblib.dump(SimpleNamespace(**attributes), "fitted.joblib")


def test_model_of_a_table(folder: Path) -> None:
    """A model with names of features selects and sorts the columns of a sample. Its classes determine the outputs."""
    save_model(
        feature_names_in_=np.array(["town name", "id"], object),
        n_features_in_=2,
        classes_=np.array([0, 1]),
    )
    (folder / "houses.csv").write_text(HOUSES)
    outputs = [
        '"label", "INT64", [-1]',
        '"probabilities", "FP64", [-1, 2]',
        "model, frame: pd.DataFrame",
    ]
    columns = ['"town name", "BYTES", [-1], content_type="str", missing=""', '"id", "INT64", [-1]']
    assert declared("houses.csv", "--model", "fitted.joblib") == columns + outputs
    assert declared("--model", "fitted.joblib") == [
        '"town name", "FP64", [-1]',
        '"id", "FP64", [-1]',
        *outputs,
    ]
    assert (
        'name="fitted",\n    version="1",\n    platform="sklearn_joblib",'
        in run("describe", "houses.csv", "--model", "fitted.joblib").stdout
    )
    (folder / "other.csv").write_text("id,x\n1,2\n")
    done = run("describe", "other.csv", "--model", "fitted.joblib")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "other.csv: KeyError: " in done.stderr
    assert "town name" in done.stderr


def test_model_of_an_array(folder: Path) -> None:
    """A model without names of features has one array. A table keeps its columns."""
    save_model(n_features_in_=2, classes_=np.array(["a", "b", "c"]))
    outputs = ['"label", "BYTES", [-1], content_type="str"', '"probabilities", "FP64", [-1, 3]']
    array = ['"features", "FP64", [-1, 2]', *outputs, "model, features: np.ndarray"]
    assert declared("--model", "fitted.joblib") == array
    np.save("rows.npy", np.ones((1, 2), np.float32))
    assert declared("rows.npy", "--model", "fitted.joblib") == array
    (folder / "rows.csv").write_text("a,b\n1,2\n")
    columns = ['"a", "INT64", [-1]', '"b", "INT64", [-1]']
    expected = [*columns, *outputs, "model, frame: pd.DataFrame"]
    assert declared("rows.csv", "--model", "fitted.joblib") == expected
    save_model()  # such as a regression of text, which knows neither
    assert declared("rows.csv", "--model", "fitted.joblib")[:3] == [
        *columns,
        '"prediction", "FP64", [-1]',
    ]


def test_onnx_model() -> None:
    """An ONNX model contains the names, datatypes and shapes of inputs and outputs. An array gets the name."""
    pytest.importorskip("onnxruntime")
    model = str(ROOT / "examples/onnx/model/digits.onnx")
    expected = [
        '"pixels", "FP32", [-1, 64]',
        '"probabilities", "FP32", [-1, 10]',
        "model, pixels: np.ndarray",
    ]
    assert declared("--model", model) == expected
    np.save("rows.npy", np.ones((1, 64)))
    assert declared("rows.npy", "--model", model) == expected


def test_xgboost_model(folder: Path) -> None:
    """An XGBoost model contains the number of classes, and the names and types of the columns, if it knows them."""
    xgboost = pytest.importorskip("xgboost")
    expected = [
        '"features", "FP64", [-1, 13]',
        '"prediction", "FP32", [-1, 3]',
        "model, features: np.ndarray",
    ]
    assert declared("--model", str(ROOT / "examples/xgboost/model/wine.ubj")) == expected
    frame = pd.DataFrame({"area": [1.0, 2.0], "floors": [1, 2], "garden": [True, False]})
    xgboost.train({}, xgboost.DMatrix(frame, [1.0, 2.0]), 1).save_model(folder / "prices.ubj")
    columns = ['"area", "FP32", [-1]', '"floors", "INT64", [-1]', '"garden", "BOOL", [-1]']
    expected = [*columns, '"prediction", "FP32", [-1]', "model, frame: pd.DataFrame"]
    assert declared("--model", "prices.ubj") == expected
    frame[["garden", "floors", "area"]].to_csv("rows.csv", index=False)
    assert declared("rows.csv", "--model", "prices.ubj")[:3] == [
        columns[0].replace("32", "64"),
        *columns[1:],
    ]


def test_help_names_the_risk() -> None:
    """The help mentions that loading a pickle runs code."""
    assert "runs the code in it" in " ".join(run("describe", "--help").stdout.split())
    assert "describe" in main.list_commands(None)  # type: ignore[arg-type]
