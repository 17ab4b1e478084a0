"""The table of connections: the limit of the memory that they occupy."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from socket import socket, socketpair

from app.server.connection import LINGERING, RECEIVING, SENDING, Connection, Handler
from app.server.connections import ConnectionTable
from app.server.request_parser import RequestParser
from app.server.sockets import PlainSocket
from tests.service.server.rules import RULES


def ignore(connection: Connection, request: object) -> bool:
    """Handle a request without a response."""
    return True


def open_connection(
    table: ConnectionTable, stack: ExitStack, handle: Handler = ignore
) -> tuple[socket, Connection]:
    """Return the socket of a client, and its connection in the table."""
    client, server = socketpair()
    stack.enter_context(client)
    stack.enter_context(server)
    connection = Connection(
        PlainSocket(server),
        RequestParser(RULES),
        handle=handle,
        count_memory=table.count_memory,
        release_thread=lambda: None,
    )
    table.add(connection)
    return client, connection


def fill_send_buffer(connection: Connection) -> None:
    with suppress(BlockingIOError):
        while True:
            connection.socket.client.send(bytes(2**16))


def test_error_for_a_client_that_does_not_read() -> None:
    """The server can close a slow connection whose client cannot receive the error."""
    with ExitStack() as stack:
        table = ConnectionTable(logging.getLogger("test"))
        stack.callback(table.epoll.close)
        table.limit_memory(message_bytes=10, messages=1)
        slow_client, slow = open_connection(table, stack)
        fill_send_buffer(slow)
        slow_client.send(b"GET")
        table.run_step(slow.descriptor)
        assert slow.state is RECEIVING

        client, connection = open_connection(table, stack)
        client.send(b"GET /a-longer-path")
        table.run_step(connection.descriptor)

        assert connection.state is RECEIVING
        assert slow.state is LINGERING
        assert slow.buffered_bytes == 0


def test_client_that_is_reading_its_response() -> None:
    """Beyond the memory limit, a slow request is ended before a response that its client reads."""
    response = bytes(2**22)

    def respond(connection: Connection, _: object) -> bool:
        connection.output.send(response)
        return True

    with ExitStack() as stack:
        table = ConnectionTable(logging.getLogger("test"))
        stack.callback(table.epoll.close)
        reader, reading = open_connection(table, stack, handle=respond)
        reader.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        table.run_step(reading.descriptor)
        assert reading.state is SENDING
        slow_client, slow = open_connection(table, stack)
        slow_client.send(b"GET")
        table.run_step(slow.descriptor)

        table.limit_memory(message_bytes=reading.buffered_bytes, messages=1)
        client, connection = open_connection(table, stack)
        client.send(b"GET /a-longer-path")
        table.run_step(connection.descriptor)

        assert slow.state is LINGERING
        assert reading.state is SENDING
