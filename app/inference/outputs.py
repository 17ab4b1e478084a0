"""Requested outputs (R16), and validation and encoding of predict()'s results.

match_outputs() compares the values that predict() returns with METADATA. to_output() encodes one
value:

| Value                                          | Array                                   |
|------------------------------------------------|-----------------------------------------|
| ndarray or another value, content type plain   | NumPy converts it                       |
| ResponseOutput                                 | its data and its parameters             |
| pandas column (Series, Index, array)           | by the declared content type or its dtype |
| empty list                                     | no rows                                 |
| any other value                                | by the codec of the declared content type |

A content type is plain if NumPy's conversion is the whole encoding: none, `np`, or `str`, whose
elements JSON and the binary form represent themselves.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from app.codecs import SHIPPED, NumpyCodec, StringCodec, find_input_codec
from app.codecs.base import decode_tensor, decoding_error, encoding_error
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
    Datatype,
    as_array,
    as_bytes,
    datatype_of,
    format_shape,
    object_array,
    plain_array,
    text_array,
)
from app.protocol.errors import (
    InferenceError,
    InvalidInput,
    ModelError,
    format_value,
    join_names,
)
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import ResponseOutput

_PLAIN_CONTENT_TYPES = (None, "np", "str")
# Content types whose codecs encode one element after the other, so that NumPy must not convert the
# list.
_ELEMENTWISE_CONTENT_TYPES = ("base64", "bytes", "datetime")


def requested_outputs(request: InferenceRequest, declared: Declared) -> list[str]:
    """Return the names of the requested outputs (R16).

    Raise InvalidInput if a name or content type is not valid.
    """
    names: list[str] = []
    for output in request.outputs:
        if output.name not in declared:
            raise InvalidInput(
                "unknown output", expected=join_names(declared), got=format_value(output.name)
            )
        if output.name in names:
            raise InvalidInput("requested twice").about("output", output.name, is_declared=True)
        content_type = output.parameters.get("content_type")
        try:
            check_content_type(content_type, declared[output.name].datatype)
        except InvalidInput as error:
            raise error.about("output", output.name, is_declared=True) from None
        names.append(output.name)
    return names


def match_outputs(
    values: dict[str, Any], declared: Declared, requested: Mapping[str, Any]
) -> dict[str, ResponseOutput]:
    """Return predict()'s values as outputs with the declared datatypes.

    `requested` has the content type, or None, of each requested output by name (C11). It is empty
    if the client wants all outputs. Otherwise, predict() may omit the others. Raise ModelError if
    an output is not declared, does not match its declaration, or is missing. Raise InvalidInput if
    a requested content type does not fit.
    """
    for name in values:
        if name not in declared:
            problem = "returned by predict(), but not declared in METADATA"
            raise ModelError(problem).about("output", str(name), is_declared=True)

    outputs = {}
    for name, tensor in declared.items():
        if name not in values:
            if requested and name not in requested:
                continue
            problem = f"not returned by predict(), which returned {join_names(values)}"
            raise ModelError(problem).about("output", name, is_declared=True)
        try:
            output = to_output(values[name], tensor)
        except InferenceError as error:
            problem = "predict() returned a result that does not match METADATA"
            mismatch = _mismatch_error(ModelError, problem, error)
            raise mismatch.about("output", name, is_declared=True) from None

        content_type = requested.get(name)
        if content_type is not None and content_type != output.parameters.get("content_type"):
            output = _encode_again(output, tensor, content_type)
        outputs[name] = output
    return outputs


def _mismatch_error(
    error_class: type[InferenceError], problem: str, error: InferenceError
) -> InferenceError:
    """Return the error for an output that cannot be encoded. `error` is the reason.

    The subject of the new error is the output, not a part of it.
    """
    problem = f"{problem}: {error.reason()}"
    if error.got is None:
        return error_class(problem, expected=error.expected, remedy=error.remedy)
    return error_class(problem, expected=error.expected, got=error.got, remedy=error.remedy)


def _encode_again(
    output: ResponseOutput, tensor: MetadataTensor, content_type: str
) -> ResponseOutput:
    """Encode the output with the content type that the client requests (C11).

    Raise InvalidInput if it does not fit.
    """
    try:
        value = decode_tensor(output, NumpyCodec)
        if isinstance(value, list) and len(value) == output.data.size:
            value = object_array(value).reshape(output.data.shape)
        encoded = to_output(value, replace(tensor, content_type=content_type))
        _check_decodable(encoded, content_type)
    except InferenceError as error:
        problem = "requested content type does not fit"
        mismatch = _mismatch_error(InvalidInput, problem, error)
        raise mismatch.about("output", output.name, is_declared=True) from None
    return encoded


def _check_decodable(output: ResponseOutput, content_type: str) -> None:
    """Raise InferenceError if the client could not decode the output: `str` rejects bytes that are
    not UTF-8.
    """
    codec = find_input_codec(content_type)
    try:
        codec.decode_output(output)
    except InferenceError:
        raise
    except Exception as error:  # a codec of the project can raise any exception
        raise decoding_error(codec, error) from error


def to_output(value: Any, tensor: MetadataTensor) -> ResponseOutput:
    """Encode `value` as the declared output. Raise InferenceError if it does not match."""
    parameters = tensor.parameters
    is_plain = tensor.content_type in _PLAIN_CONTENT_TYPES
    array: Any
    if is_plain and isinstance(value, np.ndarray):  # first, because it is the most frequent value
        array = value
    elif isinstance(value, ResponseOutput):
        array = match_rank(value.data, tensor.shape)
        parameters = {**parameters, **to_builtin(value.parameters)}
    elif is_column(value) and tensor.content_type != "np":
        array, content_type = _encode_with_codec(value, tensor)
        if content_type is not None:
            parameters = {"content_type": content_type}
    elif _has_no_rows(value, tensor):
        array = _empty_array(tensor)
    elif is_plain:
        array = value
    else:
        array, _ = _encode_with_codec(value, tensor)

    array = to_datatype(array, tensor.datatype)
    if not matches_shape(array.shape, tensor.shape):
        # Not as `got`, which the log omits: a shape contains no data from the client.
        shapes = f"{format_shape(tensor.shape)}, got {format_shape(array.shape)}"
        raise ModelError(subject="shape", expected=shapes)
    return ResponseOutput.of(tensor.name, tensor.datatype, array, parameters, tensor.missing)


def _has_no_rows(value: Any, tensor: MetadataTensor) -> bool:
    """Return True for an empty list, if the first dimension is the number of rows.

    The list does not define the size of the other dimensions. Codecs of app/custom.py encode empty
    lists themselves.
    """
    is_empty_list = isinstance(value, list) and not value
    if not is_empty_list:
        return False
    has_custom_codec = tensor.content_type is not None and tensor.content_type not in SHIPPED
    has_variable_rows = bool(tensor.shape) and tensor.shape[0] == -1
    return has_variable_rows and not has_custom_codec


def _empty_array(tensor: MetadataTensor) -> np.ndarray:
    shape = [max(0, size) for size in tensor.shape]
    return np.empty(shape, datatype_of(tensor.datatype).dtype)


def _encode_with_codec(value: Any, tensor: MetadataTensor) -> tuple[Any, str | None]:
    """Return the array of a pandas column or of another value, and its content type if METADATA
    declares none.
    """
    try:
        if is_column(value):
            return _encode_pandas_column(value, tensor)
        return _encode_value(value, tensor), None
    except InferenceError:
        raise
    except Exception as error:  # codecs of the project and extension arrays can raise any exception
        raise encoding_error(value, tensor.content_type, error) from error


def _encode_pandas_column(value: Any, tensor: MetadataTensor) -> tuple[Any, str | None]:
    """Return the array of a pandas column, and its content type if METADATA declares none.

    A declared content type takes precedence over the dtype of the column, because the column may be
    empty or have missing values. Without one, the dtype decides.
    """
    if tensor.content_type is not None:
        array = _encode_declared_column(value, tensor)
        return match_rank(array, tensor.shape), None
    array, content_type = _encode_column_by_dtype(value, tensor)
    return match_rank(array, tensor.shape), content_type


def _encode_declared_column(value: Any, tensor: MetadataTensor) -> np.ndarray:
    """Encode a pandas column with the declared content type."""
    elements = column_values(value)
    if tensor.content_type == StringCodec.ContentType:
        return object_array(elements)
    # encode_moments() writes missing moments as null. A declared text for them needs the codec.
    if tensor.content_type == DatetimeCodec.ContentType and tensor.missing is None:
        return encode_moments(elements).array
    return _encode_value(elements, tensor)


def _encode_column_by_dtype(value: Any, tensor: MetadataTensor) -> tuple[np.ndarray, str | None]:
    """Encode a pandas column by its dtype. Return the array and its content type."""
    is_number = tensor.datatype != "BYTES"
    if is_number and value.dtype == object:  # Python numbers
        return plain_array(list(value)), None
    column = encode_column(value, allow_null=True)
    if is_number and column.content_type == PandasJsonCodec.ContentType:
        raise ModelError(f"{tensor.datatype} cannot represent the missing values of {value.dtype}")
    return column.array, column.content_type


def _encode_value(value: Any, tensor: MetadataTensor) -> np.ndarray:
    """Encode `value` with the codec of the output's content type. Return the array."""
    if isinstance(value, list | tuple) and tensor.content_type in _ELEMENTWISE_CONTENT_TYPES:
        value = plain_array(value, object)
    options = {} if tensor.missing is None else {"missing": tensor.missing}  # C13
    codec = find_input_codec(tensor.content_type)
    array: np.ndarray = codec.encode_output(tensor.name, value, **options).data

    if isinstance(value, np.ndarray) and tensor.content_type in SHIPPED:  # one text per element
        return match_rank(array.reshape(value.shape), tensor.shape)
    if not tensor.shape and array.shape == (1, 1):
        return array.reshape(())
    return match_rank(array, tensor.shape)


def to_builtin(parameters: dict[str, Any]) -> dict[str, Any]:
    """Convert NumPy scalars in parameters to Python scalars. Raise ModelError if a parameter is not
    valid (R17).

    Remove `binary_data_size`, because the transport sets it.
    """
    builtin = {}
    for name, value in parameters.items():
        if name == "binary_data_size":
            continue
        if isinstance(value, np.generic):
            value = value.item()
        if not _is_valid_parameter(name, value):
            raise ModelError(
                f"predict() returned an invalid parameter {format_value(name)}",
                expected="a string, a finite number of 64 bits or a boolean",
                got=repr(value),
            )
        builtin[name] = value
    return builtin


def _is_valid_parameter(name: Any, value: Any) -> bool:
    """Return True if REST and gRPC can both represent the parameter: a boolean is also an int."""
    if not isinstance(name, str) or not _is_unicode(name):
        return False
    if isinstance(value, int):
        return -(2**63) <= value < 2**64
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and _is_unicode(value)


def _is_unicode(text: str) -> bool:
    """Return False if `text` contains half of a surrogate pair, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_datatype(value: Any, name: str) -> np.ndarray:
    """Convert `value` to an array of the datatype `name`.

    Raise InvalidInput if more than rounding is needed.
    """
    datatype = datatype_of(name)
    if datatype.is_text:
        return _to_text_array(value)
    if type(value) is np.ndarray and value.dtype == datatype.dtype and not datatype.is_bf16:
        return value
    if datatype.is_float:
        value = plain_array(value)
        _check_no_integers(value, datatype)
    return as_array(value, datatype)


def _to_text_array(value: Any) -> np.ndarray:
    """Return an object array of str or of bytes. Raise InvalidInput if a str is not valid Unicode.

    An array of str stays one, because JSON needs str. Otherwise, str elements are encoded.
    """
    array = text_array(value)
    elements = array.ravel().tolist()
    encoded_elements = as_bytes(elements)
    if set(map(type, elements)) == {str}:
        return object_array(elements).reshape(array.shape)
    return object_array(encoded_elements).reshape(array.shape)


def _check_no_integers(array: np.ndarray, datatype: Datatype) -> None:
    """Raise InvalidInput if predict() returns integers for a floating-point datatype.

    NumPy could convert them, but then the owner has probably returned the wrong array, or declared
    the wrong datatype.
    """
    if array.size and array.dtype.kind in "iu":
        raise InvalidInput(
            subject="datatype",
            expected=datatype.name,
            got=str(array.dtype),
            remedy="use astype(float)",
        )
