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
from oip_conformance.client import TIMEOUT_SECONDS, Http, LastExchange, Reply, shown
from oip_conformance.model import INPUTS, OUTPUTS, Declared, output_of
from oip_conformance.outcomes import members, text_of
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

    `last` is the last request.
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
        self.url, self.address, self.model = url, address or "", model
        self.limit, self.timeout, self.last = limit, timeout, LastExchange()
        self.path = f"/v2/models/{quote(model, safe='')}"
        self.http = self.connect(renewed=True)
        self.rest = Rest(self.http, model=quote(model, safe=""))
        self.forms: dict[str, Any] = {
            "rest json": self.rest,
            "rest binary": Rest(self.http, True, self.rest.model),
        }
        self.channel = None
        if address:
            self.channel = grpc.intercept_channel(
                grpc.insecure_channel(address, UNLIMITED), Recorder(self.last)
            )
            for form, raw in (("grpc typed", False), ("grpc raw", True)):
                self.forms[form] = Grpc(self.channel, raw, model, timeout)
        try:
            self.check()
        except InvalidTarget:
            self.close()
            raise

    def connect(self, renewed: bool = False) -> Http:
        return Http(self.url, renewed, self.timeout, self.last)

    def check(self) -> None:
        try:
            self.server = members(self.http.get("/v2"))
            self.metadata = members(self.http.get(self.path))
            response = self.rest.post({"inputs": [json_input(*SMALL)]})
        except BROKEN as error:
            reason = shown(str(error).encode()) or repr(error)
            raise InvalidTarget(f"--http {self.url}: no HTTP server responds: {reason}") from None
        if not isinstance(members(response).get("outputs"), list):
            raise InvalidTarget(
                f"--model {self.model}: a request with one input, fp32_in, got {response}"
            )
        if not self.is_grpc_responding():
            raise InvalidTarget(f"--grpc {self.address}: no gRPC server responds")

    def is_grpc_responding(self) -> bool:
        """Return True if a gRPC call receives a response, on a new connection if necessary, or without --grpc."""
        if self.channel is None:
            return True
        call = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/ServerLive")
        status = status_of(lambda: call(b"", timeout=self.timeout, wait_for_ready=True))
        return status not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

    def missing_tensors(self) -> list[str]:
        """Return the tensors of model.py that the model's metadata does not list, if it lists any."""
        declared = {key: tensor_names(self.metadata.get(key)) for key in ("inputs", "outputs")}
        needed = [[name for name, *_ in self.supported(tensors)] for tensors in (INPUTS, OUTPUTS)]
        inputs = [
            name for name in needed[0] if declared["inputs"] and name not in declared["inputs"]
        ]
        known = {output_of(name) for name in inputs}
        outputs = [
            name
            for name in needed[1]
            if declared["outputs"] and name not in declared["outputs"] | known
        ]
        return inputs + outputs

    def supported(self, tensors: list[Declared]) -> list[Declared]:
        """Return the tensors of model.py with a datatype that the server supports."""
        return [each for each in tensors if each[1] != "BF16" or not self.missing_feature("bf16")]

    def is_killed(self) -> bool:
        """Return True if the server repeatedly fails to respond to valid requests over REST or gRPC."""
        if self.works():
            return False
        time.sleep(1)
        return not self.works()

    def works(self) -> bool:
        probe = Http(self.url, timeout=self.timeout)
        rest = Rest(probe, model=self.rest.model)
        try:
            replies = (rest.post({"inputs": [json_input(*SMALL)]}) for _ in range(PROBES))
            has_outputs = all(isinstance(members(reply).get("outputs"), list) for reply in replies)
        except BROKEN:
            return False
        finally:
            probe.close()
        return has_outputs and self.is_grpc_responding()

    def close(self) -> None:
        self.http.close()
        if self.channel:
            self.channel.close()

    def infer(
        self, form: str, inputs: list[Sent], outputs: list[str] | None = None, **options: Any
    ) -> Response:
        """Send `inputs` and return the response. `outputs` defaults to the outputs of these inputs."""
        wanted = [output_of(name) for name, *_ in inputs] if outputs is None else outputs
        return self.forms[form].infer(inputs, wanted, **options)

    @cached_property
    def version(self) -> str:
        """Return a version from the model's metadata, or ""."""
        versions = self.metadata.get("versions")
        return (
            versions[0]
            if isinstance(versions, list) and versions and isinstance(versions[0], str)
            else ""
        )

    def form_for(self, form: str, datatype: str) -> str:
        """Return `form`, or a binary form if `form` does not support the datatype (R13, R23, G3)."""
        if datatype in RAW_ONLY and form == "grpc typed":
            return "grpc raw"
        if (
            datatype in RAW_ONLY
            and form == "rest json"
            and self.missing_feature(f"{datatype.lower()} json")
        ):
            return "rest json" if self.missing_feature("binary") else "rest binary"
        return form

    def missing_feature(self, feature: str) -> str:
        """Return the reason if the server does not support `feature`, otherwise ""."""
        if feature not in self._missing_features:
            self._missing_features[feature] = FEATURES[feature](self)
        return self._missing_features[feature]

    @cached_property
    def _missing_features(self) -> dict[str, str]:
        return {}


def tensor_names(tensors: Any) -> set[Any]:
    """Return the names of tensors in metadata."""
    listed = tensors if isinstance(tensors, list) else []
    return {str(each.get("name")) for each in listed if isinstance(each, dict)}


def json_input(name: str, datatype: str, shape: list[int], values: list) -> dict[str, Any]:
    """Return an input as JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": values}


def missing_reason(what: str, reply: Reply, *more: int) -> str:
    """Return the reason if the status shows that the server does not support `what`, otherwise ""."""
    return f"{what} got {reply.status_code}" if reply.status_code in (*DECLINED, *more) else ""


def request_coding(target: Target, coding: str, compress: Callable[[bytes], bytes]) -> str:
    body = compress(json.dumps({"inputs": [json_input(*SMALL)]}).encode())
    reply = target.http.post(f"{target.path}/infer", body, {"Content-Encoding": coding})
    return missing_reason(f"Content-Encoding: {coding}", reply, 400, 422)


def is_listed(target: Target, extension: str) -> bool:
    listed = target.server.get("extensions")
    return isinstance(listed, list) and extension in listed


def binary(target: Target) -> str:
    """Detect binary tensors: the server lists the extension or sends a binary response."""
    if is_listed(target, "binary_tensor_data"):
        return ""
    envelope = {"inputs": [json_input(*SMALL)], "parameters": {"binary_data_output": True}}
    sent = target.rest.post(envelope).headers.get("Inference-Header-Content-Length")
    return "" if sent else "it lists no binary_tensor_data, and sends none"


def response_coding(target: Target, coding: str) -> str:
    """Detect compression of responses. It is optional, but a server must not fail when a client accepts it."""
    envelope = {"inputs": [json_input("bytes_in", "BYTES", [1], ["x" * 100_000])]}
    reply = target.rest.post(envelope, Accept_Encoding=coding)
    if reply.status_code == 200 and not reply.headers.get("Content-Encoding"):
        return f"Accept-Encoding: {coding} changes nothing"
    return missing_reason(f"Accept-Encoding: {coding}", reply)


def bf16(target: Target) -> str:
    """Detect BF16, which is optional: the model's metadata lists bf16_in, or no inputs at all."""
    listed = tensor_names(target.metadata.get("inputs"))
    return "the model's metadata lists no bf16_in" if listed and "bf16_in" not in listed else ""


def datatype_json(target: Target, datatype: str) -> str:
    """Detect FP16 or BF16 in JSON, which is optional, because the protocol does not define it."""
    name = f"{datatype.lower()}_in"
    envelope = {
        "inputs": [json_input(name, datatype, [1], [1.5])],
        "outputs": [{"name": output_of(name)}],
    }
    reply = target.rest.post(envelope)
    return missing_reason(f"{datatype} as JSON", reply, 400, 422)


def content_types(target: Target) -> str:
    """Detect content types: the model receives decoded base64."""
    sent: Sent = ("bytes_in", "BYTES", [1], [b"YQ=="])
    response = target.infer("rest json", [sent], content_types={"bytes_in": "base64"})
    decoded = response.outputs.get("bytes_out", ("", [], []))[2] == [b"a"]
    return "" if decoded else "the content type base64 changes nothing"


def path(target: Target, method: str, suffix: str) -> str:
    return missing_reason(f"{method} {suffix}", target.http.open(method, suffix))


def versions(target: Target) -> str:
    if not target.version:
        return "the model's metadata names no version"
    return path(target, "GET", f"{target.path}/versions/{quote(target.version, safe='')}")


def call(target: Target, method: str, request: bytes = b"") -> str:
    assert target.channel
    invoke = target.channel.unary_unary(method)
    status = status_of(lambda: invoke(request, timeout=target.timeout))
    return f"{method} is UNIMPLEMENTED" if status == grpc.StatusCode.UNIMPLEMENTED else ""


def service_call(name: str) -> Callable[[Target], str]:
    return lambda target: call(target, f"/{messages.SERVICE_NAME}/{name}")


# Optional features, with functions that return the reason why the server does not support them.
FEATURES: dict[str, Callable[[Target], str]] = {
    "binary": binary,
    "gzip": lambda target: request_coding(target, "gzip", gzip.compress),
    "deflate": lambda target: request_coding(target, "deflate", zlib.compress),
    "gzip responses": lambda target: response_coding(target, "gzip"),
    "deflate responses": lambda target: response_coding(target, "deflate"),
    "bf16": bf16,
    "fp16 json": lambda target: datatype_json(target, "FP16"),
    "bf16 json": lambda target: datatype_json(target, "BF16"),
    "versions": versions,
    "content types": content_types,
    "model names": lambda target: path(target, "GET", "/v2/models"),
    "config": lambda target: path(target, "GET", f"{target.path}/config"),
    "statistics": lambda target: (
        "" if is_listed(target, "statistics") else "it lists no statistics"
    ),
    "index": lambda target: path(target, "POST", "/v2/repository/index"),
    "health": lambda target: call(target, "/grpc.health.v1.Health/Check"),
    "reflection": lambda target: call(
        target, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    ),
    "rpc ModelConfig": service_call("ModelConfig"),
    "rpc RepositoryIndex": service_call("RepositoryIndex"),
    "rpc ModelStatistics": service_call("ModelStatistics"),
}
