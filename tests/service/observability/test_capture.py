"""CAPTURE_DIR: the files contain the requests and responses of both protocols, and never delay a request."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.tensors import RequestInput
from oip_conformance.wires import Grpc
from tests.kit.processes import Running, gunicorn, standalone_grpc, wait_for, workers
from tests.kit.scrapes import scrape
from tests.service.observability.metric_requests import ROOT, post, settled

APP = "tests.service.observability.doubling:app()"
DROPPED = "inference_captures_dropped_total"
FILE = b"\xff\xd8"  # not UTF-8


def request(values: list[float], *texts: str | bytes) -> InferenceRequest:
    inputs = [RequestInput("x", "FP32", data=values)]
    return InferenceRequest(
        [*inputs, RequestInput("text", "BYTES", data=[*texts])] if texts else inputs
    )


def send(service: Running, values: list[float], *texts: str | bytes, binary: bool = False) -> int:
    """Send a request over REST, and return the status. Its id is its first number."""
    body, headers = request(values, *texts).to_http(binary)
    return post(service, body, {**headers, "X-Request-Id": str(values[0])})[0]


def lines(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the captured requests by their ids."""
    captured = [
        json.loads(line) for path in folder.iterdir() for line in path.read_text().splitlines()
    ]
    assert len(captured) == len({line["id"] for line in captured})
    return {line["id"]: line for line in captured}


def data_of(tensors: list[dict[str, Any]]) -> dict[str, Any]:
    return {tensor["name"]: tensor.get("data") for tensor in tensors}


def test_captures_every_form(tmp_path: Path) -> None:
    """Each decoded request has a line, with the values that the client sent, also if predict() changes them."""
    # A request of two rows fills a batch.
    settings = {
        "WORKERS": 1,
        "CAPTURE_DIR": tmp_path,
        "MAX_BATCH_SIZE": 2,
        "MAX_BATCH_DELAY_MS": 60_000,
    }
    with gunicorn(ROOT, APP, **settings) as service, service.own_channel() as channel:
        (pid,) = workers(service)
        assert send(service, [1, 0], "é", "") == send(service, [2, 0], "é", "", binary=True) == 200
        for index, raw in ((3, False), (4, True)):
            sent = ("x", "FP32", [2], [index, 0]), ("text", "BYTES", [2], ["é", ""])
            assert Grpc(channel, raw=raw).infer([*sent]).is_success
        raw_body, headers = request([5, 0]).to_http()
        length = int(headers["Inference-Header-Content-Length"])
        no_header = {"Inference-Header-Content-Length": "0", "X-Request-Id": "raw"}
        assert post(service, raw_body[length:], no_header)[0] == 200
        assert send(service, [6, 0], FILE, "", binary=True) == 200
        with ThreadPoolExecutor(2) as pool:
            assert [*pool.map(lambda value: send(service, [value], "é"), [7, 8])] == [200, 200]
        assert send(service, [-9, 0]) == 500
        assert post(service, b"{", {})[0] == 400
    (path,) = tmp_path.iterdir()
    assert (path.name, stat.S_IMODE(path.stat().st_mode)) == (f"requests-{pid}.jsonl", 0o600)
    captured = lines(tmp_path)
    by_number = {line["request"]["inputs"][0]["data"][0]: line for line in captured.values()}
    assert sorted(by_number) == [-9, 1, 2, 3, 4, 5, 6, 7, 8]
    for number, texts in {
        1: ["é", ""],
        2: ["é", ""],
        3: ["é", ""],
        4: ["é", ""],
        7: ["é"],
        8: ["é"],
    }.items():
        line, rest = by_number[number], [0] * (len(texts) - 1)
        assert data_of(line["request"]["inputs"]) == {"x": [number, *rest], "text": texts}
        assert data_of(line["response"]["outputs"]) == {"y": [2 * number, *rest], "text": texts}
        assert (line["protocol"], line["status"]) == (
            ("grpc", "OK") if number in (3, 4) else ("rest", "200")
        )
        assert (line["model_name"], line["model_version"], line["error"]) == ("test", "1", None)
        assert {*line["stage_seconds"]} == {"decode", "queue", "predict", "encode"}
    assert data_of(captured["raw"]["request"]["inputs"]) == {"x": [5, 0]}
    sent, returned = (by_number[6][name] for name in ("request", "response"))
    assert InferenceRequest(**sent).inputs[1].wire_data(is_binary=True).tolist() == [FILE, b""]
    assert InferenceResponse(**returned).outputs[1].wire_data(is_binary=True).tolist() == [
        FILE,
        b"",
    ]
    failed = captured["-9"]
    assert (failed["status"], failed["response"], failed["error"]) == (
        "500",
        None,
        "ValueError: negative: -9.0",
    )


def test_captures_standalone_grpc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m grpc_service` has written all lines when it exits."""
    for name, value in {"CAPTURE_DIR": str(tmp_path), "SHUTDOWN_DELAY_SECONDS": "0"}.items():
        monkeypatch.setenv(name, value)
    with standalone_grpc(ROOT) as client:
        for _ in range(3):
            features = ("features", "FP32", [1, 4], [5.0, 3.0, 1.0, 0.0])
            assert client.infer([features], model="iris").is_success
    assert [line["response"]["outputs"][0]["data"] for line in lines(tmp_path).values()] == [
        ["setosa"]
    ] * 3


def test_sample_rate_of_zero(tmp_path: Path) -> None:
    """With CAPTURE_SAMPLE_RATE=0, nothing is captured."""
    with gunicorn(ROOT, APP, CAPTURE_DIR=tmp_path, CAPTURE_SAMPLE_RATE=0) as service:
        assert send(service, [1]) == 200
    assert not [*tmp_path.iterdir()]


def test_rotation_redaction_and_failures(tmp_path: Path) -> None:
    """Two files of a limited size remain, without redacted data. Lines that cannot be written are counted."""
    (folder := tmp_path / "captured").mkdir()
    settings = {"CAPTURE_DIR": folder, "CAPTURE_MAX_BYTES": 2000, "CAPTURE_REDACT": "other, text"}
    with gunicorn(ROOT, APP, WORKERS=1, **settings) as service:
        for number in range(20):
            assert send(service, [number], "secret") == 200
        (pid,) = workers(service)
        newest = folder / f"requests-{pid}.jsonl"

        def has_last_request() -> bool:
            with suppress(FileNotFoundError):  # the worker is rotating its files
                return '"id":"19"' in newest.read_text()
            return False

        wait_for(has_last_request)
        sizes = {path.name.partition(".")[2]: path.stat().st_size for path in (folder).iterdir()}
        captured = lines(folder)
        for _ in range(2):
            assert send(service, [*range(500)]) == 200
        settled(service, DROPPED, 2, reason="write_failed")
        shutil.rmtree(folder)
        for _ in range(2):
            assert send(service, [1]) == 200
        settled(service, DROPPED, 4, reason="write_failed")
    assert sizes.keys() == {"jsonl", "jsonl.1"}
    assert max(sizes.values()) <= 2000
    assert sorted(map(int, captured)) == [*range(20)][-len(captured) :]
    assert all(
        data_of(line["request"]["inputs"]) == {"x": [int(name)], "text": None}
        for name, line in captured.items()
    )
    assert [
        tensor["data"]
        for line in captured.values()
        for tensor in line["response"]["outputs"]
        if "data" in tensor
    ]
    assert "secret" not in str(captured)
    warnings = [line for line in service.last_words.splitlines() if "Cannot capture" in line]
    assert ["longer than CAPTURE_MAX_BYTES" in warning for warning in warnings] == [True, False]


def test_stuck_disk_delays_nothing(tmp_path: Path) -> None:
    """While a write blocks, requests and metrics get responses, and a full queue drops requests."""
    with gunicorn(ROOT, APP, WORKERS=1, CAPTURE_DIR=tmp_path) as service:
        (pid,) = workers(service)
        os.mkfifo(
            path := tmp_path / f"requests-{pid}.jsonl"
        )  # blocks a writer as long as it has no reader
        assert send(service, [1]) == 200
        body, headers = request([1.0] * 2**22, "").to_http()  # 16 MiB, as the response

        def is_full() -> bool:
            assert post(service, body, headers)[0] == 200
            return scrape(service)(DROPPED, reason="queue_full") > 0

        wait_for(is_full)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        path.unlink()
        wait_for(path.exists)  # the next lines are in a new file
        os.close(reader)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A link in the directory cannot make the service write to another file. The request is only counted."""
    other_file = tmp_path / "other"
    other_file.write_text("unchanged")
    folder = tmp_path / "captured"
    folder.mkdir()
    with gunicorn(ROOT, APP, WORKERS=1, CAPTURE_DIR=folder) as service:
        (pid,) = workers(service)
        link = folder / f"requests-{pid}.jsonl"
        link.symlink_to(other_file)
        assert send(service, [1]) == 200
        settled(service, DROPPED, 1, reason="write_failed")
        link.unlink()
        assert send(service, [2]) == 200
    assert other_file.read_text() == "unchanged"
    assert lines(folder).keys() == {"2"}


def test_directory_must_be_writable() -> None:
    """A directory in which this user may not create files is rejected at startup."""
    lines = ["import os", "from app.config.settings import read_settings"]
    code = "\n".join(
        [*lines, "os.getuid() or os.setuid(65534)  # root may write to any", "read_settings()"]
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "CAPTURE_DIR": "/"},
        capture_output=True,
        text=True,
    )
    assert (
        "CAPTURE_DIR: invalid value. Expected a directory that exists and is writable, got '/'."
        in done.stderr
    )
