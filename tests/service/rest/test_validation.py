"""The envelope of a request: marshmallow's validation on the plain route, and the fast check on the fast path."""

from __future__ import annotations

from collections import Counter

import pytest

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
