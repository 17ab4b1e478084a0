"""The server under test: clients of it in each form on the wire, and what it can do of what a server may do without."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import time
import zlib
from collections.abc import Callable
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlsplit

import click
import grpc
import pytest

from conformance.calls import Recorder
from conformance.client import TIMEOUT_SECONDS, Http, Last, Reply, shown
from conformance.model import INPUTS, OUTPUTS, output_of
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
# How a server says that it does without what it was asked for.
DECLINED = (404, 405, 415, 501)
BROKEN = (OSError, http.client.HTTPException, UnicodeError)
ADDRESS = re.compile(r"([^\s:/\[\]]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})")
STATUSES = {"ok": "200 / OK", **{kind: f"{status} / {kind}" for status, kind in KINDS.items()}}

TARGET = pytest.StashKey["Target"]()


class Unfit(click.ClickException):
    """What cannot be tested, or asked for; ends the command with a line."""

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


def refusal(reply: Reply, status: int) -> str:
    """The text of a reply that refuses with `status`, where 422 is as good as 400; R19 has cases of the envelope."""
    good = reply.status_code == status or (status, reply.status_code) == (400, 422)
    assert good, f"expected {status}, got {reply}"
    return text_of(reply)


def success(reply: Reply) -> Reply:
    """The reply, which must be a 200."""
    assert reply.status_code == 200, f"expected 200, got {reply}"
    return reply


def expect(answer: Answer, kind: str = "ok", *named: str) -> Answer:
    """The answer, which must be of this kind, and without a traceback; its text must have what is named."""
    assert answer.kind == kind, f"expected {STATUSES[kind]}, got {got(answer)}"
    assert "Traceback" not in answer.text, f"expected no traceback, got {got(answer)}"
    missing = [word for word in named if word not in answer.text]
    assert not missing, f"expected a text with {', '.join(missing)}, got {got(answer)}"
    return answer


def got(answer: Answer) -> str:
    """What came, in the words of its transport."""
    if isinstance(answer.raw, Reply):
        return repr(answer.raw)
    return f"OK {answer.outputs}"[:300] if answer.kind == "ok" else f"{answer.kind}: {answer.text}"


def status_of(call: Callable[[], Any]) -> grpc.StatusCode:
    """The status that a call over gRPC ends with."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def members(reply: Reply) -> dict[str, Any]:
    """The JSON object of a 200, empty where it is none."""
    try:
        value = reply.json if reply.status_code == 200 else {}
    except ValueError:
        value = {}
    return value if isinstance(value, dict) else {}


def check_addresses(url: str, address: str | None) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:  # no port between 0 and 65535
        good = False
    if not good:
        raise Unfit(f"--http {url}: expected an address such as http://127.0.0.1:8080")
    found = ADDRESS.fullmatch(address or "0:1")
    if not found or not 0 < int(found[2]) < 2**16:
        raise Unfit(f"--grpc {address}: expected HOST:PORT, such as 127.0.0.1:8081")


class Target:
    """Raises Unfit where there is no such server, or its model is not the one of conformance/model.py.

    `last` has what was sent to it last.
    """

    def __init__(
        self, url: str, address: str | None, model: str, limit: int | None = None, timeout: float = TIMEOUT_SECONDS
    ):
        check_addresses(url, address)
        self.url, self.address, self.model = url, address or "", model
        self.limit, self.timeout, self.last = limit, timeout, Last()
        self.path = f"/v2/models/{quote(model, safe='')}"
        self.http = self.connect(renewed=True)
        self.rest = Rest(self.http, model=quote(model, safe=""))
        self.forms: dict[str, Any] = {"rest json": self.rest, "rest binary": Rest(self.http, True, self.rest.model)}
        self.channel = None
        if address:
            self.channel = grpc.intercept_channel(grpc.insecure_channel(address, UNLIMITED), Recorder(self.last))
            for form, raw in (("grpc typed", False), ("grpc raw", True)):
                self.forms[form] = Grpc(self.channel, raw, model, timeout)
        self.check()

    def connect(self, renewed: bool = False) -> Http:
        return Http(self.url, renewed, self.timeout, self.last)

    def check(self) -> None:
        try:
            self.server = members(self.http.get("/v2"))
            self.metadata = members(self.http.get(self.path))
            answer = self.rest.post({"inputs": [head(*SMALL)]})
        except BROKEN as error:
            reason = shown(str(error).encode()) or repr(error)
            raise Unfit(f"--http {self.url}: no server of HTTP answers there: {reason}") from None
        if not isinstance(members(answer).get("outputs"), list):
            raise Unfit(f"--model {self.model}: a request with one input, fp32_in, got {answer}")
        if not self.answers_calls():
            raise Unfit(f"--grpc {self.address}: no server of gRPC answers there")

    def answers_calls(self) -> bool:
        """Whether a call gets any answer, over a new connection where need be; so, too, where there is no --grpc."""
        if self.channel is None:
            return True
        call = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/ServerLive")
        patience = min(CONNECT_SECONDS, self.timeout)
        status = status_of(lambda: call(b"", timeout=patience, wait_for_ready=True))
        return status not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)

    def lacking(self) -> list[str]:
        """The tensors of conformance/model.py that the model's metadata, where there is any, does not name."""
        declared = {key: tensor_names(self.metadata.get(key)) for key in ("inputs", "outputs")}
        inputs = [name for name, *_ in INPUTS if declared["inputs"] and name not in declared["inputs"]]
        known = {output_of(name) for name in inputs}
        outputs = [name for name, *_ in OUTPUTS if declared["outputs"] and name not in declared["outputs"] | known]
        return inputs + outputs

    def silent(self) -> bool:
        """Whether the server has stopped to answer good requests, over REST or over gRPC, and not for a moment."""
        if self.answers():
            return False
        time.sleep(1)
        return not self.answers()

    def answers(self) -> bool:
        probe = Http(self.url, timeout=self.timeout)
        try:
            Rest(probe, model=self.rest.model).post({"inputs": [head(*SMALL)]})
        except BROKEN:
            return False
        finally:
            probe.close()
        return self.answers_calls()

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
        versions = self.metadata.get("versions")
        return versions[0] if isinstance(versions, list) and versions and isinstance(versions[0], str) else ""

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


def tensor_names(tensors: Any) -> set[Any]:
    """The names of a list of tensors as metadata has them."""
    listed = tensors if isinstance(tensors, list) else []
    return {str(each.get("name")) for each in listed if isinstance(each, dict)}


def head(name: str, datatype: str, shape: list[int], values: list) -> dict[str, Any]:
    """An input as JSON has it."""
    return {"name": name, "datatype": datatype, "shape": shape, "data": values}


def declined(what: str, reply: Reply, *more: int) -> str:
    """Why the server does without `what`, where it says so by one of DECLINED, or of `more`."""
    return f"{what} got {reply.status_code}" if reply.status_code in (*DECLINED, *more) else ""


def coded(target: Target, coding: str, compress: Callable[[bytes], bytes]) -> str:
    body = compress(json.dumps({"inputs": [head(*SMALL)]}).encode())
    reply = target.http.post(f"{target.path}/infer", body, {"Content-Encoding": coding})
    return declined(f"Content-Encoding: {coding}", reply)


def binary(target: Target) -> str:
    """A server that does not list the extension may do without it; one that lists it, or answers in bytes, has it."""
    listed = target.server.get("extensions")
    if isinstance(listed, list) and "binary_tensor_data" in listed:
        return ""
    envelope = {"inputs": [head(*SMALL)], "parameters": {"binary_data_output": True}}
    sent = target.rest.post(envelope).headers.get("Inference-Header-Content-Length")
    return "" if sent else "it lists no binary_tensor_data, and sends none"


def answers_coded(target: Target, coding: str) -> str:
    """A server need not compress; one that fails over the question has it to answer for."""
    envelope = {"inputs": [head("bytes_in", "BYTES", [1], ["x" * 100_000])]}
    reply = target.rest.post(envelope, Accept_Encoding=coding)
    if reply.status_code == 200 and not reply.headers.get("Content-Encoding"):
        return f"Accept-Encoding: {coding} changes nothing"
    return declined(f"Accept-Encoding: {coding}", reply)


def fp16_json(target: Target) -> str:
    """The protocol's page has no FP16 in JSON, so a server may refuse it as it refuses any datatype."""
    reply = target.rest.post({"inputs": [head("fp16_in", "FP16", [1], [1.5])], "outputs": [{"name": "fp16_out"}]})
    return declined("FP16 as JSON", reply, 400, 422)


def path(target: Target, method: str, suffix: str) -> str:
    return declined(f"{method} {suffix}", target.http.open(method, suffix))


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


# What a server may do without, each with the function that says why it does.
FEATURES: dict[str, Callable[[Target], str]] = {
    "binary": binary,
    "gzip": lambda target: coded(target, "gzip", gzip.compress),
    "deflate": lambda target: coded(target, "deflate", zlib.compress),
    "answers in gzip": lambda target: answers_coded(target, "gzip"),
    "answers in deflate": lambda target: answers_coded(target, "deflate"),
    "fp16 json": fp16_json,
    "versions": versions,
    "config": lambda target: path(target, "GET", f"{target.path}/config"),
    "index": lambda target: path(target, "POST", "/v2/repository/index"),
    "health": lambda target: call(target, "/grpc.health.v1.Health/Check"),
    "reflection": lambda target: call(target, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
    "rpc ModelConfig": service_call("ModelConfig"),
    "rpc RepositoryIndex": service_call("RepositoryIndex"),
}
