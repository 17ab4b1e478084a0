"""`infer`: transports, keys, interrupts, restarts and other servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import grpc
import pytest
import trustme
from click.testing import CliRunner

from app.cli import main
from tests.kit.processes import Running, free_ports, gunicorn, local_settings, started, wait_for
from tests.service.cli.tables import ROOT, ROWS, WANTED, Infer, grpc_at, read_csv, write_csv


def test_name_of_the_model_over_grpc(service: Running, infer: Infer, tmp_path: Path) -> None:
    """Without --model, the name comes from the server's index. If the server has none, the error asks for --model."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    result = CliRunner().invoke(
        main, ["infer", str(path), *grpc_at(service.grpc_address), "-o", str(tmp_path / "out.csv")]
    )
    assert result.exit_code == 0, result.output
    assert read_csv(tmp_path / "out.csv") == WANTED
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    for status, where in (1, f"127.0.0.1:{port}"), (3, f"127.0.0.1:{free_ports(1)[0]}"):
        result = CliRunner().invoke(main, ["infer", str(path), *grpc_at(where)])
        assert result.exit_code == status
        assert result.stderr.endswith("Use --model NAME.\n") == (status == 1)
    server.stop(None)


def test_url_of_grpc(service: Running, tmp_path: Path) -> None:
    """Without --url, the settings locate a local service. A URL of another protocol is invalid."""
    path = write_csv(tmp_path / "in.csv", ROWS)
    words = ["infer", str(path), "-o", str(tmp_path / "out.csv"), "--transport", "grpc"]
    result = CliRunner().invoke(
        main, words, env={"HOST": "127.0.0.1", "GRPC_PORT": str(service.grpc_port)}
    )
    assert result.exit_code == 0, result.output
    assert read_csv(tmp_path / "out.csv") == WANTED
    for url in (
        f"http://{service.http_address}",
        service.grpc_address,
        "grpc://127.0.0.1",
        f"grpc://{service.grpc_address}/path",
    ):
        result = CliRunner().invoke(main, [*words, "--url", url])
        assert result.exit_code == 2
        assert (
            result.stderr
            == "Error: Invalid --url. Expected grpc://HOST:PORT or grpcs://HOST:PORT.\n"
        )


def test_grpc_with_tls(tmp_path: Path) -> None:
    """TLS needs grpcs:// and a certificate that the client trusts. The settings have that of a local service."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    names = ("ca.pem", "TLS_CERT_FILE", "TLS_KEY_FILE")
    for name, blob in zip(
        names, (authority.cert_pem, issued.cert_chain_pems[0], issued.private_key_pem), strict=True
    ):
        blob.write_to_path(tmp_path / name)
    path = write_csv(tmp_path / "in.csv", ROWS)
    words = [
        "infer",
        str(path),
        "-o",
        str(tmp_path / "out.csv"),
        "--retries",
        "0",
        "--transport",
        "grpc",
    ]
    tls = {name: str(tmp_path / name) for name in names[1:]}

    def status(service: Running, *more: str, **settings: str) -> int:
        return CliRunner().invoke(main, [*words, *more], env=settings).exit_code

    def is_ready(service: Running) -> bool:
        return status(service, HOST="127.0.0.1", GRPC_PORT=str(service.grpc_port), **tls) == 0

    with gunicorn(
        ROOT, "tests.service.table_apps:rows()", is_ready=is_ready, FOLDER=tmp_path, **tls
    ) as service:
        assert read_csv(tmp_path / "out.csv") == WANTED
        for scheme, more, expected in (
            ("grpcs", ["--cacert", str(tmp_path / "ca.pem")], 0),
            ("grpcs", [], 3),
            ("grpc", [], 3),
        ):
            assert status(service, "--url", f"{scheme}://{service.grpc_address}", *more) == expected


def test_timeout(tmp_path: Path) -> None:
    """A request that takes longer than --timeout fails with the same remedy on both protocols."""
    with gunicorn(ROOT, "tests.service.apps:waiting()") as running:
        path = write_csv(tmp_path / "in.csv", [{"folder": tmp_path, "name": "first"}])
        for where in ["--url", f"http://{running.http_address}"], grpc_at(running.grpc_address):
            result = CliRunner().invoke(main, ["infer", str(path), *where, "--timeout", "0.3"])
            assert result.exit_code == 1
            assert ". Use a longer --timeout, or use a smaller --batch-size.\n" in result.stderr
        (tmp_path / "go").touch()


def test_api_key(infer: Infer, tmp_path: Path) -> None:
    """--api-key is sent with each request on both protocols."""
    (tmp_path / "keys").write_text("a-key-of-the-tests")
    path = write_csv(tmp_path / "in.csv", ROWS)
    with gunicorn(
        ROOT, "tests.service.table_apps:rows()", FOLDER=tmp_path, API_KEYS_FILE=tmp_path / "keys"
    ) as running:
        for transport in ("rest-binary", "grpc"):
            infer(
                path,
                "-o",
                tmp_path / "out.csv",
                "--api-key",
                "a-key-of-the-tests",
                at=running,
                transport=transport,
            )
            assert read_csv(tmp_path / "out.csv") == WANTED
            assert (
                infer(path, at=running, transport=transport, status=1).stderr.count("API key") == 1
            )


def lines(first: int, last: int) -> bytes:
    rows = (f"{row},text {row},2024-01-01T00:00:00,true,{row}\n" for row in range(first, last))
    return "".join(rows).encode()


def infer_stdin(url: str, out: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start the command in its own process. It reads CSV from standard input."""
    command = [
        sys.executable,
        "-m",
        "app",
        "infer",
        "-",
        "--format",
        "csv",
        "-o",
        str(out),
        "--url",
        url,
    ]
    return subprocess.Popen(
        [*command, *words],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def test_interrupt(service: Running, tmp_path: Path) -> None:
    """Ctrl+C ends the command with status 130. The results so far are in OUTPUT.part."""
    out = tmp_path / "out.csv"
    with infer_stdin(f"http://{service.http_address}", out) as process:
        assert process.stdin
        process.stdin.write(b"number,text,when,flag,whole\n" + lines(0, 200_000))
        part = out.with_name("out.csv.part")
        wait_for(lambda: part.exists() and part.stat().st_size > 0)
        os.killpg(process.pid, signal.SIGINT)
        _, output = process.communicate(timeout=180)
    assert (process.returncode, output) == (130, b"Error: Interrupted\n")
    assert part.read_bytes().startswith(b'"number","text"')
    assert not out.exists()


def test_service_restart_loses_no_row(tmp_path: Path) -> None:
    """No row is lost if the service restarts during a job."""
    settings = local_settings(FOLDER=tmp_path)
    command = [sys.executable, "-m", "gunicorn", "tests.service.table_apps:rows()"]
    out, count = tmp_path / "out.csv", 50_000
    with started(command, ROOT, settings):
        process = infer_stdin(f"http://127.0.0.1:{settings['HTTP_PORT']}", out, "--retries", "20")
        assert process.stdin
        process.stdin.write(b"number,text,when,flag,whole\n" + lines(0, count))
    with started(command, ROOT, settings):
        _, output = process.communicate(lines(count, count + 1000), timeout=120)
    assert process.returncode == 0, output
    assert [row["whole"] for row in read_csv(out)] == list(range(count + 1000))


class OtherServer(BaseHTTPRequestHandler):
    """Another server: it has no /config endpoint, and the first POST gets 502 from a gateway."""

    protocol_version = "HTTP/1.1"
    posts = 0

    def do_GET(self) -> None:
        tensor = {"name": "x", "datatype": "FP32", "shape": [-1]}
        self.respond(
            404 if self.path.endswith("/config") else 200,
            {"name": "m", "inputs": [tensor], "outputs": [tensor]},
        )

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        OtherServer.posts += 1
        tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [0.1]}
        self.respond(
            502 if OtherServer.posts == 1 else 200, {"model_name": "m", "outputs": [tensor]}
        )

    def respond(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_other_servers() -> None:
    """A server without this project's extensions works, and a gateway's 502 is retried."""
    with ThreadingHTTPServer(("127.0.0.1", 0), OtherServer) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        where = ["--url", f"http://127.0.0.1:{server.server_port}", "--model", "m"]
        words = ["infer", "-", "--format", "csv", "--output-format", "jsonl"]
        result = CliRunner().invoke(main, [*words, *where], input=b"x\n5\n")
        server.shutdown()
    assert (result.exit_code, result.stdout) == (0, '{"x":0.1}\n'), result.stderr


@pytest.mark.parametrize("package", ["rich", "pyarrow"])
def test_package_that_is_not_installed(package: str) -> None:
    """A missing package is reported in one line, with the command that installs it."""
    code = f"import sys; sys.modules['{package}'] = None; from app.cli import main; main(['infer', 'x.csv'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (4, "")
    expected = f"Error: Package {package} is not installed. Run pip install --editable '.[batch]'\n"
    assert done.stderr == expected
