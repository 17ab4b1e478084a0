"""The forms in which a request reaches the model, each from end to end, in this process and without a port."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from app.call import Call
from app.config import Settings
from app.dataplane import DataPlane
from app.rest import Inference
from app.types import InferenceRequest, InferenceResponse
from grpc_service.converters import read_response, write_request
from grpc_service.servicer import InferenceServicer


class Form(NamedTuple):
    title: str
    ask: Callable[[DataPlane, Settings, InferenceRequest], InferenceResponse]


def by_rest(plane: DataPlane, settings: Settings, request: InferenceRequest, *, binary: bool) -> InferenceResponse:
    body, headers = request.to_http(binary)
    environ: dict[str, Any] = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()}
    environ |= {"CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
    return InferenceResponse.from_http(*Inference(plane, settings)(environ, plane.metadata().name, None))


def by_grpc(plane: DataPlane, settings: Settings, request: InferenceRequest) -> InferenceResponse:
    body = write_request(replace(request, model_name=plane.metadata().name))
    call: Any = Call("ModelInfer")
    return read_response(InferenceServicer(plane).ModelInfer(body, call))


FORMS = {
    "json": Form("REST, JSON", partial(by_rest, binary=False)),
    "binary": Form("REST, binary", partial(by_rest, binary=True)),
    "grpc": Form("gRPC", by_grpc),
}
