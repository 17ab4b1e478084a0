"""Parser for HTTP/1.1 requests (RFC 9112): the bytes of a connection become complete requests.

llhttp (in httptools) parses heads, chunk headers and trailers, and rejects what is malformed or
ambiguous. It calls the `on_` methods of RequestParser. request_head.py checks what llhttp accepts,
and request_body.py collects the body.

A parser is in one of these states. It raises InvalidTransition for a transition that the table does
not contain:

| State | The next byte belongs to | Next states |
|---|---|---|
| IDLE | a new request | HEAD, ENDED |
| HEAD | the request line or a header field | SIZED_BODY, CHUNKED_BODY, ENDED |
| SIZED_BODY | a body with Content-Length | IDLE, ENDED |
| CHUNKED_BODY | a chunk, its header, or a trailer field | IDLE, ENDED |
| ENDED | nothing. It is ignored | |

A request without a body passes through SIZED_BODY, too. The parser ends after a request with
`Connection: close`, after an error, and at the end of the stream.

In this example, the body of a request with `Content-Length: 5` arrives after the head. The methods
on the left are those that llhttp calls:

    on_message_begin         IDLE -> HEAD
    on_url, on_header, ...
    on_headers_complete      HEAD -> SIZED_BODY
    none                     SIZED_BODY -> IDLE. feed() adds the rest of the body without llhttp,
                             which would copy it.
"""

from collections import deque
from enum import Enum
from typing import Any

import httptools

from app.server.http_error import HttpError
from app.server.request_body import Body, ChunkedBody, NoBody, SizedBody
from app.server.request_head import Rules, content_length, expects_continue, make_environ
from app.server.transitions import InvalidTransition

# Bytes per call of llhttp. It parses all requests in them, so this limits the queue of pipelined
# requests.
PARSE_BYTES = 2**12
# Limit for the head, chunk headers and trailer fields together, in addition to a quarter of the
# body size.
MAX_HEAD_BYTES = 2**15
# Of a header field: the separator and the end of the line.
FIELD_OVERHEAD_BYTES = len(": \r\n")
# Head that prepares llhttp for a chunked body. See RequestParser._ignore_upgrade().
CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
EMPTY = memoryview(b"")
NO_BODY = NoBody()


class State(Enum):
    """State of a parser. The table is in the docstring of this module."""

    IDLE = 0
    HEAD = 1
    SIZED_BODY = 2
    CHUNKED_BODY = 3
    ENDED = 4

    __hash__ = object.__hash__  # that of Enum is written in Python


# As globals, because Python 3.11 takes 0.1 us for each access to a member of an Enum.
IDLE, HEAD, SIZED_BODY, CHUNKED_BODY, ENDED = State


NEXT_STATES = {
    IDLE: (HEAD, ENDED),
    HEAD: (SIZED_BODY, CHUNKED_BODY, ENDED),
    SIZED_BODY: (IDLE, ENDED),
    CHUNKED_BODY: (IDLE, ENDED),
    ENDED: (),
}


class Request:
    """A complete request. gunicorn's hooks pre_request and post_request receive it.

    uri: the request target as the client sent it
    version: for example (1, 1)
    """

    def __init__(self, environ: dict[str, Any], *, keep_alive: bool):
        self.environ = environ
        self.keep_alive = keep_alive
        # Copies, because the application can change the environ before post_request is called.
        self.method: str = environ["REQUEST_METHOD"]
        self.uri: str = environ["RAW_URI"]
        self.query: str = environ["QUERY_STRING"]
        self.version = (1, int(environ["SERVER_PROTOCOL"][-1]))

    @property
    def path(self) -> str:
        """Return the path as the client sent it."""
        return self.uri.partition("?")[0]


class _IncomingRequest:
    """A request of which at least one byte is missing.

    parsed_bytes: number of bytes that llhttp has parsed
    target, fields: parts of the head, as llhttp has found them. `fields` also contains trailer
        fields.
    environ, body, keep_alive, must_send_continue: set when the head is complete
    """

    __slots__ = (
        "body",
        "environ",
        "fields",
        "keep_alive",
        "must_send_continue",
        "parsed_bytes",
        "target",
    )

    def __init__(self) -> None:
        self.parsed_bytes = 0
        self.target = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.environ: dict[str, Any] = {}
        self.body: Body = NO_BODY
        self.keep_alive = False
        self.must_send_continue = False


class RequestParser:
    """Parses the bytes of one connection. Only the thread that owns the connection uses it.

    requests: complete requests. The last one may be the error for a rejected request.
    """

    def __init__(self, rules: Rules):
        self.requests: deque[Request | HttpError] = deque()
        self.state = IDLE
        self._rules = rules
        self._incoming = _IncomingRequest()
        self._unparsed = EMPTY
        self._create_llhttp()

    @property
    def has_begun(self) -> bool:
        """Return True if a part of a request has arrived."""
        return self.state is not IDLE and self.state is not ENDED

    @property
    def has_ended(self) -> bool:
        """Return True if no more requests can follow those in `requests`."""
        return self.state is ENDED

    @property
    def missing_bytes(self) -> int:
        """Return the size of the missing part of a body with Content-Length, or 0."""
        return self._incoming.body.missing_bytes

    @property
    def memory_bytes(self) -> int:
        """Return the size of the memory for the part of an incomplete request that has arrived."""
        incoming = self._incoming
        return min(incoming.parsed_bytes, MAX_HEAD_BYTES) + incoming.body.memory_bytes

    @property
    def must_send_continue(self) -> bool:
        """Return True if the client waits for 100 Continue.

        Call confirm_continue() when it is sent.
        """
        return self._incoming.must_send_continue

    def confirm_continue(self) -> None:
        self._incoming.must_send_continue = False

    def feed(self, data: bytes = b"") -> None:
        """Parse buffered data and `data`. Stop after the piece that completes a request."""
        if data:
            rest = bytes(self._unparsed)
            self._unparsed = memoryview(rest + data if rest else data)
        while self._unparsed and not self.requests:
            missing_bytes = self.missing_bytes
            size = missing_bytes or PARSE_BYTES
            piece = self._unparsed[:size]
            # An empty slice would keep the memory of all data.
            self._unparsed = self._unparsed[size:] or EMPTY
            if missing_bytes:
                self._write_body(piece)
            else:
                self._parse_piece(piece)

    def end(self) -> None:
        """Handle the end of the stream."""
        if self.has_begun:
            self._reject(HttpError(400, "Incomplete request."))
        else:
            self.stop()

    def stop(self) -> None:
        """Discard incomplete requests, and ignore further data."""
        self._incoming = _IncomingRequest()
        self._unparsed = EMPTY
        if self.state is not ENDED:
            self._enter(ENDED)

    def _enter(self, state: State) -> None:
        if state not in NEXT_STATES[self.state]:
            raise InvalidTransition(self.state, state)
        self.state = state

    def _create_llhttp(self) -> None:
        """Create an llhttp that expects a head."""
        self._llhttp = httptools.HttpRequestParser(self)
        # It would reject HTTP/1.2, which must be read as HTTP/1.1 (RFC 9110, 2.5).
        self._llhttp.set_dangerous_leniencies(lenient_version=True)

    def _write_body(self, piece: memoryview) -> None:
        """Add a piece to a body with Content-Length, without llhttp, which would copy it."""
        body = self._incoming.body
        body.write(piece)
        if not body.missing_bytes:
            self._create_llhttp()  # the old one still waits for the body
            self._complete()

    def _parse_piece(self, piece: memoryview) -> None:
        self._incoming.parsed_bytes += len(piece)
        try:
            self._llhttp.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            if self.state is ENDED:
                return  # the body after a rejected head
            offset = upgrade.args[0]
            self._ignore_upgrade(piece[offset:])
        except httptools.HttpParserError as error:
            if self.state is ENDED:
                return  # data after the last request
            cause = error.__context__  # the exception of an on_ method
            if not isinstance(cause, HttpError):
                cause = HttpError(400, f"Malformed request: {error}.")
            self._reject(cause)
        else:
            # Another object than before if the piece has completed a request.
            incoming = self._incoming
            if incoming.parsed_bytes > MAX_HEAD_BYTES + incoming.body.received_bytes * 5 / 4:
                self._reject_size()

    def _reject_size(self) -> None:
        """Reject a request, because too much of it is not content."""
        if not self._incoming.environ:
            status = 431
            part = "Header"
        else:
            status = 400
            part = "Chunk headers and trailer"
        text = f"{part} fields too large. Expected at most {MAX_HEAD_BYTES} bytes."
        self._reject(HttpError(status, text))

    def _ignore_upgrade(self, rest: memoryview) -> None:
        """Parse the body of a request with an Upgrade field, as RFC 9110, 7.8 allows.

        llhttp stops before this body, because it expects that the protocol changes. A new llhttp
        continues. For a chunked body, CHUNKED_HEAD prepares it. For a body with Content-Length,
        feed() needs no llhttp.
        """
        self._unparsed = memoryview(bytes(rest) + self._unparsed)
        self._create_llhttp()
        incoming = self._incoming
        # The limits of the head do not apply to CHUNKED_HEAD.
        incoming.parsed_bytes = 0
        incoming.target = b""
        incoming.fields.clear()
        if self.state is CHUNKED_BODY:
            self._llhttp.feed_data(CHUNKED_HEAD)
        elif not self.missing_bytes:
            self._complete()

    def _reject(self, error: HttpError) -> None:
        self.stop()
        self.requests.append(error)

    def _complete(self) -> None:
        incoming = self._incoming
        environ = incoming.environ
        environ["wsgi.input"] = incoming.body.open()
        if self.state is CHUNKED_BODY:
            # The application receives the content without its chunks.
            del environ["HTTP_TRANSFER_ENCODING"]
            environ["CONTENT_LENGTH"] = str(incoming.body.received_bytes)

        self.requests.append(Request(environ, keep_alive=incoming.keep_alive))
        if incoming.keep_alive:
            self._incoming = _IncomingRequest()
            self._enter(IDLE)
        else:
            self.stop()

    def _complete_without_body(self) -> None:
        """Complete a request that the application will reject. Further data is ignored."""
        incoming = self._incoming
        incoming.keep_alive = False
        incoming.environ["CONTENT_LENGTH"] = "0"
        incoming.environ.pop("HTTP_TRANSFER_ENCODING", None)
        self._enter(SIZED_BODY)
        self._complete()

    # llhttp calls these methods. For CHUNKED_HEAD, it calls the first four in the state
    # CHUNKED_BODY.

    def on_message_begin(self) -> None:
        if self.state is not CHUNKED_BODY:
            self._enter(HEAD)

    def on_url(self, url: bytes) -> None:
        """Add a part of the request target."""
        incoming = self._incoming
        incoming.target += url
        limit = self._rules.max_line_bytes
        if len(incoming.target) + len("GET  HTTP/1.1") > limit:
            raise HttpError(414, f"Request line too long. Expected at most {limit} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header field or a trailer field. The latter is only counted (RFC 9110, 6.5.1)."""
        fields = self._incoming.fields
        fields.append((name, value))
        rules = self._rules
        if len(fields) > rules.max_fields:
            raise HttpError(431, f"Too many header fields. Expected at most {rules.max_fields}.")
        if len(name) + len(value) + FIELD_OVERHEAD_BYTES > rules.max_field_bytes:
            raise HttpError(
                431, f"Header field too long. Expected at most {rules.max_field_bytes} bytes."
            )

    def on_headers_complete(self) -> None:
        if self.state is CHUNKED_BODY:
            return

        incoming = self._incoming
        incoming.keep_alive = self._llhttp.should_keep_alive()
        environ = make_environ(
            self._rules,
            method=self._llhttp.get_method().decode(),
            target=incoming.target,
            version=self._llhttp.get_http_version(),
            fields=incoming.fields,
        )
        length = content_length(environ, self._rules)
        incoming.must_send_continue = expects_continue(environ)
        incoming.environ = environ
        has_body = length != 0
        if has_body and not self._rules.accepts_head(environ):
            self._complete_without_body()
            return
        if length is None:
            incoming.body = ChunkedBody(self._rules)
            self._enter(CHUNKED_BODY)
            return

        if has_body:
            incoming.body = SizedBody(length)
        self._enter(SIZED_BODY)

    def on_body(self, data: bytes) -> None:
        body = self._incoming.body
        body.write(data)

    def on_message_complete(self) -> None:
        # With an Upgrade field, llhttp calls this method before the body, and then raises
        # HttpParserUpgrade.
        if not self._llhttp.should_upgrade():
            self._complete()
