"""Check of the state machines: request_parser.py and connection.py contain the tables."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeVar

AnyState = TypeVar("AnyState", bound=Enum)


class InvalidTransition(Exception):
    """Error in the server: a state cannot follow the current one."""


def check_transition(
    state: AnyState, next_state: AnyState, table: Mapping[AnyState, Sequence[AnyState]]
) -> None:
    """Raise InvalidTransition if `next_state` cannot follow `state`."""
    if next_state not in table[state]:
        raise InvalidTransition(f"{state.name} -> {next_state.name}")
