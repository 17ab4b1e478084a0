"""Property tests: every request, valid or not, gets a response that follows the rules, and the next request works."""

from __future__ import annotations

import json
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpc_service.compression import MAX_SMALL_BYTES
from oip_conformance.wires import error_message
from tests.kit import models
from tests.kit.message_strategies import Messages
from tests.kit.strategies import (
    METHODS,
    Subject,
    changed_envelopes,
    coded_bodies,
    edited,
    envelopes,
    header_texts,
    mutated,
    paths,
)

LIMIT = 100_000
INFER = "/v2/models/test/infer"
LENGTH = "Inference-Header-Content-Length"
SUBJECT = Subject(
    "test",
    [
        ("a", "INT16", [2], [1, -2]),
        ("b", "BYTES", [2], [b"", b"two"]),
        ("c", "FP32", [1, 2], [0.5, 25.12]),
    ],
    ["a", "b", "c"],
)
MESSAGES = Messages(SUBJECT)

many = settings(max_examples=200, deadline=None, derandomize=True, database=None)
few = settings(many, max_examples=40)


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.several(), max_request_bytes=LIMIT)


def check_success_or_client_error(response: Any) -> None:
    """Check that the response is a success or a JSON error, never a 5xx (R19)."""
    if response.status_code != 200:
        assert response.status_code in (400, 404, 413, 415), response.data
        assert error_message(response, response.status_code)


def check_valid_request(service) -> None:
    """Check that the service still responds correctly over REST and gRPC."""
    for form in ("rest binary", "grpc typed"):
        response = service.forms[form].infer([("a", "INT16", [1], [5])], ["a"])
        assert response.outputs == {"a": ("INT16", [1], [5])}


@many
@given(body=SUBJECT.bodies, stated=st.none() | header_texts)
def test_arbitrary_bodies(service, body: bytes, stated: str | None) -> None:
    """R19, R20, B4: an arbitrary body with an arbitrary header length succeeds or is rejected."""
    headers = {} if stated is None else {LENGTH: stated}
    check_success_or_client_error(service.client.post(INFER, data=body, headers=headers))
    check_valid_request(service)


@many
@given(coded_body=coded_bodies(SUBJECT.bodies))
def test_arbitrary_content_encodings(service, coded_body: tuple[bytes, str]) -> None:
    """R18, R19: an arbitrary body with an arbitrary Content-Encoding succeeds or is rejected."""
    body, coding = coded_body
    check_success_or_client_error(
        service.client.post(INFER, data=body, headers={"Content-Encoding": coding})
    )
    check_valid_request(service)


@many
@given(path=paths(SUBJECT), method=st.sampled_from(METHODS))
def test_arbitrary_paths(service, path: list[str], method: str) -> None:
    """R2, R19: an arbitrary path returns a success or a JSON error."""
    octets = "/".join(["", *path]).encode()
    response = service.client.open(
        method=method, environ_overrides={"PATH_INFO": octets.decode("latin-1")}
    )
    assert response.status_code in (200, 400, 404, 405), response.data
    if response.status_code != 200 and method != "HEAD":
        assert error_message(response, response.status_code)


@few
@given(generated=envelopes(SUBJECT))
def test_generated_requests_are_valid(service, generated: tuple[dict, bytes]) -> None:
    """R7, B3: the requests that the next tests change are valid, so the changes reach every check."""
    envelope, blobs = generated
    for part in (
        envelope,
        *envelope.get("outputs", ()),
    ):  # a content type may not fit the inputs and outputs
        part.pop("parameters", None)
    envelope["id"] = "42"
    assert service.rest.post(envelope, blobs).status_code == 200


@many
@given(generated=changed_envelopes(SUBJECT))
def test_requests_with_changed_members(service, generated: tuple[dict, bytes]) -> None:
    """R19: a valid request with a few changed members succeeds or is rejected."""
    check_success_or_client_error(service.rest.post(*generated))
    check_valid_request(service)


@many
@given(data=st.data())
def test_bodies_with_changed_bytes(service, data: st.DataObject) -> None:
    """R19: a valid body with a few changed bytes succeeds or is rejected."""
    envelope, blobs = data.draw(envelopes(SUBJECT))
    head = json.dumps(envelope).encode()
    body = edited(data.draw, head + blobs)
    check_success_or_client_error(
        service.client.post(INFER, data=body, headers={LENGTH: str(len(head))})
    )
    check_valid_request(service)


def called(service, call: str, body: bytes) -> None:
    """Check that the call succeeds, or fails as for an invalid message, a large message or an unknown model (G1)."""
    code, text = outcome(service, call, body)
    limit = LIMIT if call == "ModelInfer" else MAX_SMALL_BYTES
    expected = ("OK", "INVALID_ARGUMENT", "NOT_FOUND")
    if len(body) > limit:
        expected = ("RESOURCE_EXHAUSTED",)
    assert code in expected, text
    assert text or code == "OK"


def outcome(service, call: str, body: bytes) -> tuple[str, str]:
    """Return the status code of `call` and its message."""
    try:
        return "OK", repr(service.grpc.call(call, body))
    except grpc.RpcError as error:
        return error.code().name, error.details()


@many
@given(message=MESSAGES.any_call)
def test_arbitrary_messages(service, message: tuple[str, bytes]) -> None:
    """G1: an arbitrary message to any RPC succeeds or is rejected."""
    called(service, *message)
    check_valid_request(service)


@few
@given(body=MESSAGES.good)
def test_generated_messages_are_valid(service, body: bytes) -> None:
    """G2, G3: the messages that the next tests change are valid, so the changes reach every check."""
    assert outcome(service, "ModelInfer", body)[0] == "OK"


@many
@given(body=mutated(MESSAGES.good))
def test_messages_with_changed_bytes(service, body: bytes) -> None:
    """G1: a valid message with a few changed bytes succeeds or is rejected."""
    called(service, "ModelInfer", body)
    check_valid_request(service)


@many
@given(body=MESSAGES.odd)
def test_messages_with_unusual_fields(service, body: bytes) -> None:
    """G1, G2, G3: a message with unusual tensors, raw entries, parameters and outputs succeeds or is rejected."""
    called(service, "ModelInfer", body)
    check_valid_request(service)
