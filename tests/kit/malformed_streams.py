"""Malformed and unusual byte streams, and the status codes that RFC 9112 and RFC 9110 require.

STREAMS is the list of all. Each has a name, the bytes that a client sends, and the status codes of
all responses to them. In the names, CL is Content-Length, and TE is Transfer-Encoding.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.standalone import MAX_BODY_BYTES

CHUNKED = b"Transfer-Encoding: chunked"
# A request in the body of another one. A server that serves it has found the wrong end of the body.
INNER = b"GET /inner HTTP/1.1\r\nHost: x\r\n\r\n"
INNER_LENGTH = b"Content-Length: %d" % len(INNER)

# Reasons why the server serves requests that h11 does not see.
LOOSE_SPACES = "RFC 9112, 3 lets a server accept more spaces between the words of a request line"
EMPTY_LINES = (
    "RFC 9112, 2.2: a server ignores an empty line before a request. llhttp takes CR and LF as one"
    " too, h11 none"
)
RTSP = (
    "llhttp reads the version RTSP/1.x as HTTP/1.x, and does not report it. The framing is that of"
    " HTTP"
)


@dataclass
class Stream:
    """Bytes of one connection, and the status codes of all responses to them.

    is_whole: the last request is complete or rejected, so that another request can follow it
    differs: the reason why the server serves requests that h11 does not see
    """

    name: str
    data: bytes
    statuses: tuple[int, ...]
    is_whole: bool = True
    differs: str = ""


STREAMS: list[Stream] = []


def add(name: str, data: bytes, *statuses: int, is_whole: bool = True, differs: str = "") -> None:
    """Add a stream with the status codes of its responses."""
    stream = Stream(name, data, statuses, is_whole=is_whole, differs=differs)
    STREAMS.append(stream)


def serve(name: str, data: bytes, *, is_whole: bool = True, differs: str = "") -> None:
    """Add a stream with one request, which the server must serve."""
    add(name, data, 200, is_whole=is_whole, differs=differs)


def reject(name: str, data: bytes, *, status: int = 400, is_whole: bool = True) -> None:
    """Add a stream that the server must reject with one response."""
    add(name, data, status, is_whole=is_whole)


def head(*fields: bytes, start: bytes = b"GET /a HTTP/1.1") -> bytes:
    """Return the head of a request with header fields after Host."""
    return b"\r\n".join([start, b"Host: x", *fields, b"", b""])


def post(*fields: bytes, body: bytes = b"") -> bytes:
    return head(*fields, start=b"POST /a HTTP/1.1") + body


def with_line(request_line: bytes) -> bytes:
    return head(start=request_line)


def with_length(length: bytes, body: bytes = b"hello") -> bytes:
    return post(b"Content-Length: " + length, body=body)


def with_coding(coding: bytes) -> bytes:
    """Return a request with this Transfer-Encoding. Its body is chunked."""
    return post(b"Transfer-Encoding: " + coding, body=b"5\r\nhello\r\n0\r\n\r\n")


def with_chunk(header: bytes, data: bytes = b"hello\r\n") -> bytes:
    """Return a request with a chunk before the last, empty one. `data` has the end of the chunk."""
    return post(CHUNKED, body=header + b"\r\n" + data + b"0\r\n\r\n")


def with_trailer(*fields: bytes) -> bytes:
    """Return a chunked request with fields after its chunks."""
    lines = [field + b"\r\n" for field in fields]
    trailer = b"".join(lines)
    return post(CHUNKED, body=b"5\r\nhello\r\n0\r\n" + trailer + b"\r\n")


# Content-Length and Transfer-Encoding
reject("CL.TE", post(b"Content-Length: 6", CHUNKED, body=b"0\r\n\r\nG"))
reject("TE.CL", post(CHUNKED, b"Content-Length: 4", body=b"5c\r\n" + INNER + b"0\r\n\r\n"))
reject("CL.TE with length 0", post(b"Content-Length: 0", CHUNKED, body=b"0\r\n\r\n" + INNER))
reject(
    "CL and TE identity", post(b"Content-Length: 5", b"Transfer-Encoding: identity", body=b"hello")
)
reject(
    "TE.CL upgrade", post(b"Connection: upgrade", b"Upgrade: h2c", CHUNKED, b"Content-Length: 5")
)
serve(
    "TE after a name with an underscore", post(b"Transfer_Encoding: chunked", b"Content-Length: 0")
)
add("CL with an underscore", post(b"Content_Length: %d" % len(INNER), body=INNER), 200, 200)

# Transfer-Encoding. For an unknown coding, RFC 9112 has two rules: 501 (6.1), and 400 if it is the
# last one (6.3).
reject("TE.TE", post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"))
reject("TE.TE with an unknown coding", post(CHUNKED, b"Transfer-Encoding: cow", body=b"0\r\n\r\n"))
reject(
    "TE.TE unknown first", post(b"Transfer-Encoding: cow", CHUNKED, body=b"0\r\n\r\n"), status=501
)
reject("TE identity", with_coding(b"identity"))
reject("TE unknown", with_coding(b"cow"), status=501)
reject("TE xchunked", with_coding(b"xchunked"), status=501)
reject("TE chunkedx", with_coding(b"chunkedx"), status=501)
reject("TE gzip, chunked", with_coding(b"gzip, chunked"), status=501)
reject("TE chunked, gzip", with_coding(b"chunked, gzip"))
reject("TE chunked, chunked", with_coding(b"chunked, chunked"))
reject("TE chunked, identity", with_coding(b"chunked, identity"))
reject("TE empty", with_coding(b""))
reject("TE comma before", with_coding(b",chunked"), status=501)
reject("TE comma after", with_coding(b"chunked,"))
reject("TE quoted", with_coding(b'"chunked"'), status=501)
reject("TE with a parameter", with_coding(b"chunked;a=b"), status=501)
reject("TE vertical tab", with_coding(b"\x0bchunked"))
reject("TE no-break space", with_coding(b"\xa0chunked"), status=501)
reject("TE no-break space after", with_coding(b"chunked\xa0"), status=501)
reject("TE next line", with_coding(b"\x85chunked"), status=501)
reject("TE NUL", with_coding(b"chunked\0"))
reject("TE folded", with_coding(b"\r\n chunked"))
reject("TE space before the colon", post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"))
reject("TE tab before the colon", post(b"Transfer-Encoding\t: chunked", body=b"0\r\n\r\n"))
reject("TE space before the name", post(b" Transfer-Encoding: chunked", body=b"0\r\n\r\n"))
reject("TE after CR", post(b"A: b\rTransfer-Encoding: chunked", body=b"0\r\n\r\n"))
reject("TE after LF", post(b"A: b\nTransfer-Encoding: chunked", body=b"0\r\n\r\n"))
reject("TE in HTTP/1.0", head(CHUNKED, start=b"POST /a HTTP/1.0") + b"0\r\n\r\n")
serve("TE in capitals", with_coding(b"CHUNKED"))
serve("TE tab before", with_coding(b"\tchunked"))
# RFC 9110 allows it, llhttp does not.
reject("TE tab after", with_coding(b"chunked\t"))

# Content-Length
reject("CL repeated and equal", post(b"Content-Length: 5", b"Content-Length: 5", body=b"hello"))
reject("CL repeated", post(b"Content-Length: 5", b"Content-Length: 6", body=b"hello!"))
reject("CL list", with_length(b"5, 5"))
reject("CL list without a space", with_length(b"5,6"))
reject("CL plus", with_length(b"+5"))
reject("CL minus", with_length(b"-5"))
reject("CL minus zero", with_length(b"-0", b""))
reject("CL inner space", with_length(b"5 5"))
reject("CL underscore", with_length(b"5_0"))
reject("CL hexadecimal", with_length(b"0x5"))
reject("CL fraction", with_length(b"5.0"))
reject("CL exponent", with_length(b"5e0"))
reject("CL empty", with_length(b"", b""))
reject("CL other digits", with_length(b"\xb2"))
reject("CL NUL", with_length(b"5\0"))
reject("CL vertical tab", with_length(b"\x0b5"))
reject("CL folded", with_length(b"\r\n 5"))
reject("CL overflow", with_length(b"18446744073709551621"))
reject("CL of 2**64 - 1", with_length(b"18446744073709551615"), status=413)
reject("CL too large", with_length(b"%d" % (MAX_BODY_BYTES + 1)), status=413)
reject("CL space before the colon", post(b"Content-Length : 5", body=b"hello"))
serve("CL in Connection", post(b"Connection: Content-Length", INNER_LENGTH, body=INNER))
serve("CL zeros before", with_length(b"0005"))
serve("CL spaces around", with_length(b"  5 \t"))
serve("CL of GET", head(INNER_LENGTH) + INNER)
reject("CL larger than the body", with_length(b"6"), is_whole=False)
add("CL smaller than the body", with_length(b"4", b"hell\0"), 200, 400)

# Chunks
reject("chunk size empty", with_chunk(b""))
reject("chunk size plus", with_chunk(b"+5"))
reject("chunk size minus", with_chunk(b"-5"))
reject("chunk size 0x5", with_chunk(b"0x5"))
reject("chunk size underscore", with_chunk(b"0_5"))
reject("chunk size space before", with_chunk(b" 5"))
reject("chunk size space after", with_chunk(b"5 "))
reject("chunk size tab after", with_chunk(b"5\t"))
reject("chunk size no digit", with_chunk(b"g"))
reject("chunk size NUL", with_chunk(b"5\0"))
reject("chunk size overflow", with_chunk(b"10000000000000005"))
reject("chunk size of 2**64 - 1", with_chunk(b"ffffffffffffffff"), is_whole=False)
reject("chunk size more than the limit", with_chunk(b"7fffffff"), is_whole=False)
serve("chunk size zeros before", with_chunk(b"0" * 15 + b"5"))
reject("chunk size ends with LF", post(CHUNKED, body=b"5\nhello\r\n0\r\n\r\n"))
reject("chunk size ends with CR", post(CHUNKED, body=b"5\rhello\r\n0\r\n\r\n"))
reject("chunk ends with LF", with_chunk(b"5", b"hello\n"))
reject("chunk ends with CR", with_chunk(b"5", b"hello\r"))
reject("chunk without an end", with_chunk(b"5", b"hello"))
reject("chunk too long", with_chunk(b"5", b"hello!\r\n"))
reject("chunk too short", with_chunk(b"6"))
reject("chunk extension with LF", with_chunk(b"5;a\nb"))
reject("chunk extension with CR", with_chunk(b"5;a\rb"))
reject("chunk extension with NUL", with_chunk(b"5;a\0"))
reject("chunk extension without a name", with_chunk(b"5;"))
reject("chunk extension with an open quote", with_chunk(b'5;a="b'))
reject("chunk extension too long", with_chunk(b"5;a=" + b"b" * 2**17))
serve("chunk extension", with_chunk(b'5;a=b;c="d e"'))
reject("chunk last ends with LF", post(CHUNKED, body=b"0\n\n"))
reject("chunk last followed by a request", post(CHUNKED, body=b"0\r\n" + INNER))
reject("chunks that never end", post(CHUNKED, body=b"5\r\nhello\r\n"), is_whole=False)
reject("chunks too large", with_chunk(b"100001", b"a" * (MAX_BODY_BYTES + 1) + b"\r\n"), status=413)

# Trailers
reject("trailer Content-Length", with_trailer(INNER_LENGTH) + INNER)
reject("trailer Transfer-Encoding", with_trailer(b"Transfer-Encoding: chunked") + INNER)
serve("trailer Host", with_trailer(b"Host: y"))
serve("trailer Connection", with_trailer(b"Connection: close"), is_whole=False)
add("trailer Upgrade", with_trailer(b"Connection: upgrade", b"Upgrade: h2c") + INNER, 200, 200)
serve("trailer Expect", with_trailer(b"Expect: 100-continue"))
serve("trailer SCRIPT_NAME", with_trailer(b"SCRIPT_NAME: /b", b"PATH_INFO: /c"))
reject("trailer folded", with_trailer(b"A: b", b" c"))
reject("trailer space before the colon", with_trailer(b"A : b"))
reject("trailer ends with LF", post(CHUNKED, body=b"0\r\nA: b\n\r\n"))
reject("trailer too long", with_trailer(*[b"A: " + b"b" * 5000] * 30))

# Header fields
reject("field folded", head(b"A: b", b" c"))
reject("field folded with a tab", head(b"A: b", b"\tc"))
reject("field folded first", b"GET /a HTTP/1.1\r\n Host: x\r\n\r\n")
reject("field with CR", head(b"A: b\rc"))
reject("field with CR at the end", head(b"A: b\r"))
reject("field with LF", head(b"A: b\nC: d"))
reject("field with NUL", head(b"A: b\0c"))
reject("field with DEL", head(b"A: b\x7f"))
reject("field without a colon", head(b"A"))
reject("field without a name", head(b": b"))
reject("field name with a space", head(b"A B: c"))
reject("field name with NUL", head(b"A\0: b"))
reject("field name not ASCII", head(b"\xc3\x84: b"))
reject("field name with a bracket", head(b"A(: b"))
reject("fields end with LF", b"GET /a HTTP/1.1\nHost: x\n\n")
reject("fields end with CR", b"GET /a HTTP/1.1\rHost: x\r\r")
reject("empty line is LF", b"GET /a HTTP/1.1\r\nHost: x\r\n\n")
reject("fields too many", head(*[b"A: b"] * 200), status=431)
reject("field too long", head(b"A: " + b"b" * 10_000), status=431)
reject("field name too long", head(b"A" * 10_000 + b": b"), status=431)
reject("fields too long", head(*[b"A: " + b"b" * 8000] * 20), status=431)
serve("field value Latin-1", head(b"A: \x80\xa0\xe9\xff"))
reject("fields never end", b"GET /a HTTP/1.1\r\nHost: x\r\n", is_whole=False)

# Host
reject("Host missing", b"GET /a HTTP/1.1\r\n\r\n")
reject("Host repeated", head(b"Host: x"))
reject("Host repeated, other", head(b"hOST: y"))
reject("Host list", b"GET /a HTTP/1.1\r\nHost: x, y\r\n\r\n")
reject("Host with a space", b"GET /a HTTP/1.1\r\nHost: x y\r\n\r\n")
reject("Host with user", b"GET /a HTTP/1.1\r\nHost: u@x\r\n\r\n")
reject("Host with a path", b"GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n")
reject("Host missing, absolute URI", b"GET http://x/a HTTP/1.1\r\n\r\n")
reject("Host repeated, absolute URI", head(b"Host: y", start=b"GET http://x/a HTTP/1.1"))

# Request line
reject("method unknown", with_line(b"FOO /a HTTP/1.1"))
reject("method in lower case", with_line(b"get /a HTTP/1.1"))
reject("method CONNECT", with_line(b"CONNECT x:80 HTTP/1.1") + INNER, status=501)
reject("method not a token", with_line(b"G(T /a HTTP/1.1"))
reject("method with NUL", with_line(b"GET\0 /a HTTP/1.1"))
reject("method empty", with_line(b" /a HTTP/1.1"))
reject("method space before", with_line(b" GET /a HTTP/1.1"))
reject("method tab after", with_line(b"GET\t/a HTTP/1.1"))
reject("target missing", with_line(b"GET HTTP/1.1"))
reject("target with a space", with_line(b"GET /a b HTTP/1.1"))
reject("target with a tab", with_line(b"GET /a\tb HTTP/1.1"))
reject("target with NUL", with_line(b"GET /a\0 HTTP/1.1"))
reject("target with CR", with_line(b"GET /a\r HTTP/1.1"))
reject("target with DEL", with_line(b"GET /\x7f HTTP/1.1"))
reject("target not ASCII", with_line(b"GET /\xe9 HTTP/1.1"))
reject("target relative", with_line(b"GET a HTTP/1.1"))
reject("target with a fragment", with_line(b"GET /a#b HTTP/1.1"))
reject("target asterisk", with_line(b"GET * HTTP/1.1"))
reject("target of another scheme", with_line(b"GET ftp://x/a HTTP/1.1"))
reject("target without authority", with_line(b"GET http:///a HTTP/1.1"))
reject("target with user", with_line(b"GET http://u@x/a HTTP/1.1"))
reject("target too long", with_line(b"GET /" + b"a" * 5000 + b" HTTP/1.1"), status=414)
serve("target with CRLF, encoded", with_line(b"GET /a%0d%0aB:%20c HTTP/1.1"))
reject("version missing", b"GET /a\r\n\r\n", status=505)
reject("version 0.9", with_line(b"GET /a HTTP/0.9"), status=505)
reject("version 2.0", with_line(b"GET /a HTTP/2.0"), status=505)
reject("version 3.1", with_line(b"GET /a HTTP/3.1"), status=505)
reject("version of HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
reject("version without a point", with_line(b"GET /a HTTP/1"))
reject("version of three digits", with_line(b"GET /a HTTP/1.10"))
reject("version in lower case", with_line(b"GET /a http/1.1"))
reject("version of another protocol", with_line(b"GET /a HTTPS/1.1"))
serve("version RTSP", with_line(b"GET /a RTSP/1.1"), differs=RTSP)
reject("version space after", with_line(b"GET /a HTTP/1.1 "))
reject("version space inside", with_line(b"GET /a HTTP/ 1.1"))
serve("two spaces after the method", with_line(b"GET  /a HTTP/1.1"), differs=LOOSE_SPACES)
serve("two spaces before the version", with_line(b"GET /a  HTTP/1.1"), differs=LOOSE_SPACES)
serve("CR before", b"\r" + head(), differs=EMPTY_LINES)
serve("LF before", b"\n" + head(), differs=EMPTY_LINES)
serve("empty line before", b"\r\n" + head(), differs=EMPTY_LINES)
serve("empty lines before", b"\r\n\r\n" + head(), differs=EMPTY_LINES)

# Others
reject("TLS handshake", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50))
reject("zeros", bytes(1000))
reject("expectation unknown", post(b"Expect: cow", b"Content-Length: 5", body=b"hello"), status=417)
serve("data after close", head(b"Connection: close") + INNER, is_whole=False)
serve(
    "upgrade with a length", post(b"Connection: upgrade", b"Upgrade: h2c", INNER_LENGTH, body=INNER)
)
serve(
    "upgrade chunked",
    post(b"Connection: upgrade", b"Upgrade: h2c", CHUNKED, body=b"5\r\nhello\r\n0\r\n\r\n"),
)
