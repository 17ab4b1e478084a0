"""Requested outputs (R16), and validation and encoding of predict()'s results."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from app.codecs import SHIPPED, NumpyCodec, StringCodec, find_input_codec
from app.codecs.base import decode_tensor, encoding_error
from app.codecs.datetimes import DatetimeCodec
from app.codecs.frames import (
    PandasJsonCodec,
    column_values,
    encode_column,
    encode_moments,
    is_column,
)
from app.inference.inputs import Declared, match_rank, matches_shape
from app.inference.metadata_checks import check_content_type
from app.protocol.datatypes import (
    as_array,
    as_bytes,
    datatype_of,
    format_shape,
    object_array,
    plain_array,
    text_array,
)
from app.protocol.errors import (
    NOTHING,
    InferenceError,
    InvalidInput,
    ModelError,
    format_value,
    join_names,
)
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import ResponseOutput


def requested_outputs(request: InferenceRequest, declared: Declared) -> list[str]:
    """Return the names of the requested outputs (R16). Raise InvalidInput if a name or content type is not valid."""
    wanted: list[str] = []
    for output in request.outputs:
        if output.name not in declared:
            raise InvalidInput(
                "unknown output", expected=join_names(declared), got=format_value(output.name)
            )
        if output.name in wanted:
            raise InvalidInput("requested twice").about("output", output.name, is_declared=True)
        try:
            check_content_type(
                output.parameters.get("content_type"), declared[output.name].datatype
            )
        except InvalidInput as error:
            raise error.about("output", output.name, is_declared=True) from None
        wanted.append(output.name)
    return wanted


def match_outputs(
    values: dict[str, Any], declared: Declared, wanted: Mapping[str, Any]
) -> dict[str, ResponseOutput]:
    """Return predict()'s values as outputs with the declared datatypes.

    Raise ModelError if an output is not declared, does not match its declaration, or is missing. If some outputs are
    `wanted`, others may be missing. Raise InvalidInput if the content type of a wanted output does not fit (C11).
    """
    for name in values:
        if name not in declared:
            problem = "returned by predict(), but not declared in METADATA"
            raise ModelError(problem).about("output", str(name), is_declared=True)
    outputs = {}
    for name, tensor in declared.items():
        if name not in values:
            if wanted and name not in wanted:
                continue
            problem = f"not returned by predict(), which returned {join_names(values)}"
            raise ModelError(problem).about("output", name, is_declared=True)
        try:
            outputs[name] = to_output(values[name], tensor)
        except InferenceError as error:
            problem = "predict() returned a result that does not match METADATA"
            raise mismatch_error(ModelError, problem, error).about(
                "output", name, is_declared=True
            ) from None
        if wanted and wanted.get(name) not in (None, outputs[name].parameters.get("content_type")):
            outputs[name] = reencode(outputs[name], tensor, wanted[name])
    return outputs


def mismatch_error(kind: type[InferenceError], problem: str, error: Exception) -> InferenceError:
    """Return the error for an output that cannot be encoded. The log omits the values of the output."""
    if not isinstance(error, InferenceError):
        return kind(problem, got=str(error))
    problem = f"{problem}: {error.reason()}"
    got = NOTHING if error.got is None else error.got
    return kind(problem, expected=error.expected, got=got, remedy=error.remedy)


def reencode(output: ResponseOutput, tensor: MetadataTensor, content_type: str) -> ResponseOutput:
    """Encode the output with the content type that the client requests (C11). Raise InvalidInput if it does not fit."""
    try:
        value = decode_tensor(output, NumpyCodec)
        if isinstance(value, list) and len(value) == output.data.size:
            value = object_array(value).reshape(output.data.shape)
        made = to_output(value, replace(tensor, content_type=content_type))
        find_input_codec(content_type).decode_output(
            made
        )  # for example, str rejects bytes that are not UTF-8
        return made
    except Exception as error:  # codecs of the project can raise any exception
        found = mismatch_error(InvalidInput, "requested content type does not fit", error)
        raise found.about("output", output.name, is_declared=True) from None


def to_output(value: Any, tensor: MetadataTensor) -> ResponseOutput:
    """Encode `value` as the declared output. Raise InferenceError, TypeError or ValueError if it does not match."""
    declared, parameters = tensor.content_type, tensor.parameters
    is_plain = declared in (None, "np", "str")
    is_shipped = is_plain or declared in SHIPPED
    is_empty = isinstance(value, list) and not value
    array: Any
    if is_plain and isinstance(value, np.ndarray):
        array = value
    elif isinstance(value, ResponseOutput):
        array, parameters = (
            match_rank(value.data, tensor.shape),
            {**parameters, **to_builtin(value.parameters)},
        )
    elif is_column(value) and declared != "np":
        array, content_type = encode_with_codec(value, tensor)
        parameters = {"content_type": content_type} if content_type else parameters
    elif is_empty and is_shipped and tensor.shape[:1] == [-1]:
        shape = [
            max(0, each) for each in tensor.shape
        ]  # an empty list does not define the other dimensions
        array = np.empty(shape, datatype_of(tensor.datatype).dtype)
    else:
        array = value if is_plain else encode_with_codec(value, tensor)[0]
    array = to_datatype(array, tensor.datatype)
    if not matches_shape(array.shape, tensor.shape):
        shapes = (
            f"{format_shape(tensor.shape)}, got {format_shape(array.shape)}"  # the log omits `got`
        )
        raise ModelError(subject="shape", expected=shapes)
    return ResponseOutput.of(tensor.name, tensor.datatype, array, parameters, tensor.missing)


def encode_with_codec(value: Any, tensor: MetadataTensor) -> tuple[Any, str | None]:
    """Return the array of a pandas column or of another value, and its content type if METADATA declares none."""
    try:
        if is_column(value):
            return encode_pandas_column(value, tensor)
        return encode_value(value, tensor), None
    except InferenceError:
        raise
    except Exception as error:  # codecs of the project and extension arrays can raise any exception
        raise encoding_error(value, tensor.content_type, error) from error


def encode_pandas_column(value: Any, tensor: MetadataTensor) -> tuple[Any, str | None]:
    """Return the array of a pandas column, and its content type if METADATA declares none.

    The declaration takes precedence over the data, which may be empty or have missing values.
    """
    declared, shape = tensor.content_type, tensor.shape
    if declared == DatetimeCodec.ContentType and tensor.missing is None:
        return match_rank(encode_moments(column_values(value)).array, shape), None
    if declared == StringCodec.ContentType:
        return match_rank(object_array(column_values(value)), shape), None
    if declared is not None:
        return encode_value(column_values(value), tensor), None
    if tensor.datatype != "BYTES" and value.dtype == object:
        return match_rank(plain_array(list(value)), shape), None
    column = encode_column(value, missing=StringCodec)
    if column.content_type == PandasJsonCodec.ContentType and tensor.datatype != "BYTES":
        raise ModelError(f"{tensor.datatype} cannot represent the missing values of {value.dtype}")
    return match_rank(column.array, shape), column.content_type


def encode_value(value: Any, tensor: MetadataTensor) -> np.ndarray:
    """Encode `value` with the codec of the output's content type. Return the array."""
    if isinstance(value, list | tuple) and tensor.content_type in ("base64", "bytes", "datetime"):
        value = plain_array(value, object)
    options = {} if tensor.missing is None else {"missing": tensor.missing}  # C13
    array = find_input_codec(tensor.content_type).encode_output(tensor.name, value, **options).data
    if isinstance(value, np.ndarray) and tensor.content_type in SHIPPED:  # one text per element
        array = array.reshape(value.shape)
    elif not tensor.shape and array.shape == (1, 1):
        array = array.reshape(())
    return match_rank(array, tensor.shape)


def to_builtin(parameters: dict[str, Any]) -> dict[str, Any]:
    """Convert NumPy scalars in parameters to Python scalars. Raise ModelError if a parameter is not valid (R17).

    Remove `binary_data_size`, because the transport sets it.
    """
    said = {
        name: each.item() if isinstance(each, np.generic) else each
        for name, each in parameters.items()
    }
    said.pop("binary_data_size", None)
    for name, each in said.items():
        is_integer = isinstance(each, int) and -(2**63) <= each < 2**64
        is_number = is_integer or (isinstance(each, float) and math.isfinite(each))
        is_valid = is_number or isinstance(each, str)
        text = f"{name}{each}"
        is_unicode = text.encode(errors="ignore").decode() == text
        if not (isinstance(name, str) and is_valid and is_unicode):
            problem = f"predict() returned an invalid parameter {format_value(name)}"
            raise ModelError(
                problem,
                expected="a string, a finite number of 64 bits or a boolean",
                got=repr(each),
            )
    return said


def to_datatype(value: Any, name: str) -> np.ndarray:
    """Convert `value` to an array of the datatype `name`. Raise InvalidInput if more than rounding is needed."""
    datatype = datatype_of(name)
    if datatype.is_text:
        array = text_array(value)
        elements = array.ravel().tolist()
        encoded_elements = as_bytes(elements)
        is_text = set(map(type, elements)) == {str}  # keep str elements, which JSON needs
        return object_array(elements if is_text else encoded_elements).reshape(array.shape)
    if type(value) is np.ndarray and value.dtype == datatype.dtype and not datatype.is_bf16:
        return value
    if datatype.is_float:
        value = plain_array(value)
        if value.size and value.dtype.kind in "iu":
            remedy = "use astype(float)"
            raise InvalidInput(
                subject="datatype", expected=name, got=str(value.dtype), remedy=remedy
            )
    return as_array(value, datatype)
