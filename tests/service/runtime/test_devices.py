"""DEVICES: each worker sees one GPU, and replacements keep the GPUs balanced."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from oip_conformance.wires import Grpc
from tests.kit.processes import Running, gunicorn, wait_for, workers
from tests.kit.waiting_client import BOTH
from tests.service.runtime.commands import ROOT, post_on_new_connection

APP = "tests.service.apps:visible_device()"
DEVICES = ["0", "GPU-8932f937"]
REQUEST = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
).encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("devices")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Running]:
    """Run a service with a device per worker, which replaces the CUDA_VISIBLE_DEVICES of the environment."""
    settings = {
        "DEVICES": ",".join(DEVICES),
        "CUDA_VISIBLE_DEVICES": "7",
        "FOLDER": folder,
        "WORKERS": "",
    }
    with gunicorn(
        ROOT, APP, is_ready=lambda running: running.ready_count() == 2, **settings
    ) as running:
        yield running


def logged(service: Running) -> dict[int, str]:
    """Return the device of each current worker, from the log."""
    devices = {
        int(pid): device
        for pid, device in re.findall(r"Worker (\d+) uses device (\S+)", service.log())
    }
    return {pid: device for pid, device in devices.items() if pid in workers(service)}


def pid_of(service: Running, device: str) -> int:
    """Return the PID of the newest worker with this device."""
    return max(pid for pid, used in logged(service).items() if used == device)


def send_request(service: Running, protocol: str) -> tuple[int, str, str]:
    """Return the PID, CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER of the worker that responds."""
    if protocol == "grpc":
        with service.own_channel() as channel:
            outputs = Grpc(channel).infer([("x", "FP32", [1], [1.0])]).outputs
        return (
            outputs["pid"][2][0],
            *(outputs[name][2][0].decode() for name in ("device", "order")),
        )
    outputs = {
        output["name"]: output["data"][0]
        for output in post_on_new_connection(service, REQUEST)[1]["outputs"]
    }
    return outputs["pid"], outputs["device"], outputs["order"]


def assert_balanced(service: Running) -> None:
    """Check that each of two workers has another device, in its log line and in predict() over both protocols."""
    assert sorted(logged(service).values()) == DEVICES
    for protocol in BOTH:
        seen: dict[int, str] = {}
        for _ in range(1000):
            pid, device, order = send_request(service, protocol)
            assert order == "PCI_BUS_ID"
            seen[pid] = device
            if seen == logged(service):
                break
        else:
            raise AssertionError(f"{seen} differs from {logged(service)} over {protocol}")


def test_each_worker_has_a_device(service: Running) -> None:
    """WORKERS defaults to the number of devices, and each worker sees one of them when it imports the model."""
    assert len(workers(service)) == len(DEVICES)
    assert_balanced(service)


@pytest.mark.parametrize("device", DEVICES)
def test_replacement_has_the_same_device(service: Running, device: str) -> None:
    """The replacement of a killed worker uses its device."""
    ready = service.ready_count()
    os.kill(pid_of(service, device), signal.SIGKILL)
    wait_for(lambda: service.ready_count() == ready + 1 and len(workers(service)) == 2)
    assert_balanced(service)


def test_reload_keeps_the_balance(service: Running, folder: Path) -> None:
    """Each new worker has another device, even if an old worker and a new one end during the reload."""
    old, ready, waits = logged(service), service.ready_count(), folder / DEVICES[0]
    lost = pid_of(service, DEVICES[0])
    waits.touch()  # the new worker with this device is not ready before the end of the reload
    service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: service.ready_count() == ready + 1)
    for pid in (lost, pid_of(service, DEVICES[1])):
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda lost=pid: lost not in workers(service))  # type: ignore[misc]
    wait_for(lambda: service.ready_count() == ready + 2)
    waits.unlink()
    wait_for(
        lambda: (
            len(now := workers(service)) == 2
            and not now & old.keys()
            and service.workers_ready() == 2
        )
    )
    assert_balanced(service)
