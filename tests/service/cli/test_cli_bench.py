"""`bench`: what it says of a service, of one that fails, and of itself."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli import main
from app.cli.bench import is_limit
from app.cli.histogram import Histogram
from app.cli.load import Outcome
from app.cli.service import Service
from tests.service.processes import Running, free_ports, gunicorn

ROOT = Path(__file__).parents[3]
QUICK = ["--seconds", "1", "--warm-up", "0", "--concurrency", "2"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with gunicorn(ROOT, "tests.service.apps:rows()", FOLDER=tmp_path_factory.mktemp("model")) as running:
        yield running


@pytest.fixture
def bench(service: Running) -> Callable[..., Result]:
    def run(*words: str, status: int = 0, grpc: bool = False) -> Result:
        where = ["--grpc", service.grpc] if grpc else ["--url", f"http://{service.http}"]
        result = CliRunner().invoke(main, ["bench", *QUICK, *where, *words])
        assert result.exit_code == status, (result.exit_code, result.output, result.exception)
        return result

    return run


def write_request(path: Path, text: str) -> Path:
    data: dict[str, Any] = {"number": ("FP64", [1.0]), "text": ("BYTES", [text])}
    data |= {"when": ("BYTES", ["2024-01-01"]), "flag": ("BOOL", [True])}
    inputs = [{"name": name, "datatype": kind, "shape": [1], "data": value} for name, (kind, value) in data.items()]
    path.write_text(json.dumps({"inputs": inputs}))
    return path


@pytest.mark.parametrize("grpc", [False, True], ids=["rest", "grpc"])
def test_says_what_was_measured(grpc: bool, bench: Callable[..., Result], service: Running, tmp_path: Path) -> None:
    """Requests were sent over the protocol, their times are in order, and a PNG is one."""
    path = write_request(tmp_path / "request.json", "text")
    found = json.loads(bench("--input", str(path), "--json", grpc=grpc).stdout)
    assert found["protocol"] == ("grpc" if grpc else "rest")
    assert found["requests"] > 0
    assert found["errors"] == 0
    assert found["rate"] == pytest.approx(found["requests"] / found["seconds"], rel=0.01)
    times = [found["latency_ms"][name] for name in ("p50", "p90", "p99", "p99.9", "max")]
    assert times == sorted(times)
    metrics = (service.get("/metrics") or b"").decode()
    counted = [line for line in metrics.splitlines() if line.startswith("inference_requests_total")]
    assert sum(float(line.split()[-1]) for line in counted) > found["requests"]


def test_a_plot(bench: Callable[..., Result], tmp_path: Path) -> None:
    """The histogram is a PNG, too, where one is asked for."""
    pytest.importorskip("matplotlib")
    bench("--png", str(tmp_path / "latencies.png"))
    assert (tmp_path / "latencies.png").read_bytes().startswith(b"\x89PNG")
    assert "its folder is not there" in bench("--png", str(tmp_path / "none" / "x.png"), status=1).stderr
    assert "unknown ending" in bench("--png", str(tmp_path / "x.xyz"), status=2).stderr


def test_table(bench: Callable[..., Result]) -> None:
    """For people there are a table and bars."""
    assert " requests/s\n" in (said := bench().stdout)
    assert "█" in said


def test_rate(bench: Callable[..., Result]) -> None:
    """At a rate there are as many requests as that makes, by however many connections and processes."""
    found = json.loads(bench("--rate", "60", "--processes", "2", "--json").stdout)
    assert found["requests"] == 60
    assert found["processes"] == 2


def test_failures(bench: Callable[..., Result], service: Running, tmp_path: Path) -> None:
    """A request that is refused at once ends the run with the service's words; so does one that is none, or nobody."""
    path = write_request(tmp_path / "request.json", "fault")
    for grpc in False, True:
        said = bench("--input", str(path), status=1, grpc=grpc).stderr
        assert "the first request failed: " in said
        assert "a row is not to my liking" in said
    write_request(path, "text")
    assert json.loads(bench("--input", str(path), "--binary", "--json").stdout)["errors"] == 0
    path.write_text("[1]")
    assert "expected a request" in bench("--input", str(path), status=1).stderr
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    for where in ["--url", f"http://{nowhere}"], ["--grpc", nowhere]:
        assert CliRunner().invoke(main, ["bench", *where, *QUICK]).exit_code == 3


def test_errors_are_counted() -> None:
    """Requests that fail while it runs are counted by what was said, and are not among those that were measured."""
    with gunicorn(ROOT, "tests.service.apps:once()", WORKERS=1) as running:
        result = CliRunner().invoke(main, ["bench", *QUICK, "--url", f"http://{running.http}", "--json"])
    found = json.loads(result.stdout)
    assert result.exit_code == 1
    assert found["requests"] == 0
    (kind,) = found["error_kinds"]
    assert "500: " in kind
    assert found["errors"] > 0


def test_made_up_requests() -> None:
    """A scalar has no rows to repeat; what is refused is told to be made up."""
    with gunicorn(ROOT, "tests.service.apps:scaled()", WORKERS=1) as running:
        where = ["bench", *QUICK, "--url", f"http://{running.http}", "--json", "--rows"]
        assert json.loads(CliRunner().invoke(main, [*where, "2"]).stdout)["errors"] == 0
        result = CliRunner().invoke(main, [*where, "3"])
    assert result.exit_code == 1
    assert "to my liking; the request was made up: --input FILE sends one of yours" in result.stderr


def test_the_host_header() -> None:
    """An IPv6 address is in brackets there, whoever asks; an address without a port has the protocol's own."""
    hosts = set()

    class Model(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            hosts.add(self.headers["Host"])
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            tensor = {"name": "x", "datatype": "FP32", "shape": [-1]}
            body = json.dumps({"name": "m", "inputs": [tensor], "outputs": [tensor]}).encode()
            self.send_response(404 if self.path.endswith("/config") else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6

    try:
        server = Server(("::1", 0), Model)
    except OSError as error:
        pytest.skip(f"::1: {error}")
    with server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = f"[::1]:{server.server_port}"
        result = CliRunner().invoke(main, ["bench", *QUICK, "--url", f"http://{where}", "--model", "m"])
        server.shutdown()
    assert result.exit_code == 0, result.output
    assert hosts == {where}
    for scheme, port in ("http", 80), ("https", 443):
        connection = Service(f"{scheme}://[::1]/prefix").connect()
        assert (connection.host, connection.port) == ("::1", port)


def test_own_limit_is_told() -> None:
    """A client whose processor was full says so, and one that waited does not."""
    assert is_limit(Outcome(busy=0.99))
    assert not is_limit(Outcome(busy=0.5))


@settings(deadline=None)
@given(st.lists(st.floats(1e-6, 1000), min_size=1), st.floats(0, 100))
def test_histogram(times: list[float], percent: float) -> None:
    """A percentile is within 1.6 % of the time that it stands for, and every time is in one bar."""
    histogram, halves = Histogram(), [Histogram(), Histogram()]
    for index, time in enumerate(times):
        histogram.record(time)
        halves[index % 2].record(time)
    wanted = sorted(times)[max(ceil(len(times) * percent / 100), 1) - 1]
    assert histogram.percentile(percent) == pytest.approx(wanted, rel=0.016, abs=1e-6)
    assert sum(count for *_, count in histogram.spread()) == len(times)
    halves[0].add(halves[1])
    assert halves[0].counts == histogram.counts
