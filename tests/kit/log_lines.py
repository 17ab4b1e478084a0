"""Parse log lines of each format, and send requests that are logged."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from grpc_service.converters import write_request
from tests.kit.processes import Running

ROOT = Path(__file__).parents[2]
FORMATS = ["text", "json"]
INFER = "/inference.GRPCInferenceService/ModelInfer"

# A text line: timestamp, level, logger, request id (if any) and message.
LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ([A-Z]+) ([\w.]+)(?: \[(\S+)\])?: (.*)"
)
PART = re.compile(r' (\w+)=("(?:[^"\\]|\\.)*"|[\d.]+)(?= |$)')


def parse(text: str, log_format: str) -> list[dict[str, Any]]:
    """Return the records of a log. In text, indented lines, such as a traceback, belong to the line before them."""
    lines: list[dict[str, Any]] = []
    for line in text.split("\n")[:-1]:
        if log_format == "json":
            lines.append(json.loads(line))
            assert line.isprintable()
        elif found := LINE.fullmatch(line):
            timestamp, level, logger, request_id, content = found.groups()
            parts = {name: json.loads(value) for name, value in PART.findall(content)}
            message = PART.split(content)[0]
            head = {"timestamp": timestamp, "level": level, "logger": logger, "message": message}
            lines.append({**head, "stacktrace": "", **parts})
            if request_id:
                lines[-1]["request_id"] = request_id
        else:
            assert line.startswith("  ") or not line, line
            assert line.isprintable()
            lines[-1]["stacktrace"] += line + "\n"
    return lines


class Client:
    """Send requests over REST or gRPC and return the status, the request id and the sizes of both bodies."""

    def __init__(self, service: Running, channel: grpc.Channel):
        self.service, self.channel = service, channel

    def infer(
        self, protocol: str, value: str = "a", name: str = "test", **headers: str
    ) -> tuple[str, str | None, tuple[int, int]]:
        request = InferenceRequest([RequestInput("x", "BYTES", [1], [value])], name)
        if protocol == "grpc":
            return self.call(INFER, write_request(request), **headers)
        return self.post(f"/v2/models/{quote(name, safe='')}/infer", request.to_json(), **headers)

    def post(self, path: str, body: bytes | None, method: str = "POST", **headers: str) -> Any:
        with closing(
            http.client.HTTPConnection(self.service.http_address, timeout=60)
        ) as connection:
            connection.request(
                method,
                path,
                body,
                {name.replace("_", "-"): value for name, value in headers.items()},
            )
            response = connection.getresponse()
            sizes = len(body or b""), len(response.read())
            return str(response.status), response.headers["X-Request-Id"], sizes

    def call(self, method: str, body: bytes, **headers: str) -> Any:
        metadata = [(name.replace("_", "-"), value) for name, value in headers.items()]
        call = self.channel.unary_unary(method).with_call
        try:
            message, outcome = call(body, metadata=metadata, timeout=60, wait_for_ready=True)
        except grpc.RpcError as error:
            message, outcome = b"", error
        return (
            outcome.code().name,
            dict(outcome.trailing_metadata() or ()).get("x-request-id"),
            (len(body), len(message)),
        )
