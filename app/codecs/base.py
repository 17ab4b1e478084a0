"""What a codec is, and the two registries (C3, C4, C10)."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from app.errors import InferenceError, InvalidInput, SetupError, shorten, told
from app.types import InferenceRequest, InferenceResponse, RequestInput, ResponseOutput, Tensor

Codec = TypeVar("Codec")

# Codecs by the content type they stand for: classes, or instances, with the methods of the two classes below.
input_codecs: dict[str, Any] = {}
request_codecs: dict[str, Any] = {}


def register_input_codec(codec: Codec) -> Codec:
    """Makes `codec` serve its ContentType on inputs and outputs; a function, or a decorator of the class."""
    return register(codec, input_codecs)


def register_request_codec(codec: Codec) -> Codec:
    """Makes `codec` serve its ContentType on whole requests and responses; a function, or a decorator of the class."""
    return register(codec, request_codecs)


def register(codec: Codec, codecs: dict[str, Any]) -> Codec:
    content_type = getattr(codec, "ContentType", None)
    if not isinstance(content_type, str) or not content_type:
        raise SetupError(f"{codec!r}: a codec has a ContentType, the name that requests and METADATA call it by")
    codecs[content_type] = codec
    return codec


def find_input_codec(content_type: Any) -> Any:
    """The input codec of `content_type`; InvalidInput, naming those there are, where there is none."""
    return find(content_type, input_codecs, "an input or output")


def find_request_codec(content_type: Any) -> Any:
    """The request codec of `content_type`; InvalidInput, naming those there are, where there is none."""
    return find(content_type, request_codecs, "a request")


def find(content_type: Any, codecs: dict[str, Any], level: str) -> Any:
    try:
        return codecs[content_type]
    except (KeyError, TypeError):
        known = ", ".join(sorted(codecs))
        raise InvalidInput(
            f"content_type: expected one of {known} on {level}; got {shorten(repr(content_type))}"
        ) from None


class InputCodec:
    """One tensor ↔ one Python value. A codec of a project's own gives ContentType, and `encode` and `decode`.

    Or, as in MLServer, it overrides the four methods that take and give tensors.
    """

    ContentType: str = ""
    TypeHint: Any = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, cls.TypeHint)

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> tuple[str, np.ndarray]:
        """The datatype and the array that `payload` becomes; InvalidInput where it has none."""
        raise NotImplementedError

    @classmethod
    def decode(cls, tensor: Tensor) -> Any:
        """The value that `tensor` holds; InvalidInput where it holds none."""
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
    """A whole request, or response, ↔ one Python value."""

    ContentType: str = ""
    TypeHint: Any = None

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return isinstance(payload, cls.TypeHint)

    @classmethod
    def encode_request(cls, payload: Any, **options: Any) -> InferenceRequest:
        raise NotImplementedError

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        raise NotImplementedError

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: str | None = None, **options: Any
    ) -> InferenceResponse:
        raise NotImplementedError

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        raise NotImplementedError


class FirstTensorCodec(RequestCodec):
    """A request codec that is an input codec of the first input, or output (C8)."""

    InputCodec: type[InputCodec]

    @classmethod
    def can_encode(cls, payload: Any) -> bool:
        return cls.InputCodec.can_encode(payload)

    @classmethod
    def encode_request(cls, payload: Any, **options: Any) -> InferenceRequest:
        first = cls.InputCodec.encode_input("input-1", payload, **options)
        return InferenceRequest([first], parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_request(cls, request: InferenceRequest) -> Any:
        return decode_tensor(cls.first(request.inputs), cls.InputCodec)

    @classmethod
    def encode_response(
        cls, model_name: str, payload: Any, model_version: str | None = None, **options: Any
    ) -> InferenceResponse:
        first = cls.InputCodec.encode_output("output-1", payload, **options)
        return InferenceResponse([first], model_name, model_version, parameters={"content_type": cls.ContentType})

    @classmethod
    def decode_response(cls, response: InferenceResponse) -> Any:
        return decode_tensor(cls.first(response.outputs), cls.InputCodec)

    @classmethod
    def first(cls, tensors: list[Any]) -> Any:
        if not tensors:
            raise InvalidInput(f'content_type: "{cls.ContentType}" needs a tensor, got none')
        return tensors[0]


def decode_tensor(tensor: Tensor, default: Any) -> Any:
    """The value of `tensor` by the content type it names itself, else by the codec `default` (C1).

    Raises InvalidInput, led by the tensor's name.
    """
    named = tensor.parameters.get("content_type")
    try:
        codec = default if named is None else find_input_codec(named)
        return codec.decode_input(tensor) if isinstance(tensor, RequestInput) else codec.decode_output(tensor)
    except InferenceError as error:
        raise error.about(f'{tensor.kind} "{tensor.name}"') from None
    except Exception as error:  # a project's own codec, on bytes that are none of its
        raise InvalidInput(f'{tensor.kind} "{tensor.name}": no {codec.ContentType}: {told(error)}') from error


def batch(array: np.ndarray) -> np.ndarray:
    """`array` as encoding sends it: [N] as [N,1], a scalar as [1] (C5)."""
    return array.reshape(-1, 1) if array.ndim == 1 else np.atleast_1d(array)
