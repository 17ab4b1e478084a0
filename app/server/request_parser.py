"""Parser for HTTP/1.1 requests (RFC 9112). httptools (llhttp) finds their ends. This module validates the rest."""

import json
import re
from collections import deque
from functools import lru_cache
from http import HTTPStatus
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import httptools

# Bytes per call of the parser. It parses all requests in them, so this limits the queue of pipelined requests.
PARSE_BYTES = 2**12
# Limit for the head, chunk headers and trailer fields together, in addition to a quarter of the body size.
MAX_HEAD_BYTES = 2**16
# Repeated Host fields are joined with a comma, which this pattern rejects.
HOST = re.compile(r"[!$&'()*+;=%._~\[\]:0-9A-Za-z-]*")
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# Head that prepares a new parser for a chunked body. See RequestParser._ignore_upgrade().
CHUNKED_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


class HttpError(Exception):
    """Error for a request that the server itself rejects. The connection is closed after the response."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status, self.body = HTTPStatus(status), json.dumps({"error": text}).encode()

    def to_bytes(self) -> bytes:
        head = f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: application/json\r\n"
        return (
            f"{head}Content-Length: {len(self.body)}\r\nConnection: close\r\n\r\n".encode()
            + self.body
        )


class Rules(NamedTuple):
    """Limits and trusted fields, for trusted proxies or for others. 0: no limit, except for a body."""

    max_line_bytes: int
    max_fields: int
    max_field_bytes: int
    max_body_bytes: int
    max_body_setting: str  # name of that limit in the error message
    base: dict[str, Any]  # the part of the environ that all requests share
    forwarders: frozenset[str]  # accepted names with underscores, such as SCRIPT_NAME
    schemes: dict[str, str]  # header values that mean HTTPS, by key in the environ


class Request:
    """A complete request. gunicorn's hooks pre_request and post_request receive it."""

    def __init__(self, environ: dict[str, Any], keep_alive: bool):
        self.environ, self.keep_alive = environ, keep_alive
        self.version = 1, int(environ["SERVER_PROTOCOL"][-1])
        self.method, self.uri, self.query = (
            environ["REQUEST_METHOD"],
            environ["RAW_URI"],
            environ["QUERY_STRING"],
        )
        self.path = self.uri.partition("?")[0]


class RequestParser:
    """Parses the bytes of one connection.

    requests: complete requests. The last one may be the error for a rejected request.
    peer: the part of the environ that all requests of the connection share.
    received: number of bytes of an incomplete body.
    """

    def __init__(self, rules: Rules, peer: dict[str, str]):
        self.rules, self.peer = rules, peer
        self.requests: deque[Request | HttpError] = deque()
        self.unparsed = memoryview(b"")
        self.has_ended = False  # no more requests can follow
        self._create_parser()
        self._reset()

    def _create_parser(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(
            lenient_version=True
        )  # HTTP/1.2 is read as 1.1 (RFC 9110, 2.5)

    def _reset(self) -> None:
        self.environ: dict[str, Any] = {}
        self.body = BytesIO()
        self._target = b""
        self._size = self._fields = self.received = 0
        self.missing_bytes = 0  # rest of a body with Content-Length
        self.has_begun = self._has_head = self._keep_alive = self.expects_continue = False

    def feed(self, data: bytes = b"") -> None:
        """Parse buffered data and `data`. Stop after the piece that completes a request."""
        if data:
            self.unparsed = memoryview(bytes(self.unparsed) + data)
        while self.unparsed and not self.requests:
            end = self.missing_bytes or PARSE_BYTES
            piece, self.unparsed = self.unparsed[:end], self.unparsed[end:] or memoryview(b"")
            if not self.missing_bytes:
                self._parse_piece(piece)
                continue
            self.on_body(piece)  # bypasses the parser, which would copy it
            if not self.missing_bytes:
                self._create_parser()
                self._complete()

    def end(self) -> None:
        """Handle EOF from the client."""
        if self.has_begun:
            self._reject(HttpError(400, "Incomplete request."))
        self.has_ended = True

    def stop(self) -> None:
        """Discard buffered data, except complete requests. Accept no more requests."""
        self.body, self.unparsed, self.has_ended, self.missing_bytes = (
            BytesIO(),
            memoryview(b""),
            True,
            0,
        )

    def _parse_piece(self, piece: memoryview) -> None:
        self._size += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(piece[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            cause = error.__context__  # the exception of a callback
            if not isinstance(cause, HttpError):
                cause = HttpError(400, f"Malformed request: {error}.")
            if not self.has_ended:  # otherwise, the data follows the last request
                self._reject(cause)
        else:
            if self._size > MAX_HEAD_BYTES + self.received * 5 / 4:
                status, part = (
                    (400, "Chunk headers and trailer") if self._has_head else (431, "Header")
                )
                self._reject(
                    HttpError(
                        status, f"{part} fields too large. Expected at most {MAX_HEAD_BYTES} bytes."
                    )
                )

    def _ignore_upgrade(self, rest: memoryview) -> None:
        """Parse the body of a request with an Upgrade field (RFC 9110, 7.8). llhttp itself stops before the body."""
        self._create_parser()
        self.unparsed = memoryview(bytes(rest) + self.unparsed)
        self._target, self._size, self._fields = b"", 0, 0
        if "HTTP_TRANSFER_ENCODING" in self.environ:
            self._parser.feed_data(CHUNKED_HEAD)
        elif not self.missing_bytes:
            self._complete()

    def _reject(self, error: HttpError) -> None:
        self.stop()
        self.requests.append(error)

    def _complete(self) -> None:
        environ = self.environ
        if environ.pop("HTTP_TRANSFER_ENCODING", None):
            environ["CONTENT_LENGTH"] = str(self.received)
        environ["wsgi.input"] = BytesIO(self.body.getvalue())
        self.requests.append(Request(environ, self._keep_alive))
        if not self._keep_alive:
            self.stop()
        self._reset()

    # httptools calls these methods.

    def on_message_begin(self) -> None:
        if not self.has_begun:  # otherwise, this is CHUNKED_HEAD
            self.has_begun, self.environ = True, {**self.rules.base, **self.peer}

    def on_url(self, url: bytes) -> None:
        self._target += url
        if 0 < self.rules.max_line_bytes < len(self._target) + len("GET  HTTP/1.1"):
            raise HttpError(
                414, f"Request line too long. Expected at most {self.rules.max_line_bytes} bytes."
            )

    def on_header(self, name: bytes, value: bytes) -> None:
        rules, environ = self.rules, self.environ
        self._fields += 1
        if 0 < rules.max_fields < self._fields:
            raise HttpError(431, f"Too many header fields. Expected at most {rules.max_fields}.")
        if 0 < rules.max_field_bytes < len(name) + len(value) + len(": \r\n"):
            raise HttpError(
                431, f"Header field too long. Expected at most {rules.max_field_bytes} bytes."
            )
        key = environ_key(name, rules.forwarders)
        if key is None or self._has_head:  # trailer fields are not merged (RFC 9110, 6.5.1)
            return
        text = value.decode("latin-1").rstrip(" \t")
        if key in environ and key != "SCRIPT_NAME":
            text = f"{environ[key]}{'; ' if key == 'HTTP_COOKIE' else ','}{text}"
        environ[key] = text

    def on_headers_complete(self) -> None:
        if self._has_head:  # this is CHUNKED_HEAD
            return
        environ, parser = self.environ, self._parser
        self._has_head = True
        version = parser.get_http_version()
        if not version.startswith("1."):
            raise HttpError(505, "HTTP version not supported. Expected HTTP/1.0 or HTTP/1.1.")
        self._keep_alive = parser.should_keep_alive()
        environ["SERVER_PROTOCOL"] = protocol = "HTTP/1.0" if version == "1.0" else "HTTP/1.1"
        method = environ["REQUEST_METHOD"] = parser.get_method().decode()
        if method in ("CONNECT", "SOURCE"):  # SOURCE is a method of Icecast
            raise HttpError(501, "Method not implemented.")
        host = environ.get("HTTP_HOST")
        if not HOST.fullmatch(host or "") or (host is None and protocol == "HTTP/1.1"):
            raise HttpError(400, "Missing, repeated or invalid Host header.")
        self._set_target(method)
        if reports := [
            environ[key] == secure for key, secure in self.rules.schemes.items() if key in environ
        ]:
            environ["wsgi.url_scheme"] = "https" if all(reports) else "http"
        self._check_framing()

    def _set_target(self, method: str) -> None:
        """Set the path and the query. An absolute URI replaces the header field Host (RFC 9112, 3.2.2)."""
        environ, target = self.environ, self._target.decode("latin-1")
        environ["RAW_URI"] = target
        if not target.startswith("/"):
            found = re.fullmatch(r"https?://([^/?#]+)([^#]*)", target, re.IGNORECASE)
            if found and HOST.fullmatch(found[1]):
                environ["HTTP_HOST"], target = found.groups()
            elif (method, target) != ("OPTIONS", "*"):
                raise HttpError(
                    400,
                    "Invalid request target. Expected an absolute path, or an http or https URL.",
                )
        path, _, environ["QUERY_STRING"] = target.partition("?")
        if "#" in target:
            raise HttpError(
                400, "Invalid request target. Expected a target without a fragment (#)."
            )
        if "%" in path:
            path = unquote_to_bytes(path.encode("latin-1")).decode("latin-1")
        script_name = environ["SCRIPT_NAME"]
        if script_name and not f"{path}/".startswith(f"{script_name}/"):
            raise HttpError(400, "Invalid path. Expected a path that starts with SCRIPT_NAME.")
        environ.setdefault("PATH_INFO", path[len(script_name) :] or ("" if script_name else "/"))

    def _check_framing(self) -> None:
        environ = self.environ
        is_http_1_1, coding = (
            environ["SERVER_PROTOCOL"] == "HTTP/1.1",
            environ.get("HTTP_TRANSFER_ENCODING"),
        )
        if coding is not None:
            if coding.lower() == "identity" or not is_http_1_1:
                raise HttpError(400, "Invalid Transfer-Encoding. Expected chunked with HTTP/1.1.")
            if coding.lower() != "chunked":
                raise HttpError(501, "Transfer-Encoding not implemented. Expected chunked.")
        elif length := environ.get("CONTENT_LENGTH"):
            self.missing_bytes = int(length)
            self._check_size(self.missing_bytes)
            self.body = BytesIO(
                bytes(self.missing_bytes)
            )  # of the final size, so that read() does not copy
        if expectation := environ.get("HTTP_EXPECT"):
            if expectation.lower() != "100-continue":
                raise HttpError(417, "Invalid Expect header. Expected 100-continue.")
            self.expects_continue = is_http_1_1

    def _check_size(self, size: int) -> None:
        limit, setting = self.rules.max_body_bytes, self.rules.max_body_setting
        if size > limit:
            raise HttpError(413, f"Body too large. Expected at most {limit} bytes ({setting}).")

    def on_body(self, data: bytes | memoryview) -> None:
        self.body.write(data)
        self.received += len(data)
        if self.missing_bytes:
            self.missing_bytes -= len(data)
        else:
            self._check_size(self.received)

    def on_message_complete(self) -> None:
        if not self._parser.should_upgrade():  # otherwise, httptools raises HttpParserUpgrade
            self._complete()


@lru_cache(maxsize=1024)
def environ_key(name: bytes, forwarders: frozenset[str]) -> str | None:
    """Return the environ key of a field, or None to drop the field: X_Y and X-Y would have the same key."""
    key = name.decode("latin-1").upper().replace("-", "_")
    if b"_" in name and key not in forwarders:
        return None
    plain = (
        "CONTENT_TYPE",
        "CONTENT_LENGTH",
        *(("SCRIPT_NAME", "PATH_INFO") if b"_" in name else ()),
    )
    return key if key in plain else f"HTTP_{key}"
