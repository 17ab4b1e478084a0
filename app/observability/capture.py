"""Payload capture: JSON Lines files with sampled requests and their responses (docs/guides/capture.md)."""

import atexit
import logging
import os
import time
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
from prometheus_client import Counter

from app.config.settings import Settings
from app.inference.request_context import RequestContext
from app.observability.log import format_time
from app.observability.observer_queue import ObserverQueue
from app.protocol.errors import InvalidInput
from app.protocol.http_body import write_json, write_tensors

MAX_QUEUED_BYTES, OBJECT_BYTES = (
    32 * 2**20,
    2**12,
)  # limit for queued bodies, and memory of a request's objects
CHUNK = 2**14  # elements per call of orjson, which blocks the threads of requests
DROPPED = Counter(
    "inference_captures_dropped", "Number of sampled requests that were not captured.", ["reason"]
)

warn_once = cache(logging.getLogger(__name__).warning)


class Capture(ObserverQueue):
    """Observer that writes sampled requests in its own thread, because disks can be slow. Create it after the fork."""

    def __init__(self, settings: Settings):
        super().__init__([self.write])
        self.path, self.max_bytes = (
            f"{settings.capture_dir}/requests-{os.getpid()}.jsonl",
            settings.capture_max_bytes,
        )
        self.redacted = settings.capture_redact
        self.start()
        atexit.register(self.flush)

    def __call__(self, contexts: list[RequestContext]) -> None:
        sampled = [each for each in contexts if each.request]
        if (
            sum(each.received + each.sent + OBJECT_BYTES for each in [*self._contexts])
            > MAX_QUEUED_BYTES
        ):
            DROPPED.labels("queue_full").inc(len(sampled))
        else:
            self._contexts.extend(sampled)

    def write(self, contexts: list[RequestContext]) -> None:
        for context in contexts:
            try:
                self.append(orjson.dumps(self.line(context), option=orjson.OPT_APPEND_NEWLINE))
            except Exception as error:
                DROPPED.labels("write_failed").inc()
                warn_once(
                    f"Cannot capture a request: {error}. Further failures with this cause are only counted"
                )

    def append(self, line: bytes) -> None:
        """Append the line to the file. Rotate the file first if the line does not fit. Raise OSError."""
        if len(line) > self.max_bytes:
            raise OSError("line longer than CAPTURE_MAX_BYTES")
        if os.path.exists(self.path) and os.path.getsize(self.path) + len(line) > self.max_bytes:
            os.replace(self.path, f"{self.path}.1")
        with open(
            self.path, "ab", 0, opener=lambda path, flags: os.open(path, flags, 0o600)
        ) as file:
            if (written := file.write(line)) < len(line):
                file.truncate(file.tell() - written)
                raise OSError("no space left for the line")

    def line(self, context: RequestContext) -> dict[str, Any]:
        request, begun = (
            context.request,
            format_time(context.begun + time.time() - time.monotonic()),
        )
        line: dict[str, Any] = {
            "id": context.id,
            "time": begun,
            "protocol": context.protocol,
            "status": context.status,
        }
        line |= {
            "error": context.error,
            "stage_seconds": context.stage_seconds(),
            "model_name": request.model_name,
        }
        line |= {"model_version": request.model_version, "request": self.message(request, "inputs")}
        return {
            **line,
            "response": None
            if context.error or not context.response
            else self.message(context.response, "outputs"),
        }

    def message(self, message: Any, member: str) -> dict[str, Any]:
        tensors = [self.tensor(each) for each in getattr(message, member)]
        return {**replace(message, **{member: []}).to_dict(), member: tensors}

    def tensor(self, tensor: Any) -> dict[str, Any]:
        """Return the JSON object of a tensor. Bytes that are not UTF-8 text become base64 text (C12)."""
        if tensor.name in self.redacted:
            return {
                name: getattr(tensor, name) for name in ("name", "shape", "datatype", "parameters")
            }
        try:
            ((head,), _) = write_tensors([tensor], binary=False, nonfinite="null")
        except InvalidInput:
            tensor.parameters = {**tensor.parameters, "content_type": "bytes"}
            return self.tensor(tensor)
        data = head["data"]
        pieces = [
            orjson.Fragment(write_json(data[at : at + CHUNK])[1:-1])
            for at in range(0, len(data), CHUNK)
        ]
        return {**head, "data": pieces}
