"""Parse log lines of each format, and send requests that are logged."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc

from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from grpc_service.converters import write_request
from tests.kit.processes import Running

ROOT = Path(__file__).parents[2]
FORMATS = ["text", "json"]
INFER = "/inference.GRPCInferenceService/ModelInfer"

# A text line: timestamp, level, logger, request id (if any), message and fields.
LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ([A-Z]+) ([\w.]+)(?: \[(\S+)\])?: (.*)"
)
# A field after the message, such as ` model="test"` or ` size=5`.
FIELD = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|[\d.]+)(?= |$)')


def parse(text: str, log_format: str) -> list[dict[str, Any]]:
    """Return the records of a log in one of FORMATS. Each line must end with a line feed."""
    records: list[dict[str, Any]] = []
    for line in text.split("\n")[:-1]:
        if log_format == "json":
            record = json.loads(line)
            assert line.isprintable(), line
        else:
            record = _parse_text_line(line)

        if record is not None:
            records.append(record)
        else:
            # Indented and empty lines, such as those of a traceback, belong to the last record.
            assert line.startswith("  ") or not line, line
            assert line.isprintable(), line
            records[-1]["stacktrace"] += line + "\n"
    return records


def _parse_text_line(line: str) -> dict[str, Any] | None:
    """Return the record that starts with this line, or None if the line continues a record."""
    match = LINE.fullmatch(line)
    if match is None:
        return None

    timestamp, level, logger, request_id, content = match.groups()
    message, *_ = FIELD.split(content)
    record = {
        "timestamp": timestamp,
        "level": level,
        "logger": logger,
        "message": message,
        "stacktrace": "",
    }
    for name, value in FIELD.findall(content):
        record[name] = json.loads(value)
    if request_id:
        record["request_id"] = request_id
    return record


class Result(NamedTuple):
    """What a client knows about a request, and the log must contain.

    status: the HTTP status, or the name of the gRPC status
    sizes: the bytes of the request's body and of the response's
    """

    status: str
    request_id: str | None
    sizes: tuple[int, int]


class Client:
    """A client that sends requests over REST or gRPC. Keyword arguments are headers."""

    def __init__(self, service: Running, channel: grpc.Channel):
        self.service = service
        self.channel = channel

    def infer(self, protocol: str, value: str = "a", name: str = "test", **headers: str) -> Result:
        """Send the BYTES element `value` to the model `name`."""
        tensor = RequestInput("x", "BYTES", [1], [value])
        request = InferenceRequest([tensor], name)
        if protocol == "grpc":
            return self.call(INFER, write_request(request), **headers)

        path = f"/v2/models/{quote(name, safe='')}/infer"
        return self.post(path, request.to_json(), **headers)

    def post(self, path: str, body: bytes | None, method: str = "POST", **headers: str) -> Result:
        """Send a REST request."""
        fields = dict(_header_fields(headers))
        connection = http.client.HTTPConnection(self.service.http_address, timeout=180)
        with closing(connection):
            connection.request(method, path, body, fields)
            response = connection.getresponse()
            received = response.read()
        return Result(
            status=str(response.status),
            request_id=response.headers["X-Request-Id"],
            sizes=(len(body or b""), len(received)),
        )

    def call(self, method: str, body: bytes, **headers: str) -> Result:
        """Send a gRPC request with a serialized message, or any other bytes."""
        metadata = _header_fields(headers)
        invoke = self.channel.unary_unary(method).with_call
        try:
            message, outcome = invoke(body, metadata=metadata, timeout=180, wait_for_ready=True)
        except grpc.RpcError as error:
            message = b""
            outcome = error

        trailers = dict(outcome.trailing_metadata() or ())
        return Result(
            status=outcome.code().name,
            request_id=trailers.get("x-request-id"),
            sizes=(len(body), len(message)),
        )


def _header_fields(headers: dict[str, str]) -> list[tuple[str, str]]:
    """Return headers that were given as keyword arguments, such as x_request_id."""
    return [(name.replace("_", "-"), value) for name, value in headers.items()]
