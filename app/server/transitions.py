"""Error of the state machines: request_parser.py and connection.py contain the tables."""

from enum import Enum


class InvalidTransition(Exception):
    """Error in the server: a state cannot follow the current one."""

    def __init__(self, state: Enum, next_state: Enum):
        super().__init__(f"{state.name} -> {next_state.name}")
