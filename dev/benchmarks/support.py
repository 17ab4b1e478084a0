"""Which failures mean that a server does not support a case. All others are faults, such as a crash."""

from __future__ import annotations

from dev.benchmarks.cases import Case
from dev.benchmarks.report import BARE, OURS
from dev.benchmarks.requests import RequestFailed, Unsupported


def is_unsupported(case: Case, server_name: str, error: RequestFailed) -> bool:
    """Return True if the results can leave out the case for this server.

    This repository's servers support all cases of their transports.
    """
    if server_name in (OURS, BARE):
        return False
    # MLServer has no binary tensors over REST. It responds with 500, as for a crash.
    if server_name == "MLServer" and case.header_length is not None:
        return True
    return isinstance(error, Unsupported)
