"""Malformed and unusual byte streams, and the status codes that RFC 9112 and RFC 9110 require."""

from __future__ import annotations

from dataclasses import dataclass

from tests.kit.standalone import MAX_BODY_BYTES

CHUNKED = b"Transfer-Encoding: chunked"
INNER = b"GET /inner HTTP/1.1\r\nHost: x\r\n\r\n"
INNER_LENGTH = b"Content-Length: %d" % len(INNER)


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


def head(*fields: bytes, start: bytes = b"GET /a HTTP/1.1") -> bytes:
    return b"\r\n".join([start, b"Host: x", *fields, b"", b""])


def post(*fields: bytes, body: bytes = b"") -> bytes:
    return head(*fields, start=b"POST /a HTTP/1.1") + body


def sized(length: bytes, body: bytes = b"hello") -> bytes:
    return post(b"Content-Length: " + length, body=body)


def coded(coding: bytes, body: bytes = b"5\r\nhello\r\n0\r\n\r\n") -> bytes:
    return post(b"Transfer-Encoding: " + coding, body=body)


def line(start: bytes) -> bytes:
    return head(start=start)


def chunk(header: bytes, data: bytes = b"hello\r\n") -> bytes:
    return post(CHUNKED, body=header + b"\r\n" + data + b"0\r\n\r\n")


def trailer(*fields: bytes) -> bytes:
    return post(
        CHUNKED, body=b"5\r\nhello\r\n0\r\n" + b"".join(each + b"\r\n" for each in fields) + b"\r\n"
    )


LOOSE_SPACES = "RFC 9112, 3 lets a server accept more spaces between the words of a request line"
EMPTY_LINES = "RFC 9112, 2.2: a server ignores an empty line before a request. llhttp takes CR and LF as one too, h11 none"
RTSP = "llhttp reads the version RTSP/1.x as HTTP/1.x, and does not report it. The framing is that of HTTP"

STREAMS = [
    # Content-Length and Transfer-Encoding
    Stream("CL.TE", post(b"Content-Length: 6", CHUNKED, body=b"0\r\n\r\nG"), (400,)),
    Stream(
        "TE.CL", post(CHUNKED, b"Content-Length: 4", body=b"5c\r\n" + INNER + b"0\r\n\r\n"), (400,)
    ),
    Stream(
        "CL.TE with length 0",
        post(b"Content-Length: 0", CHUNKED, body=b"0\r\n\r\n" + INNER),
        (400,),
    ),
    Stream(
        "CL and TE identity",
        post(b"Content-Length: 5", b"Transfer-Encoding: identity", body=b"hello"),
        (400,),
    ),
    Stream(
        "TE.CL upgrade",
        post(b"Connection: upgrade", b"Upgrade: h2c", CHUNKED, b"Content-Length: 5"),
        (400,),
    ),
    Stream(
        "TE after a name with an underscore",
        post(b"Transfer_Encoding: chunked", b"Content-Length: 0"),
        (200,),
    ),
    Stream(
        "CL with an underscore", post(b"Content_Length: %d" % len(INNER), body=INNER), (200, 200)
    ),
    # Transfer-Encoding. For an unknown coding, RFC 9112 has two rules: 501 (6.1), and 400 if it is the last (6.3).
    Stream("TE.TE", post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"), (400,)),
    Stream(
        "TE.TE with an unknown coding",
        post(CHUNKED, b"Transfer-Encoding: cow", body=b"0\r\n\r\n"),
        (400,),
    ),
    Stream(
        "TE.TE unknown first", post(b"Transfer-Encoding: cow", CHUNKED, body=b"0\r\n\r\n"), (501,)
    ),
    Stream("TE identity", coded(b"identity"), (400,)),
    Stream("TE unknown", coded(b"cow"), (501,)),
    Stream("TE xchunked", coded(b"xchunked"), (501,)),
    Stream("TE chunkedx", coded(b"chunkedx"), (501,)),
    Stream("TE gzip, chunked", coded(b"gzip, chunked"), (501,)),
    Stream("TE chunked, gzip", coded(b"chunked, gzip"), (400,)),
    Stream("TE chunked, chunked", coded(b"chunked, chunked"), (400,)),
    Stream("TE chunked, identity", coded(b"chunked, identity"), (400,)),
    Stream("TE empty", coded(b""), (400,)),
    Stream("TE comma before", coded(b",chunked"), (501,)),
    Stream("TE comma after", coded(b"chunked,"), (400,)),
    Stream("TE quoted", coded(b'"chunked"'), (501,)),
    Stream("TE with a parameter", coded(b"chunked;a=b"), (501,)),
    Stream("TE vertical tab", coded(b"\x0bchunked"), (400,)),
    Stream("TE no-break space", coded(b"\xa0chunked"), (501,)),
    Stream("TE no-break space after", coded(b"chunked\xa0"), (501,)),
    Stream("TE next line", coded(b"\x85chunked"), (501,)),
    Stream("TE NUL", coded(b"chunked\0"), (400,)),
    Stream("TE folded", coded(b"\r\n chunked"), (400,)),
    Stream(
        "TE space before the colon", post(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"), (400,)
    ),
    Stream(
        "TE tab before the colon", post(b"Transfer-Encoding\t: chunked", body=b"0\r\n\r\n"), (400,)
    ),
    Stream(
        "TE space before the name", post(b" Transfer-Encoding: chunked", body=b"0\r\n\r\n"), (400,)
    ),
    Stream("TE after CR", post(b"A: b\rTransfer-Encoding: chunked", body=b"0\r\n\r\n"), (400,)),
    Stream("TE after LF", post(b"A: b\nTransfer-Encoding: chunked", body=b"0\r\n\r\n"), (400,)),
    Stream("TE in HTTP/1.0", head(CHUNKED, start=b"POST /a HTTP/1.0") + b"0\r\n\r\n", (400,)),
    Stream("TE in capitals", coded(b"CHUNKED"), (200,)),
    Stream("TE tab before", coded(b"\tchunked"), (200,)),
    Stream("TE tab after", coded(b"chunked\t"), (400,)),  # RFC 9110 allows it, llhttp does not
    # Content-Length
    Stream(
        "CL repeated and equal",
        post(b"Content-Length: 5", b"Content-Length: 5", body=b"hello"),
        (400,),
    ),
    Stream("CL repeated", post(b"Content-Length: 5", b"Content-Length: 6", body=b"hello!"), (400,)),
    Stream("CL list", sized(b"5, 5"), (400,)),
    Stream("CL list without a space", sized(b"5,6"), (400,)),
    Stream("CL plus", sized(b"+5"), (400,)),
    Stream("CL minus", sized(b"-5"), (400,)),
    Stream("CL minus zero", sized(b"-0", b""), (400,)),
    Stream("CL inner space", sized(b"5 5"), (400,)),
    Stream("CL underscore", sized(b"5_0"), (400,)),
    Stream("CL hexadecimal", sized(b"0x5"), (400,)),
    Stream("CL fraction", sized(b"5.0"), (400,)),
    Stream("CL exponent", sized(b"5e0"), (400,)),
    Stream("CL empty", sized(b"", b""), (400,)),
    Stream("CL other digits", sized(b"\xb2"), (400,)),
    Stream("CL NUL", sized(b"5\0"), (400,)),
    Stream("CL vertical tab", sized(b"\x0b5"), (400,)),
    Stream("CL folded", sized(b"\r\n 5"), (400,)),
    Stream("CL overflow", sized(b"18446744073709551621"), (400,)),
    Stream("CL of 2**64 - 1", sized(b"18446744073709551615"), (413,)),
    Stream("CL too large", sized(b"%d" % (MAX_BODY_BYTES + 1)), (413,)),
    Stream("CL space before the colon", post(b"Content-Length : 5", body=b"hello"), (400,)),
    Stream(
        "CL in Connection", post(b"Connection: Content-Length", INNER_LENGTH, body=INNER), (200,)
    ),
    Stream("CL zeros before", sized(b"0005"), (200,)),
    Stream("CL spaces around", sized(b"  5 \t"), (200,)),
    Stream("CL of GET", head(INNER_LENGTH) + INNER, (200,)),
    Stream("CL larger than the body", sized(b"6"), (400,), is_whole=False),
    Stream("CL smaller than the body", sized(b"4", b"hell\0"), (200, 400)),
    # Chunks
    Stream("chunk size empty", chunk(b""), (400,)),
    Stream("chunk size plus", chunk(b"+5"), (400,)),
    Stream("chunk size minus", chunk(b"-5"), (400,)),
    Stream("chunk size 0x5", chunk(b"0x5"), (400,)),
    Stream("chunk size underscore", chunk(b"0_5"), (400,)),
    Stream("chunk size space before", chunk(b" 5"), (400,)),
    Stream("chunk size space after", chunk(b"5 "), (400,)),
    Stream("chunk size tab after", chunk(b"5\t"), (400,)),
    Stream("chunk size no digit", chunk(b"g"), (400,)),
    Stream("chunk size NUL", chunk(b"5\0"), (400,)),
    Stream("chunk size overflow", chunk(b"10000000000000005"), (400,)),
    Stream("chunk size of 2**64 - 1", chunk(b"ffffffffffffffff"), (400,), is_whole=False),
    Stream("chunk size more than the limit", chunk(b"7fffffff"), (400,), is_whole=False),
    Stream("chunk size zeros before", chunk(b"0" * 15 + b"5"), (200,)),
    Stream("chunk size ends with LF", post(CHUNKED, body=b"5\nhello\r\n0\r\n\r\n"), (400,)),
    Stream("chunk size ends with CR", post(CHUNKED, body=b"5\rhello\r\n0\r\n\r\n"), (400,)),
    Stream("chunk ends with LF", chunk(b"5", b"hello\n"), (400,)),
    Stream("chunk ends with CR", chunk(b"5", b"hello\r"), (400,)),
    Stream("chunk without an end", chunk(b"5", b"hello"), (400,)),
    Stream("chunk too long", chunk(b"5", b"hello!\r\n"), (400,)),
    Stream("chunk too short", chunk(b"6"), (400,)),
    Stream("chunk extension with LF", chunk(b"5;a\nb"), (400,)),
    Stream("chunk extension with CR", chunk(b"5;a\rb"), (400,)),
    Stream("chunk extension with NUL", chunk(b"5;a\0"), (400,)),
    Stream("chunk extension without a name", chunk(b"5;"), (400,)),
    Stream("chunk extension with an open quote", chunk(b'5;a="b'), (400,)),
    Stream("chunk extension too long", chunk(b"5;a=" + b"b" * 2**17), (400,)),
    Stream("chunk extension", chunk(b'5;a=b;c="d e"'), (200,)),
    Stream("chunk last ends with LF", post(CHUNKED, body=b"0\n\n"), (400,)),
    Stream("chunk last followed by a request", post(CHUNKED, body=b"0\r\n" + INNER), (400,)),
    Stream("chunks that never end", post(CHUNKED, body=b"5\r\nhello\r\n"), (400,), is_whole=False),
    Stream("chunks too large", chunk(b"100001", b"a" * (MAX_BODY_BYTES + 1) + b"\r\n"), (413,)),
    # Trailers
    Stream("trailer Content-Length", trailer(INNER_LENGTH) + INNER, (400,)),
    Stream("trailer Transfer-Encoding", trailer(b"Transfer-Encoding: chunked") + INNER, (400,)),
    Stream("trailer Host", trailer(b"Host: y"), (200,)),
    Stream("trailer Connection", trailer(b"Connection: close"), (200,), is_whole=False),
    Stream("trailer Upgrade", trailer(b"Connection: upgrade", b"Upgrade: h2c") + INNER, (200, 200)),
    Stream("trailer Expect", trailer(b"Expect: 100-continue"), (200,)),
    Stream("trailer SCRIPT_NAME", trailer(b"SCRIPT_NAME: /b", b"PATH_INFO: /c"), (200,)),
    Stream("trailer folded", trailer(b"A: b", b" c"), (400,)),
    Stream("trailer space before the colon", trailer(b"A : b"), (400,)),
    Stream("trailer ends with LF", post(CHUNKED, body=b"0\r\nA: b\n\r\n"), (400,)),
    Stream("trailer too long", trailer(*[b"A: " + b"b" * 5000] * 30), (400,)),
    # Header fields
    Stream("field folded", head(b"A: b", b" c"), (400,)),
    Stream("field folded with a tab", head(b"A: b", b"\tc"), (400,)),
    Stream("field folded first", b"GET /a HTTP/1.1\r\n Host: x\r\n\r\n", (400,)),
    Stream("field with CR", head(b"A: b\rc"), (400,)),
    Stream("field with CR at the end", head(b"A: b\r"), (400,)),
    Stream("field with LF", head(b"A: b\nC: d"), (400,)),
    Stream("field with NUL", head(b"A: b\0c"), (400,)),
    Stream("field with DEL", head(b"A: b\x7f"), (400,)),
    Stream("field without a colon", head(b"A"), (400,)),
    Stream("field without a name", head(b": b"), (400,)),
    Stream("field name with a space", head(b"A B: c"), (400,)),
    Stream("field name with NUL", head(b"A\0: b"), (400,)),
    Stream("field name not ASCII", head(b"\xc3\x84: b"), (400,)),
    Stream("field name with a bracket", head(b"A(: b"), (400,)),
    Stream("fields end with LF", b"GET /a HTTP/1.1\nHost: x\n\n", (400,)),
    Stream("fields end with CR", b"GET /a HTTP/1.1\rHost: x\r\r", (400,)),
    Stream("empty line is LF", b"GET /a HTTP/1.1\r\nHost: x\r\n\n", (400,)),
    Stream("fields too many", head(*[b"A: b"] * 200), (431,)),
    Stream("field too long", head(b"A: " + b"b" * 10_000), (431,)),
    Stream("field name too long", head(b"A" * 10_000 + b": b"), (431,)),
    Stream("fields too long", head(*[b"A: " + b"b" * 8000] * 20), (431,)),
    Stream("field value Latin-1", head(b"A: \x80\xa0\xe9\xff"), (200,)),
    Stream("fields never end", b"GET /a HTTP/1.1\r\nHost: x\r\n", (400,), is_whole=False),
    # Host
    Stream("Host missing", b"GET /a HTTP/1.1\r\n\r\n", (400,)),
    Stream("Host repeated", head(b"Host: x"), (400,)),
    Stream("Host repeated, other", head(b"hOST: y"), (400,)),
    Stream("Host list", b"GET /a HTTP/1.1\r\nHost: x, y\r\n\r\n", (400,)),
    Stream("Host with a space", b"GET /a HTTP/1.1\r\nHost: x y\r\n\r\n", (400,)),
    Stream("Host with user", b"GET /a HTTP/1.1\r\nHost: u@x\r\n\r\n", (400,)),
    Stream("Host with a path", b"GET /a HTTP/1.1\r\nHost: x/y\r\n\r\n", (400,)),
    Stream("Host missing, absolute URI", b"GET http://x/a HTTP/1.1\r\n\r\n", (400,)),
    Stream(
        "Host repeated, absolute URI", head(b"Host: y", start=b"GET http://x/a HTTP/1.1"), (400,)
    ),
    # Request line
    Stream("method unknown", line(b"FOO /a HTTP/1.1"), (400,)),
    Stream("method in lower case", line(b"get /a HTTP/1.1"), (400,)),
    Stream("method CONNECT", line(b"CONNECT x:80 HTTP/1.1") + INNER, (501,)),
    Stream("method not a token", line(b"G(T /a HTTP/1.1"), (400,)),
    Stream("method with NUL", line(b"GET\0 /a HTTP/1.1"), (400,)),
    Stream("method empty", line(b" /a HTTP/1.1"), (400,)),
    Stream("method space before", line(b" GET /a HTTP/1.1"), (400,)),
    Stream("method tab after", line(b"GET\t/a HTTP/1.1"), (400,)),
    Stream("target missing", line(b"GET HTTP/1.1"), (400,)),
    Stream("target with a space", line(b"GET /a b HTTP/1.1"), (400,)),
    Stream("target with a tab", line(b"GET /a\tb HTTP/1.1"), (400,)),
    Stream("target with NUL", line(b"GET /a\0 HTTP/1.1"), (400,)),
    Stream("target with CR", line(b"GET /a\r HTTP/1.1"), (400,)),
    Stream("target with DEL", line(b"GET /\x7f HTTP/1.1"), (400,)),
    Stream("target not ASCII", line(b"GET /\xe9 HTTP/1.1"), (400,)),
    Stream("target relative", line(b"GET a HTTP/1.1"), (400,)),
    Stream("target with a fragment", line(b"GET /a#b HTTP/1.1"), (400,)),
    Stream("target asterisk", line(b"GET * HTTP/1.1"), (400,)),
    Stream("target of another scheme", line(b"GET ftp://x/a HTTP/1.1"), (400,)),
    Stream("target without authority", line(b"GET http:///a HTTP/1.1"), (400,)),
    Stream("target with user", line(b"GET http://u@x/a HTTP/1.1"), (400,)),
    Stream("target too long", line(b"GET /" + b"a" * 5000 + b" HTTP/1.1"), (414,)),
    Stream("target with CRLF, encoded", line(b"GET /a%0d%0aB:%20c HTTP/1.1"), (200,)),
    Stream("version missing", b"GET /a\r\n\r\n", (505,)),
    Stream("version 0.9", line(b"GET /a HTTP/0.9"), (505,)),
    Stream("version 2.0", line(b"GET /a HTTP/2.0"), (505,)),
    Stream("version 3.1", line(b"GET /a HTTP/3.1"), (505,)),
    Stream("version of HTTP/2's preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400,)),
    Stream("version without a point", line(b"GET /a HTTP/1"), (400,)),
    Stream("version of three digits", line(b"GET /a HTTP/1.10"), (400,)),
    Stream("version in lower case", line(b"GET /a http/1.1"), (400,)),
    Stream("version of another protocol", line(b"GET /a HTTPS/1.1"), (400,)),
    Stream("version RTSP", line(b"GET /a RTSP/1.1"), (200,), differs=RTSP),
    Stream("version space after", line(b"GET /a HTTP/1.1 "), (400,)),
    Stream("version space inside", line(b"GET /a HTTP/ 1.1"), (400,)),
    Stream("two spaces after the method", line(b"GET  /a HTTP/1.1"), (200,), differs=LOOSE_SPACES),
    Stream(
        "two spaces before the version", line(b"GET /a  HTTP/1.1"), (200,), differs=LOOSE_SPACES
    ),
    Stream("CR before", b"\r" + head(), (200,), differs=EMPTY_LINES),
    Stream("LF before", b"\n" + head(), (200,), differs=EMPTY_LINES),
    Stream("empty line before", b"\r\n" + head(), (200,), differs=EMPTY_LINES),
    Stream("empty lines before", b"\r\n\r\n" + head(), (200,), differs=EMPTY_LINES),
    # Others
    Stream("TLS handshake", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50), (400,)),
    Stream("zeros", bytes(1000), (400,)),
    Stream(
        "expectation unknown", post(b"Expect: cow", b"Content-Length: 5", body=b"hello"), (417,)
    ),
    Stream("data after close", head(b"Connection: close") + INNER, (200,), is_whole=False),
    Stream(
        "upgrade with a length",
        post(b"Connection: upgrade", b"Upgrade: h2c", INNER_LENGTH, body=INNER),
        (200,),
    ),
    Stream(
        "upgrade chunked",
        post(b"Connection: upgrade", b"Upgrade: h2c", CHUNKED, body=b"5\r\nhello\r\n0\r\n\r\n"),
        (200,),
    ),
]
