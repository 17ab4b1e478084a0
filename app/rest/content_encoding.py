"""Content encodings of requests and responses (R18)."""

import zlib

from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

from app.protocol.errors import InvalidInput, PayloadTooLarge, UnsupportedEncoding

CODINGS = {"gzip": 31, "deflate": 15}  # zlib's window bits, which select the format
MIN_BYTES = 1024  # shorter responses are not compressed
# Bytes per read and per call of a decoder. A decoder copies the input that follows the end of a gzip member.
PIECE = 2**16
MEMBERS = (
    10_000  # maximum number of gzip members in a body (R18). Even an empty one takes microseconds
)


def too_large(limit: int, what: str = "body") -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{what} too large", expected=f"at most {limit} bytes (MAX_REQUEST_BYTES)"
    )


def decompress(body: bytes, coding: str, limit: int) -> bytes:
    """Decompress `body` to at most `limit` bytes. Raise UnsupportedEncoding, InvalidInput or PayloadTooLarge."""
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        raise UnsupportedEncoding(
            subject="Content-Encoding", expected="gzip, deflate or identity", got=coding
        )
    parts: list[bytes] = []
    left, room, members = memoryview(body), limit, 0
    while left or not members:  # a gzip body may have several members
        members += 1
        if members > MEMBERS:
            raise InvalidInput(f"too many {coding} members", expected=f"at most {MEMBERS:,}")
        decoder = zlib.decompressobj(CODINGS[coding])
        while not decoder.eof:
            piece = left[:PIECE]
            try:
                parts.append(decoder.decompress(piece, room + 1))
            except zlib.error as error:
                raise InvalidInput(f"Invalid {coding} body: {error}.") from None
            room -= len(parts[-1])
            if room < 0:
                raise too_large(limit, "decompressed body")
            left = left[len(piece) - len(decoder.unused_data) :]
            if not left and not decoder.eof:
                raise InvalidInput(f"Invalid {coding} body: incomplete.")
    return b"".join(parts)


def compress(body: bytes, headers: dict[str, str], accepted: str) -> tuple[bytes, dict[str, str]]:
    """Compress the body with the coding that Accept-Encoding prefers, if any. Return the body and its headers."""
    coding = (
        parse_accept_header(accepted, Accept).best_match(CODINGS)
        if len(body) >= MIN_BYTES
        else None
    )
    if coding is None:
        return body, headers
    encoded = zlib.compress(body, zlib.Z_BEST_SPEED, CODINGS[coding])
    return encoded, {**headers, "Content-Encoding": coding, "Vary": "Accept-Encoding"}
