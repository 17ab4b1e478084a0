"""The state machines of the server: their tables, and the check of each transition."""

from __future__ import annotations

import re
from enum import Enum
from socket import socketpair
from types import ModuleType

import pytest

from app.server import connection, request_parser
from app.server.sockets import PlainSocket
from app.server.transitions import InvalidTransition
from tests.service.server.rules import RULES

MACHINES = [
    pytest.param(connection, connection.State, id="connection"),
    pytest.param(request_parser, request_parser.State, id="parser"),
]


@pytest.mark.parametrize(("module", "states"), MACHINES)
def test_table_in_the_docstring(module: ModuleType, states: type[Enum]) -> None:
    """The table in the docstring contains all states, and the transitions that the code allows."""
    rows = re.findall(r"^\| ([A-Z_]+) \|.*\|([A-Z_, ]*)\|$", module.__doc__ or "", re.MULTILINE)

    documented = {name: re.findall(r"\w+", next_states) for name, next_states in rows}
    allowed = {
        state.name: [next_state.name for next_state in next_states]
        for state, next_states in module.NEXT_STATES.items()
    }

    assert documented == allowed
    assert list(documented) == [state.name for state in states]


@pytest.mark.parametrize("next_state", connection.State)
@pytest.mark.parametrize("state", connection.State)
def test_transitions_of_a_connection_are_checked(
    state: connection.State, next_state: connection.State
) -> None:
    """A transition that the table does not contain is an error. All states can follow IDLE."""
    client, server = socketpair()
    with client, server:
        waiting = connection.Connection(
            PlainSocket(server),
            request_parser.RequestParser(RULES),
            handle=lambda connection, request: True,
            count_memory=lambda connection: True,
            release_thread=lambda: None,
        )
        waiting.enter(state)

        is_allowed = next_state is state or next_state in connection.NEXT_STATES[state]
        if is_allowed:
            waiting.enter(next_state)
            assert waiting.state is next_state
        else:
            with pytest.raises(InvalidTransition, match=f"^{state.name} -> {next_state.name}$"):
                waiting.enter(next_state)
            assert waiting.state is state


def test_transitions_of_a_parser_are_checked() -> None:
    parser = request_parser.RequestParser(RULES)
    parser.stop()

    with pytest.raises(InvalidTransition, match="^ENDED -> HEAD$"):
        parser.on_message_begin()


def test_states_of_a_parser() -> None:
    """A parser passes through the documented states."""
    parser = request_parser.RequestParser(RULES)
    states = [parser.state]

    for piece in (
        b"POST / HTTP/1.1\r\nHost: x\r\n",
        b"Content-Length: 2\r\n\r\na",
        b"b",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na",
        b"\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"ignored",
    ):
        parser.feed(piece)
        states.append(parser.state)
        parser.requests.clear()

    assert [state.name for state in states] == [
        "IDLE",
        "HEAD",
        "SIZED_BODY",
        "IDLE",
        "CHUNKED_BODY",
        "IDLE",
        "ENDED",
        "ENDED",
    ]


def test_time_of_a_request_does_not_count_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the application runs, a client that has begun the next request keeps all of its time."""
    now = [1000.0]
    monkeypatch.setattr(connection.time, "monotonic", lambda: now[0])
    client, server = socketpair()

    def handle(held: connection.Connection, request: object) -> bool:
        now[0] += 10 * connection.TRANSFER_SECONDS
        return True

    with client, server:
        server.setblocking(False)
        held = connection.Connection(
            PlainSocket(server),
            request_parser.RequestParser(RULES),
            handle=handle,
            count_memory=lambda connection: True,
            release_thread=lambda: None,
        )
        head = b"GET / HTTP/1.1\r\nHost: x\r\n"
        for data in (head, b"\r\n" + head):
            client.send(data)
            held.enter(held.run())
            assert held.state is connection.State.RECEIVING
            assert not held.is_overdue(now[0], idle_seconds=1)
        now[0] += connection.TRANSFER_SECONDS
        assert held.is_overdue(now[0], idle_seconds=1)
