"""Compression of responses (R18)."""

import zlib

from werkzeug.datastructures import Accept
from werkzeug.http import parse_accept_header

from app.protocol.decompression import WINDOW_BITS

# Shorter responses are not compressed.
MIN_COMPRESSED_LENGTH = 1024


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
