"""Checks of METADATA when the service starts."""

from typing import Any

from app.codecs import SHIPPED, find_input_codec, find_request_codec
from app.protocol.errors import ConfigurationError, InvalidInput, format_value, join_names
from app.protocol.metadata import MetadataTensor, ModelMetadata


def check_metadata(metadata: Any) -> None:
    """Raise ConfigurationError unless `metadata` is a ModelMetadata with valid members and unique tensor names."""
    if not isinstance(metadata, ModelMetadata):
        raise ConfigurationError(
            f"Invalid METADATA. Expected a ModelMetadata, got {type(metadata).__name__}."
        )
    for label, value in (("name", metadata.name), ("version", metadata.version)):
        if not isinstance(value, str) or not value or "/" in value:
            raise ConfigurationError(
                f"METADATA: invalid {label}. Expected text without a slash, got {value!r}."
            )
    for label, tensors in (("inputs", metadata.inputs), ("outputs", metadata.outputs)):
        if not isinstance(tensors, list | tuple) or any(
            not isinstance(each, MetadataTensor) for each in tensors
        ):
            raise ConfigurationError(
                f"METADATA: invalid {label}. Expected a list of MetadataTensor, got {tensors!r}."
            )
        names = [tensor.name for tensor in tensors]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ConfigurationError(
                f"METADATA: duplicate {label}. Got {join_names(sorted(repeated))} twice."
            )
    found = metadata.properties
    if not isinstance(found, dict) or not all(
        isinstance(each, str) for each in (*found, *found.values())
    ):
        problem = f"METADATA: invalid properties. Expected a dict of strings, got {found!r}."
        raise ConfigurationError(f"{problem} Convert names and values with str().")
    check_content_types(metadata)


def check_content_types(metadata: ModelMetadata) -> None:
    """Raise ConfigurationError if a content type or a missing value in METADATA is not valid for its tensor."""
    subject: tuple[str, ...] = ("METADATA",)
    try:
        if metadata.content_type is not None:
            find_request_codec(metadata.content_type)
        for tensor in (*metadata.inputs, *metadata.outputs):
            subject, content_type = ("METADATA, tensor", tensor.name), tensor.content_type
            check_content_type(content_type, tensor.datatype)
            is_text = content_type in ("str", "datetime") and isinstance(tensor.missing, str)
            if tensor.missing is not None and not is_text:
                expected = 'a string, with content type "str" or "datetime"'
                raise InvalidInput(
                    subject="missing", expected=expected, got=format_value(tensor.missing)
                )
    except InvalidInput as error:
        raise ConfigurationError(str(error.about(*subject))) from None


def check_content_type(content_type: Any, datatype: str) -> None:
    """Raise InvalidInput if the content type, which can be None, is unknown or does not support the datatype."""
    if content_type is None:
        return
    find_input_codec(content_type)
    if content_type in SHIPPED - {"np"} and datatype != "BYTES":
        raise InvalidInput(
            subject="datatype", expected=f"BYTES for content type {content_type}", got=datatype
        )
