"""Text representation of gRPC calls, for reports of failed cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from oip_conformance import messages
from oip_conformance.client import SHOWN_BYTES, LastExchange, shown

PARSED_BYTES_AT_MOST = 100_000


class Recorder(grpc.UnaryUnaryClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Records the last call of a channel, and the error messages of all blocking calls.

    Calls that return a future end in a thread of grpcio, maybe after the report. Their messages are not recorded.
    """

    def __init__(self, last: LastExchange):
        self.last = last

    def intercept_unary_unary(
        self, continuation: Callable[..., Any], details: Any, request: Any
    ) -> Any:
        self.last.response, self.last.request = (
            "",
            f"{details.method}\n{text_of(details.method, request)}".strip(),
        )
        call = continuation(details, request)
        if call.done():
            self.record_error(call)
        return call

    def record_error(self, call: grpc.Call) -> None:
        if call.code() is not grpc.StatusCode.OK and (message := call.details()):
            self.last.record_message(call.code().name, message)

    def intercept_stream_stream(
        self, continuation: Callable[..., Any], details: Any, requests: Any
    ) -> Any:
        self.last.response, self.last.request = "", details.method
        return continuation(details, requests)


def text_of(method: str, request: Any) -> str:
    """Return a message as text, or its bytes if it is invalid or too long."""
    if not isinstance(request, bytes):
        return cut(request)
    service, _, name = method[1:].partition("/")
    known = messages.SERVICE.methods_by_name.get(name) if service == messages.SERVICE_NAME else None
    if known is None or len(request) > PARSED_BYTES_AT_MOST:
        return shown(request)
    try:
        return cut(messages.message(known.input_type.name).FromString(request))
    except DecodeError:
        return shown(request)


def cut(message: Any) -> str:
    text = text_format.MessageToString(message, as_utf8=True)
    return (
        text
        if len(text) <= SHOWN_BYTES
        else f"{text[:SHOWN_BYTES]}... ({message.ByteSize()} bytes)"
    )
