"""Content encodings of REST bodies (R18)."""

from __future__ import annotations

import zlib

from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

from app.errors import InvalidInput, TooLarge, UnsupportedCoding

# zlib's window bits by encoding: 31 is a gzip member, 15 a zlib stream.
CODINGS = {"gzip": 31, "deflate": 15}
FASTEST = 1
# Shorter responses are not compressed.
MIN_BYTES = 1024
# A decoder copies the input after the end of a member. It gets a piece, so that it does not copy the whole rest.
PIECE = 2**16
# Limit of the gzip members of a body (R18). Each takes some microseconds, even if it is empty.
MEMBERS = 10_000


def decompress(body: bytes, coding: str, limit: int) -> bytes:
    """Return `body` without its Content-Encoding.

    Raise UnsupportedCoding, InvalidInput if the data is corrupt or truncated, TooLarge if it has more than `limit`
    bytes.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        raise UnsupportedCoding(subject="Content-Encoding", expected="gzip, deflate or identity", got=coding)
    parts: list[bytes] = []
    left, room, members = memoryview(body), limit, 0
    while left or not members:  # a gzip body may have several members
        members += 1
        if members > MEMBERS:
            raise InvalidInput(f"the body has more than {MEMBERS:,} members of {coding}")
        decoder = zlib.decompressobj(CODINGS[coding])
        while not decoder.eof:
            piece = left[:PIECE]
            try:
                parts.append(decoder.decompress(piece, room + 1))
            except zlib.error as error:
                raise InvalidInput(f"the body is not {coding}: {error}") from None
            room -= len(parts[-1])
            if room < 0:
                expected = f"at most {limit} bytes (MAX_REQUEST_BYTES)"
                raise TooLarge("the decompressed body is too large", expected=expected)
            left = left[len(piece) - len(decoder.unused_data) :]
            if not left and not decoder.eof:
                raise InvalidInput(f"the body is not {coding}: it is too short")
    return b"".join(parts)


def compress(body: bytes, accepted: str) -> tuple[bytes, str | None]:
    """Return `body` in the encoding that Accept-Encoding prefers, and its name. If there is none, `body` and None."""
    coding = parse_accept_header(accepted, Accept).best_match(CODINGS) if len(body) >= MIN_BYTES else None
    if coding is None:
        return body, None
    encoder = zlib.compressobj(FASTEST, wbits=CODINGS[coding])
    return encoder.compress(body) + encoder.flush(), coding
