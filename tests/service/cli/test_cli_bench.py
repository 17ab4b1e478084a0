"""The bench command with a running service."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli import main
from tests.kit.processes import Running, free_ports, gunicorn

ROOT = Path(__file__).parents[3]
QUICK = ["--seconds", "1", "--warm-up", "0", "--concurrency", "2"]


@pytest.fixture
def bench(service: Running) -> Callable[..., Result]:
    def run(*words: str, status: int = 0, transport: str = "rest-json") -> Result:
        url = (
            f"grpc://{service.grpc_address}"
            if transport == "grpc"
            else f"http://{service.http_address}"
        )
        result = CliRunner().invoke(
            main, ["bench", *QUICK, "--transport", transport, "--url", url, *words]
        )
        assert result.exit_code == status, (result.exit_code, result.output, result.exception)
        return result

    return run


def write_request(path: Path, text: str) -> Path:
    data: dict[str, Any] = {"number": ("FP64", [1.0]), "text": ("BYTES", [text])}
    data |= {"when": ("BYTES", ["2024-01-01"]), "flag": ("BOOL", [True])}
    inputs = [
        {"name": name, "datatype": kind, "shape": [1], "data": value}
        for name, (kind, value) in data.items()
    ]
    path.write_text(json.dumps({"inputs": inputs}))
    return path


@pytest.mark.parametrize("transport", ["rest-json", "rest-binary", "grpc"])
def test_measurements(
    transport: str, bench: Callable[..., Result], service: Running, tmp_path: Path
) -> None:
    """The numbers of requests, the rate and the percentiles fit each other and the metrics of the service."""
    path = write_request(tmp_path / "request.json", "text")
    report = json.loads(bench("--input", str(path), "--json", transport=transport).stdout)
    assert report["transport"] == transport
    assert report["requests"] > 0
    assert report["errors"] == 0
    assert report["rate"] == pytest.approx(report["requests"] / report["seconds"], rel=0.01)
    assert report["client_was_the_limit"] == (report["client_busy"] > 0.9)
    times = [report["latency_ms"][name] for name in ("p50", "p90", "p99", "p99.9", "max")]
    assert times == sorted(times)
    metrics = (service.get("/metrics") or b"").decode()
    counted = [line for line in metrics.splitlines() if line.startswith("inference_requests_total")]
    assert sum(float(line.split()[-1]) for line in counted) > report["requests"]


def test_table_and_plot(bench: Callable[..., Result], tmp_path: Path) -> None:
    """Without --json there is a table. --plot writes an image too."""
    pytest.importorskip("matplotlib")
    output = bench("--plot", str(tmp_path / "latencies.png")).stdout
    assert " per second\n" in output
    assert "p99.9" in output
    assert (tmp_path / "latencies.png").read_bytes().startswith(b"\x89PNG")


def test_rate(bench: Callable[..., Result]) -> None:
    """--rate sends that many requests, shared by all processes and connections."""
    report = json.loads(bench("--rate", "20", "--processes", "2", "--json").stdout)
    assert (report["requests"], report["processes"]) == (20, 2)


def test_failures(bench: Callable[..., Result], tmp_path: Path) -> None:
    """If the first request fails, the command ends with the service's error. Without a service, the status is 3."""
    path = write_request(tmp_path / "request.json", "fault")
    for transport in "rest-json", "grpc":
        output = bench("--input", str(path), status=1, transport=transport).stderr
        assert "The first request failed. " in output
        assert "Invalid text. Expected text without a fault." in output
    path.write_text("[1]")
    assert "The first request failed. " in bench("--input", str(path), status=1).stderr
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    for where in (
        ["--url", f"http://{nowhere}"],
        ["--transport", "grpc", "--url", f"grpc://{nowhere}"],
    ):
        assert CliRunner().invoke(main, ["bench", *where, *QUICK]).exit_code == 3


def test_errors_are_counted() -> None:
    """Requests that fail later are counted by their error, and are not in the latencies."""
    with gunicorn(ROOT, "tests.service.table_apps:once()", WORKERS=1) as running:
        result = CliRunner().invoke(
            main, ["bench", *QUICK, "--url", f"http://{running.http_address}", "--json"]
        )
    report = json.loads(result.stdout)
    assert (result.exit_code, report["requests"]) == (1, 0)
    (kind,) = report["error_kinds"]
    assert kind.startswith("500: ")
    assert report["errors"] > 0
