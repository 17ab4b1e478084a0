"""Requests, responses, tensors and metadata, independent of the transport."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import orjson

from app.protocol.binary_tensors import Buffer
from app.protocol.datatypes import Shape, as_array, check_count, check_shape, datatype_of, reshape
from app.protocol.errors import ConfigurationError, InferenceError, InvalidInput, format_value
from app.protocol.http_body import Binary, HttpMessage, read_http, read_output, read_tensors, write_http

Parameters = dict[str, Any]
MAX_TENSORS = 2**16  # maximum number of inputs, and of outputs, in a request (R20)


def check_number_of_tensors(member: str, count: int) -> None:
    """Raise InvalidInput if `member` (inputs or outputs) has more than MAX_TENSORS elements."""
    if count > MAX_TENSORS:
        raise InvalidInput("too many", subject=member, expected=f"at most {MAX_TENSORS}", got=count)


def parameter_error(name: str, value: object, expected: str = "a string, number or boolean") -> InvalidInput:
    """Return the error for a parameter with an invalid value (R17)."""
    return InvalidInput(expected=expected, got=format_value(value)).about("parameter", name)


class Tensor:
    """A named array with a datatype.

    `data` is an ndarray, or a value that NumPy can convert to one, such as a list. `shape` defaults to the shape of
    `data`. The elements of a BYTES tensor are bytes, str, or None for null in JSON.
    Raise InvalidInput if the datatype is unknown, or if the shape does not match the data.
    """

    __slots__ = ("data", "datatype", "name", "parameters")
    kind = "tensor"

    def __init__(
        self, name: str, datatype: str, shape: Shape | None = None, data: Any = (), parameters: Parameters | None = None
    ):
        array = as_array(data, datatype_of(datatype))
        if shape is not None and array.shape != tuple(shape):
            check_count(check_shape(shape), array.size)
            array = reshape(array, shape)
        self.name, self.datatype, self.data, self.parameters = name, datatype, array, parameters or {}

    @classmethod
    def of(cls, name: str, datatype: str, array: np.ndarray, parameters: Parameters) -> Self:
        """Create a tensor without validation. `array` must have the dtype of `datatype`."""
        tensor = cls.__new__(cls)
        tensor.name, tensor.datatype, tensor.data, tensor.parameters = name, datatype, array, parameters
        return tensor

    @property
    def shape(self) -> list[int]:
        return list(self.data.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.datatype!r}, {self.shape}, ...)"


class RequestInput(Tensor):
    """An input of a request."""

    __slots__ = ()
    kind = "input"


class ResponseOutput(Tensor):
    """An output of a response."""

    __slots__ = ()
    kind = "output"


@dataclass(slots=True)
class RequestOutput:
    """A requested output."""

    name: str
    parameters: Parameters = field(default_factory=dict)


@dataclass(slots=True)
class InferenceRequest:
    """An inference request. If `outputs` is empty, the response contains all outputs (R16)."""

    inputs: list[RequestInput]
    model_name: str | None = None
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)
    outputs: list[RequestOutput] = field(default_factory=list)

    def to_http(self, binary: Binary = True, nonfinite: str = "error") -> HttpMessage:
        """Return the body and its headers. With binary data, the request also asks for binary outputs by default."""
        parameters = {"binary_data_output": True, **self.parameters} if binary else self.parameters
        outputs = [without_empty({"name": each.name, "parameters": each.parameters}) for each in self.outputs]
        head = without_empty({"id": self.id, "parameters": parameters, "outputs": outputs})
        return write_http(head, "inputs", self.inputs, binary, nonfinite)

    def to_json(self) -> bytes:
        """Return the body as JSON. Raise InvalidInput if JSON cannot represent a tensor."""
        return self.to_http(binary=False)[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object as a dict of built-in types."""
        return dict(orjson.loads(self.to_json()))


@dataclass(slots=True)
class InferenceResponse:
    """The response to an inference request."""

    outputs: list[ResponseOutput]
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)

    def to_http(self, binary: Binary = True, nonfinite: str = "error") -> HttpMessage:
        """Return the body and its headers. `binary` selects the outputs in binary form: all, none, or by name."""
        head = {"model_name": self.model_name, "model_version": self.model_version}
        head |= without_empty({"id": self.id, "parameters": self.parameters})
        return write_http(head, "outputs", self.outputs, binary, nonfinite)

    def to_json(self) -> bytes:
        """Return the body as JSON. Raise InvalidInput if JSON cannot represent a tensor."""
        return self.to_http(binary=False)[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object as a dict of built-in types."""
        return dict(orjson.loads(self.to_json()))

    @classmethod
    def from_dict(cls, payload: Any, blobs: Buffer = b"") -> InferenceResponse:
        """Parse the JSON object of a response.

        Raise InvalidInput if it is malformed. If it contains `error`, raise InferenceError with the server's message.
        """
        members = payload if isinstance(payload, dict) else {}
        if "error" in members:
            raise InferenceError(str(members["error"]))
        outputs, parameters = members.get("outputs"), members.get("parameters") or {}
        if not isinstance(outputs, list) or not isinstance(parameters, dict):
            raise InvalidInput("invalid inference response", expected="an object with outputs")
        tensors = read_tensors([read_output(each) for each in outputs], blobs, ResponseOutput)
        name, version = members.get("model_name") or "", members.get("model_version")
        return cls(tensors, name, version, members.get("id"), parameters)

    @classmethod
    def from_http(cls, body: bytes | str, headers: Mapping[str, str]) -> InferenceResponse:
        """Parse an HTTP response with or without binary data. Raise the same exceptions as `from_dict`."""
        return cls.from_dict(*read_http(body, headers))


def without_empty(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members without None and empty collections. Keep an empty id (R8)."""
    return {name: value for name, value in members.items() if value or value == ""}


@dataclass(slots=True)
class MetadataTensor:
    """A declared input or output. In `shape`, -1 is a variable dimension, which can be 0 for an empty batch."""

    name: str
    datatype: str
    shape: list[int]
    content_type: str | None = None

    def __post_init__(self) -> None:
        try:
            datatype_of(self.datatype)
            is_list = isinstance(self.shape, list | tuple)
            check_shape([0 if each == -1 else each for each in self.shape] if is_list else self.shape, repr)
        except InvalidInput as error:
            error.remedy = "use -1 for a variable dimension" if error.subject == "shape" else ""
            raise ConfigurationError(str(error.about("METADATA, tensor", self.name))) from None
        self.shape = list(self.shape)

    @property
    def parameters(self) -> Parameters:
        """Return the parameters of the tensor in a response. Model metadata can have more (R6)."""
        return {"content_type": self.content_type} if self.content_type else {}

    def describe(self, is_optional: bool = False) -> dict[str, Any]:
        """Return the JSON object of the tensor in model metadata (R6)."""
        parameters = without_empty({**self.parameters, "optional": is_optional})
        head = {"name": self.name, "datatype": self.datatype, "shape": self.shape}
        return {**head, "parameters": parameters} if parameters else head


@dataclass(slots=True)
class ModelMetadata:
    """Metadata of the model. `content_type` is that of requests. `properties` are strings for clients to read."""

    name: str
    version: str
    platform: str
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]
    content_type: str | None = None
    properties: dict[str, str] = field(default_factory=dict)

    def describe(self, optional: Container[str]) -> dict[str, Any]:
        """Return the metadata as a JSON object (R6). `optional` contains the names of the optional inputs."""
        inputs = [each.describe(each.name in optional) for each in self.inputs]
        parameters = without_empty({"content_type": self.content_type})
        members = without_empty({"properties": self.properties, "parameters": parameters})
        head = {"name": self.name, "versions": [self.version], "platform": self.platform}
        return {**head, "inputs": inputs, "outputs": [each.describe() for each in self.outputs], **members}
