"""Content encodings of requests and responses (R18)."""

import zlib

from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

from app.protocol.errors import InvalidInput, PayloadTooLarge, UnsupportedEncoding

# zlib selects the format of an encoding by this number (`wbits`).
WINDOW_BITS = {"gzip": 31, "deflate": 15}

# Bytes per call of a decoder. It copies the bytes of the call that follow the end of a gzip member.
PIECE_SIZE = 2**16

# Maximum number of gzip members in a body (R18). Even an empty one takes microseconds.
MAX_MEMBERS = 10_000

# Shorter responses are not compressed.
MIN_COMPRESSED_LENGTH = 1024


def decompress(body: bytes, coding: str, limit: int) -> bytes:
    """Decompress `body`, whose Content-Encoding is `coding`, to at most `limit` bytes.

    Raise UnsupportedEncoding, InvalidInput or PayloadTooLarge.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in WINDOW_BITS:
        raise UnsupportedEncoding(
            subject="Content-Encoding", expected="gzip, deflate or identity", got=coding
        )

    parts: list[bytes] = []
    size = 0
    remaining = memoryview(body)
    members = 0
    while remaining or members == 0:  # a gzip body may have several members
        members += 1
        if members > MAX_MEMBERS:
            raise InvalidInput(f"too many {coding} members", expected=f"at most {MAX_MEMBERS:,}")
        decoder = zlib.decompressobj(WINDOW_BITS[coding])
        while not decoder.eof:
            piece = remaining[:PIECE_SIZE]
            try:
                # One byte more than the limit shows that the body is too large.
                part = decoder.decompress(piece, limit - size + 1)
            except zlib.error as error:
                raise InvalidInput(f"Invalid {coding} body: {error}.") from None
            parts.append(part)
            size += len(part)
            if size > limit:
                raise too_large(limit, "decompressed body")
            consumed = len(piece) - len(decoder.unused_data)
            remaining = remaining[consumed:]
            if not remaining and not decoder.eof:
                raise InvalidInput(f"Invalid {coding} body: incomplete.")
    return b"".join(parts)


def compress(
    body: bytes, headers: dict[str, str], accept_encoding: str
) -> tuple[bytes, dict[str, str]]:
    """Compress the body of a response with the coding that the client prefers, if any.

    Return the body and the headers of the response.
    """
    if len(body) < MIN_COMPRESSED_LENGTH:
        return body, headers
    coding = parse_accept_header(accept_encoding, Accept).best_match(WINDOW_BITS)
    if coding is None:
        return body, headers
    compressed = zlib.compress(body, zlib.Z_BEST_SPEED, WINDOW_BITS[coding])
    return compressed, {**headers, "Content-Encoding": coding, "Vary": "Accept-Encoding"}


def too_large(limit: int, subject: str = "body") -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{subject} too large", expected=f"at most {limit} bytes (MAX_REQUEST_BYTES)"
    )
