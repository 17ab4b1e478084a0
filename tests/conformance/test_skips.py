"""The outcome of a case that is skipped."""

from __future__ import annotations

import pytest

from oip_conformance.report import OUTCOMES
from oip_conformance.skips import outcome_of_skip


@pytest.mark.parametrize("outcome", ["not supported", "not run"])
def test_skip_names_its_outcome(outcome: str) -> None:
    """The message of a skip consists of the outcome and the reason."""
    assert outcome in OUTCOMES
    assert outcome_of_skip(f"{outcome}: GET /v2 got 404: it is") == (
        outcome,
        "GET /v2 got 404: it is",
    )


@pytest.mark.parametrize("message", ["no numpy", "reason: no numpy", "passed: no numpy", ""])
def test_other_skip_is_not_run(message: str) -> None:
    """A skip whose message names no outcome counts as not run, with the whole message as the reason."""
    assert outcome_of_skip(message) == ("not run", message)
