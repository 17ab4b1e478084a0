"""Requests that do not fit into the memory that MEMORY_LIMIT_BYTES or a container leaves for them."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import grpc
import numpy as np
import pytest

from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from grpc_service.converters import write_request
from tests.kit.processes import Running, gunicorn, peak, reset_peak, resident, wait_for, workers
from tests.kit.stalling_proxy import StallingProxy
from tests.service.runtime.raw_client import ROOT

MIB = 2**20
SECONDS = 180
PATH = "/v2/models/test/infer"
METHOD = "/inference.GRPCInferenceService/ModelInfer"
# As in the default pod of the chart.
POD = 1024 * MIB
# A worker with this limit has more than 200 MiB for requests, half of it for decoded ones.
SMALL = 384 * MIB


class Result(NamedTuple):
    """The result of a request: a status of HTTP or gRPC, its text, and whether to retry."""

    status: str
    text: str
    can_retry: bool


def array_of(size: int, first: float = 0.0) -> np.ndarray:
    """Return numbers of `size` bytes in binary form."""
    array = np.zeros(size // 8)
    array[0] = first
    return array


def request_of(array: np.ndarray) -> InferenceRequest:
    tensor = RequestInput("x", "FP64", [array.size], array)
    return InferenceRequest([tensor], model_name="test")


def send_http(service: Running, body: bytes, headers: dict[str, str]) -> Result:
    with closing(http.client.HTTPConnection(service.http_address, timeout=SECONDS)) as connection:
        connection.request("POST", PATH, body, headers)
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        return Result(str(response.status), text, response.getheader("Retry-After") is not None)


def send_binary(service: Running, array: np.ndarray) -> Result:
    return send_http(service, *request_of(array).to_http())


def send_json(service: Running, array: np.ndarray) -> Result:
    return send_http(service, *request_of(array).to_http(binary=False))


def send_gzip(service: Running, array: np.ndarray) -> Result:
    body, headers = request_of(array).to_http(binary=False)
    return send_http(service, gzip.compress(body), {**headers, "Content-Encoding": "gzip"})


def send_message(service: Running, message: bytes) -> Result:
    options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(service.grpc_address, options) as channel:
        try:
            channel.unary_unary(METHOD)(message, timeout=SECONDS)
        except grpc.RpcError as error:
            trailers = dict(error.trailing_metadata())
            return Result(error.code().name, error.details(), "retry-after" in trailers)
    return Result("OK", "", can_retry=False)


def send_raw(service: Running, array: np.ndarray) -> Result:
    return send_message(service, write_request(request_of(array)))


def send_typed(service: Running, array: np.ndarray) -> Result:
    return send_message(service, write_request(request_of(array), raw=False))


Send = Callable[[Running, np.ndarray], Result]
FORMS = {
    "rest json": send_json,
    "rest gzip": send_gzip,
    "rest binary": send_binary,
    "grpc typed": send_typed,
    "grpc raw": send_raw,
}
SUCCESS = {"200", "OK"}
OVERLOAD = {"503", "RESOURCE_EXHAUSTED"}


@pytest.fixture
def service(stack: ExitStack, tmp_path: Path) -> Running:
    settings = {"FOLDER": tmp_path, "MEMORY_LIMIT_BYTES": SMALL, "MAX_CONCURRENCY": 128}
    return stack.enter_context(gunicorn(ROOT, "tests.service.apps:holding()", **settings))


@pytest.mark.parametrize("form", FORMS)
def test_request_that_can_never_fit(service: Running, form: str) -> None:
    """R19: a request that needs more memory than there is for all requests gets 413, with a remedy."""
    send = FORMS[form]
    result = send(service, array_of(60 * MIB))
    if form == "rest binary":  # it needs the least memory
        assert result.status == "200"
    else:
        assert result.status in ("413", "RESOURCE_EXHAUSTED")
        assert not result.can_retry
        assert "raise the memory limit" in result.text
    assert send(service, array_of(MIB)).status in SUCCESS


@pytest.mark.parametrize("form", FORMS)
def test_request_that_does_not_fit_now(
    service: Running, stack: ExitStack, tmp_path: Path, form: str
) -> None:
    """R19: while other requests need the memory, a request gets 503, and succeeds later."""
    send = FORMS[form]
    pool = stack.enter_context(ThreadPoolExecutor(128))
    stack.callback((tmp_path / "go").touch)

    running: list[Future[Result]] = []
    while not any(call.done() for call in running):
        index = len(running) + 1
        call = pool.submit(send_binary, service, array_of(MIB, first=index))
        running.append(call)
        begun = tmp_path / f"{index}.begun"
        wait_for(lambda begun=begun, call=call: begun.exists() or call.done())
    rejected = running.pop().result()
    assert (rejected.status, rejected.can_retry) == ("503", True)

    result = send(service, array_of(4 * MIB))
    assert result.status in OVERLOAD
    assert result.can_retry
    assert send(service, array_of(8)).status in SUCCESS  # small requests are not counted

    (tmp_path / "go").touch()
    assert {call.result().status for call in running} == {"200"}
    wait_for(lambda: send(service, array_of(4 * MIB)).status in SUCCESS)


def test_many_large_requests(stack: ExitStack, tmp_path: Path) -> None:
    """R19: no mix of large requests needs more than the limit. Those that do not fit get 503."""
    settings = {"FOLDER": tmp_path, "MEMORY_LIMIT_BYTES": POD, "MAX_CONCURRENCY": 32}
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:holding()", **settings))
    sizes = {
        "rest binary": 60 * MIB,
        "grpc raw": 60 * MIB,
        "grpc typed": 8 * MIB,
        "rest json": 8 * MIB,
        "rest gzip": 8 * MIB,
    }
    forms = 8 * list(sizes)
    pool = stack.enter_context(ThreadPoolExecutor(len(forms)))
    stack.callback((tmp_path / "go").touch)

    reset_peak(workers(service))
    calls = []
    for index, form in enumerate(forms, start=1):
        array = array_of(sizes[form], first=index)
        calls.append(pool.submit(FORMS[form], service, array))
    for index, call in enumerate(calls, start=1):
        begun = tmp_path / f"{index}.begun"
        wait_for(lambda begun=begun, call=call: begun.exists() or call.done())
    (tmp_path / "go").touch()

    statuses = {call.result().status for call in calls}
    assert statuses <= SUCCESS | OVERLOAD
    assert statuses & SUCCESS
    assert peak(workers(service)) + resident(service.process.pid) < POD
    for form, size in sizes.items():
        assert FORMS[form](service, array_of(size)).status in SUCCESS


def test_incomplete_grpc_messages(service: Running, stack: ExitStack) -> None:
    """G1: incomplete messages that together exceed the memory get RESOURCE_EXHAUSTED."""
    proxy = StallingProxy(service.grpc_port, 40 * MIB, stack)
    message = write_request(request_of(array_of(60 * MIB)))
    reset_peak(workers(service))
    calls = []
    for _ in range(12):
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channel = stack.enter_context(grpc.insecure_channel(proxy.address, options))
        calls.append(channel.unary_unary(METHOD).future(message, timeout=SECONDS))
    wait_for(lambda: any(call.done() for call in calls))

    ended = [call for call in calls if call.done()]
    assert {call.code() for call in ended} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert ("retry-after", "1") in ended[0].trailing_metadata()
    assert send_raw(service, array_of(MIB)).status == "OK"
    assert send_binary(service, array_of(MIB)).status == "200"
    assert peak(workers(service)) < SMALL


def test_memory_after_many_requests(stack: ExitStack, tmp_path: Path) -> None:
    """The memory of many requests is returned to the system when no request runs."""
    settings = {"FOLDER": tmp_path, "MAX_CONCURRENCY": 64}
    service = stack.enter_context(gunicorn(ROOT, "tests.service.apps:holding()", **settings))
    (worker,) = workers(service)
    before = resident(worker)
    pool = stack.enter_context(ThreadPoolExecutor(64))
    stack.callback((tmp_path / "go").touch)
    calls = []
    for index in range(1, 65):
        calls.append(pool.submit(send_json, service, array_of(4 * MIB, first=index)))
    wait_for(lambda: len(list(tmp_path.glob("*.begun"))) == len(calls))
    assert resident(worker) > before + 128 * MIB

    (tmp_path / "go").touch()
    assert {call.result().status for call in calls} == {"200"}
    wait_for(lambda: resident(worker) < before + 32 * MIB)
