"""Requests, responses, tensors and metadata, independent of the transport."""

from base64 import b64encode
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import orjson

from app.protocol.binary_tensors import Buffer
from app.protocol.datatypes import (
    Shape,
    as_array,
    check_count,
    check_shape,
    datatype_of,
    object_array,
    reshape,
)
from app.protocol.envelope import (
    REQUEST,
    RESPONSE,
    JsonObject,
    Members,
    Parameters,
    read_object,
    to_parameters,
)
from app.protocol.errors import ConfigurationError, InferenceError, InvalidInput
from app.protocol.http_body import Binary, HttpMessage, read_http, read_tensors, write_http
from app.protocol.json_tensors import RAW, from_base64


class Tensor:
    """A named array with a datatype.

    `data` is required. It is an ndarray, or a value that NumPy can convert to one, such as a list. `shape` defaults to
    the shape of `data`. The elements of a BYTES tensor are bytes, str, or None for null in JSON. `missing` is a text
    that stands for null in binary form. It is not sent itself (C13).
    Raise InvalidInput if the datatype is unknown, or if the shape does not match the data.
    """

    __slots__ = ("data", "datatype", "missing", "name", "parameters")
    kind = "tensor"

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: Shape | None = None,
        data: Any = ...,
        parameters: JsonObject | None = None,
        missing: str | None = None,
    ):
        if data is ...:
            remedy = "use data=..., because the third argument is the shape"
            raise InvalidInput("missing data", remedy=remedy).about(self.kind, name)
        array = as_array(data, datatype_of(datatype))
        if shape is not None and array.shape != tuple(shape):
            check_count(check_shape(shape), array.size)
            array = reshape(array, shape)
        self.name, self.datatype, self.data, self.missing = name, datatype, array, missing
        self.parameters: JsonObject = to_parameters(parameters)

    @classmethod
    def of(
        cls,
        name: str,
        datatype: str,
        array: np.ndarray,
        parameters: JsonObject,
        missing: str | None = None,
    ) -> Self:
        """Create a tensor without validation. `array` must have the dtype of `datatype`."""
        tensor = cls.__new__(cls)
        tensor.name, tensor.datatype, tensor.data, tensor.parameters = (
            name,
            datatype,
            array,
            parameters,
        )
        tensor.missing = missing
        return tensor

    def elements(self) -> list[Any]:
        """Return the elements in row-major order, with None for missing values (C13)."""
        elements: list[Any] = self.data.ravel().tolist()
        gaps = () if self.missing is None else (self.missing, self.missing.encode())
        return [None if each in gaps else each for each in elements] if gaps else elements

    def wire_data(self, is_binary: bool) -> np.ndarray:
        """Return the array in binary or JSON form, which differ for content type `bytes` (C12) and for null (C13)."""
        is_raw = self.datatype == "BYTES" and self.parameters.get("content_type") == RAW
        if self.missing is None and not is_raw:
            return self.data
        elements = self.elements()
        if is_raw and is_binary:
            elements = [from_base64(each) if isinstance(each, str) else each for each in elements]
        elif is_raw:
            elements = [
                b64encode(each).decode() if isinstance(each, bytes) else each for each in elements
            ]
        if is_binary:
            elements = [self.missing if each is None else each for each in elements]
        return object_array(elements).reshape(self.data.shape)

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
    parameters: JsonObject = field(default_factory=Parameters)


class Message:
    """Conversion of requests and responses to JSON and to HTTP bodies, and back."""

    __slots__ = ()
    kind: ClassVar[str]
    members: ClassVar[Members]
    of: ClassVar[
        Callable[..., Any]
    ]  # creates a message from validated members and the data after the JSON
    to_http: ClassVar[Callable[..., HttpMessage]]

    def convert(self, name: str) -> None:
        """Convert a list of JSON objects, as in InferenceRequest(**payload). Raise InvalidInput if one is invalid."""
        items = getattr(self, name)
        if items and isinstance(items[0], dict):
            setattr(
                self,
                name,
                getattr(self.from_dict({"inputs": [], "outputs": [], name: items}), name),
            )

    @classmethod
    def from_http(cls, body: bytes | str, headers: Mapping[str, str] | None = None) -> Self:
        """Parse a body with or without binary data. JSON needs no headers. Raise the exceptions of `from_dict`."""
        return cls.from_dict(*read_http(body, headers or {}))

    @classmethod
    def from_dict(cls, payload: Any, blobs: Buffer = b"") -> Self:
        """Parse the JSON object, with the binary data after it in `blobs`. Raise InvalidInput if it is malformed.

        If it is the response of a failed request, raise InferenceError with the server's message.
        """
        made: Self = cls.of(read_object(cls.members, payload, cls.kind), blobs)
        return made

    def to_json(self) -> bytes:
        """Return the body as JSON. Raise InvalidInput if JSON cannot represent a tensor."""
        return self.to_http(binary=False)[0]

    def to_dict(self) -> JsonObject:
        """Return the JSON object as a dict of built-in types."""
        return dict(orjson.loads(self.to_json()))

    def json(self) -> str:
        return self.to_json().decode()

    # Names in MLServer's types, which are pydantic models.
    parse_raw, model_validate_json = from_http, from_http
    parse_obj, model_validate = from_dict, from_dict
    dict, model_dump, model_dump_json = to_dict, to_dict, json


@dataclass(slots=True)
class InferenceRequest(Message):
    """An inference request. If `outputs` is empty, the response contains all outputs (R16)."""

    inputs: list[RequestInput]
    model_name: str | None = None
    model_version: str | None = None
    id: str | None = None
    parameters: JsonObject = field(default_factory=Parameters)
    outputs: list[RequestOutput] = field(default_factory=list)
    kind, members = "request", REQUEST

    @classmethod
    def of(cls, valid: JsonObject, blobs: Buffer) -> Self:
        """Create a request from validated members. Raise InvalidInput if the data of an input is invalid."""
        inputs = read_tensors(valid["inputs"], blobs, RequestInput)
        outputs = [
            RequestOutput(each["name"], Parameters(each["parameters"] or ()))
            for each in valid["outputs"] or ()
        ]
        return cls(inputs, None, None, valid["id"], Parameters(valid["parameters"] or ()), outputs)

    def __post_init__(self) -> None:
        self.convert("inputs")
        self.convert("outputs")
        self.outputs, self.parameters = self.outputs or [], to_parameters(self.parameters)

    def to_http(self, binary: Binary = True, nonfinite: str = "error") -> HttpMessage:
        """Return the body and its headers. With binary data, the request also asks for binary outputs by default."""
        parameters = {"binary_data_output": True, **self.parameters} if binary else self.parameters
        outputs = [
            without_empty({"name": each.name, "parameters": each.parameters})
            for each in self.outputs
        ]
        head = without_empty({"id": self.id, "parameters": parameters, "outputs": outputs})
        return write_http(head, "inputs", self.inputs, binary, nonfinite)


@dataclass(slots=True)
class InferenceResponse(Message):
    """The response to an inference request. If `error` is the message of a failed request, raise InferenceError."""

    outputs: list[ResponseOutput] = field(default_factory=list)
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: JsonObject = field(default_factory=Parameters)
    error: str | None = field(default=None, repr=False)
    kind, members = "response", RESPONSE

    @classmethod
    def of(cls, valid: JsonObject, blobs: Buffer) -> Self:
        """Create a response from validated members. Raise InvalidInput if the data of an output is invalid."""
        head = valid["model_name"], valid["model_version"], valid["id"]
        return cls(
            read_tensors(valid["outputs"], blobs, ResponseOutput),
            *head,
            Parameters(valid["parameters"] or ()),
        )

    def __post_init__(self) -> None:
        if self.error is not None:
            raise InferenceError(str(self.error))
        self.convert("outputs")
        self.model_name, self.parameters = self.model_name or "", to_parameters(self.parameters)

    def to_http(self, binary: Binary = True, nonfinite: str = "error") -> HttpMessage:
        """Return the body and its headers. `binary` selects the outputs in binary form: all, none, or by name."""
        head = {"model_name": self.model_name, "model_version": self.model_version}
        head |= without_empty({"id": self.id, "parameters": self.parameters})
        return write_http(head, "outputs", self.outputs, binary, nonfinite)


def without_empty(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members without None and empty collections. Keep an empty id (R8)."""
    return {name: value for name, value in members.items() if value or value == ""}


@dataclass(slots=True)
class MetadataTensor:
    """A declared input or output. In `shape`, -1 is any size, also 0. `missing` is the text for null (C13)."""

    name: str
    datatype: str
    shape: list[int]
    content_type: str | None = None
    missing: str | None = None

    def __post_init__(self) -> None:
        try:
            datatype_of(self.datatype)
            is_list = isinstance(self.shape, list | tuple)
            check_shape(
                [0 if each == -1 else each for each in self.shape] if is_list else self.shape, repr
            )
        except InvalidInput as error:
            error.remedy = "use -1 for a variable dimension" if error.subject == "shape" else ""
            raise ConfigurationError(str(error.about("METADATA, tensor", self.name))) from None
        self.shape = list(self.shape)

    @property
    def parameters(self) -> JsonObject:
        """Return the parameters of the tensor in a response. Model metadata can have more (R6)."""
        return {"content_type": self.content_type} if self.content_type else {}

    def describe(self, is_optional: bool = False) -> dict[str, Any]:
        """Return the JSON object of the tensor in model metadata (R6)."""
        parameters = without_empty(
            {**self.parameters, "missing": self.missing, "optional": is_optional}
        )
        head = {"name": self.name, "datatype": self.datatype, "shape": self.shape}
        return {**head, "parameters": parameters} if parameters else head

    def config(self) -> dict[str, Any]:
        """Return the JSON object of the tensor in the model configuration (T1)."""
        triton_name = "STRING" if self.datatype == "BYTES" else self.datatype
        return {"name": self.name, "data_type": f"TYPE_{triton_name}", "dims": self.shape}


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
        return {
            **head,
            "inputs": inputs,
            "outputs": [each.describe() for each in self.outputs],
            **members,
        }

    def config(self, optional: Container[str]) -> dict[str, Any]:
        """Return the model configuration (T1). Shapes include the batch dimension, because max_batch_size is 0."""
        inputs = [
            {**tensor.config(), "optional": tensor.name in optional} for tensor in self.inputs
        ]
        head = {"name": self.name, "platform": self.platform, "max_batch_size": 0}
        return {**head, "input": inputs, "output": [tensor.config() for tensor in self.outputs]}
