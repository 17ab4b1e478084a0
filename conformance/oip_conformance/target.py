"""The server under test: clients for all forms, and its optional features."""

from __future__ import annotations

import http.client
import time
from functools import cached_property
from typing import Any
from urllib.parse import quote

import grpc
import pytest

from oip_conformance import messages, wires
from oip_conformance.addresses import InvalidTarget, check_addresses
from oip_conformance.calls import Recorder
from oip_conformance.client import TIMEOUT_SECONDS, Http, LastExchange, Reply
from oip_conformance.features import FEATURES, tensor_names
from oip_conformance.inputs import SMALL_JSON
from oip_conformance.model import INPUTS, OUTPUTS, TensorSpec, output_of
from oip_conformance.outcomes import error_text, expect_success, json_object, status_of
from oip_conformance.texts import show_bytes
from oip_conformance.wires import GRPC_NAMES, RAW_ONLY_DATATYPES, Grpc, InputTuple, Response

# A server can have several instances of the model, some of which no longer work.
PROBE_COUNT = 8
SECONDS_BETWEEN_PROBES = 1
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),  # connect soon after a restart
]
STATUSES_WITHOUT_RESPONSE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
CONNECTION_ERRORS = (OSError, http.client.HTTPException, UnicodeError)
TARGET = pytest.StashKey["Target"]()


class Rest(wires.Rest):
    """A REST client that accepts any error format."""

    def failure(self, response: Any) -> Response:
        status = response.status_code
        if status == 422:  # some servers reject invalid requests with it
            status = 400
        return Response(GRPC_NAMES.get(status, str(status)), error_text(response), raw=response)


class Target:
    """The server under test. Raise InvalidTarget if it does not respond or serves another model.

    `server` and `metadata` are the metadata of the server and of the model, or {} if they are not
    JSON objects. `last_exchange` has the last request.
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
        self.last_exchange = LastExchange()
        self.server: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        # Results of why_unsupported() by feature.
        self.reasons: dict[str, str | None] = {}

        name_in_path = quote(model, safe="")
        self.path = f"/v2/models/{name_in_path}"
        self.http = self.connect(reconnects=True)
        self.rest = Rest(self.http, model=name_in_path)
        self.forms: dict[str, Any] = {
            "rest json": self.rest,
            "rest binary": Rest(self.http, binary=True, model=name_in_path),
        }
        self.channel = None
        if address:
            channel = grpc.insecure_channel(address, CHANNEL_OPTIONS)
            self.channel = grpc.intercept_channel(channel, Recorder(self.last_exchange))
            self.forms["grpc typed"] = Grpc(self.channel, model=model, timeout=timeout)
            self.forms["grpc raw"] = Grpc(self.channel, raw=True, model=model, timeout=timeout)

        try:
            self.read_metadata()
        except InvalidTarget:
            self.close()
            raise

    def connect(self, reconnects: bool = False) -> Http:
        return Http(self.url, reconnects, timeout=self.timeout, last_exchange=self.last_exchange)

    def read_metadata(self) -> None:
        """Read `server` and `metadata`, and check that the server responds on all its addresses.

        Raise InvalidTarget if it does not, or if it rejects a request with one input.
        """
        try:
            self.server = json_object(self.http.get("/v2"))
            self.metadata = json_object(self.http.get(self.path))
            reply = self.rest.post({"inputs": [SMALL_JSON]})
        except CONNECTION_ERRORS as error:
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
        status = status_of(call, b"", timeout=self.timeout, wait_for_ready=True)
        return status not in STATUSES_WITHOUT_RESPONSE

    def missing_tensors(self) -> list[str]:
        """Return the tensors of model.py that the model's metadata does not list, inputs first.

        An output is left out if its input is in the result. Inputs and outputs are optional in
        metadata. If the metadata lists none of them, none is missing.
        """
        inputs = self.unlisted_tensors("inputs", INPUTS)
        implied_outputs = [output_of(name) for name in inputs]
        outputs = self.unlisted_tensors("outputs", OUTPUTS)
        return inputs + [name for name in outputs if name not in implied_outputs]

    def unlisted_tensors(self, key: str, tensors: list[TensorSpec]) -> list[str]:
        """Return the names of the supported tensors that the list `key` of the metadata lacks."""
        listed = tensor_names(self.metadata.get(key))
        if not listed:
            return []
        unlisted = []
        for name, _, _ in self.supported_tensors(tensors):
            if name not in listed:
                unlisted.append(name)
        return unlisted

    def supported_tensors(self, tensors: list[TensorSpec]) -> list[TensorSpec]:
        """Return those of the tensors of model.py whose datatype the server supports."""
        if self.supports("bf16"):
            return tensors
        return [(name, datatype, shape) for name, datatype, shape in tensors if datatype != "BF16"]

    def is_killed(self) -> bool:
        """Return True if the server fails twice to respond to valid requests over REST or gRPC."""
        if self.is_working():
            return False
        time.sleep(SECONDS_BETWEEN_PROBES)
        return not self.is_working()

    def is_working(self) -> bool:
        """Return True if the server accepts several valid requests, and responds over gRPC."""
        connection = Http(self.url, timeout=self.timeout)
        rest = Rest(connection, model=self.rest.model)
        try:
            for _ in range(PROBE_COUNT):
                if not has_outputs(rest.post({"inputs": [SMALL_JSON]})):
                    return False
        except CONNECTION_ERRORS:
            return False
        finally:
            connection.close()
        return self.is_grpc_responding()

    def close(self) -> None:
        self.http.close()
        if self.channel:
            self.channel.close()

    def infer(
        self, form: str, inputs: list[InputTuple], outputs: list[str] | None = None, **options: Any
    ) -> Response:
        """Send the inputs and return the response.

        `outputs` are the names of the requested outputs, by default those of the inputs. The
        options are those of Rest.infer().
        """
        if outputs is None:
            outputs = [output_of(name) for name, _, _, _ in inputs]
        return self.forms[form].infer(inputs, outputs, **options)

    def infer_successfully(
        self, form: str, inputs: list[InputTuple], outputs: list[str] | None = None, **options: Any
    ) -> Response:
        """Send the inputs as infer() does, check that the response is a success, and return it."""
        response = self.infer(form, inputs, outputs, **options)
        expect_success(response)
        return response

    @cached_property
    def version(self) -> str:
        """Return a version from the model's metadata, or ""."""
        versions = self.metadata.get("versions")
        if not isinstance(versions, list) or not versions:
            return ""
        version = versions[0]
        return version if isinstance(version, str) else ""

    def form_for(self, form: str, datatype: str) -> str:
        """Return `form`, or the binary form of its transport if `form` cannot carry the datatype.

        On gRPC, FP16 and BF16 have no typed contents (G3). In JSON, they are optional (R13, R23). A
        server with neither JSON nor binary tensors for them receives JSON, and the case fails.
        """
        if datatype not in RAW_ONLY_DATATYPES:
            return form
        if form == "grpc typed":
            return "grpc raw"
        if form == "rest json" and not self.supports_json(datatype) and self.supports("binary"):
            return "rest binary"
        return form

    def supports_json(self, datatype: str) -> bool:
        """Return True if the server supports the datatype in JSON."""
        return datatype not in RAW_ONLY_DATATYPES or self.supports(json_feature(datatype))

    def supports(self, feature: str) -> bool:
        """Return True if the server supports the optional feature."""
        return self.why_unsupported(feature) is None

    def why_unsupported(self, feature: str) -> str | None:
        """Return why the server does not support the feature of FEATURES, or None if it does."""
        if feature not in self.reasons:
            self.reasons[feature] = FEATURES[feature](self)
        return self.reasons[feature]


def json_feature(datatype: str) -> str:
    """Return the name of the feature that a datatype of RAW_ONLY_DATATYPES is supported in JSON."""
    return f"{datatype.lower()} json"


def has_outputs(reply: Reply) -> bool:
    """Return True if the reply is the response to a successful inference."""
    return isinstance(json_object(reply).get("outputs"), list)
