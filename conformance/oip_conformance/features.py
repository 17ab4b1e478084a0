"""Detection of the optional features of a server.

A function why_no_...() sends a request or reads the metadata. It returns the reason why the server
does not support the feature, or None if it does. `FEATURES` maps the names of features, which are
arguments of the marker `needs` of the cases, to these functions.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import grpc

from oip_conformance import messages
from oip_conformance.client import Reply
from oip_conformance.inputs import SMALL_JSON, json_input
from oip_conformance.model import input_of, output_of
from oip_conformance.outcomes import status_of
from oip_conformance.wires import HEADER_LENGTH, InputTuple

if TYPE_CHECKING:
    from oip_conformance.target import Target

# Statuses of servers that do not support a feature.
UNSUPPORTED_STATUSES = (404, 405, 415, 501)
# Other statuses with which servers reject a body that they cannot read.
INVALID_BODY_STATUSES = (400, 422)
HEALTH_PATH = "/grpc.health.v1.Health/Check"
REFLECTION_PATH = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def why_declined(action: str, reply: Reply, *other_statuses: int) -> str | None:
    """Return "ACTION got STATUS" for a status in UNSUPPORTED_STATUSES or `other_statuses`."""
    status = reply.status_code
    if status in UNSUPPORTED_STATUSES or status in other_statuses:
        return f"{action} got {status}"
    return None


def is_listed(target: Target, extension: str) -> bool:
    """Return True if the server's metadata lists the extension."""
    extensions = target.server.get("extensions")
    return isinstance(extensions, list) and extension in extensions


def tensor_names(tensors: Any) -> set[str]:
    """Return the names of tensors in metadata, which can be any JSON."""
    if not isinstance(tensors, list):
        return set()
    return {str(tensor.get("name")) for tensor in tensors if isinstance(tensor, dict)}


def why_no_request_coding(
    target: Target, *, coding: str, compress: Callable[[bytes], bytes]
) -> str | None:
    """Detect compression of requests: the server accepts a compressed request."""
    body = json.dumps({"inputs": [SMALL_JSON]}).encode()
    headers = {"Content-Encoding": coding}
    reply = target.http.post(f"{target.path}/infer", compress(body), headers)
    return why_declined(f"Content-Encoding: {coding}", reply, *INVALID_BODY_STATUSES)


def why_no_binary(target: Target) -> str | None:
    """Detect binary tensors: the server lists the extension or sends a binary response."""
    if is_listed(target, "binary_tensor_data"):
        return None
    envelope = {"inputs": [SMALL_JSON], "parameters": {"binary_data_output": True}}
    reply = target.rest.post(envelope)
    if reply.headers.get(HEADER_LENGTH):
        return None
    return "it lists no binary_tensor_data, and sends none"


def why_no_response_coding(target: Target, *, coding: str) -> str | None:
    """Detect compression of responses.

    It is optional, but a server must not fail when a client accepts it.
    """
    envelope = {"inputs": [json_input("bytes_in", "BYTES", [1], ["x" * 100_000])]}
    reply = target.rest.post(envelope, Accept_Encoding=coding)
    if reply.status_code == 200 and not reply.headers.get("Content-Encoding"):
        return f"Accept-Encoding: {coding} changes nothing"
    return why_declined(f"Accept-Encoding: {coding}", reply)


def why_no_bf16(target: Target) -> str | None:
    """Detect BF16, which is optional: the model's metadata lists bf16_in, or no inputs at all."""
    names = tensor_names(target.metadata.get("inputs"))
    if not names or "bf16_in" in names:
        return None
    return "the model's metadata lists no bf16_in"


def why_no_datatype_json(target: Target, *, datatype: str) -> str | None:
    """Detect FP16 or BF16 in JSON, which is optional, because the protocol does not define it."""
    name = input_of(datatype)
    envelope = {
        "inputs": [json_input(name, datatype, [1], [1.5])],
        "outputs": [{"name": output_of(name)}],
    }
    reply = target.rest.post(envelope)
    return why_declined(f"{datatype} as JSON", reply, *INVALID_BODY_STATUSES)


def why_no_content_types(target: Target) -> str | None:
    """Detect content types: the model receives decoded base64."""
    encoded: InputTuple = ("bytes_in", "BYTES", [1], [b"YQ=="])
    response = target.infer("rest json", [encoded], content_types={"bytes_in": "base64"})
    output = response.outputs.get("bytes_out")
    if output and output.values == [b"a"]:
        return None
    return "the content type base64 changes nothing"


def why_no_path(target: Target, method: str, path: str) -> str | None:
    """Detect a path: the server accepts this method there."""
    return why_declined(f"{method} {path}", target.http.open(method, path))


def why_no_model_names(target: Target) -> str | None:
    """Detect the list of models."""
    return why_no_path(target, "GET", "/v2/models")


def why_no_config(target: Target) -> str | None:
    """Detect the configuration of the model."""
    return why_no_path(target, "GET", f"{target.path}/config")


def why_no_index(target: Target) -> str | None:
    """Detect the repository index."""
    return why_no_path(target, "POST", "/v2/repository/index")


def why_no_versions(target: Target) -> str | None:
    """Detect versions in paths, for the version that the model's metadata names."""
    if not target.version:
        return "the model's metadata names no version"
    return why_no_path(target, "GET", f"{target.path}/versions/{quote(target.version, safe='')}")


def why_no_statistics(target: Target) -> str | None:
    """Detect statistics: the server lists the extension."""
    if is_listed(target, "statistics"):
        return None
    return "it lists no statistics"


def why_no_method(target: Target, *, path: str) -> str | None:
    """Detect a method of gRPC, whose path is "/SERVICE/METHOD".

    The request is empty. Any status except UNIMPLEMENTED shows that the server has the method.
    """
    assert target.channel
    invoke = target.channel.unary_unary(path)
    status = status_of(invoke, b"", timeout=target.timeout)
    if status == grpc.StatusCode.UNIMPLEMENTED:
        return f"{path} is UNIMPLEMENTED"
    return None


def why_no_rpc(target: Target, *, name: str) -> str | None:
    """Detect a method of the inference service of gRPC."""
    return why_no_method(target, path=f"/{messages.SERVICE_NAME}/{name}")


HTTP_FEATURES: dict[str, Callable[[Target], str | None]] = {
    "binary": why_no_binary,
    "gzip": partial(why_no_request_coding, coding="gzip", compress=gzip.compress),
    "deflate": partial(why_no_request_coding, coding="deflate", compress=zlib.compress),
    "gzip responses": partial(why_no_response_coding, coding="gzip"),
    "deflate responses": partial(why_no_response_coding, coding="deflate"),
    "bf16": why_no_bf16,
    "fp16 json": partial(why_no_datatype_json, datatype="FP16"),
    "bf16 json": partial(why_no_datatype_json, datatype="BF16"),
    "versions": why_no_versions,
    "content types": why_no_content_types,
    "model names": why_no_model_names,
    "config": why_no_config,
    "statistics": why_no_statistics,
    "index": why_no_index,
}
GRPC_FEATURES: dict[str, Callable[[Target], str | None]] = {
    "health": partial(why_no_method, path=HEALTH_PATH),
    "reflection": partial(why_no_method, path=REFLECTION_PATH),
    "rpc ModelConfig": partial(why_no_rpc, name="ModelConfig"),
    "rpc RepositoryIndex": partial(why_no_rpc, name="RepositoryIndex"),
    "rpc ModelStatistics": partial(why_no_rpc, name="ModelStatistics"),
}
FEATURES = {**HTTP_FEATURES, **GRPC_FEATURES}
