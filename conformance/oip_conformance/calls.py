"""Text representation of gRPC calls, for reports of failed cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from oip_conformance import messages
from oip_conformance.client import LastExchange
from oip_conformance.texts import MAX_EXCERPT_BYTES, show_bytes

MAX_PARSED_BYTES = 100_000


class Recorder(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Records the last call of a channel, and the error messages of all blocking calls.

    Calls that return a future end in a thread of grpcio, maybe after the report. Their messages are
    not recorded.
    """

    def __init__(self, last_exchange: LastExchange):
        self.last_exchange = last_exchange

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: Any, request: Any
    ) -> Any:
        text = f"{details.method}\n{request_text(details.method, request)}"
        self.last_exchange.record_request(text.strip())
        call = continuation(details, request)
        is_blocking = call.done()  # a blocking call has ended when grpcio returns it
        if is_blocking:
            self.record_error(call)
        return call

    def record_error(self, call: grpc.Call) -> None:
        """Record the error message of a call that has ended."""
        message = call.details()
        if message and call.code() is not grpc.StatusCode.OK:
            self.last_exchange.record_message(call.code().name, message)

    def intercept_stream_stream(
        self, continuation: Callable[..., Any], details: Any, requests: Any
    ) -> Any:
        self.last_exchange.record_request(details.method)
        return continuation(details, requests)


def request_text(path: str, request: Any) -> str:
    """Return a request as text, or its bytes if it is not a valid message, or too long.

    `path` is "/SERVICE/METHOD". The cases send bytes to the inference service, and messages to
    others.
    """
    if not isinstance(request, bytes):
        return message_text(request)

    service, _, name = path.removeprefix("/").partition("/")
    is_known = service == messages.SERVICE_NAME and name in messages.SERVICE.methods_by_name
    if not is_known or len(request) > MAX_PARSED_BYTES:
        return show_bytes(request)

    method = messages.SERVICE.methods_by_name[name]
    try:
        message = messages.message(method.input_type.name).FromString(request)
    except DecodeError:
        return show_bytes(request)
    return message_text(message)


def message_text(message: Any) -> str:
    """Return the truncated text of a message."""
    text = text_format.MessageToString(message, as_utf8=True)
    if len(text) <= MAX_EXCERPT_BYTES:
        return text
    return f"{text[:MAX_EXCERPT_BYTES]}... ({message.ByteSize()} bytes)"
