"""Start this service with settings, and send load over each of the four transports."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil

import numpy as np

from app.codecs import StringCodec
from app.protocol.http_body import HEADER_LENGTH
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.tensors import RequestInput
from dev.benchmarks.cases import Case, generator, grpc, rest_binary, rest_json
from dev.benchmarks.load import WARM_UP_SECONDS, Row, measure
from dev.benchmarks.requests import send_request
from dev.benchmarks.servers.start import ROOT
from grpc_service.converters import read_response, write_request
from tests.kit.processes import Running, free_ports, started

JSON = "REST JSON"
WAYS: dict[str, Callable[..., Case]] = {
    JSON: rest_json,
    "REST binary": rest_binary,
    "gRPC raw": partial(grpc, raw=True),
    "gRPC typed": partial(grpc, raw=False),
}
REST = (JSON, "REST binary")
# Minimum duration of a measurement, as a number of sequential responses.
ANSWERS_AT_LEAST = 5


def in_way(way: str, model: str, x: np.ndarray, y: np.ndarray) -> Case:
    """Return a case for the transport `way`. For JSON, `x` can be FP64, so that its numbers have few digits."""
    return WAYS[way]("", way, model, x if way == JSON else x.astype("<f4"), y)


def echo_case(way: str, size: int) -> Case:
    x = generator.uniform(-1, 1, size).round(3)
    return in_way(way, "echo", x, x.astype("<f4"))


def text_case(way: str, count: int) -> Case:
    """Return a case that echoes `count` texts."""
    texts = [f"This is the text of number {index:,} of a request." for index in range(count)]
    sent = RequestInput("x", "BYTES", data=texts)

    def check(body: bytes, headers: dict[str, str]) -> None:
        answer = InferenceResponse.from_http(body, headers) if way in REST else read_response(body)
        assert StringCodec.decode_output(answer.outputs[0]) == texts

    request = InferenceRequest([sent], "texts")
    if way not in REST:
        return Case("", way, "grpc", "texts", write_request(request, raw=way == "gRPC raw"), check)
    body, headers = request.to_http(binary=way != JSON)
    length = headers.get(HEADER_LENGTH)
    return Case("", way, "http", "texts", body, check, int(length) if length else None)


@contextmanager
def serving(app: str, cpus: Sequence[int], **settings: int) -> Iterator[Running]:
    """Start this service on the CPU cores `cpus`, with one worker by default."""
    http, grpc_port = free_ports(2)
    environment = {
        "PYTHONPATH": ROOT,
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc_port,
        "WORKERS": 1,
        "SHUTDOWN_DELAY_SECONDS": 0,
        "LOG_LEVEL": "WARNING",
    }
    pinned = ["taskset", "-c", ",".join(map(str, cpus))]
    command = [*pinned, sys.executable, "-m", "gunicorn", f"dev.benchmarks.servers.ours:{app}"]
    with started(
        command, ROOT, {**environment, "MAX_REQUEST_BYTES": 2**31 - 1, **settings}
    ) as running:
        yield running


def drive(
    case: Case,
    running: Running,
    seconds: int,
    connections: int,
    cpus: Sequence[int],
    is_warm: bool = False,
) -> Row:
    """Check a response, run a warm-up and measure for at least `seconds`.

    Omit the warm-up if `is_warm` is set.
    Load generators exit before their last responses arrive, so requests of the warm-up can overlap
    with the measurement.
    """
    begun = time.perf_counter()
    answer = send_request(case, running)
    least = ceil((time.perf_counter() - begun) * ANSWERS_AT_LEAST * connections)
    case.check(*answer)
    if not is_warm:
        measure(case, running, max(WARM_UP_SECONDS, least), connections, cpus)
    return measure(case, running, max(seconds, least), connections, cpus)
