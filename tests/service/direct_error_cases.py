"""Functions that fail when they are called directly, without a service."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
import pandas as pd

from app.codecs.arrays import NumpyCodec, NumpyRequestCodec
from app.codecs.datetimes import DatetimeCodec
from app.codecs.frames import PandasCodec, PandasJsonCodec
from app.codecs.strings import Base64Codec
from app.inference.predict_adapter import ModelAdapter
from app.inference.time_limit import TimeLimit
from app.protocol.errors import ConfigurationError, InferenceError, PayloadTooLarge, PredictTimeout
from app.protocol.types import InferenceRequest, InferenceResponse, MetadataTensor, RequestInput
from app.rest.request_reader import read_body, read_raw
from app.rest.schemas import validate_request
from grpc_service import converters
from tests.kit import models
from tests.service.error_cases import NUMBER, SECRET


@dataclass
class Direct:
    """A call of a function, for errors that occur only in a client or at the start of the service."""

    name: str
    call: Callable[[], Any]
    error: type[Exception] = InferenceError


def frame_of(*tensors: RequestInput) -> Any:
    return PandasCodec.decode_request(InferenceRequest(list(tensors)))


def moments(*texts: Any) -> RequestInput:
    return RequestInput("x", "BYTES", data=list(texts), parameters={"content_type": "datetime"})


def predictor(
    content_type: str | None = None, example: Any = None, missing: str | None = None
) -> ModelAdapter:
    metadata = MetadataTensor("x", "FP32", [-1], content_type, missing)
    module = models.model([metadata], [metadata], lambda _, x: x)
    module.EXAMPLE = example
    return ModelAdapter(module)


def recursive() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


def output(**members: Any) -> dict[str, Any]:
    return {
        "outputs": [
            {"name": SECRET, "datatype": "BYTES", "shape": [1], "data": [SECRET], **members}
        ]
    }


def environ_of(body: bytes | None, length: int) -> dict[str, Any]:
    """Return the environ of a server that does not wait for the whole body, as gunicorn's own workers."""
    return {"CONTENT_LENGTH": str(length), "wsgi.input": body if body is None else io.BytesIO(body)}


MATRIX = models.echo("FP32", [-1, -1])
DIRECT = [
    Direct(
        "array without a datatype", lambda: NumpyCodec.encode_input(SECRET, np.array([NUMBER * 1j]))
    ),
    Direct("first tensor", lambda: NumpyRequestCodec.decode_request(InferenceRequest([]))),
    Direct("None in base64", lambda: Base64Codec.encode_input(SECRET, [SECRET, None])),
    Direct("object in datetime", lambda: DatetimeCodec.encode_input(SECRET, [NUMBER])),
    Direct("object in pd_json", lambda: PandasJsonCodec.encode_input(SECRET, [{NUMBER: SECRET}])),
    Direct("recursion in pd_json", lambda: PandasJsonCodec.encode_input(SECRET, [recursive()])),
    Direct("scalar column", lambda: frame_of(RequestInput(SECRET, "FP32", [], NUMBER))),
    Direct("null in a column of datetimes", lambda: frame_of(moments(None))),
    Direct(
        "datetimes with and without an offset",
        lambda: frame_of(moments("2026-01-01", "2026-01-01T00:00Z")),
    ),
    Direct(
        "columns of two lengths",
        lambda: frame_of(moments("2026-01-01"), RequestInput(SECRET, "FP32", data=[1, 2])),
    ),
    Direct(
        "column without a text as name",
        lambda: PandasCodec.encode_request(pd.DataFrame({NUMBER: [1]})),
    ),
    Direct(
        "two columns of one name",
        lambda: PandasCodec.encode_request(pd.DataFrame([[1, 2]], columns=[SECRET, SECRET])),
    ),
    Direct(
        "JSON of an object", lambda: InferenceRequest([], parameters={SECRET: {NUMBER}}).to_json()
    ),
    Direct("tensor without data", lambda: RequestInput(SECRET, "FP32", [1])),
    Direct("error of a server", lambda: InferenceResponse.from_dict({"error": ""})),
    Direct("error of a server, as an argument", lambda: InferenceResponse(error="")),
    Direct("no response", lambda: InferenceResponse.from_dict([SECRET])),
    Direct("response without a name", lambda: InferenceResponse.from_dict({"outputs": [SECRET]})),
    Direct(
        "response with odd parameters",
        lambda: InferenceResponse.from_dict(output(parameters=SECRET)),
    ),
    Direct(
        "message with half a pair",
        lambda: converters.write_request(InferenceRequest([], id=f"{SECRET}\ud800")),
    ),
    Direct(
        "message with an object",
        lambda: converters.write_request(InferenceRequest([], parameters={SECRET: []})),
    ),
    Direct(
        "predict() that does not return in time",
        lambda: TimeLimit(Event().wait, 0.01)(0.5),
        PredictTimeout,
    ),
    Direct(
        "body that ends early", lambda: read_body(environ_of(SECRET.encode(), len(SECRET) + 1), 100)
    ),
    Direct("body that cannot be read", lambda: read_body(environ_of(None, 1), 100)),
    Direct(
        "body over the limit",
        lambda: read_body(environ_of(SECRET.encode(), 101), 100),
        PayloadTooLarge,
    ),
    Direct(
        "raw data for two inputs",
        lambda: read_raw(SECRET.encode(), models.two_by_two().METADATA, ()),
    ),
    Direct(
        "raw data without a byte", lambda: read_raw(b"", models.echo("FP32", [-1]).METADATA, ())
    ),
    Direct(
        "raw data in two variable dimensions",
        lambda: read_raw(SECRET.encode(), MATRIX.METADATA, ()),
    ),
    Direct("marshmallow without an object", lambda: validate_request(SECRET)),
    Direct("marshmallow without inputs", lambda: validate_request({SECRET: NUMBER})),
    Direct("metadata with text in FP32", lambda: predictor("str"), ConfigurationError),
    Direct(
        "metadata with a missing value in FP32",
        lambda: predictor(missing=SECRET),
        ConfigurationError,
    ),
    Direct("EXAMPLE of another type", lambda: predictor(example=SECRET), ConfigurationError),
    Direct(
        "EXAMPLE with an unknown input",
        lambda: predictor(example={SECRET: [1]}),
        ConfigurationError,
    ),
]
