"""Call a model as its clients do, over both protocols, in the process of a test:

with serve() as infer:
    assert infer(celsius=[0.0, 20.0])["fahrenheit"].tolist() == [32.0, 68.0]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pandas as pd

from app import create_app
from app.codecs import NumpyCodec, PandasCodec
from app.codecs.base import decode_tensor, find_input_codec
from app.codecs.frames import encode_moments
from app.codecs.strings import as_list
from app.config import Settings, read_settings
from app.dataplane import DataPlane
from app.errors import InferenceError, InvalidInput, NoBinaryForm
from app.example import filled
from app.types import InferenceRequest, InferenceResponse, MetadataTensor, ModelMetadata, RequestInput, ResponseOutput
from grpc_service import client
from grpc_service.server import Server

# How a request travels: REST with JSON, REST with binary tensors, gRPC.
FORMS = ("json", "binary", "grpc")

Infer = Callable[..., dict[str, Any]]


@contextmanager
def serve(module: Any = None, settings: Settings | None = None, forms: Sequence[str] = FORMS) -> Iterator[Infer]:
    """Serve app/predict.py, or a `module` like it, and return the function that calls it in each of the `forms`.

    `infer(name=value, ...)` takes nested lists, arrays, or what the content type of the input has. `infer(frame)` takes
    a DataFrame, and `infer(request)` an InferenceRequest. It returns the outputs by name. Leave out "json" for a model
    whose tensors JSON cannot carry. Raise InvalidInput if the service rejects the request, InferenceError if it fails,
    and AssertionError if two forms give different results.
    """
    settings = replace(settings or read_settings(), host="127.0.0.1", grpc_port=0)
    app = create_app(settings, module)
    plane = app.extensions["data_plane"]
    server = Server(plane, settings)
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{server.port}", [("grpc.max_receive_message_length", -1)]) as channel:
            senders = {
                "json": lambda request: by_rest(app.test_client(), plane, request, False),
                "binary": lambda request: by_rest(app.test_client(), plane, request, True),
                "grpc": lambda request: by_grpc(channel, plane, request),
            }
            yield asking(plane.metadata(), {form: senders[form] for form in forms})
    finally:
        server.close(settings.graceful_timeout)


def asking(metadata: ModelMetadata, senders: dict[str, Callable[[InferenceRequest], InferenceResponse]]) -> Infer:
    def infer(payload: Any = None, /, **inputs: Any) -> dict[str, Any]:
        request = payload if isinstance(payload, InferenceRequest) else request_of(metadata, payload, inputs)
        results = {}
        for form, send in senders.items():
            try:
                results[form] = {each.name: value_of(each) for each in send(request).outputs}
            except NoBinaryForm as error:
                error.remedy = 'use serve(forms=["json"]) if only JSON can carry the inputs'
                raise
        (first, result), *others = results.items()
        for form, other in others:
            np.testing.assert_equal(other, result, f"{form} and {first} give different answers")
        return result

    return infer


def request_of(metadata: ModelMetadata, frame: pd.DataFrame | None, inputs: dict[str, Any]) -> InferenceRequest:
    declared = {tensor.name: tensor for tensor in metadata.inputs}
    if frame is not None:  # whole numbers, as files have them, will do for others
        whole = [name for name in frame.select_dtypes("integer") if name in declared]
        floats = {name: float for name in whole if declared[name].datatype.startswith("FP")}
        return PandasCodec.encode_request(frame.astype(floats))
    if strangers := inputs.keys() - declared.keys():
        raise InvalidInput(f"no such inputs: {', '.join(sorted(strangers))}; METADATA has {', '.join(declared)}")
    return InferenceRequest([input_of(declared[name], value) for name, value in inputs.items()])


def input_of(tensor: MetadataTensor, value: Any) -> RequestInput:
    try:
        if tensor.content_type in (None, "np"):
            return filled(tensor, value)
        if tensor.content_type == "datetime":
            gapped = [None if each is None or each != each else each for each in as_list(value)]
            return RequestInput(tensor.name, "BYTES", data=encode_moments(gapped)[1], parameters=tensor.parameters)
        return find_input_codec(tensor.content_type).encode_input(tensor.name, value)
    except InvalidInput as error:
        raise error.about("input", tensor.name, is_declared=True) from None


def value_of(output: ResponseOutput) -> Any:
    """What the output's content type has; without one an array, BYTES as bytes in every form."""
    if output.datatype == "BYTES" and "content_type" not in output.parameters:
        return np.vectorize(lambda each: each.encode() if isinstance(each, str) else each, [object])(output.data)
    return decode_tensor(output, NumpyCodec)


def by_rest(http: Any, plane: DataPlane, request: InferenceRequest, binary: bool) -> InferenceResponse:
    body, headers = request.to_http(binary)
    answer = http.post(f"/v2/models/{plane.metadata().name}/infer", data=body, headers=headers)
    if answer.status_code != 200:
        raise to_error(answer.status_code == 400, answer.json["error"])
    return InferenceResponse.from_http(answer.data, answer.headers)


def by_grpc(channel: grpc.Channel, plane: DataPlane, request: InferenceRequest) -> InferenceResponse:
    try:
        return client.infer(channel, plane.metadata().name, request)
    except grpc.RpcError as error:
        raise to_error(error.code() is grpc.StatusCode.INVALID_ARGUMENT, error.details()) from None


def to_error(is_invalid: bool, text: str) -> InferenceError:
    return InvalidInput(text) if is_invalid else InferenceError(text)
