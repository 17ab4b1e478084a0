"""Checks of METADATA when the service starts, and of content types."""

from collections.abc import Iterable
from typing import Any

from app.codecs import SHIPPED
from app.codecs.base import check_input_content_type, check_request_content_type
from app.protocol.errors import ConfigurationError, InvalidInput, format_value, join_names
from app.protocol.metadata import MetadataTensor, ModelMetadata

# Content types of tensors whose missing values can be declared, because their elements are text
# (C13).
TYPES_WITH_MISSING = ("str", "datetime")


def check_metadata(metadata: Any) -> None:
    """Raise ConfigurationError unless `metadata` is a ModelMetadata with valid members and unique
    tensor names.
    """
    if not isinstance(metadata, ModelMetadata):
        raise ConfigurationError(
            f"Invalid METADATA. Expected a ModelMetadata, got {type(metadata).__name__}."
        )
    _check_path_segment("name", metadata.name)
    _check_path_segment("version", metadata.version)
    _check_tensor_list("inputs", metadata.inputs)
    _check_tensor_list("outputs", metadata.outputs)
    _check_properties(metadata.properties)

    for tensor in metadata.inputs:
        _check_tensor(tensor, is_input=True)
    for tensor in metadata.outputs:
        _check_tensor(tensor, is_input=False)

    if metadata.content_type is not None:
        try:
            check_request_content_type(metadata.content_type)
        except InvalidInput as error:
            raise ConfigurationError(str(error.about("METADATA"))) from None


def check_content_type(content_type: Any, datatype: str) -> None:
    """Raise InvalidInput if the content type, which can be None, is unknown or does not support the
    datatype.
    """
    if content_type is None:
        return
    check_input_content_type(content_type)
    if content_type in SHIPPED - {"np"} and datatype != "BYTES":
        raise InvalidInput(
            subject="datatype", expected=f"BYTES for content type {content_type}", got=datatype
        )


def _check_path_segment(member: str, value: Any) -> None:
    """Raise ConfigurationError unless the value can be a part of URLs (R3)."""
    if not isinstance(value, str) or not value or "/" in value:
        raise ConfigurationError(
            f"METADATA: invalid {member}. Expected text without a slash, got {value!r}."
        )


def _check_tensor_list(member: str, tensors: Any) -> None:
    is_list = isinstance(tensors, list | tuple)
    if not is_list or not all(isinstance(tensor, MetadataTensor) for tensor in tensors):
        raise ConfigurationError(
            f"METADATA: invalid {member}. Expected a list of MetadataTensor, got {tensors!r}."
        )
    names = [tensor.name for tensor in tensors]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise ConfigurationError(
            f"METADATA: duplicate {member}. Got {join_names(sorted(repeated))} twice."
        )


def _check_properties(properties: Any) -> None:
    if not isinstance(properties, dict) or not _are_strings([*properties, *properties.values()]):
        raise ConfigurationError(
            f"METADATA: invalid properties. Expected a dict of strings, got {properties!r}. "
            "Convert names and values with str()."
        )


def _are_strings(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _check_tensor(tensor: MetadataTensor, *, is_input: bool) -> None:
    """Raise ConfigurationError if a tensor's content type, missing value or `optional` is not
    valid.

    MetadataTensor itself has already checked the datatype and the shape. Content types are checked
    later, because app/custom.py can register further ones.
    """
    missing: Any = tensor.missing
    optional: Any = tensor.optional
    try:
        check_content_type(tensor.content_type, tensor.datatype)
        is_text = tensor.content_type in TYPES_WITH_MISSING and isinstance(missing, str)
        if missing is not None and not is_text:
            expected = 'a string, with content type "str" or "datetime"'
            raise InvalidInput(subject="missing", expected=expected, got=format_value(missing))
        if not isinstance(optional, bool):
            raise InvalidInput(
                subject="optional", expected="True or False", got=format_value(optional)
            )
        if optional and not is_input:
            expected = "False, because only inputs can be optional"
            raise InvalidInput(subject="optional", expected=expected, got="True")
    except InvalidInput as error:
        raise ConfigurationError(str(error.about("METADATA, tensor", tensor.name))) from None
