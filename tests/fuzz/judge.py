"""Checks of responses to arbitrary requests, and of the service's log."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Set
from typing import Any

import grpc

from app.inference import predict_adapter
from grpc_service.compression import MAX_SMALL_BYTES
from oip_conformance.client import Reply

LENGTH = "Inference-Header-Content-Length"
# Request limit of the service. A low limit makes requests beyond it cheap.
LIMIT = 100_000
# Media types of web pages and their assets.
OF_PAGES = {"text/html", "text/css", "text/javascript", "image/svg+xml", "image/png"}
TRACEBACK = "Traceback (most recent call last)"
STATUSES = {200, 400, 404, 405, 413, 415}
# Statuses of the HTTP server for requests that it cannot pass to the service. 408 would arrive after the time limit.
SERVER_STATUSES = {414, 417, 431, 501, 505}
# Exceptions raised for fail_in in oip_conformance/model.py: UnicodeDecodeError for bytes that are not
# UTF-8, otherwise ValueError.
MODEL_RAISED = re.compile("(ValueError|UnicodeDecodeError): ")
MODEL_LOGGED = re.compile(
    rf"ERROR {re.escape(predict_adapter.logger.name)}( \[\S+\])?: predict\(\) raised an exception$"
)
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "deflate": zlib.decompress,
}
ALARMS = (" CRITICAL ", "Handling signal", "WORKER TIMEOUT", "Worker (pid:", "Worker exiting")


def judge_reply(method: str, reply: Reply, statuses: Set[int] = STATUSES) -> tuple[str, str]:
    """Return a label for the summary, and the fault in the reply or "" (R19). `statuses` are valid."""
    status = str(reply.status_code)
    if TRACEBACK.encode() in reply.data:
        return status, "a traceback in the body"
    if method == "HEAD":
        return (
            status,
            "" if reply.status_code in statuses and not reply.data else f"HEAD got {reply}",
        )
    if reply.content_length != len(reply.data):
        return status, f"Content-Length is {reply.content_length}, and {len(reply.data)} bytes came"
    try:
        return judge_body(method, reply, statuses)
    except (ValueError, OSError, zlib.error) as error:
        return status, f"the body does not match its headers: {error!r}: {reply}"


def judge_body(method: str, reply: Reply, statuses: Set[int]) -> tuple[str, str]:
    status, body = str(reply.status_code), plain_body(reply)
    if reply.status_code == 200:
        return status, "" if method == "OPTIONS" or reply.mimetype in OF_PAGES else json_fault(body)
    if reply.mimetype != "application/json":
        return status, f"an error that is not JSON: {reply}"
    value = json.loads(body)
    text = value.get("error") if isinstance(value, dict) and len(value) == 1 else None
    if not isinstance(text, str) or not text:
        return status, f"an error without a message: {value!r}"
    if reply.status_code == 500 and MODEL_RAISED.match(text):
        return "500 of the model", ""
    return status, "" if reply.status_code in statuses else f"{status}: {text}"


def plain_body(reply: Reply) -> bytes:
    """Return the JSON part of the reply's body. Raise ValueError if the binary tensors are invalid."""
    coding = reply.headers.get("Content-Encoding")
    body = DECODERS[coding](reply.data) if coding else reply.data
    if LENGTH not in reply.headers:
        return body
    head, blobs = body[: int(reply.headers[LENGTH])], body[int(reply.headers[LENGTH]) :]
    sizes = [
        output.get("parameters", {}).get("binary_data_size", 0)
        for output in json.loads(head)["outputs"]
    ]
    if sum(sizes) != len(blobs):
        raise ValueError(f"binary_data_size of {sizes}, and {len(blobs)} bytes")
    return head


def json_fault(body: bytes) -> str:
    value = json.loads(body, parse_constant=not_json)
    return "" if isinstance(value, dict | list) else f"a response of {value!r}"


def not_json(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def judge_call(error: grpc.RpcError | None, known: bool, size: int) -> tuple[str, str]:
    """Return the name of the call's status, and the fault or "" (G1).

    `known` is true if the method exists. `size` is the size of the message.
    """
    if error is None:
        return "OK", "" if known else "an unknown call succeeded"
    code, text = error.code().name, error.details() or ""
    if TRACEBACK in text:
        return code, "a traceback in the details"
    if code == "INTERNAL" and MODEL_RAISED.match(text):
        return "INTERNAL of the model", ""
    rejections = {"INVALID_ARGUMENT", "NOT_FOUND"} if known else {"UNIMPLEMENTED"}
    # Methods other than ModelInfer have a lower limit, with a text of its own.
    limit = MAX_SMALL_BYTES if text.startswith("Message too large") else LIMIT
    right = code in rejections or (code == "RESOURCE_EXHAUSTED" and size > limit)
    return code, "" if right and text else f"{code}: {text}"


def log_faults(log: str) -> list[str]:
    """Return the lines of the log that report a fault of the service."""
    found, before = [], ""
    for line in log.splitlines():
        if line.strip().startswith(TRACEBACK) and not MODEL_LOGGED.search(before):
            found.append(f"a traceback below: {before}")
        if any(alarm in line for alarm in ALARMS):
            found.append(line)
        before = line
    return found
