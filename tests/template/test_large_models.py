"""The ways to share a model between workers, in docs/guides/large-models.md."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.kit.processes import gunicorn, workers
from tests.kit.projects import make_project

from .blocks import read_guide
from .guides import GUIDES

# More than the memory that a worker needs for its packages, so that a copy of the model is noticed.
MODEL_BYTES = 2**28
COLUMNS = 64
ROWS = MODEL_BYTES // COLUMNS // np.dtype("f4").itemsize
# The edge of a square matrix with MODEL_BYTES.
EDGE = 2**13

# What a section leaves to its reader, for a model with inputs of `columns` numbers. predict() uses the whole model.
REST_OF_PREDICT = """
from app.api import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name="shared",
    version="1",
    platform="test",
    inputs=[MetadataTensor("x", "FP32", [-1, {columns}])],
    outputs=[MetadataTensor("y", "FP32", [-1])],
)


def predict(model, x):
    return {result}.astype("f4")
"""


def write_vectors(folder: Path) -> None:
    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (ROWS, COLUMNS))
    vectors.flush()


def write_neighbors(folder: Path) -> None:
    import joblib
    from sklearn.neighbors import KNeighborsRegressor

    points = np.zeros((ROWS, COLUMNS), np.float32)
    model = KNeighborsRegressor(algorithm="brute").fit(points, points[:, 0])
    joblib.dump(model, folder / "neighbors.joblib")


def write_safetensors(folder: Path) -> None:
    tensor = {"dtype": "F32", "shape": [ROWS, COLUMNS], "data_offsets": [0, MODEL_BYTES]}
    header = json.dumps({"__metadata__": {"format": "np"}, "vectors": tensor}).encode()
    header += b" " * (-len(header) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(file.tell() + MODEL_BYTES)


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protobuf message: an integer, or a text, message or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    digits = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def write_onnx(folder: Path) -> None:
    """Write original.onnx, which multiplies its input with a matrix. Its weights are in the file itself."""
    float_type = 1
    shape = field(1, field(2, b"n")) + field(1, field(1, EDGE))
    tensor_type = field(1, field(1, float_type) + field(2, shape))
    node = field(1, b"x") + field(1, b"weights") + field(2, b"y") + field(4, b"MatMul")
    weights = field(1, EDGE) + field(1, EDGE) + field(2, float_type) + field(8, b"weights")
    weights += field(9, bytes(MODEL_BYTES))

    graph = field(1, node) + field(2, b"graph") + field(5, weights)
    graph += field(11, field(1, b"x") + field(2, tensor_type))
    graph += field(12, field(1, b"y") + field(2, tensor_type))
    ir_version = field(1, 8)
    opset = field(8, field(2, 17))
    (folder / "original.onnx").write_bytes(ir_version + field(7, graph) + opset)


def section(heading: str) -> dict[str, str]:
    """Return the files of a section of the page, without its subsections."""
    page = (GUIDES / "large-models.md").read_text()
    text = re.split(rf"^##+ {heading}$", page, flags=re.MULTILINE)[1]
    return read_guide(re.split(r"^##+ ", text, flags=re.MULTILINE)[0]).files


def memory(pid: int, path: Path | None = None) -> int | None:
    """Return the bytes of anonymous memory of a process, which it does not share: all, or those of a mapped file.

    Return None if the process has not mapped the file.
    """
    if path is None:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    else:
        mappings = re.split(r"^(?=[0-9a-f]+-)", Path(f"/proc/{pid}/smaps").read_text(), flags=re.M)
        text = "".join(mapping for mapping in mappings if f"{path}\n" in mapping)
    sizes = re.findall(r"^Anonymous: +(\d+) kB", text, re.MULTILINE)
    return sum(map(int, sizes)) * 2**10 if sizes else None


@pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="only Linux has the figures"
)
@pytest.mark.parametrize(
    ("heading", "package", "write_model", "file", "columns", "result"),
    [
        ("Share the model between workers", "numpy", write_vectors, "vectors.npy", 0, ""),
        pytest.param(
            "scikit-learn",
            "sklearn",
            write_neighbors,
            "neighbors.joblib",
            COLUMNS,
            "model.predict(x)",
            marks=pytest.mark.slow,
        ),
        (
            "safetensors",
            "numpy",
            write_safetensors,
            "model.safetensors",
            COLUMNS,
            '(x @ model["vectors"].sum(axis=0))',
        ),
        pytest.param(
            "ONNX Runtime",
            "onnxruntime",
            write_onnx,
            "shared.bin",
            EDGE,
            'model.run(None, {"x": x})[0][:, 0]',
            marks=pytest.mark.slow,
        ),
    ],
    ids=["NumPy", "scikit-learn", "safetensors", "ONNX Runtime"],
)
def test_workers_share_the_model(
    tmp_path: Path,
    heading: str,
    package: str,
    write_model: Callable[[Path], None],
    file: str,
    columns: int,
    result: str,
) -> None:
    """With the load() of the page, each worker maps the file of the model, and has no copy of its own."""
    pytest.importorskip(package)
    project = make_project(tmp_path)
    files = section(heading)
    if columns:
        files["app/predict.py"] += REST_OF_PREDICT.format(columns=columns, result=result)
    for name, content in files.items():
        (project / name).write_text(content)

    write_model(project / "model")
    try:
        if "share_model.py" in files:
            subprocess.run([sys.executable, "share_model.py"], cwd=project, check=True)
        with gunicorn(project, WORKERS=2, PYTHONPATH=project) as service:
            for worker in workers(service):
                assert memory(worker, project / "model" / file) == 0
                assert memory(worker) < MODEL_BYTES
    finally:
        for path in (project / "model").iterdir():
            path.unlink()  # pytest keeps tmp_path
