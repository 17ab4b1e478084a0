"""Decompression of HTTP bodies (R18) and of gRPC messages."""

import zlib
from collections.abc import Callable

from app.protocol.errors import InvalidInput, PayloadTooLarge, UnsupportedEncoding

# zlib selects the format of an encoding by this number (`wbits`).
WINDOW_BITS = {"gzip": 31, "deflate": 15}

# Bytes per call of a decoder. It copies the bytes of the call that follow the end of a gzip member.
PIECE_SIZE = 2**16
# Maximum number of decompressed bytes per call.
MAX_PART_SIZE = 2**20

# Maximum number of gzip members in a body (R18). Even an empty one takes microseconds.
MAX_MEMBERS = 10_000


def decompress(
    body: bytes, coding: str, limit: int, count_bytes: Callable[[int], None] = lambda size: None
) -> bytes:
    """Decompress `body`, whose Content-Encoding is `coding`, to at most `limit` bytes.

    Pass the memory for each part to `count_bytes`, which can raise an exception. Raise
    UnsupportedEncoding, InvalidInput or PayloadTooLarge.
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
            # One byte more than the limit shows that the body is too large.
            max_size = min(MAX_PART_SIZE, limit - size + 1)
            try:
                part = decoder.decompress(piece, max_size)
            except zlib.error as error:
                raise InvalidInput(f"Invalid {coding} body: {error}.") from None
            count_bytes(2 * len(part))  # join() needs as much again
            parts.append(part)
            size += len(part)
            if size > limit:
                raise too_large(limit, "decompressed body")
            consumed = len(piece) - len(decoder.unused_data) - len(decoder.unconsumed_tail)
            remaining = remaining[consumed:]
            has_more_output = len(part) == max_size
            if not remaining and not decoder.eof and not has_more_output:
                raise InvalidInput(f"Invalid {coding} body: incomplete.")
    return b"".join(parts)


def too_large(limit: int, subject: str = "body") -> PayloadTooLarge:
    return PayloadTooLarge(
        f"{subject} too large", expected=f"at most {limit} bytes (MAX_REQUEST_BYTES)"
    )
