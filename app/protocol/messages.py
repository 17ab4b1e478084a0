"""Requests and responses, independent of the transport.

`http_message.py` converts them to and from JSON and HTTP, and `grpc_service/converters.py` to and
from protobuf. The methods of the public API that do so import `http_message.py` when they are
called, because it imports this module.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import orjson

from app.protocol.binary_tensors import Buffer
from app.protocol.envelope import JsonObject, Parameters, to_parameters
from app.protocol.errors import InferenceError
from app.protocol.tensors import RequestInput, ResponseOutput

Binary = bool | Container[str]  # selects tensors in binary form: all, none, or by name
HttpMessage = tuple[bytes, dict[str, str]]  # the body and its headers


@dataclass(slots=True)
class RequestOutput:
    """A requested output."""

    name: str
    parameters: JsonObject = field(default_factory=Parameters)


class Message:
    """Conversion of requests and responses to JSON and to HTTP bodies, and back."""

    __slots__ = ()
    kind: ClassVar[str]  # the noun in error messages
    to_http: ClassVar[Callable[..., HttpMessage]]

    @classmethod
    def _from_json(cls, **members: list[Any]) -> Self:
        """Return a message with a list of JSON objects, as in InferenceRequest(**payload).

        Raise InvalidInput if one is invalid.
        """
        return cls.from_dict({"inputs": [], "outputs": [], **members})

    @classmethod
    def from_http(cls, body: bytes | str, headers: Mapping[str, str] | None = None) -> Self:
        """Parse a body with or without binary data. JSON needs no headers.

        Raise the exceptions of `from_dict`.
        """
        from app.protocol import http_message

        return http_message.read_message(cls, body, headers or {})

    @classmethod
    def from_dict(cls, payload: Any, blobs: Buffer = b"") -> Self:
        """Parse the JSON object, with the binary data after it in `blobs`. Raise InvalidInput if it
        is malformed.

        If it is the response of a failed request, raise InferenceError with the server's message.
        """
        from app.protocol import http_message

        return http_message.parse_message(cls, payload, blobs)

    def to_json(self) -> bytes:
        """Return the body as JSON. Raise InvalidInput if JSON cannot represent a tensor."""
        return self.to_http(binary=False)[0]

    def to_dict(self) -> JsonObject:
        """Return the JSON object as a dict of built-in types."""
        return dict(orjson.loads(self.to_json()))

    def json(self) -> str:
        return self.to_json().decode()

    # Names in MLServer's types, which are pydantic models.
    parse_raw = from_http
    model_validate_json = from_http
    parse_obj = from_dict
    model_validate = from_dict
    dict = to_dict
    model_dump = to_dict
    model_dump_json = json


@dataclass(slots=True)
class InferenceRequest(Message):
    """An inference request. If `outputs` is empty, the response contains all outputs (R16)."""

    inputs: list[RequestInput]
    model_name: str | None = None
    model_version: str | None = None
    id: str | None = None
    parameters: JsonObject = field(default_factory=Parameters)
    outputs: list[RequestOutput] = field(default_factory=list)
    kind = "request"

    def __post_init__(self) -> None:
        if _is_json(self.inputs):
            self.inputs = self._from_json(inputs=self.inputs).inputs
        if not self.outputs:  # also for None
            self.outputs = []
        elif _is_json(self.outputs):
            self.outputs = self._from_json(outputs=self.outputs).outputs
        self.parameters = to_parameters(self.parameters)

    def to_http(self, binary: Binary = True, nonfinite: str = "error") -> HttpMessage:
        """Return the body and its headers.

        With binary data, the request also asks for binary outputs by default.
        """
        from app.protocol import http_message

        return http_message.write_request(self, binary, nonfinite)


@dataclass(slots=True)
class InferenceResponse(Message):
    """The response to an inference request.

    If `error` is the message of a failed request, raise InferenceError.
    """

    outputs: list[ResponseOutput] = field(default_factory=list)
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: JsonObject = field(default_factory=Parameters)
    error: str | None = field(default=None, repr=False)
    kind = "response"

    def __post_init__(self) -> None:
        if self.error is not None:
            raise InferenceError(str(self.error))
        if _is_json(self.outputs):
            self.outputs = self._from_json(outputs=self.outputs).outputs
        self.model_name = self.model_name or ""
        self.parameters = to_parameters(self.parameters)

    def to_http(self, binary: Binary = True, nonfinite: str = "error") -> HttpMessage:
        """Return the body and its headers.

        `binary` selects the outputs in binary form: all, none, or by name.
        """
        from app.protocol import http_message

        return http_message.write_response(self, binary, nonfinite)


def _is_json(items: list[Any]) -> bool:
    """Return True if a list contains JSON objects instead of tensors or requested outputs."""
    return bool(items) and isinstance(items[0], dict)
