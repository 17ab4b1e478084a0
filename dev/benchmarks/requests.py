"""Clients that send one request of a case."""

from __future__ import annotations

import http.client
import ssl
from http import HTTPStatus

import grpc

from dev.benchmarks.cases import Case, tracing_headers
from tests.kit.processes import Running

TIMEOUT_SECONDS = 300  # torch.compile() can take minutes
REJECTIONS = {
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
}
Answer = tuple[bytes, dict[str, str]]


def send_request(case: Case, server: Running) -> Answer:
    """Return the body and headers of the response. Raise RequestFailed for an error."""
    if case.transport == "http":
        return send_http_request(case, server.http_address)
    return send_grpc_request(case, server.grpc_address)


class RequestFailed(Exception):
    """The response is an error."""


class Unsupported(RequestFailed):
    """The server rejects the request, so it does not support the case."""


def send_http_request(case: Case, address: str) -> Answer:
    connection = connect(address, case.is_secure)
    headers = case.headers
    if case.has_tracing_headers:
        headers = headers | tracing_headers()
    connection.request("POST", case.path, case.body, headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    if response.status != 200:
        is_rejection = 400 <= response.status < 500 or response.status == HTTPStatus.NOT_IMPLEMENTED
        error_class = Unsupported if is_rejection else RequestFailed
        raise error_class(f"{response.status} {body[:200]!r}")
    return body, {name.title(): value for name, value in response.getheaders()}


def connect(address: str, is_secure: bool) -> http.client.HTTPConnection:
    if not is_secure:
        return http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The CA of the certificate exists for one run.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(address, timeout=TIMEOUT_SECONDS, context=context)


def send_grpc_request(case: Case, address: str) -> Answer:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(address, options) as channel:
        try:
            return channel.unary_unary(case.path)(case.body, timeout=TIMEOUT_SECONDS), {}
        except grpc.RpcError as error:
            error_class = Unsupported if error.code() in REJECTIONS else RequestFailed
            raise error_class(f"{error.code()} {error.details()}") from None
