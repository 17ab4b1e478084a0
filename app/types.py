"""The protocol's own nouns: what a request, a response and a model are, whichever way they travel."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from app.binary import Buffer
from app.datatypes import as_array, check_count, check_shape, datatype_of, reshape
from app.envelope import HEADER_LENGTH, Envelope, read_json, read_tensors, split_body, stated_length
from app.errors import InferenceError, InvalidInput, SetupError, shorten

Parameters = dict[str, Any]
Made = TypeVar("Made", bound="Tensor")

# More inputs, or outputs, than any model has: each takes time and memory before it is looked at.
TENSORS_AT_MOST = 2**16


def check_few(member: str, count: int) -> None:
    """InvalidInput where `member`, inputs or outputs, has more than TENSORS_AT_MOST."""
    if count > TENSORS_AT_MOST:
        raise InvalidInput(f"{member}: expected at most {TENSORS_AT_MOST}, got {count}")


class Tensor:
    """A named array. Its shape is the array's.

    `data` is an ndarray of the datatype's dtype, or anything numpy makes one of; `shape` may be left out where
    `data` has the wanted one. A BYTES tensor is an object array of bytes, str, and None for JSON's null.
    Raises InvalidInput where the datatype is unknown or the shape does not fit the data.
    """

    __slots__ = ("data", "datatype", "name", "parameters")
    kind = "tensor"

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: Sequence[int] | None = None,
        data: Any = (),
        parameters: Parameters | None = None,
    ):
        array = as_array(data, datatype_of(datatype))
        if shape is not None and array.shape != tuple(shape):
            check_count(check_shape(shape), array.size)
            array = reshape(array, shape)
        self.name = name
        self.datatype = datatype
        self.data = array
        self.parameters = parameters or {}

    @classmethod
    def of(cls: type[Made], name: str, datatype: str, array: np.ndarray, parameters: Parameters) -> Made:
        """The tensor of an array that is known to be of the datatype, which is not looked at again."""
        tensor = cls.__new__(cls)
        tensor.name, tensor.datatype, tensor.data, tensor.parameters = name, datatype, array, parameters
        return tensor

    @property
    def shape(self) -> list[int]:
        return list(self.data.shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.datatype!r}, {self.shape}, ...)"


class RequestInput(Tensor):
    """A tensor on its way to the model."""

    __slots__ = ()
    kind = "input"


class ResponseOutput(Tensor):
    """A tensor on its way back."""

    __slots__ = ()
    kind = "output"


@dataclass(slots=True)
class RequestOutput:
    """An output that the client asks for."""

    name: str
    parameters: Parameters = field(default_factory=dict)


@dataclass(slots=True)
class InferenceRequest(Envelope):
    """What a client asks; no `outputs` means all of them."""

    inputs: list[RequestInput]
    model_name: str | None = None
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)
    outputs: list[RequestOutput] = field(default_factory=list)

    def head(self) -> dict[str, Any]:
        outputs = [given({"name": each.name, "parameters": each.parameters}) for each in self.outputs]
        return given({"id": self.id, "parameters": self.parameters, "outputs": outputs})

    def tensors(self) -> tuple[str, list[RequestInput]]:
        return "inputs", self.inputs

    def to_http(self, binary: bool | Container[str] = True, nonfinite: str = "error") -> tuple[bytes, dict[str, str]]:
        """As for every Envelope; a request that sends blobs asks for blobs, unless its parameters say otherwise."""
        asking = replace(self, parameters={"binary_data_output": True, **self.parameters}) if binary else self
        return Envelope.to_http(asking, binary, nonfinite)


@dataclass(slots=True)
class InferenceResponse(Envelope):
    """What the model answers."""

    outputs: list[ResponseOutput]
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: Parameters = field(default_factory=dict)

    def head(self) -> dict[str, Any]:
        head = {"model_name": self.model_name, "model_version": self.model_version}
        return {**head, **given({"id": self.id, "parameters": self.parameters})}

    def tensors(self) -> tuple[str, list[ResponseOutput]]:
        return "outputs", self.outputs

    @classmethod
    def from_dict(cls, payload: Any, blobs: Buffer = b"") -> InferenceResponse:
        """The response that a server's parsed JSON is.

        Raises InvalidInput where it is none, and InferenceError with the server's own words where it is `{"error"}`.
        """
        if isinstance(payload, dict) and "error" in payload:
            raise InferenceError(str(payload["error"]))
        members = payload if isinstance(payload, dict) else {}
        outputs = members.get("outputs")
        if not isinstance(outputs, list) or not isinstance(members.get("parameters") or {}, dict):
            raise InvalidInput("not an inference response: expected an object with outputs")
        return cls(
            read_tensors([response_head(each) for each in outputs], blobs, ResponseOutput),
            members.get("model_name") or "",
            members.get("model_version"),
            members.get("id"),
            members.get("parameters") or {},
        )

    @classmethod
    def from_http(cls, body: bytes | str, headers: Mapping[str, str]) -> InferenceResponse:
        """The response that an HTTP body holds, with binary tensors or without; errors as for `from_dict`."""
        body = body.encode() if isinstance(body, str) else body
        stated = next((value for name, value in headers.items() if name.lower() == HEADER_LENGTH.lower()), None)
        json, blobs = split_body(body, stated_length(stated, len(body)))
        return cls.from_dict(read_json(json), blobs)


def response_head(head: Any) -> dict[str, Any]:
    """The checked members of an output; InvalidInput where it has others."""
    if not isinstance(head, dict) or not isinstance(head.get("name"), str):
        raise InvalidInput("not an inference response: expected outputs with names")
    parameters = head.get("parameters") or {}
    size = parameters.get("binary_data_size", 0) if isinstance(parameters, dict) else None
    if type(size) is not int or size < 0:
        raise InvalidInput(f'output "{head["name"]}": parameters: {shorten(repr(parameters))} will not do')
    try:
        datatype, shape = datatype_of(head.get("datatype", "")), check_shape(head.get("shape", "none"))
    except InvalidInput as error:
        raise error.about(f'output "{head["name"]}"') from None
    return {**head, "datatype": datatype, "shape": shape, "parameters": parameters, "data": head.get("data")}


def given(members: dict[str, Any]) -> dict[str, Any]:
    """`members` without those that are None or empty, an empty id apart (R8)."""
    return {name: value for name, value in members.items() if value or value == ""}


@dataclass(slots=True)
class MetadataTensor:
    """An input or output that a model declares; -1 in `shape` is any size, 0 too: a batch may be empty."""

    name: str
    datatype: str
    shape: list[int]
    content_type: str | None = None

    def __post_init__(self) -> None:
        hint = ""
        try:
            datatype_of(self.datatype)
            hint = "; a dimension of any size is -1"
            if not isinstance(self.shape, list | tuple):
                raise InvalidInput(f"shape: expected a list, got {self.shape!r}")
            check_shape([0 if dimension == -1 else dimension for dimension in self.shape])
            self.shape = list(self.shape)
        except InvalidInput as error:
            raise SetupError(f'METADATA, tensor "{self.name}": {error}{hint}') from None

    @property
    def parameters(self) -> Parameters:
        return {"content_type": self.content_type} if self.content_type else {}


@dataclass(slots=True)
class ModelMetadata:
    """What a model says of itself."""

    name: str
    version: str
    platform: str
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]
    content_type: str | None = None
