"""An independent parser, h11, which decides how many requests a byte stream contains."""

from __future__ import annotations

from dataclasses import dataclass, field

import h11

# Method, target and body.
SeenRequest = tuple[str, str, str]

MAX_HEAD_BYTES = 2**22


@dataclass
class ParsedRequests:
    """The complete requests before the end of a stream, or before its first error.

    is_final: no other request can follow them. It is false if h11 rejects the next bytes, which
        other parsers may accept, and after a request of HTTP/1.0, because h11 does not continue.
    """

    requests: list[SeenRequest] = field(default_factory=list)
    is_final: bool = True

    def agrees(self, seen: list[SeenRequest]) -> bool:
        """Return whether a server may have seen these requests. It may have stopped earlier."""
        common = min(len(seen), len(self.requests))
        if seen[:common] != self.requests[:common]:
            return False
        has_seen_more = len(seen) > common
        return not (has_seen_more and self.is_final)


def parse_with_h11(data: bytes) -> ParsedRequests:
    """Parse all that a client sends on a connection."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    connection.receive_data(data)
    connection.receive_data(b"")  # the client has closed its side

    parsed = ParsedRequests()
    try:
        while request := _next_request(connection):
            parsed.requests.append(request)

            # h11 goes to the next request only after a response.
            connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
            if connection.our_state is h11.SWITCHED_PROTOCOL:  # CONNECT
                break
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:  # the last request of the connection
                parsed.is_final = connection.their_http_version == b"1.1"
                break
            connection.start_next_cycle()
    except h11.RemoteProtocolError:
        parsed.is_final = False
    return parsed


def _next_request(connection: h11.Connection) -> SeenRequest | None:
    """Return the next complete request, or None if there is none.

    Raise RemoteProtocolError if the bytes are not a request.
    """
    method = ""
    target = ""
    body = b""
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            method = event.method.decode()
            target = event.target.decode()
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return method, target, body.decode("latin-1")
        else:
            return None
