"""The beginning of predict.py as Python code: imports, METADATA, EXAMPLE and the signature of
predict().
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from textwrap import fill
from typing import Any

from app.protocol.metadata import MetadataTensor

# The parameter of predict() if it does not have one for each input.
_ONE_PARAMETER = "inputs: dict[str, np.ndarray]"
_MAX_PARAMETERS_LENGTH = 96
_MAX_LINE_LENGTH = 120
_TEMPLATE = '''\
import {library}

from app.api import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name={name},
    version="1",
    platform={platform},
    inputs=[
{inputs}\
    ],
    outputs=[{comment}
{outputs}\
    ],
)
{example}

def predict(model, {parameters}):
    """Return the outputs by name."""'''


@dataclass
class Declarations:
    """The declarations of predict.py. `example` has the values of a row by input."""

    name: str
    platform: str
    inputs: Sequence[MetadataTensor]
    outputs: Sequence[MetadataTensor]
    example: Mapping[str, list[Any]]


def is_column(tensor: MetadataTensor) -> bool:
    """Return True if the input is a column of a table: it has one value per row."""
    return tensor.shape == [-1]


def write_code(declarations: Declarations) -> str:
    """Return the code. Without outputs, it contains one as a placeholder."""
    inputs = declarations.inputs
    if all(map(is_column, inputs)):
        library = "pandas as pd"
        parameters = "frame: pd.DataFrame"
    else:
        library = "numpy as np"
        parameters = _array_parameters(inputs)

    outputs = declarations.outputs
    comment = ""
    if not outputs:
        outputs = [MetadataTensor("prediction", "FP64", [-1])]
        comment = "  # placeholder: declare the result of predict()"

    return _TEMPLATE.format(
        library=library,
        name=_to_code(declarations.name),
        platform=_to_code(declarations.platform),
        inputs="".join(map(_tensor_line, inputs)),
        comment=comment,
        outputs="".join(map(_tensor_line, outputs)),
        example=_example_code(declarations.example),
        parameters=parameters,
    )


def _array_parameters(inputs: Sequence[MetadataTensor]) -> str:
    """Return one parameter of predict() per input, or one for all if their names are not valid
    parameters or are too long.
    """
    parameters = []
    for tensor in inputs:
        if not _is_parameter(tensor.name):
            return _ONE_PARAMETER
        parameters.append(f"{tensor.name}: np.ndarray")
    code = ", ".join(parameters)
    return code if len(code) <= _MAX_PARAMETERS_LENGTH else _ONE_PARAMETER


def _is_parameter(name: str) -> bool:
    """Return True if predict() can have a parameter with this name. Its first one is `model`."""
    return name.isidentifier() and not iskeyword(name) and name != "model"


def _tensor_line(tensor: MetadataTensor) -> str:
    arguments = [_to_code(tensor.name), _to_code(tensor.datatype), _to_code(tensor.shape)]
    if tensor.content_type is not None:
        arguments.append(f"content_type={_to_code(tensor.content_type)}")
    if tensor.missing is not None:
        arguments.append(f"missing={_to_code(tensor.missing)}")
    return f"        MetadataTensor({', '.join(arguments)}),\n"


def _example_code(example: Mapping[str, list[Any]]) -> str:
    """Return the assignment of EXAMPLE, or "" for an empty example."""
    if not example:
        return ""
    lines = ["EXAMPLE = {\n"]
    for name, values in example.items():
        lines.append(_example_line(name, values))
    lines.append("}\n")
    return "".join(lines)


def _example_line(name: str, values: list[Any]) -> str:
    """Return a line with the values of an input. It is wrapped if it is long, unless it contains
    text.
    """
    code = _to_code(values)
    line = f"    {_to_code(name)}: {code},"
    contains_text = '"' in code
    if not contains_text:
        line = fill(line, _MAX_LINE_LENGTH, subsequent_indent=" " * 8, break_long_words=False)
    return line + "\n"


def _to_code(value: Any) -> str:
    """Return a value of JSON as Python code, with text in double quotes."""
    if isinstance(value, list):
        elements = map(_to_code, value)
        return f"[{', '.join(elements)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)
