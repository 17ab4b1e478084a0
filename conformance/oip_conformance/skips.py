"""Skips of cases, and the outcomes that they stand for.

The report sees a skip as an exception of pytest that has only a message. The message is therefore
"OUTCOME: REASON", and this module is the only one that writes and reads it.
"""

from __future__ import annotations

from typing import NoReturn

import pytest

from oip_conformance.target import Target, json_feature
from oip_conformance.wires import RAW_ONLY_DATATYPES

NOT_SUPPORTED = "not supported"
NOT_RUN = "not run"


def skip_not_run(reason: str) -> NoReturn:
    """Skip the case, because a condition other than a feature of the server is not met."""
    pytest.skip(f"{NOT_RUN}: {reason}")


def require_feature(target: Target, feature: str) -> None:
    """Skip the case if the server does not support the optional feature."""
    reason = target.why_unsupported(feature)
    if reason:
        pytest.skip(f"{NOT_SUPPORTED}: {reason}")


def require_json(target: Target, datatype: str) -> None:
    """Skip the case if the datatype is optional in JSON, and the server does not support it."""
    if datatype in RAW_ONLY_DATATYPES:
        require_feature(target, json_feature(datatype))


def require_grpc(target: Target) -> None:
    """Skip the case if the run has no address of gRPC."""
    if target.channel is None:
        skip_not_run("no --grpc ADDRESS was given")


def outcome_of_skip(message: str) -> tuple[str, str]:
    """Return the outcome and the reason from the message of a skip.

    A skip with another message, such as one of pytest itself, counts as not run.
    """
    outcome, _, reason = message.partition(": ")
    if outcome in (NOT_SUPPORTED, NOT_RUN):
        return outcome, reason
    return NOT_RUN, message
