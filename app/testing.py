"""Test helpers that call a model over both protocols, in the process of the test:

with serve() as infer:
    assert infer(celsius=[0.0, 20.0])["fahrenheit"].tolist() == [32.0, 68.0]
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, cast

import grpc
import numpy as np
import pandas as pd
from flask import Flask

from app import create_app
from app.api import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    ModelMetadata,
    RequestInput,
    ResponseOutput,
)
from app.codecs import NumpyCodec, PandasCodec
from app.codecs.base import decode_tensor, find_input_codec
from app.codecs.frames import NO_TIME
from app.config.settings import Settings, read_settings
from app.inference.example import apply_declarations, make_input
from app.protocol.datatypes import datatype_of
from app.protocol.errors import InferenceError, InvalidInput, NoBinaryForm, join_names
from grpc_service import client

# REST with JSON, REST with binary tensors, gRPC.
FORMS = ("json", "binary", "grpc")

Infer = Callable[..., dict[str, Any]]


@contextmanager
def serve(
    module: Any = None, settings: Settings | None = None, forms: Sequence[str] = FORMS
) -> Iterator[Infer]:
    """Serve `module` (default: app/predict.py), and yield a function that sends a request in each of the `forms`.

    `infer(name=value, ...)` accepts nested lists, arrays, or values of the input's content type. `infer(frame)` accepts
    a DataFrame, and `infer(request)` an InferenceRequest. It returns the outputs by name. Omit "json" if JSON cannot
    represent the tensors. `infer` raises InvalidInput if the service rejects the request, InferenceError if the request
    fails, and AssertionError if the results of two forms differ.
    """
    settings = replace(settings or read_settings(), host="127.0.0.1", grpc_port=0)
    app = create_app(settings, module)
    service = app.extensions["service"]
    server = service.make_grpc_server(reuse_port=False)
    server.start()
    try:
        with grpc.insecure_channel(
            f"127.0.0.1:{server.port}", [("grpc.max_receive_message_length", -1)]
        ) as channel:
            yield partial(infer_in_all_forms, app, channel, service.info.metadata, forms)
    finally:
        server.close(settings.shutdown_timeout_seconds)


def infer_in_all_forms(
    app: Flask,
    channel: grpc.Channel,
    metadata: ModelMetadata,
    forms: Sequence[str],
    data: Any = None,
    /,
    **inputs: Any,
) -> dict[str, Any]:
    request = data if isinstance(data, InferenceRequest) else request_of(metadata, data, inputs)
    apply_declarations(request.inputs, metadata.inputs)
    results = {}
    for form in forms:
        try:
            response = send(app, channel, metadata.name, form, request)
        except NoBinaryForm as error:
            error.remedy = 'use serve(forms=["json"]) if only JSON can carry the inputs'
            raise
        apply_declarations(response.outputs, metadata.outputs)
        results[form] = {output.name: value_of(output) for output in response.outputs}
        np.testing.assert_equal(
            results[form], results[forms[0]], f"{form} and {forms[0]} give different results"
        )
    return results[forms[0]]


def send(
    app: Flask, channel: grpc.Channel, name: str, form: str, request: InferenceRequest
) -> InferenceResponse:
    """Send the request. Raise InvalidInput if the service rejects it, and InferenceError for any other error."""
    if form == "grpc":
        try:
            return client.infer(channel, name, request)
        except grpc.RpcError as error:
            is_invalid = error.code() is grpc.StatusCode.INVALID_ARGUMENT
            raise (InvalidInput if is_invalid else InferenceError)(error.details()) from None
    body, headers = request.to_http(form == "binary")
    response = app.test_client().post(f"/v2/models/{name}/infer", data=body, headers=headers)
    if response.status_code != 200:
        raise (InvalidInput if response.status_code == 400 else InferenceError)(
            response.get_json()["error"]
        )
    return InferenceResponse.from_http(response.data, dict(response.headers))


def request_of(
    metadata: ModelMetadata, frame: pd.DataFrame | None, inputs: dict[str, Any]
) -> InferenceRequest:
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    if frame is not None:  # pandas reads whole numbers as integers, also for float inputs
        whole = [name for name in frame.select_dtypes("integer") if name in declared]
        floats = {name: float for name in whole if datatype_of(declared[name].datatype).is_float}
        return PandasCodec.encode_request(frame.astype(floats))
    if unknown := inputs.keys() - declared.keys():
        raise InvalidInput(
            "unknown inputs", expected=join_names(declared), got=join_names(sorted(unknown))
        )
    return InferenceRequest([input_of(declared[name], value) for name, value in inputs.items()])


def input_of(tensor: MetadataTensor, value: Any) -> RequestInput:
    if tensor.content_type in (None, "np"):
        return make_input(tensor, value)
    try:
        missing = NO_TIME if tensor.missing is None else tensor.missing
        options = {"missing": missing} if tensor.content_type == "datetime" else {}
        return cast(
            RequestInput,
            find_input_codec(tensor.content_type).encode_input(tensor.name, value, **options),
        )
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None


def value_of(output: ResponseOutput) -> Any:
    """Decode an output by its content type. Without one, return an array, in which BYTES elements are bytes."""
    if output.datatype == "BYTES" and "content_type" not in output.parameters:
        return np.vectorize(
            lambda each: each.encode() if isinstance(each, str) else each, [object]
        )(output.data)
    return decode_tensor(output, NumpyCodec)
