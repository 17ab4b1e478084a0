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
from app.protocol.datatypes import bytes_array, datatype_of
from app.protocol.errors import InferenceError, InvalidInput, NoBinaryForm, join_names
from grpc_service import client

# REST with JSON, REST with binary tensors, gRPC.
FORMS = ("json", "binary", "grpc")

Infer = Callable[..., dict[str, Any]]


@contextmanager
def serve(
    module: Any = None, settings: Settings | None = None, forms: Sequence[str] = FORMS
) -> Iterator[Infer]:
    """Serve `module` (default: app/predict.py), and yield a function that sends requests.

    The function, here `infer`, sends each request in all `forms`. Omit "json" if JSON cannot
    represent the tensors. `infer(name=value, ...)` accepts nested lists, arrays, or values of the
    input's content type. `infer(frame)` accepts a DataFrame, and `infer(request)` an
    InferenceRequest. It returns the outputs by name.

    `infer` raises InvalidInput if the service rejects the request, InferenceError if the request
    fails, and AssertionError if the results of two forms differ.
    """
    settings = replace(settings or read_settings(), host="127.0.0.1", grpc_port=0)
    app = create_app(settings, module)
    service = app.extensions["service"]
    server = service.make_grpc_server(reuse_port=False)
    server.start()
    try:
        address = f"127.0.0.1:{server.port}"
        options = [("grpc.max_receive_message_length", -1)]
        with grpc.insecure_channel(address, options) as channel:
            yield partial(_infer_in_all_forms, app, channel, service.info.metadata, forms)
    finally:
        server.close(settings.shutdown_timeout_seconds)


def _infer_in_all_forms(
    app: Flask,
    channel: grpc.Channel,
    metadata: ModelMetadata,
    forms: Sequence[str],
    data: Any = None,
    /,
    **inputs: Any,
) -> dict[str, Any]:
    """Send a request in each form, and return the outputs by name.

    The request is `data` (an InferenceRequest or a DataFrame), or has the values in `inputs`.
    """
    if isinstance(data, InferenceRequest):
        request = data
    elif data is not None:
        request = _request_of_frame(metadata, data)
    else:
        request = _request_of_values(metadata, inputs)
    apply_declarations(request.inputs, metadata.inputs)

    results: dict[str, dict[str, Any]] = {}
    for form in forms:
        try:
            response = _send(app, channel, metadata.name, form=form, request=request)
        except NoBinaryForm as error:
            error.remedy = 'use serve(forms=["json"]) if only JSON can carry the inputs'
            raise
        apply_declarations(response.outputs, metadata.outputs)
        results[form] = {output.name: _value_of(output) for output in response.outputs}
        np.testing.assert_equal(
            results[form], results[forms[0]], f"{form} and {forms[0]} give different results"
        )
    return results[forms[0]]


def _send(
    app: Flask, channel: grpc.Channel, name: str, *, form: str, request: InferenceRequest
) -> InferenceResponse:
    """Send the request.

    Raise InvalidInput if the service rejects it, and InferenceError for any other error.
    """
    error_class: type[InferenceError] = InferenceError
    if form == "grpc":
        try:
            return client.infer(channel, name, request)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                error_class = InvalidInput
            raise error_class(error.details()) from None

    body, headers = request.to_http(binary=form == "binary")
    response = app.test_client().post(f"/v2/models/{name}/infer", data=body, headers=headers)
    if response.status_code != 200:
        if response.status_code == 400:
            error_class = InvalidInput
        raise error_class(response.get_json()["error"])
    return InferenceResponse.from_http(response.data, dict(response.headers))


def _request_of_frame(metadata: ModelMetadata, frame: pd.DataFrame) -> InferenceRequest:
    """Return a request with an input per column."""
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    # pandas reads whole numbers as integers, also for inputs that are floats.
    new_types = {}
    for column in frame.select_dtypes("integer"):
        if column in declared and datatype_of(declared[column].datatype).is_float:
            new_types[column] = float
    return PandasCodec.encode_request(frame.astype(new_types))


def _request_of_values(metadata: ModelMetadata, inputs: dict[str, Any]) -> InferenceRequest:
    """Return a request with the values of the inputs by name."""
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    unknown = inputs.keys() - declared.keys()
    if unknown:
        raise InvalidInput(
            "unknown inputs", expected=join_names(declared), got=join_names(sorted(unknown))
        )
    return InferenceRequest([_input_of(declared[name], value) for name, value in inputs.items()])


def _input_of(tensor: MetadataTensor, value: Any) -> RequestInput:
    """Encode a value by the declared content type of its input."""
    if tensor.content_type in (None, "np"):
        return make_input(tensor, value)
    options = {}
    if tensor.content_type == "datetime":
        options["missing"] = NO_TIME if tensor.missing is None else tensor.missing
    codec = find_input_codec(tensor.content_type)
    try:
        encoded = codec.encode_input(tensor.name, value, **options)
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None
    return cast(RequestInput, encoded)


def _value_of(output: ResponseOutput) -> Any:
    """Decode an output by its content type.

    Without one, return an array, in which BYTES elements are bytes.
    """
    if output.datatype == "BYTES" and "content_type" not in output.parameters:
        return bytes_array(output.data)
    return decode_tensor(output, NumpyCodec)
