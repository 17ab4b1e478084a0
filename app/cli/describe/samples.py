"""Sample inputs: a request, an array or a table in a file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from app.cli.describe.predict_code import is_column
from app.codecs.frames import MOMENT, NO_TIME, EncodedColumn, encode_array, encode_column
from app.protocol.errors import InvalidInput
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import RequestInput

if TYPE_CHECKING:
    import pandas as pd


class Sample(NamedTuple):
    """The declarations of sample inputs, and the first row of their values by input."""

    inputs: list[MetadataTensor]
    example: dict[str, list[Any]]


def read_sample(path: Path, model_inputs: Sequence[MetadataTensor]) -> Sample:
    """Read sample inputs of a model.

    An array is declared as in `model_inputs`. A column is declared with the datatype that it has in
    the sample. Raise InvalidInput if the sample has no values, or two inputs with the same name.
    """
    tensors = _read_tensors(path, model_inputs)
    names = {tensor.name for tensor in tensors if tensor.data.size}
    if not tensors or len(names) < len(tensors):
        raise InvalidInput(
            "unsuitable sample", expected="a row of values, and inputs with different names"
        )

    # In JSON form, missing values are null.
    body, _ = InferenceRequest(tensors).to_http(binary=False, nonfinite="null")
    model_tensors = {tensor.name: tensor for tensor in model_inputs}
    inputs = []
    example = {}
    for member in json.loads(body)["inputs"]:
        name = member["name"]
        values = np.array(member["data"], object).reshape(member["shape"])
        example[name] = values[:1].tolist()
        tensor = model_tensors.get(name)
        if tensor is None or is_column(tensor):
            tensor = _declare(member, values)
        inputs.append(tensor)
    return Sample(inputs, example)


def _declare(member: dict[str, Any], values: np.ndarray) -> MetadataTensor:
    """Return the declaration of an input in JSON form. `values` are its data."""
    name = member["name"]
    datatype = member["datatype"]
    shape = [-1, *values.shape[1:]]
    if datatype != "BYTES":
        return MetadataTensor(name, datatype, shape)

    texts = [text for text in values.flat if text not in (None, NO_TIME)]
    if texts and all(MOMENT.fullmatch(str(text)) for text in texts):
        content_type = "datetime"
    else:
        parameters = member.get("parameters", {})
        content_type = parameters.get("content_type", "str")
    missing = "" if len(texts) < values.size else None
    return MetadataTensor(name, datatype, shape, content_type, missing)


def _read_tensors(path: Path, model_inputs: Sequence[MetadataTensor]) -> list[RequestInput]:
    """Return the tensors of an array, a request or a table."""
    if path.suffix == ".npy":
        return [_read_array(path, model_inputs)]
    if path.suffix == ".csv":
        return _encode_table(_read_csv(path), model_inputs)

    import pandas as pd

    if path.suffix == ".parquet":
        return _encode_table(pd.read_parquet(path, engine="pyarrow"), model_inputs)
    content = json.loads(path.read_bytes())
    if isinstance(content, dict):
        return InferenceRequest.from_dict(content).inputs
    for row in content:
        if not isinstance(row, dict):
            raise TypeError(f"{type(row).__name__!r} object is not a mapping")
    return _encode_table(pd.DataFrame(content), model_inputs)


def _read_array(path: Path, model_inputs: Sequence[MetadataTensor]) -> RequestInput:
    """Return the first row of an array. It has the name of the model's first input."""
    name = "features"
    if model_inputs:
        name = model_inputs[0].name
    array = np.load(path, mmap_mode="r")
    return _to_tensor(name, encode_array(array[:1]))


def _read_csv(path: Path) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.read_csv(path, low_memory=False, index_col=False)
    # pandas has renamed duplicate columns. Restore the names, so that they are an error.
    header = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False)
    frame.columns = header.iloc[0]
    return frame


def _encode_table(
    frame: "pd.DataFrame", model_inputs: Sequence[MetadataTensor]
) -> list[RequestInput]:
    """Return one tensor per column. If the model has columns, select those, in its order."""
    model_columns = [tensor.name for tensor in model_inputs if is_column(tensor)]
    if model_columns:
        frame = frame[model_columns]
    tensors = []
    for name, series in frame.items():
        column = encode_column(series, allow_null=True)
        tensors.append(_to_tensor(str(name), column))
    return tensors


def _to_tensor(name: str, column: EncodedColumn) -> RequestInput:
    parameters = {"content_type": column.content_type}
    return RequestInput(name, column.datatype, data=column.array, parameters=parameters)
