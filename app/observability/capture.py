"""Payload capture: JSON Lines files with sampled requests and their responses.

docs/guides/capture.md describes the files.
"""

import atexit
import logging
import os
import threading
import time
from dataclasses import replace
from functools import cache
from typing import Any

import orjson
from prometheus_client import Counter

from app.config.settings import Settings
from app.inference.call import Call, Sample
from app.observability.log import format_time
from app.observability.observer_queue import ObserverQueue
from app.protocol.errors import InvalidInput
from app.protocol.http_body import write_json, write_tensors

MAX_QUEUED_BYTES = 32 * 2**20  # limit for the bodies of the requests in the queue
OBJECT_BYTES = 2**12  # memory of a request's objects
CHUNK = 2**14  # elements per call of orjson, which blocks the threads of requests
DROPPED = Counter(
    "inference_captures_dropped", "Number of sampled requests that were not captured.", ["reason"]
)

warn_once = cache(logging.getLogger(__name__).warning)


class Capture:
    """Observer that writes sampled requests in its own thread, because disks can be slow.

    Create it after the fork.
    """

    def __init__(self, settings: Settings):
        self._path = f"{settings.capture_dir}/requests-{os.getpid()}.jsonl"
        self._max_bytes = settings.capture_max_bytes
        self._redacted = settings.capture_redact
        self._queue = ObserverQueue()
        self._queue.add_observer(self._write_all)
        self._queued_bytes = 0
        self._lock = threading.Lock()  # protects _queued_bytes
        self._queue.start()
        atexit.register(self._queue.flush)

    def __call__(self, calls: list[Call]) -> None:
        samples = [call for call in calls if call.sample is not None]
        size = sum(map(_memory_of, samples))
        with self._lock:
            is_full = self._queued_bytes > MAX_QUEUED_BYTES
            if not is_full:
                self._queued_bytes += size
        if is_full:
            DROPPED.labels("queue_full").inc(len(samples))
        else:
            self._queue.extend(samples)

    def _write_all(self, calls: list[Call]) -> None:
        for call in calls:
            if call.sample is None:
                continue
            try:
                line = self._line(call, call.sample)
                self._append(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            except Exception as error:
                DROPPED.labels("write_failed").inc()
                limit = "Further failures with this cause are only counted"
                warn_once(f"Cannot capture a request: {error}. {limit}")
            finally:
                with self._lock:
                    self._queued_bytes -= _memory_of(call)

    def _append(self, line: bytes) -> None:
        """Append the line to the file. Rotate the file first if the line does not fit.

        Raise OSError.
        """
        if len(line) > self._max_bytes:
            raise OSError("line longer than CAPTURE_MAX_BYTES")
        file_size = 0
        if os.path.exists(self._path):
            file_size = os.path.getsize(self._path)
        if file_size and file_size + len(line) > self._max_bytes:
            os.replace(self._path, f"{self._path}.1")
        with open(self._path, "ab", buffering=0, opener=_open_private) as file:
            written = file.write(line)
            if written < len(line):
                file.truncate(file.tell() - written)
                raise OSError("no space left for the line")

    def _line(self, call: Call, sample: Sample) -> dict[str, Any]:
        request = sample.request
        response = None
        if sample.response is not None and call.outcome.error_class is None:
            response = self._message(sample.response, "outputs")
        begun = call.timings.begun + time.time() - time.monotonic()
        return {
            "id": call.id,
            "time": format_time(begun),
            "protocol": call.protocol,
            "status": call.outcome.status,
            "error": call.outcome.error_text,
            "stage_seconds": call.timings.stage_seconds(),
            "model_name": request.model_name,
            "model_version": request.model_version,
            "request": self._message(request, "inputs"),
            "response": response,
        }

    def _message(self, message: Any, member: str) -> dict[str, Any]:
        """Return the JSON object of a message. `member` is the attribute with its tensors."""
        tensors = [self._tensor(tensor) for tensor in getattr(message, member)]
        return {**replace(message, **{member: []}).to_dict(), member: tensors}

    def _tensor(self, tensor: Any) -> dict[str, Any]:
        """Return the JSON object of a tensor. Bytes that are not UTF-8 become base64 text (C12)."""
        if tensor.name in self._redacted:
            return {
                "name": tensor.name,
                "shape": tensor.shape,
                "datatype": tensor.datatype,
                "parameters": tensor.parameters,
            }
        try:
            ((head,), _) = write_tensors([tensor], binary=False, nonfinite="null")
        except InvalidInput:
            tensor.parameters = {**tensor.parameters, "content_type": "bytes"}
            return self._tensor(tensor)
        # A list with one fragment for each chunk of elements, which orjson joins with commas.
        data = head["data"]
        pieces = []
        for start in range(0, len(data), CHUNK):
            text = write_json(data[start : start + CHUNK])
            pieces.append(orjson.Fragment(text[1:-1]))  # without the brackets
        return {**head, "data": pieces}


def _memory_of(call: Call) -> int:
    return call.outcome.request_bytes + call.outcome.response_bytes + OBJECT_BYTES


def _open_private(path: str, flags: int) -> int:
    """Open a file that only its owner can read. Raise OSError if it is a symbolic link.

    If other users can write to the directory, they could make the service write to any file.
    """
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
