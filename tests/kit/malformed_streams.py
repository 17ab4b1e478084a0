"""Malformed and unusual byte streams, and the status codes that RFC 9112 and RFC 9110 require.

STREAMS is the table of all. Its entries are calls of add(): a name, the bytes, and the status codes
of all responses to them. In the names, CL is Content-Length, and TE is Transfer-Encoding.
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
    """Add a stream to STREAMS."""
    stream = Stream(name, data, statuses, is_whole=is_whole, differs=differs)
    STREAMS.append(stream)


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
add("CL.TE", post(b"Content-Length: 6", CHUNKED, body=b"0\r\n\r\nG"), 400)
add("TE.CL", post(CHUNKED, b"Content-Length: 4", body=b"5c\r\n" + INNER + b"0\r\n\r\n"), 400)
add("CL.TE with length 0", post(b"Content-Length: 0", CHUNKED, body=b"0\r\n\r\n" + INNER), 400)
add(
    "CL and TE identity",
    post(b"Content-Length: 5", b"Transfer-Encoding: identity", body=b"hello"),
    400,
)
add(
    "TE.CL upgrade",
    post(b"Connection: upgrade", b"Upgrade: h2c", CHUNKED, b"Content-Length: 5"),
    400,
)
add(
    "TE after a name with an underscore",
    post(b"Transfer_Encoding: chunked", b"Content-Length: 0"),
    200,
)
add("CL with an underscore", post(b"Content_Length: %d" % len(INNER), body=INNER), 200, 200)

# Transfer-Encoding. For an unknown coding, RFC 9112 has two rules: 501 (6.1), and 400 if it is the
# last one (6.3).
add("TE.TE", post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"), 400)
add(
    "TE.TE with an unknown coding", post(CHUNKED, b"Transfer-Encoding: cow", body=b"0\r\n\r\n"), 400
)
add("TE.TE unknown first", post(b"Transfer-Encoding: cow", CHUNKED, body=b"0\r\n\r\n"), 501)
add("TE identity", with_coding(b"identity"), 400)
add("TE unknown", with_coding(b"cow"), 501)
add("TE xchunked", with_coding(b"xchunked"), 501)
add("TE chunkedx", with_coding(b"chunkedx"), 501)
add("TE gzip, chunked", with_coding(b"gzip, chunked"), 501)
add("TE chunked, gzip", with_coding(b"chunked, gzip"), 400)
add("TE chunked, chunked", with_coding(b"chunked, chunked"), 400)
add("TE chunked, identity", with_coding(b"chunked, identity"), 400)
add("TE empty", with_coding(b""), 400)
add("TE comma before", with_coding(b",chunked"), 501)
add("TE comma after", with_coding(b"chunked,"), 400)
add("TE quoted", with_coding(b'"chunked"'), 501)
add("TE with a parameter", with_coding(b"chunked;a=b"), 501)
add("TE vertical tab", with_coding(b"\x0bchunked"), 400)
add("TE no-break space", with_coding(b"\xa0chunked"), 501)
add("TE no-break space after", with_coding(b"chunked\xa0"), 501)
add("TE next line", with_coding(b"\x85chunked"), 501)
add("TE NUL", with_coding(b"chunked\0"), 400)
add("TE folded", with_coding(b"\r\n chunked"), 400)
add("TE space before the colon", post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"), 400)
add("TE tab before the colon", post(b"Transfer-Encoding\t: chunked", body=b"0\r\n\r\n"), 400)
add("TE space before the name", post(b" Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400)
add("TE after CR", post(b"A: b\rTransfer-Encoding: chunked", body=b"0\r\n\r\n"), 400)
add("TE after LF", post(b"A: b\nTransfer-Encoding: chunked", body=b"0\r\n\r\n"), 400)
add("TE in HTTP/1.0", head(CHUNKED, start=b"POST /a HTTP/1.0") + b"0\r\n\r\n", 400)
add("TE in capitals", with_coding(b"CHUNKED"), 200)
add("TE tab before", with_coding(b"\tchunked"), 200)
# RFC 9110 allows it, llhttp does not.
add("TE tab after", with_coding(b"chunked\t"), 400)

# Content-Length
add("CL repeated and equal", post(b"Content-Length: 5", b"Content-Length: 5", body=b"hello"), 400)
add("CL repeated", post(b"Content-Length: 5", b"Content-Length: 6", body=b"hello!"), 400)
add("CL list", with_length(b"5, 5"), 400)
add("CL list without a space", with_length(b"5,6"), 400)
add("CL plus", with_length(b"+5"), 400)
add("CL minus", with_length(b"-5"), 400)
add("CL minus zero", with_length(b"-0", b""), 400)
add("CL inner space", with_length(b"5 5"), 400)
add("CL underscore", with_length(b"5_0"), 400)
add("CL hexadecimal", with_length(b"0x5"), 400)
add("CL fraction", with_length(b"5.0"), 400)
add("CL exponent", with_length(b"5e0"), 400)
add("CL empty", with_length(b"", b""), 400)
add("CL other digits", with_length(b"\xb2"), 400)
add("CL NUL", with_length(b"5\0"), 400)
add("CL vertical tab", with_length(b"\x0b5"), 400)
add("CL folded", with_length(b"\r\n 5"), 400)
add("CL overflow", with_length(b"18446744073709551621"), 400)
add("CL of 2**64 - 1", with_length(b"18446744073709551615"), 413)
add("CL too large", with_length(b"%d" % (MAX_BODY_BYTES + 1)), 413)
add("CL space before the colon", post(b"Content-Length : 5", body=b"hello"), 400)
add("CL in Connection", post(b"Connection: Content-Length", INNER_LENGTH, body=INNER), 200)
add("CL zeros before", with_length(b"0005"), 200)
add("CL spaces around", with_length(b"  5 \t"), 200)
add("CL of GET", head(INNER_LENGTH) + INNER, 200)
add("CL larger than the body", with_length(b"6"), 400, is_whole=False)
add("CL smaller than the body", with_length(b"4", b"hell\0"), 200, 400)

# Chunks
add("chunk size empty", with_chunk(b""), 400)
add("chunk size plus", with_chunk(b"+5"), 400)
add("chunk size minus", with_chunk(b"-5"), 400)
add("chunk size 0x5", with_chunk(b"0x5"), 400)
add("chunk size underscore", with_chunk(b"0_5"), 400)
add("chunk size space before", with_chunk(b" 5"), 400)
add("chunk size space after", with_chunk(b"5 "), 400)
add("chunk size tab after", with_chunk(b"5\t"), 400)
add("chunk size no digit", with_chunk(b"g"), 400)
add("chunk size NUL", with_chunk(b"5\0"), 400)
add("chunk size overflow", with_chunk(b"10000000000000005"), 400)
add("chunk size of 2**64 - 1", with_chunk(b"ffffffffffffffff"), 400, is_whole=False)
add("chunk size more than the limit", with_chunk(b"7fffffff"), 400, is_whole=False)
add("chunk size zeros before", with_chunk(b"0" * 15 + b"5"), 200)
add("chunk size ends with LF", post(CHUNKED, body=b"5\nhello\r\n0\r\n\r\n"), 400)
add("chunk size ends with CR", post(CHUNKED, body=b"5\rhello\r\n0\r\n\r\n"), 400)
add("chunk ends with LF", with_chunk(b"5", b"hello\n"), 400)
add("chunk ends with CR", with_chunk(b"5", b"hello\r"), 400)
add("chunk without an end", with_chunk(b"5", b"hello"), 400)
add("chunk too long", with_chunk(b"5", b"hello!\r\n"), 400)
add("chunk too short", with_chunk(b"6"), 400)
add("chunk extension with LF", with_chunk(b"5;a\nb"), 400)
add("chunk extension with CR", with_chunk(b"5;a\rb"), 400)
add("chunk extension with NUL", with_chunk(b"5;a\0"), 400)
add("chunk extension without a name", with_chunk(b"5;"), 400)
add("chunk extension with an open quote", with_chunk(b'5;a="b'), 400)
add("chunk extension too long", with_chunk(b"5;a=" + b"b" * 2**17), 400)
add("chunk extension", with_chunk(b'5;a=b;c="d e"'), 200)
add("chunk last ends with LF", post(CHUNKED, body=b"0\n\n"), 400)
add("chunk last followed by a request", post(CHUNKED, body=b"0\r\n" + INNER), 400)
add("chunks that never end", post(CHUNKED, body=b"5\r\nhello\r\n"), 400, is_whole=False)
add("chunks too large", with_chunk(b"100001", b"a" * (MAX_BODY_BYTES + 1) + b"\r\n"), 413)

# Trailers
add("trailer Content-Length", with_trailer(INNER_LENGTH) + INNER, 400)
add("trailer Transfer-Encoding", with_trailer(b"Transfer-Encoding: chunked") + INNER, 400)
add("trailer Host", with_trailer(b"Host: y"), 200)
add("trailer Connection", with_trailer(b"Connection: close"), 200, is_whole=False)
add("trailer Upgrade", with_trailer(b"Connection: upgrade", b"Upgrade: h2c") + INNER, 200, 200)
add("trailer Expect", with_trailer(b"Expect: 100-continue"), 200)
add("trailer SCRIPT_NAME", with_trailer(b"SCRIPT_NAME: /b", b"PATH_INFO: /c"), 200)
add("trailer folded", with_trailer(b"A: b", b" c"), 400)
add("trailer space before the colon", with_trailer(b"A : b"), 400)
add("trailer ends with LF", post(CHUNKED, body=b"0\r\nA: b\n\r\n"), 400)
add("trailer too long", with_trailer(*[b"A: " + b"b" * 5000] * 30), 400)

# Header fields
add("field folded", head(b"A: b", b" c"), 400)
add("field folded with a tab", head(b"A: b", b"\tc"), 400)
add("field folded first", b"GET /a HTTP/1.1\r\n Host: x\r\n\r\n", 400)
add("field with CR", head(b"A: b\rc"), 400)
add("field with CR at the end", head(b"A: b\r"), 400)
add("field with LF", head(b"A: b\nC: d"), 400)
add("field with NUL", head(b"A: b\0c"), 400)
add("field with DEL", head(b"A: b\x7f"), 400)
add("field without a colon", head(b"A"), 400)
add("field without a name", head(b": b"), 400)
add("field name with a space", head(b"A B: c"), 400)
add("field name with NUL", head(b"A\0: b"), 400)
add("field name not ASCII", head(b"\xc3\x84: b"), 400)
add("field name with a bracket", head(b"A(: b"), 400)
add("fields end with LF", b"GET /a HTTP/1.1\nHost: x\n\n", 400)
add("fields end with CR", b"GET /a HTTP/1.1\rHost: x\r\r", 400)
add("empty line is LF", b"GET /a HTTP/1.1\r\nHost: x\r\n\n", 400)
add("fields too many", head(*[b"A: b"] * 200), 431)
add("field too long", head(b"A: " + b"b" * 10_000), 431)
add("field name too long", head(b"A" * 10_000 + b": b"), 431)
add("fields too long", head(*[b"A: " + b"b" * 8000] * 20), 431)
add("field value Latin-1", head(b"A: \x80\xa0\xe9\xff"), 200)
add("fields never end", b"GET /a HTTP/1.1\r\nHost: x\r\n", 400, is_whole=False)

# Host
add("Host missing", b"GET /a HTTP/1.1\r\n\r\n", 400)
add("Host repeated", head(b"Host: x"), 400)
add("Host repeated, other", head(b"hOST: y"), 400)
add("Host list", b"GET /a HTTP/1.1\r\nHost: x, y\r\n\r\n", 400)
add("Host with a space", b"GET /a HTTP/1.1\r\nHost: x y\r\n\r\n", 400)
add("Host with user", b"GET /a HTTP/1.1\r\nHost: u@x\r\n\r\n", 400)
add("Host with a path", b"GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n", 400)
add("Host missing, absolute URI", b"GET http://x/a HTTP/1.1\r\n\r\n", 400)
add("Host repeated, absolute URI", head(b"Host: y", start=b"GET http://x/a HTTP/1.1"), 400)

# Request line
add("method unknown", with_line(b"FOO /a HTTP/1.1"), 400)
add("method in lower case", with_line(b"get /a HTTP/1.1"), 400)
add("method CONNECT", with_line(b"CONNECT x:80 HTTP/1.1") + INNER, 501)
add("method not a token", with_line(b"G(T /a HTTP/1.1"), 400)
add("method with NUL", with_line(b"GET\0 /a HTTP/1.1"), 400)
add("method empty", with_line(b" /a HTTP/1.1"), 400)
add("method space before", with_line(b" GET /a HTTP/1.1"), 400)
add("method tab after", with_line(b"GET\t/a HTTP/1.1"), 400)
add("target missing", with_line(b"GET HTTP/1.1"), 400)
add("target with a space", with_line(b"GET /a b HTTP/1.1"), 400)
add("target with a tab", with_line(b"GET /a\tb HTTP/1.1"), 400)
add("target with NUL", with_line(b"GET /a\0 HTTP/1.1"), 400)
add("target with CR", with_line(b"GET /a\r HTTP/1.1"), 400)
add("target with DEL", with_line(b"GET /\x7f HTTP/1.1"), 400)
add("target not ASCII", with_line(b"GET /\xe9 HTTP/1.1"), 400)
add("target relative", with_line(b"GET a HTTP/1.1"), 400)
add("target with a fragment", with_line(b"GET /a#b HTTP/1.1"), 400)
add("target asterisk", with_line(b"GET * HTTP/1.1"), 400)
add("target of another scheme", with_line(b"GET ftp://x/a HTTP/1.1"), 400)
add("target without authority", with_line(b"GET http:///a HTTP/1.1"), 400)
add("target with user", with_line(b"GET http://u@x/a HTTP/1.1"), 400)
add("target too long", with_line(b"GET /" + b"a" * 5000 + b" HTTP/1.1"), 414)
add("target with CRLF, encoded", with_line(b"GET /a%0d%0aB:%20c HTTP/1.1"), 200)
add("version missing", b"GET /a\r\n\r\n", 505)
add("version 0.9", with_line(b"GET /a HTTP/0.9"), 505)
add("version 2.0", with_line(b"GET /a HTTP/2.0"), 505)
add("version 3.1", with_line(b"GET /a HTTP/3.1"), 505)
add("version of HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400)
add("version without a point", with_line(b"GET /a HTTP/1"), 400)
add("version of three digits", with_line(b"GET /a HTTP/1.10"), 400)
add("version in lower case", with_line(b"GET /a http/1.1"), 400)
add("version of another protocol", with_line(b"GET /a HTTPS/1.1"), 400)
add("version RTSP", with_line(b"GET /a RTSP/1.1"), 200, differs=RTSP)
add("version space after", with_line(b"GET /a HTTP/1.1 "), 400)
add("version space inside", with_line(b"GET /a HTTP/ 1.1"), 400)
add("two spaces after the method", with_line(b"GET  /a HTTP/1.1"), 200, differs=LOOSE_SPACES)
add("two spaces before the version", with_line(b"GET /a  HTTP/1.1"), 200, differs=LOOSE_SPACES)
add("CR before", b"\r" + head(), 200, differs=EMPTY_LINES)
add("LF before", b"\n" + head(), 200, differs=EMPTY_LINES)
add("empty line before", b"\r\n" + head(), 200, differs=EMPTY_LINES)
add("empty lines before", b"\r\n\r\n" + head(), 200, differs=EMPTY_LINES)

# Others
add("TLS handshake", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), 400)
add("zeros", bytes(1000), 400)
add("expectation unknown", post(b"Expect: cow", b"Content-Length: 5", body=b"hello"), 417)
add("data after close", head(b"Connection: close") + INNER, 200, is_whole=False)
add(
    "upgrade with a length",
    post(b"Connection: upgrade", b"Upgrade: h2c", INNER_LENGTH, body=INNER),
    200,
)
add(
    "upgrade chunked",
    post(b"Connection: upgrade", b"Upgrade: h2c", CHUNKED, body=b"5\r\nhello\r\n0\r\n\r\n"),
    200,
)
