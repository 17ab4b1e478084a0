"""The server under test: clients for all forms, and detection of optional features."""

from __future__ import annotations

import gzip
import http.client
import json
import time
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from oip_conformance import messages, wires
from oip_conformance.addresses import InvalidTarget, check_addresses
from oip_conformance.calls import Recorder
from oip_conformance.client import TIMEOUT_SECONDS, Http, LastExchange, Reply
from oip_conformance.model import INPUTS, OUTPUTS, Declared, output_of
from oip_conformance.outcomes import members, text_of
from oip_conformance.texts import show_bytes
from oip_conformance.wires import KINDS, Grpc, Response, Sent

# Datatypes without typed contents on gRPC, which are optional in JSON.
RAW_ONLY = ["FP16", "BF16"]
# A server can have several instances of the model, some of which no longer work.
PROBES = 8
SMALL: Sent = ("fp32_in", "FP32", [2], [1.5, -2.0])
UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),  # connect soon after a restart
]
# Statuses of servers that do not support a feature.
DECLINED = (404, 405, 415, 501)
BROKEN = (OSError, http.client.HTTPException, UnicodeError)
TARGET = pytest.StashKey["Target"]()


class Rest(wires.Rest):
    """A REST client that accepts any error format."""

    def failure(self, response: Any) -> Response:
        status = 400 if response.status_code == 422 else response.status_code
        return Response(KINDS.get(status, str(status)), text_of(response), raw=response)


def status_of(call: Callable[[], Any]) -> grpc.StatusCode:
    """Return the status code of a gRPC call."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


class Target:
    """The server under test. Raise InvalidTarget if it does not respond or serves another model.

    `server` and `metadata` are the metadata of the server and of the model, or {} if they are not
    JSON objects. `last` is the last request.
    """

    def __init__(
        self,
        url: str,
        address: str | None,
        model: str,
        limit: int | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ):
        check_addresses(url, address)
        self.url = url
        self.address = address or ""
        self.model = model
        self.limit = limit
        self.timeout = timeout
        self.last = LastExchange()
        self.server: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        # Results of why_unsupported() by feature.
        self.reasons: dict[str, str] = {}

        self.path = f"/v2/models/{quote(model, safe='')}"
        self.http = self.connect(reconnects=True)
        self.rest = Rest(self.http, model=quote(model, safe=""))
        self.forms: dict[str, Any] = {
            "rest json": self.rest,
            "rest binary": Rest(self.http, binary=True, model=self.rest.model),
        }
        self.channel = None
        if address:
            self.channel = grpc.intercept_channel(
                grpc.insecure_channel(address, UNLIMITED), Recorder(self.last)
            )
            for form, raw in (("grpc typed", False), ("grpc raw", True)):
                self.forms[form] = Grpc(self.channel, raw, model=model, timeout=timeout)

        try:
            self.read_metadata()
        except InvalidTarget:
            self.close()
            raise

    def connect(self, reconnects: bool = False) -> Http:
        return Http(self.url, reconnects, timeout=self.timeout, last=self.last)

    def read_metadata(self) -> None:
        """Read `server` and `metadata`, and check that the server responds on all its addresses.

        Raise InvalidTarget if it does not, or if it rejects a request with one input.
        """
        try:
            self.server = members(self.http.get("/v2"))
            self.metadata = members(self.http.get(self.path))
            reply = self.rest.post({"inputs": [json_input(*SMALL)]})
        except BROKEN as error:
            reason = show_bytes(str(error).encode()) or repr(error)
            raise InvalidTarget(f"--http {self.url}: no HTTP server responds: {reason}") from None
        if not has_outputs(reply):
            raise InvalidTarget(
                f"--model {self.model}: a request with one input, fp32_in, got {reply}"
            )
        if not self.is_grpc_responding():
            raise InvalidTarget(f"--grpc {self.address}: no gRPC server responds")

    def is_grpc_responding(self) -> bool:
        """Return True if a gRPC call receives a response, on a new connection if necessary.

        An error is a response as well. Without --grpc, there is nothing to call, and the result
        is True.
        """
        if self.channel is None:
            return True
        call = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/ServerLive")
        status = status_of(lambda: call(b"", timeout=self.timeout, wait_for_ready=True))
        return status not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

    def missing_tensors(self) -> list[str]:
        """Return the tensors of model.py that the model's metadata does not list, inputs first.

        An output is left out if its input is in the result. Inputs and outputs are optional in
        metadata. If the metadata lists none of them, none is missing.
        """
        inputs = self.unlisted("inputs", INPUTS)
        implied = {output_of(name) for name in inputs}
        outputs = [name for name in self.unlisted("outputs", OUTPUTS) if name not in implied]
        return inputs + outputs

    def unlisted(self, key: str, tensors: list[Declared]) -> list[str]:
        """Return the names of the supported tensors that the list `key` of the metadata lacks."""
        listed = tensor_names(self.metadata.get(key))
        if not listed:
            return []
        return [name for name, *_ in self.supported_tensors(tensors) if name not in listed]

    def supported_tensors(self, tensors: list[Declared]) -> list[Declared]:
        """Return those of the tensors of model.py whose datatype the server supports."""
        if self.supports("bf16"):
            return tensors
        return [tensor for tensor in tensors if "BF16" not in tensor]

    def is_killed(self) -> bool:
        """Return True if the server repeatedly fails to respond to valid requests over REST or gRPC."""
        if self.works():
            return False
        time.sleep(1)
        return not self.works()

    def works(self) -> bool:
        """Return True if the server accepts several valid requests, and responds over gRPC."""
        connection = Http(self.url, timeout=self.timeout)
        rest = Rest(connection, model=self.rest.model)
        try:
            for _ in range(PROBES):
                if not has_outputs(rest.post({"inputs": [json_input(*SMALL)]})):
                    return False
        except BROKEN:
            return False
        finally:
            connection.close()
        return self.is_grpc_responding()

    def close(self) -> None:
        self.http.close()
        if self.channel:
            self.channel.close()

    def infer(
        self, form: str, inputs: list[Sent], outputs: list[str] | None = None, **options: Any
    ) -> Response:
        """Send `inputs` and return the response. `outputs` defaults to the outputs of these inputs."""
        if outputs is None:
            outputs = [output_of(name) for name, *_ in inputs]
        return self.forms[form].infer(inputs, outputs, **options)

    @cached_property
    def version(self) -> str:
        """Return a version from the model's metadata, or ""."""
        versions = self.metadata.get("versions")
        if not isinstance(versions, list) or not versions:
            return ""
        first = versions[0]
        return first if isinstance(first, str) else ""

    def form_for(self, form: str, datatype: str) -> str:
        """Return `form`, or the binary form of its transport if `form` cannot carry the datatype.

        On gRPC, FP16 and BF16 have no typed contents (G3). In JSON, they are optional (R13, R23). A
        server with neither JSON nor binary tensors for them receives JSON, and the case fails.
        """
        if datatype not in RAW_ONLY:
            return form
        if form == "grpc typed":
            return "grpc raw"
        if form == "rest json" and not self.supports(f"{datatype.lower()} json"):
            return "rest binary" if self.supports("binary") else form
        return form

    def supports(self, feature: str) -> bool:
        """Return True if the server supports the optional feature."""
        return not self.why_unsupported(feature)

    def why_unsupported(self, feature: str) -> str:
        """Return why the server does not support the feature of FEATURES, or "" if it does."""
        if feature not in self.reasons:
            self.reasons[feature] = FEATURES[feature](self)
        return self.reasons[feature]


def tensor_names(tensors: Any) -> set[str]:
    """Return the names of tensors in metadata, which can be any JSON."""
    if not isinstance(tensors, list):
        return set()
    return {str(tensor.get("name")) for tensor in tensors if isinstance(tensor, dict)}


def has_outputs(reply: Reply) -> bool:
    """Return True if the reply is the response to a successful inference."""
    return isinstance(members(reply).get("outputs"), list)


def json_input(name: str, datatype: str, shape: list[int], values: list) -> dict[str, Any]:
    """Return an input tensor as JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": values}


# Detection of optional features. Each function why_no_...() sends a request or reads the metadata.
# It returns the reason why the server does not support the feature, or "" if it does.


def why_declined(action: str, reply: Reply, *other_statuses: int) -> str:
    """Return "ACTION got STATUS" for the statuses in DECLINED and for the others, otherwise ""."""
    if reply.status_code in (*DECLINED, *other_statuses):
        return f"{action} got {reply.status_code}"
    return ""


def why_no_request_coding(target: Target, coding: str, compress: Callable[[bytes], bytes]) -> str:
    """Detect compression of requests: the server accepts a compressed request."""
    body = compress(json.dumps({"inputs": [json_input(*SMALL)]}).encode())
    reply = target.http.post(f"{target.path}/infer", body, {"Content-Encoding": coding})
    return why_declined(f"Content-Encoding: {coding}", reply, 400, 422)


def is_listed(target: Target, extension: str) -> bool:
    """Return True if the server's metadata lists the extension."""
    extensions = target.server.get("extensions")
    return isinstance(extensions, list) and extension in extensions


def why_no_binary(target: Target) -> str:
    """Detect binary tensors: the server lists the extension or sends a binary response."""
    if is_listed(target, "binary_tensor_data"):
        return ""
    envelope = {"inputs": [json_input(*SMALL)], "parameters": {"binary_data_output": True}}
    reply = target.rest.post(envelope)
    if reply.headers.get("Inference-Header-Content-Length"):
        return ""
    return "it lists no binary_tensor_data, and sends none"


def why_no_response_coding(target: Target, coding: str) -> str:
    """Detect compression of responses. It is optional, but a server must not fail when a client accepts it."""
    envelope = {"inputs": [json_input("bytes_in", "BYTES", [1], ["x" * 100_000])]}
    reply = target.rest.post(envelope, Accept_Encoding=coding)
    if reply.status_code == 200 and not reply.headers.get("Content-Encoding"):
        return f"Accept-Encoding: {coding} changes nothing"
    return why_declined(f"Accept-Encoding: {coding}", reply)


def why_no_bf16(target: Target) -> str:
    """Detect BF16, which is optional: the model's metadata lists bf16_in, or no inputs at all."""
    names = tensor_names(target.metadata.get("inputs"))
    if not names or "bf16_in" in names:
        return ""
    return "the model's metadata lists no bf16_in"


def why_no_datatype_json(target: Target, datatype: str) -> str:
    """Detect FP16 or BF16 in JSON, which is optional, because the protocol does not define it."""
    name = f"{datatype.lower()}_in"
    envelope = {
        "inputs": [json_input(name, datatype, [1], [1.5])],
        "outputs": [{"name": output_of(name)}],
    }
    reply = target.rest.post(envelope)
    return why_declined(f"{datatype} as JSON", reply, 400, 422)


def why_no_content_types(target: Target) -> str:
    """Detect content types: the model receives decoded base64."""
    encoded: Sent = ("bytes_in", "BYTES", [1], [b"YQ=="])
    response = target.infer("rest json", [encoded], content_types={"bytes_in": "base64"})
    _, _, values = response.outputs.get("bytes_out", ("", [], []))
    return "" if values == [b"a"] else "the content type base64 changes nothing"


def why_no_path(target: Target, method: str, path: str) -> str:
    """Detect a path: the server accepts this method there."""
    return why_declined(f"{method} {path}", target.http.open(method, path))


def why_no_versions(target: Target) -> str:
    """Detect versions in paths, for the version that the model's metadata names."""
    if not target.version:
        return "the model's metadata names no version"
    return why_no_path(target, "GET", f"{target.path}/versions/{quote(target.version, safe='')}")


def why_no_statistics(target: Target) -> str:
    """Detect statistics: the server lists the extension."""
    return "" if is_listed(target, "statistics") else "it lists no statistics"


def why_no_method(target: Target, path: str) -> str:
    """Detect a method of gRPC, whose path is "/SERVICE/METHOD".

    The request is empty. Any status except UNIMPLEMENTED shows that the server has the method.
    """
    assert target.channel
    invoke = target.channel.unary_unary(path)
    status = status_of(lambda: invoke(b"", timeout=target.timeout))
    return f"{path} is UNIMPLEMENTED" if status == grpc.StatusCode.UNIMPLEMENTED else ""


def why_no_rpc(target: Target, name: str) -> str:
    """Detect a method of the inference service of gRPC."""
    return why_no_method(target, f"/{messages.SERVICE_NAME}/{name}")


HTTP_FEATURES: dict[str, Callable[[Target], str]] = {
    "binary": why_no_binary,
    "gzip": lambda target: why_no_request_coding(target, "gzip", gzip.compress),
    "deflate": lambda target: why_no_request_coding(target, "deflate", zlib.compress),
    "gzip responses": lambda target: why_no_response_coding(target, "gzip"),
    "deflate responses": lambda target: why_no_response_coding(target, "deflate"),
    "bf16": why_no_bf16,
    "fp16 json": lambda target: why_no_datatype_json(target, "FP16"),
    "bf16 json": lambda target: why_no_datatype_json(target, "BF16"),
    "versions": why_no_versions,
    "content types": why_no_content_types,
    "model names": lambda target: why_no_path(target, "GET", "/v2/models"),
    "config": lambda target: why_no_path(target, "GET", f"{target.path}/config"),
    "statistics": why_no_statistics,
    "index": lambda target: why_no_path(target, "POST", "/v2/repository/index"),
}
GRPC_FEATURES: dict[str, Callable[[Target], str]] = {
    "health": lambda target: why_no_method(target, "/grpc.health.v1.Health/Check"),
    "reflection": lambda target: why_no_method(
        target, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    ),
    "rpc ModelConfig": lambda target: why_no_rpc(target, "ModelConfig"),
    "rpc RepositoryIndex": lambda target: why_no_rpc(target, "RepositoryIndex"),
    "rpc ModelStatistics": lambda target: why_no_rpc(target, "ModelStatistics"),
}
FEATURES = {**HTTP_FEATURES, **GRPC_FEATURES}
