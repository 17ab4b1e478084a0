"""Base classes and registries of codecs (C3, C4, C10).

An input codec converts one tensor to a Python value and back. A request codec converts a whole
request or response:

    StringCodec.encode_input("names", ["a", "b"])    a RequestInput [2,1]
    StringCodec.decode_input(request_input)          ["a", "b"]
    PandasCodec.encode_request(frame)                an InferenceRequest with one input per column
    PandasCodec.decode_request(request)              a DataFrame

The names of the methods and of ContentType and TypeHint are those of MLServer, so that its codecs
and clients work with this service.
"""

from typing import Any, TypeVar

import numpy as np

from app.protocol.errors import ConfigurationError, InferenceError, InvalidInput, ModelError
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.tensors import RequestInput, ResponseOutput, Tensor

Codec = TypeVar("Codec")

# Codecs by content type. A codec is a class or an instance with the methods of InputCodec or
# RequestCodec.
input_codecs: dict[str, Any] = {}
request_codecs: dict[str, Any] = {}


def register_input_codec(codec: Codec) -> Codec:
    """Register `codec` for inputs and outputs with its ContentType.

    Can be used as a class decorator. Raise ConfigurationError if the codec has no ContentType.
    """
    return _register(codec, input_codecs)


def register_request_codec(codec: Codec) -> Codec:
    """Register `codec` for requests and responses with its ContentType.

    Can be used as a class decorator. Raise ConfigurationError if the codec has no ContentType.
    """
    return _register(codec, request_codecs)


def _register(codec: Codec, codecs: dict[str, Any]) -> Codec:
    content_type = getattr(codec, "ContentType", None)
    if not isinstance(content_type, str) or not content_type:
        raise ConfigurationError(
            f"{codec!r}: missing ContentType. Expected its name in requests and in METADATA."
        )
    codecs[content_type] = codec
    return codec


def find_input_codec(content_type: Any) -> Any:
    """Return the input codec for `content_type`.

    If it is unknown, raise InvalidInput with the names of all content types.
    """
    try:
        return input_codecs[content_type]
    except (KeyError, TypeError):
        raise _unknown_codec_error(content_type, input_codecs, "an input or output") from None


def find_request_codec(content_type: Any) -> Any:
    """Return the request codec for `content_type`.

    If it is unknown, raise InvalidInput with the names of all content types.
    """
    try:
        return request_codecs[content_type]
    except (KeyError, TypeError):
        raise _unknown_codec_error(content_type, request_codecs, "a request") from None


def check_input_content_type(content_type: Any) -> None:
    """Raise InvalidInput if no input codec is registered for `content_type`."""
    find_input_codec(content_type)


def check_request_content_type(content_type: Any) -> None:
    """Raise InvalidInput if no request codec is registered for `content_type`."""
    find_request_codec(content_type)


def _unknown_codec_error(content_type: Any, codecs: dict[str, Any], user: str) -> InvalidInput:
    expected = f"one of {', '.join(sorted(codecs))} for {user}"
    return InvalidInput(subject="content_type", expected=expected, got=content_type)


class InputCodec:
    """Base class for codecs between a tensor and a Python value.

    Subclasses define ContentType, and either `encode` and `decode` or the four methods of MLServer.
    """

    ContentType: str = ""
    TypeHint: Any = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, cls.TypeHint)

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> tuple[str, np.ndarray]:
        """Return the datatype and the array for `payload`.

        `options` are the keyword arguments of encode_input() or encode_output(). Raise InvalidInput
        if `payload` cannot be encoded.
        """
        raise NotImplementedError

    @classmethod
    def decode(cls, tensor: Tensor) -> Any:
        """Return the value of `tensor`. Raise InvalidInput if it is invalid."""
        raise NotImplementedError

    @classmethod
    def encode_input(cls, name: str, payload: Any, **options: Any) -> RequestInput:
        datatype, array = cls.encode(payload, **options)
        return RequestInput(
            name,
            datatype,
            data=array,
            parameters={"content_type": cls.ContentType},
            missing=options.get("missing"),
        )

    @classmethod
    def decode_input(cls, request_input: RequestInput) -> Any:
        return cls.decode(request_input)

    @classmethod
    def encode_output(cls, name: str, payload: Any, **options: Any) -> ResponseOutput:
        datatype, array = cls.encode(payload, **options)
        return ResponseOutput(
            name,
            datatype,
            data=array,
            parameters={"content_type": cls.ContentType},
            missing=options.get("missing"),
        )

    @classmethod
    def decode_output(cls, response_output: ResponseOutput) -> Any:
        return cls.decode(response_output)


class RequestCodec:
    """Base class for codecs between a whole request or response and a Python value.

    Subclasses define ContentType, and either `encode` and `decode` or the four methods of MLServer.
    """

    ContentType: str = ""
    TypeHint: Any = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, cls.TypeHint)

    @classmethod
    def encode(cls, payload: Any, tensor_class: Any, **options: Any) -> list[Any]:
        """Return `payload` as tensors of `tensor_class`, which is RequestInput or ResponseOutput.

        Raise InvalidInput if `payload` cannot be encoded.
        """
        raise NotImplementedError

    @classmethod
    def decode(cls, tensors: list[Any]) -> Any:
        """Return the value of `tensors`. Raise InvalidInput if they are invalid."""
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
        return InferenceResponse(
            outputs, model_name, model_version, parameters={"content_type": cls.ContentType}
        )

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        return cls.decode(response.outputs)


class FirstTensorCodec(RequestCodec):
    """Base class for request codecs that apply an input codec to the first input or output (C8)."""

    InputCodec: type[InputCodec]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return cls.InputCodec.can_encode(payload)

    @classmethod
    def encode(cls, payload: Any, tensor_class: Any, **options: Any) -> list[Any]:
        """Return one tensor. Its name is input-1 or output-1, because `payload` has none (C9)."""
        datatype, array = cls.InputCodec.encode(payload, **options)
        name = f"{tensor_class.kind}-1"
        parameters = {"content_type": cls.ContentType}
        return [tensor_class(name, datatype, data=array, parameters=parameters)]

    @classmethod
    def decode(cls, tensors: list[Any]) -> Any:
        if not tensors:
            raise InvalidInput(
                "missing tensor", expected=f"a tensor for content type {cls.ContentType}"
            )
        return decode_tensor(tensors[0], cls.InputCodec)


def decode_tensor(tensor: Tensor, default: Any) -> Any:
    """Decode `tensor` with the codec of its content type or, if it has none, with the codec
    `default` (C1).

    Raise InvalidInput with the name of the tensor if the content type is unknown, or if the tensor
    is invalid.
    """
    content_type = tensor.parameters.get("content_type")
    if content_type is None:
        return _decode(tensor, default)
    return decode_as(tensor, content_type)


def decode_as(tensor: Tensor, content_type: Any) -> Any:
    """Decode `tensor` with the codec of `content_type`.

    Raise InvalidInput with the name of the tensor if the content type is unknown, or if the tensor
    is invalid.
    """
    try:
        codec = find_input_codec(content_type)
    except InvalidInput as error:
        raise error.about(tensor.kind, tensor.name) from None
    return _decode(tensor, codec)


def _decode(tensor: Tensor, codec: Any) -> Any:
    """Decode `tensor` with `codec`. Errors contain the name of the tensor."""
    try:
        if isinstance(tensor, RequestInput):
            return codec.decode_input(tensor)
        return codec.decode_output(tensor)
    except InferenceError as error:
        raise error.about(tensor.kind, tensor.name) from None
    except Exception as error:  # a codec of the project can raise any exception
        raise decoding_error(codec, error).about(tensor.kind, tensor.name) from error


def decode_request(request: InferenceRequest, content_type: Any) -> Any:
    """Decode `request` with the request codec of `content_type`.

    Raise InvalidInput if the content type is unknown, or if the codec fails.
    """
    codec = find_request_codec(content_type)
    try:
        return codec.decode_request(request)
    except InferenceError:
        raise
    except Exception as error:  # a codec of the project can raise any exception
        raise decoding_error(codec, error) from error


def decoding_error(codec: Any, error: Exception) -> InvalidInput:
    """Return the error for data whose codec raises `error`, which is not an InferenceError."""
    return InvalidInput(
        f"invalid data for content type {codec.ContentType}",
        got=f"{type(error).__name__}: {error}",
    )


def encoding_error(value: Any, content_type: str | None, error: Exception) -> ModelError:
    """Return the error for a value of predict() whose codec raises `error`, which is not an
    InferenceError.
    """
    problem = f"cannot encode {type(value).__name__}"
    if content_type is not None:
        problem += f" with content type {content_type}"
    return ModelError(problem, got=f"{type(error).__name__}: {error}")


def to_tensor_shape(array: np.ndarray) -> np.ndarray:
    """Return `array` with the shape of a tensor: [N] becomes [N,1], and a scalar [1] (C5)."""
    if array.ndim == 1:
        return array.reshape(-1, 1)
    return np.atleast_1d(array)
