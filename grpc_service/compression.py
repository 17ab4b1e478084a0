"""Decompression of gRPC messages by this service instead of by grpcio.

grpcio decompresses each message to up to MAX_REQUEST_BYTES as soon as it arrives. A client without
an API key could send 60 KiB that become 60 MiB, again and again. The option
`grpc.per_message_decompression` turns this off. Each method then decompresses its message itself,
with its own limit, when it has a thread and memory for it.

grpcio then passes the message on as it is, and does not tell whether it is compressed. Its first
bytes do, because no message of protobuf starts with those of gzip or zlib:

    1f 8b    as a tag of protobuf: a field with wire type 7, which does not exist
    78 ..    a field with number 15, which no message of this service has
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import grpc

from app.protocol.decompression import decompress
from app.protocol.errors import PayloadTooLarge

# Maximum size of a message for methods other than ModelInfer, whose only content is a name.
MAX_SMALL_BYTES = 2**12
_GZIP_START = b"\x1f\x8b"
_ZLIB_START = 0x78
# The first two bytes of zlib, as a number, are a multiple of this (RFC 1950, 2.2).
_ZLIB_CHECK = 31


def ignore(size: int) -> None:
    """Count nothing."""


def decompress_message(
    body: bytes, limit: int, count_bytes: Callable[[int], None] = ignore
) -> bytes:
    """Return a message without compression. See decompress() for its limit and its exceptions."""
    coding = _coding_of(body)
    if not coding:
        return body
    return decompress(body, coding, limit, count_bytes)


def decompress_small(body: bytes) -> bytes:
    """Return a message of a method other than ModelInfer without compression.

    Raise PayloadTooLarge if it has more than MAX_SMALL_BYTES, and InvalidInput if it is malformed.
    """
    if len(body) <= MAX_SMALL_BYTES:
        with suppress(PayloadTooLarge):
            return decompress_message(body, MAX_SMALL_BYTES)
    raise PayloadTooLarge("message too large", expected=f"at most {MAX_SMALL_BYTES} bytes")


def _coding_of(body: bytes) -> str:
    if body.startswith(_GZIP_START):
        return "gzip"
    if body[:1] == bytes([_ZLIB_START]) and int.from_bytes(body[:2], "big") % _ZLIB_CHECK == 0:
        return "deflate"
    return ""


class DecompressingHandler(grpc.GenericRpcHandler):
    """Handler of one of grpcio's own services, whose messages are small, compressed or not.

    A message of more than MAX_SMALL_BYTES fails with INTERNAL, as a malformed one does.
    """

    def __init__(self, inner: grpc.GenericRpcHandler):
        self._inner = inner

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler | None:
        handler = self._inner.service(handler_call_details)
        if handler is None:
            return None
        return replace_deserializer(handler, partial(_deserialize, handler.request_deserializer))


def _deserialize(deserialize: Callable[[bytes], Any], body: bytes) -> Any:
    return deserialize(decompress_small(body))


def replace_deserializer(
    handler: grpc.RpcMethodHandler, deserialize: Callable[[bytes], Any]
) -> grpc.RpcMethodHandler:
    """Return a handler that differs only in the function that makes a request of bytes."""
    serialize = handler.response_serializer
    if handler.request_streaming:
        return grpc.stream_stream_rpc_method_handler(handler.stream_stream, deserialize, serialize)
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(handler.unary_stream, deserialize, serialize)
    return grpc.unary_unary_rpc_method_handler(handler.unary_unary, deserialize, serialize)


class DecompressingServer:
    """Stands for a server while grpcio adds its own services, so that they decompress messages."""

    def __init__(self, server: grpc.Server):
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._server.add_generic_rpc_handlers([DecompressingHandler(inner) for inner in handlers])

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Do nothing. These are the same handlers, for a faster lookup without decompression."""
