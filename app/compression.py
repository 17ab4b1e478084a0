"""Content codings of REST bodies (R18)."""

from __future__ import annotations

import zlib

from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

from app.errors import InvalidInput, TooLarge, UnsupportedCoding

# zlib's window bits of each coding: 31 is gzip's frame, 15 zlib's
CODINGS = {"gzip": 31, "deflate": 15}
FAST = 1
WORTHWHILE = 1024
# A decoder copies what is behind the end of what it reads: not all that is left of the body, for each member of it.
PIECE = 2**16
# Of what bgzip makes, so many are 650 MB; each takes some microseconds, however little is in it.
MEMBERS = 10_000


def decompress(body: bytes, coding: str, limit: int) -> bytes:
    """`body` without its Content-Encoding, at most `limit` bytes.

    Raises UnsupportedCoding, InvalidInput where the data is corrupt or cut short, TooLarge beyond `limit`.
    """
    coding = coding.strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        raise UnsupportedCoding(subject="Content-Encoding", expected="gzip, deflate or identity", got=coding)
    parts: list[bytes] = []
    left, room, members = memoryview(body), limit, 0
    while left or not members:  # a gzip body may be several, one behind the other
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
                raise TooLarge(
                    "the decompressed body is too large", expected=f"at most {limit} bytes (MAX_REQUEST_BYTES)"
                )
            left = left[len(piece) - len(decoder.unused_data) :]
            if not left and not decoder.eof:
                raise InvalidInput(f"the body is not {coding}: it is too short")
    return b"".join(parts)


def compress(body: bytes, accepted: str) -> tuple[bytes, str | None]:
    """`body` in the coding that the Accept-Encoding likes best, and its name; `body` and None where it is small."""
    if len(body) < WORTHWHILE:
        return body, None
    coding = parse_accept_header(accepted, Accept).best_match(CODINGS)
    if coding is None:
        return body, None
    encoder = zlib.compressobj(FAST, wbits=CODINGS[coding])
    return encoder.compress(body) + encoder.flush(), coding
