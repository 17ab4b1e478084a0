"""The registry of codecs, and its imports."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from app.codecs import (
    Base64Codec,
    BytesCodec,
    DatetimeCodec,
    InputCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    PandasJsonCodec,
    RequestCodec,
    StringCodec,
    StringRequestCodec,
    find_input_codec,
    find_request_codec,
    register_input_codec,
    register_request_codec,
)
from app.codecs.base import input_codecs, request_codecs
from app.protocol.errors import InvalidInput
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.tensors import RequestInput, ResponseOutput

INPUT_CODECS = [NumpyCodec, StringCodec, BytesCodec, Base64Codec, DatetimeCodec, PandasJsonCodec]


@pytest.mark.parametrize("named", ["nonsense", "", None, 5, [], {}])
def test_find_codec_rejects_unknown_content_types(named: Any) -> None:
    """C2, C3: the error for an unknown content type lists the known content types of that level."""
    with pytest.raises(
        InvalidInput, match="base64, bytes, datetime, np, pd_json, str for an input or output"
    ):
        find_input_codec(named)
    with pytest.raises(InvalidInput, match="np, pd, str for a request"):
        find_request_codec(named)


def test_finds_built_in_codecs() -> None:
    """C3: each built-in codec is found by its content type, at its level."""
    assert [find_input_codec(codec.ContentType) for codec in INPUT_CODECS] == INPUT_CODECS
    for name, codec in {
        "np": NumpyRequestCodec,
        "str": StringRequestCodec,
        "pd": PandasCodec,
    }.items():
        assert codec.ContentType == name
        assert find_request_codec(name) is codec


def test_registers_input_codecs(registries: None) -> None:
    """C10: register_input_codec works as a class decorator and as a call. The codec is found by its content type."""

    @register_input_codec
    class Upper(InputCodec):
        ContentType = "upper"
        TypeHint = str

        @classmethod
        def encode(cls, payload: str, **options: Any) -> tuple[str, np.ndarray]:
            return "BYTES", np.array([payload.lower()], object)

        @classmethod
        def decode(cls, tensor: Any) -> str:
            return StringCodec.decode(tensor)[0].upper()  # type: ignore[union-attr]

    class Lower(Upper):
        ContentType = "lower"

    assert Upper.__name__ == "Upper"
    assert register_input_codec(Lower) is Lower
    assert find_input_codec("upper") is Upper
    assert find_input_codec("lower") is Lower
    input_tensor = Upper.encode_input("x", "ABC")
    assert (input_tensor.shape, input_tensor.parameters) == ([1], {"content_type": "upper"})
    assert NumpyRequestCodec.decode_request(InferenceRequest([input_tensor])) == "ABC"
    assert Upper.can_encode("a")
    assert not Upper.can_encode(b"a")
    with pytest.raises(
        InvalidInput,
        match="base64, bytes, datetime, lower, np, pd_json, str, upper for an input or output",
    ):
        find_input_codec("other")
    with pytest.raises(InvalidInput, match="np, pd, str for a request"):
        find_request_codec("upper")


def test_registers_mlserver_style_codecs(registries: None) -> None:
    """C10: an input codec needs no base class if it defines MLServer's four encode and decode methods."""

    @register_input_codec
    class Length:
        ContentType = "length"

        @classmethod
        def can_encode(cls, payload: Any) -> bool:
            return isinstance(payload, int)

        @classmethod
        def encode_input(cls, name: str, payload: int, **options: Any) -> RequestInput:
            parameters = {"content_type": cls.ContentType}
            return RequestInput(
                name=name, datatype="BYTES", shape=[1], data=["a" * payload], parameters=parameters
            )

        @classmethod
        def decode_input(cls, request_input: RequestInput) -> int:
            return len(request_input.data[0])

        @classmethod
        def encode_output(cls, name: str, payload: int, **options: Any) -> ResponseOutput:
            parameters = {"content_type": cls.ContentType}
            return ResponseOutput(
                name=name, datatype="BYTES", shape=[1], data=["b" * payload], parameters=parameters
            )

        @classmethod
        def decode_output(cls, response_output: ResponseOutput) -> int:
            return -len(response_output.data[0])

    input_tensor, output_tensor = Length.encode_input("x", 3), Length.encode_output("y", 4)
    assert StringRequestCodec.decode_request(InferenceRequest([input_tensor])) == 3
    assert NumpyRequestCodec.decode_response(InferenceResponse([output_tensor])) == -4
    assert find_input_codec("length").can_encode(3)


def test_registers_request_codecs(registries: None) -> None:
    """C10: register_request_codec works as a class decorator and as a call, for classes and instances."""

    @register_request_codec
    class Sum(RequestCodec):
        ContentType = "sum"
        TypeHint = float

        @classmethod
        def decode_request(cls, request: InferenceRequest) -> float:
            return sum(float(tensor.data.sum()) for tensor in request.inputs)

    class Instance(Sum):
        ContentType = "instance"

    codec = Instance()
    assert register_request_codec(codec) is codec
    assert find_request_codec("instance") is codec
    tensors = [RequestInput("a", "FP32", data=[1, 2]), RequestInput("b", "FP32", data=[3])]
    assert find_request_codec("sum").decode_request(InferenceRequest(tensors)) == 6
    assert Sum.can_encode(1.5)
    assert not Sum.can_encode("a")
    with pytest.raises(InvalidInput, match="instance, np, pd, str, sum for a request"):
        find_request_codec("other")


def test_fixture_removes_registered_codecs() -> None:
    """C10: the registries fixture has removed the codecs that the previous tests registered."""
    assert sorted(input_codecs) == ["base64", "bytes", "datetime", "np", "pd_json", "str"]
    assert sorted(request_codecs) == ["np", "pd", "str"]


IMPORTED = """
import sys
from app.codecs import PandasCodec
import app.codecs, app.protocol.messages
print(*sorted({"flask", "grpc", "werkzeug", "marshmallow", "pandas", "google.protobuf"} & set(sys.modules)))
"""


def test_codecs_import_without_server_packages() -> None:
    """C4: importing the codecs does not import Flask, grpc or pandas."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_codecs_work_without_pandas() -> None:
    """C4: the np and str request codecs work if pandas is not installed."""
    script = """
import sys
sys.modules["pandas"] = None
import numpy as np
from app.codecs import NumpyRequestCodec, PandasCodec, StringRequestCodec
assert NumpyRequestCodec.decode_request(NumpyRequestCodec.encode_request(np.array([1]))).tolist() == [[1]]
assert StringRequestCodec.decode_request(StringRequestCodec.encode_request(["a"])) == ["a"]
assert not PandasCodec.can_encode([1])
"""
    subprocess.run([sys.executable, "-c", script], check=True)
