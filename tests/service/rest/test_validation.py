"""The envelope of a request: marshmallow's validation on the plain route, and the fast check on the fast path."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from app.protocol.errors import InvalidInput
from app.rest.fast_validation import recognize_request
from app.rest.schemas import validate_request
from oip_conformance.wires import error_message
from tests.kit import models
from tests.kit.changed_bodies import GOOD, INFER, bodies

SWITCHES = ["fast_validation", "fast_path"]


@pytest.mark.parametrize("switch", SWITCHES)
def test_fast_check_agrees_with_marshmallow(serve, switch: str) -> None:
    """R7, R9, R17, R19: over 200 bodies have the same status and message with and without the optimization."""
    fast = serve(models.two_by_two()).client
    plain = serve(models.two_by_two(), disable_optimizations=(switch,)).client
    for client in (fast, plain):
        assert client.post(INFER, json=GOOD).status_code == 200
    statuses = Counter[int]()
    for body in bodies():
        one, other = fast.post(INFER, data=body), plain.post(INFER, data=body)
        assert (one.status_code, one.data) == (other.status_code, other.data), body
        statuses[one.status_code] += 1
    assert statuses.total() >= 200
    assert set(statuses) == {200, 400}
    assert min(statuses.values()) >= 40


def is_valid(payload: Any) -> bool:
    """Return True if marshmallow accepts the JSON of a request."""
    try:
        validate_request(payload)
    except InvalidInput:
        return False
    return True


def test_fast_check_recognizes_every_valid_request() -> None:
    """R7: the fast path needs marshmallow only for requests that are not valid, and never accepts one of them."""
    for body in bodies():
        payload = json.loads(body)
        assert (recognize_request(payload) is not None) == is_valid(payload), body


def test_limit_of_errors(serve) -> None:
    """R19: a body with thousands of errors gets a short message, which starts with the first of them."""
    response = serve(models.two_by_two()).client.post(INFER, json={"inputs": [5] * 20_000})
    assert response.status_code == 400
    assert response.json["error"].startswith(
        "Invalid inputs[0]. Expected an object, got 5. Invalid inputs[1]. "
    )
    assert len(response.data) < 1000


def test_reports_all_invalid_members(serve) -> None:
    """R19: one error message reports all invalid members of a request."""
    envelope = {
        "id": 5,
        "inputs": [{"name": "a", "datatype": "x", "shape": [-1]}, {"shape": []}],
        "outputs": 1,
    }
    text = error_message(serve(models.two_by_two()).rest.post(envelope), 400)
    for part in [
        "Invalid id",
        'Input "a": invalid datatype',
        'Input "a": invalid shape',
        "Inputs[1]: missing name",
        "Invalid outputs",
    ]:
        assert part in text
