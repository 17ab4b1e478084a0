"""The interface of codecs and their two registries (C3, C4, C10)."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from app.protocol.errors import ConfigurationError, InferenceError, InvalidInput
from app.protocol.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput, Tensor

Codec = TypeVar("Codec")

# Codecs by content type: classes, or instances, with the methods of the two classes below.
input_codecs: dict[str, Any] = {}
request_codecs: dict[str, Any] = {}


def register_input_codec(codec: Codec) -> Codec:
    """Use `codec` for its ContentType on inputs and outputs. This is a function and a class decorator."""
    return add_codec(codec, input_codecs)


def register_request_codec(codec: Codec) -> Codec:
    """Use `codec` for its ContentType on requests and responses. This is a function and a class decorator."""
    return add_codec(codec, request_codecs)


def add_codec(codec: Codec, codecs: dict[str, Any]) -> Codec:
    content_type = getattr(codec, "ContentType", None)
    if not isinstance(content_type, str) or not content_type:
        raise ConfigurationError(f"{codec!r}: missing ContentType. Expected its name in requests and in METADATA.")
    codecs[content_type] = codec
    return codec


def find_input_codec(content_type: Any) -> Any:
    """Return the input codec of `content_type`. Raise InvalidInput with all content types if it is unknown."""
    return find_codec(content_type, input_codecs, "an input or output")


def find_request_codec(content_type: Any) -> Any:
    """Return the request codec of `content_type`. Raise InvalidInput with all content types if it is unknown."""
    return find_codec(content_type, request_codecs, "a request")


def find_codec(content_type: Any, codecs: dict[str, Any], level: str) -> Any:
    try:
        return codecs[content_type]
    except (KeyError, TypeError):
        expected = f"one of {', '.join(sorted(codecs))} for {level}"
        raise InvalidInput(subject="content_type", expected=expected, got=content_type) from None


class InputCodec:
    """A conversion between one tensor and one Python value.

    A subclass defines ContentType, `encode` and `decode`, or, as in MLServer, the four methods with tensors.
    """

    ContentType: str = ""
    TypeHint: Any = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, cls.TypeHint)

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> tuple[str, np.ndarray]:
        """Return the datatype and the array of `payload`. Raise InvalidInput if it cannot be encoded."""
        raise NotImplementedError

    @classmethod
    def decode(cls, tensor: Tensor) -> Any:
        """Return the value of `tensor`. Raise InvalidInput if it is not valid."""
        raise NotImplementedError

    @classmethod
    def encode_input(cls, name: str, payload: Any, **options: Any) -> RequestInput:
        datatype, array = cls.encode(payload, **options)
        return RequestInput(name, datatype, data=array, parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        return cls.decode(request_input)

    @classmethod
    def encode_output(cls, name: str, payload: Any, **options: Any) -> ResponseOutput:
        datatype, array = cls.encode(payload, **options)
        return ResponseOutput(name, datatype, data=array, parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        return cls.decode(response_output)


class RequestCodec:
    """A conversion between a whole request or response and one Python value.

    A subclass defines ContentType, `encode` and `decode`, or, as in MLServer, the four methods with envelopes.
    """

    ContentType: str = ""
    TypeHint: Any = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, cls.TypeHint)

    @classmethod
    def encode(cls, payload: Any, make: Any, **options: Any) -> list[Any]:
        """Return the tensors of `payload`, of the class `make`. Raise InvalidInput if it cannot be encoded."""
        raise NotImplementedError

    @classmethod
    def decode(cls, tensors: list[Any]) -> Any:
        """Return the value of `tensors`. Raise InvalidInput if they are not valid."""
        raise NotImplementedError

    @classmethod
    def encode_request(cls, payload: Any, **options: Any) -> InferenceRequest:
        inputs = cls.encode(payload, RequestInput, **options)
        return InferenceRequest(inputs, parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        return cls.decode(request.inputs)

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: str | None = None, **options: Any
    ) -> InferenceResponse:
        outputs = cls.encode(payload, ResponseOutput, **options)
        return InferenceResponse(outputs, model_name, model_version, parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        return cls.decode(response.outputs)


class FirstTensorCodec(RequestCodec):
    """A request codec that applies an input codec to the first input or output (C8)."""

    InputCodec: type[InputCodec]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return cls.InputCodec.can_encode(payload)

    @classmethod
    def encode(cls, payload: Any, make: Any, **options: Any) -> list[Any]:
        datatype, array = cls.InputCodec.encode(payload, **options)
        name = f"{make.kind}-1"  # C9
        return [make(name, datatype, data=array, parameters={"content_type": cls.ContentType})]

    @classmethod
    def decode(cls, tensors: list[Any]) -> Any:
        if not tensors:
            raise InvalidInput("missing tensor", expected=f"a tensor for content type {cls.ContentType}")
        return decode_tensor(tensors[0], cls.InputCodec)


def decode_tensor(tensor: Tensor, default: Any) -> Any:
    """Return the value of `tensor`, with the codec of its content type, or with `default` (C1).

    Raise InvalidInput that names the tensor.
    """
    named = tensor.parameters.get("content_type")
    try:
        codec = default if named is None else find_input_codec(named)
        return codec.decode_input(tensor) if isinstance(tensor, RequestInput) else codec.decode_output(tensor)
    except InferenceError as error:
        raise error.about(tensor.kind, tensor.name) from None
    except Exception as error:  # a project's own codec
        problem, got = f"invalid data for content type {codec.ContentType}", f"{type(error).__name__}: {error}"
        raise InvalidInput(problem, got=got).about(tensor.kind, tensor.name) from error


def batch(array: np.ndarray) -> np.ndarray:
    """Return `array` in the shape of an encoded tensor: [N,1] for [N], and [1] for a scalar (C5)."""
    return array.reshape(-1, 1) if array.ndim == 1 else np.atleast_1d(array)
