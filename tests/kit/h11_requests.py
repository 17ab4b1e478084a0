"""An independent parser, h11, which decides how many requests a byte stream contains."""

from __future__ import annotations

from dataclasses import dataclass, field

import h11

SeenRequest = tuple[str, str, str]


@dataclass
class ParsedRequests:
    """The complete requests before the end or the first error: method, target and body.

    is_final: no other request can follow them. False if h11 rejects the next bytes, which other parsers may accept.
        Also false after a request of HTTP/1.0, because h11 does not continue.
    """

    requests: list[SeenRequest] = field(default_factory=list)
    is_final: bool = True

    def agrees(self, seen: list[SeenRequest]) -> bool:
        """Return whether a server may have seen these requests. It may have stopped before the others."""
        common = min(len(seen), len(self.requests))
        return seen[:common] == self.requests[:common] and (
            len(seen) == common or not self.is_final
        )


def parse_with_h11(data: bytes) -> ParsedRequests:
    """Parse all that a client sends on a connection."""
    connection, parsed = (
        h11.Connection(h11.SERVER, max_incomplete_event_size=2**22),
        ParsedRequests(),
    )
    connection.receive_data(data)
    connection.receive_data(b"")
    method, target, body = "", "", b""
    try:
        while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                method, target, body = event.method.decode(), event.target.decode(), b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                parsed.requests.append((method, target, body.decode("latin-1")))
                connection.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                if connection.our_state is h11.SWITCHED_PROTOCOL:  # CONNECT
                    break
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:  # the last request of the connection
                    parsed.is_final = connection.their_http_version == b"1.1"
                    break
                connection.start_next_cycle()
            else:
                break
    except h11.RemoteProtocolError:
        parsed.is_final = False
    return parsed
