"""The server under test: clients of it in each form on the wire, and what it can do of what a server may do without."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlsplit

import click
import grpc
import pytest

from conformance.client import PATIENCE_SECONDS, Http
from conformance.model import output_of
from grpc_service import messages
from tests.service import wires
from tests.service.wires import KINDS, Answer, Grpc, Sent

FORMS = ["rest json", "rest binary", "grpc typed", "grpc raw"]
CONNECT_SECONDS = 5
SMALL: Sent = ("fp32_in", "FP32", [2], [1.5, -2.0])
UNLIMITED = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
]

TARGET = pytest.StashKey["Target"]()


class Unfit(click.ClickException):
    """A server that cannot be tested; ends the command with a line."""

    exit_code = 2


class Rest(wires.Rest):
    """Reads a failure in any envelope."""

    def failure(self, response: Any) -> Answer:
        status = 400 if response.status_code == 422 else response.status_code
        return Answer(KINDS.get(status, str(status)), text_of(response), raw=response)


def text_of(reply: Any) -> str:
    """What a failure says, in the protocol's envelope or another."""
    try:
        return json.loads(reply.data)["error"]
    except (ValueError, TypeError, KeyError):
        return reply.data.decode(errors="replace")


def refusal(reply: Any, status: int) -> str:
    """The text of a reply that refuses with `status`, where 422 is as good as 400; R19 has cases of the envelope."""
    assert reply.status_code == status or (status, reply.status_code) == (400, 422), reply.data
    return text_of(reply)


class Target:
    """Raises Unfit where there is no such server, or its model is not the one of conformance/model.py."""

    def __init__(self, url: str, address: str | None, model: str, limit: int | None):
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise Unfit(f"--http {url}: expected an address such as http://127.0.0.1:8080")
        self.model, self.path, self.limit = model, f"/v2/models/{quote(model, safe='')}", limit
        self.url, self.address, self.http = url, address or "", Http(url, renewed=True)
        self.channel = grpc.insecure_channel(address, UNLIMITED) if address else None
        self.rest = Rest(self.http, model=quote(model, safe=""))
        self.forms: dict[str, Any] = {"rest json": self.rest, "rest binary": Rest(self.http, True, self.rest.model)}
        if self.channel:
            self.forms |= {"grpc typed": Grpc(self.channel, model=model), "grpc raw": Grpc(self.channel, True, model)}
        self.check()

    def check(self) -> None:
        try:
            reply = self.http.get("/v2")
            answer = self.rest.post({"inputs": [head(*SMALL)]})
        except OSError as error:
            raise Unfit(f"--http {self.url}: {error}") from None
        self.server: dict[str, Any] = reply.json if reply.status_code == 200 else {}
        if answer.status_code != 200:
            raise Unfit(
                f"--model {self.model}: a request with one input, fp32_in, got {answer.status_code} {answer.data!r}"
            )
        if self.channel:
            try:
                grpc.channel_ready_future(self.channel).result(CONNECT_SECONDS)
            except grpc.FutureTimeoutError:
                raise Unfit(f"--grpc {self.address}: no server answers there") from None

    def close(self) -> None:
        self.http.close()
        if self.channel:
            self.channel.close()

    def infer(self, form: str, inputs: list[Sent], outputs: list[str] | None = None, **options: Any) -> Answer:
        """The answer to `inputs`, of the outputs that they come out as unless others are named."""
        wanted = [output_of(name) for name, *_ in inputs] if outputs is None else outputs
        return self.forms[form].infer(inputs, wanted, **options)

    @cached_property
    def version(self) -> str:
        """A version that the model says it has; empty where it says none."""
        versions = self.http.get(self.path).json.get("versions")
        return versions[0] if versions else ""

    def takes(self, form: str, datatype: str) -> str:
        """`form`, or the form in bytes where it cannot carry the datatype (R13, G3)."""
        if datatype == "FP16" and form == "grpc typed":
            return "grpc raw"
        if datatype == "FP16" and form == "rest json" and self.lacks("fp16 json"):
            return "rest json" if self.lacks("binary") else "rest binary"
        return form

    def lacks(self, feature: str) -> str:
        """Why the server does without `feature`; empty where it has it."""
        if feature not in self._lacking:
            self._lacking[feature] = FEATURES[feature](self)
        return self._lacking[feature]

    @cached_property
    def _lacking(self) -> dict[str, str]:
        return {}


def head(name: str, datatype: str, shape: list[int], values: list) -> dict[str, Any]:
    """An input as JSON has it."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": values}


def coded(target: Target, coding: str, compress: Callable[[bytes], bytes]) -> str:
    body = compress(json.dumps({"inputs": [head(*SMALL)]}).encode())
    reply = target.http.post(f"{target.path}/infer", body, {"Content-Encoding": coding})
    return "" if reply.status_code == 200 else f"Content-Encoding: {coding} got {reply.status_code}"


def binary(target: Target) -> str:
    """A server that does not list the extension may do without it; one that lists it, or answers in bytes, has it."""
    if "binary_tensor_data" in target.server.get("extensions", []):
        return ""
    envelope = {"inputs": [head(*SMALL)], "parameters": {"binary_data_output": True}}
    reply = target.rest.post(envelope)
    return (
        "" if reply.headers.get("Inference-Header-Content-Length") else "it lists no binary_tensor_data, and sends none"
    )


def answers_coded(target: Target, coding: str) -> str:
    envelope = {"inputs": [head("bytes_in", "BYTES", [1], ["x" * 100_000])]}
    got = target.rest.post(envelope, Accept_Encoding=coding).headers.get("Content-Encoding")
    return "" if got else f"Accept-Encoding: {coding} changes nothing"


def fp16_json(target: Target) -> str:
    reply = target.rest.post({"inputs": [head("fp16_in", "FP16", [1], [1.5])], "outputs": [{"name": "fp16_out"}]})
    return "" if reply.status_code == 200 else f"FP16 as JSON got {reply.status_code}"


def limited(target: Target) -> str:
    """Whether --limit holds for REST: some servers limit gRPC's messages alone."""
    body = json.dumps({"inputs": [head(*SMALL)]}).encode().ljust((target.limit or 0) + 1)
    reply = target.http.post(f"{target.path}/infer", body)
    return "a body beyond --limit got 200" if reply.status_code == 200 else ""


def path(target: Target, method: str, suffix: str) -> str:
    reply = target.http.open(method, suffix)
    return f"{method} {suffix} got {reply.status_code}" if reply.status_code in (404, 405, 501) else ""


def versions(target: Target) -> str:
    if not target.version:
        return "the model's metadata names no version"
    return path(target, "GET", f"{target.path}/versions/{quote(target.version, safe='')}")


def call(target: Target, method: str, request: bytes = b"") -> str:
    assert target.channel
    try:
        target.channel.unary_unary(method)(request, timeout=PATIENCE_SECONDS)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNIMPLEMENTED:
            return f"{method} is UNIMPLEMENTED"
    return ""


def service_call(name: str) -> Callable[[Target], str]:
    return lambda target: call(target, f"/{messages.SERVICE_NAME}/{name}")


# What a server may do without, each with the function that says why it does.
FEATURES: dict[str, Callable[[Target], str]] = {
    "binary": binary,
    "gzip": lambda target: coded(target, "gzip", gzip.compress),
    "deflate": lambda target: coded(target, "deflate", zlib.compress),
    "answers in gzip": lambda target: answers_coded(target, "gzip"),
    "answers in deflate": lambda target: answers_coded(target, "deflate"),
    "fp16 json": fp16_json,
    "limit": limited,
    "versions": versions,
    "config": lambda target: path(target, "GET", f"{target.path}/config"),
    "index": lambda target: path(target, "POST", "/v2/repository/index"),
    "health": lambda target: call(target, "/grpc.health.v1.Health/Check"),
    "reflection": lambda target: call(target, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
    "rpc ModelConfig": service_call("ModelConfig"),
    "rpc RepositoryIndex": service_call("RepositoryIndex"),
}
