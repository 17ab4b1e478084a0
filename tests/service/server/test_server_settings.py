"""gunicorn's settings with the server's worker: their effects, and the warning about ignored settings."""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from gunicorn.config import KNOWN_SETTINGS

from app.server.worker import IGNORED_SETTINGS
from tests.kit.processes import Running, wait_for, workers
from tests.kit.standalone import ROOT, connect, exchange, read_all, read_replies, start

README = ROOT / "app" / "server" / "README.md"
LINE, FIELDS, FIELD = 100, 3, 50
# Settings that need no row in the README. The worker leaves them to gunicorn, or uses them as gunicorn documents them.
# Only some have tests. The list makes a release of gunicorn with a new setting fail, so that someone classifies it.
NOT_IN_README = """
backlog bind ca_certs capture_output cert_reqs certfile chdir check_config child_exit ciphers config control_socket
control_socket_disable control_socket_mode daemon default_proc_name dirty_apps dirty_graceful_timeout dirty_post_fork
dirty_threads dirty_timeout dirty_worker_exit dirty_worker_init dirty_workers enable_backlog_metric
enable_stdio_inheritance errorlog forwarded_allow_ips forwarder_headers group initgroups keyfile logconfig
logconfig_dict logconfig_json logger_class loglevel max_requests max_requests_jitter nworkers_changed on_dirty_starting
on_exit on_reload on_starting paste pidfile post_fork post_worker_init pre_exec pre_fork preload_app print_config
proc_name pythonpath raw_env raw_paste_global_conf reload reload_engine reload_extra_files reuse_port
secure_scheme_headers spew ssl_context ssl_version syslog syslog_addr syslog_facility syslog_prefix threads timeout
tmp_upload_dir umask user when_ready worker_abort worker_class worker_exit worker_int worker_tmp_dir workers wsgi_app
""".split()  # noqa: SIM905 - a list would fill two screens
HOOKS = """
def pre_request(worker, request):
    worker.log.info("before %s %s?%s", request.method, request.path, request.query)
    if request.path == "/rejected":
        raise LookupError("of the hook")

def post_request(worker, request, environ, response):
    worker.log.info("after %s %s %s %d", environ["PATH_INFO"], response.status, dict(response.headers), response.sent)
"""


@pytest.fixture(scope="module")
def limited() -> Iterator[Running]:
    limits = {"line": LINE, "fields": FIELDS, "field_size": FIELD}
    with start(*[f"--limit-request-{name}={value}" for name, value in limits.items()]) as running:
        yield running


def respond(service: Running, data: bytes) -> list[int]:
    return [reply.status for reply in read_replies(exchange(service.http_port, data))]


def get(service: Running, target: str = "/a", *fields: str) -> int:
    """Return the status of the only response."""
    data = "\r\n".join([f"GET {target} HTTP/1.1", "Host: x", *fields, "", ""]).encode()
    [status] = respond(service, data)
    return status


@pytest.mark.parametrize(("excess", "status"), [(0, 200), (1, 414), (10_000, 414)])
def test_limit_request_line(limited: Running, excess: int, status: int) -> None:
    """limit_request_line counts the bytes of the request line without its end."""
    target = "/" + "a" * (LINE - len("GET / HTTP/1.1") + excess)
    assert get(limited, target) == status


def test_limits_of_a_chunked_upgrade() -> None:
    """The limits of the head apply to the client's head only, also if the server ignores an Upgrade field."""
    target = "/" + "a" * (LINE - len("GET / HTTP/1.1"))
    fields = ("Connection: Upgrade", "Upgrade: h2c", "Transfer-Encoding: chunked")
    head = "\r\n".join([f"POST {target} HTTP/1.1", "Host: x", *fields, "", ""]).encode()
    with start("--limit-request-line", str(LINE), "--limit-request-fields", "4") as service:
        assert respond(service, head + b"5\r\nhello\r\n0\r\n\r\n") == [200]


@pytest.mark.parametrize(("excess", "status"), [(0, 200), (1, 431)])
def test_limit_request_fields(limited: Running, excess: int, status: int) -> None:
    """limit_request_fields counts header fields."""
    assert get(limited, "/a", *["A: b"] * (FIELDS - 1 + excess)) == status


@pytest.mark.parametrize(("excess", "status"), [(0, 200), (1, 431), (10_000, 431)])
def test_limit_request_field_size(limited: Running, excess: int, status: int) -> None:
    """limit_request_field_size counts the bytes of a header field with its end."""
    assert get(limited, "/a", "A: " + "b" * (FIELD - len("A: \r\n") + excess)) == status


def test_no_limits() -> None:
    """0 means unlimited, up to the 32 KiB that the server allows for a head."""
    with start("--limit-request-line", "0", "--limit-request-field_size", "0") as service:
        assert get(service, "/" + "a" * 12_000, "A: " + "b" * 12_000) == 200
        assert get(service, "/" + "a" * 100_000) in (414, 431)
        assert get(service, "/a", "A: " + "b" * 100_000) == 431


@pytest.mark.parametrize("options", [[], ["--workers", "2"]], ids=["one worker", "two workers"])
def test_max_requests(options: list[str]) -> None:
    """max_requests replaces the worker, and no request fails."""
    with start("--max-requests", "10", "--max-requests-jitter", "5", *options) as service:
        first = workers(service)
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(lambda _: get(service), range(100))) == {200}
        wait_for(lambda: not first & workers(service))
        assert get(service) == 200
    assert service.log().count("Autorestarting worker") >= 100 // 15
    assert "[ERROR]" not in service.log()


def test_max_requests_closes_persistent_connections() -> None:
    """Before a worker is replaced, its last response on a persistent connection has `Connection: close`."""
    closes = []
    with (
        start("--max-requests", "5") as service,
        closing(http.client.HTTPConnection(service.http_address)) as connection,
    ):
        for _ in range(20):
            connection.request("GET", "/a")
            response = connection.getresponse()
            response.read()
            closes.append(response.headers["Connection"] == "close")
    assert closes.count(True) >= 3
    assert closes.count(False) >= 10


def test_worker_connections() -> None:
    """The connection that has been idle for longest is closed if there are more than worker_connections."""
    request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
    with start("--worker-connections", "3", "--keep-alive", "600") as service:
        clients = []
        for _ in range(5):
            clients.append(connect(service.http_port))
            clients[-1].sendall(request)
            assert clients[-1].recv(2**16).startswith(b"HTTP/1.1 200")
        oldest, newest = clients[:2], clients[2:]
        assert [client.recv(1) for client in oldest] == [b"", b""]
        for client in newest:
            client.sendall(request)
            assert client.recv(2**16).startswith(b"HTTP/1.1 200")
        for client in clients:
            client.close()


def test_worker_connections_closes_no_request() -> None:
    """A connection with an incomplete request stays open at the limit, if another one is idle."""
    head = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    with (
        start("--worker-connections", "3", "--keep-alive", "600") as service,
        connect(service.http_port) as client,
        ExitStack() as stack,
    ):
        client.sendall(head)
        assert client.recv(2**16) == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert get(service) == 200  # so the thread that sent 100 Continue waits for events again
        others = [stack.enter_context(connect(service.http_port)) for _ in range(5)]
        assert [other.recv(1) for other in others[:3]] == [b""] * 3
        client.sendall(b"hello")
        [reply] = read_replies(read_all(client))
    assert json.loads(reply.body)["body"] == "hello"


def test_open_files_limit_without_busy_loop() -> None:
    """A worker that cannot accept a connection because of the limit on open files does not use a full CPU core."""
    with start(app="tests.service.server.applications:by_path") as service:
        data = b"GET /run-out-of-files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        [reply] = read_replies(exchange(service.http_port, data))
    assert float(reply.body) < 0.3


def test_keepalive() -> None:
    """An idle connection is closed after `keepalive` seconds, before and after a request."""
    with (
        start("--keep-alive", "1") as service,
        connect(service.http_port) as unused,
        connect(service.http_port) as used,
    ):
        used.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"\r\nConnection: keep-alive\r\n" in used.recv(2**16)
        assert [used.recv(1), unused.recv(1)] == [b"", b""]


def test_no_keepalive() -> None:
    """Without keepalive, each connection serves one request."""
    with start("--keep-alive", "0") as service:
        request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
        [reply] = read_replies(exchange(service.http_port, request + request))
        assert reply.headers["Connection"] == "close"


def test_no_keepalive_of_a_slow_client() -> None:
    """Without keepalive, a client has time for its first request, but shutdown soon closes an unused connection."""
    graceful = (
        "--graceful-timeout",
        "3600",
    )  # so that only the server closes the unused connection
    with start("--keep-alive", "0", *graceful) as service, connect(service.http_port) as client:
        assert not select.select([client], [], [], 2)[0]
        client.sendall(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_all(client).startswith(b"HTTP/1.1 200 ")
        with connect(service.http_port) as unused:
            service.process.terminate()
            assert unused.recv(1) == b""


def test_unix_socket(tmp_path: Path) -> None:
    """The server listens on a Unix socket, whose clients are trusted proxies."""
    path = tmp_path / "server.sock"
    with (
        start("-b", f"unix:{path}", "--forwarded-allow-ips", ""),
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.bind(str(tmp_path / "client.sock"))  # has an address, unlike most clients
        client.connect(str(path))
        client.sendall(
            b"GET /a HTTP/1.1\r\nHost: x\r\nX-Forwarded-Proto: https\r\nConnection: close\r\n\r\n"
        )
        [reply] = read_replies(read_all(client))
    assert json.loads(reply.body)["scheme"] == "https"


def test_request_hooks(tmp_path: Path) -> None:
    """The hooks pre_request and post_request get the request, the environ and the response."""
    config = tmp_path / "config.py"
    config.write_text(HOOKS)
    with start("-c", str(config)) as service:
        assert get(service, "/%61?b=c") == 200
        assert get(service, "/rejected") == 500
        wait_for(lambda: "after /rejected" in service.log())
    log = service.log()
    assert "after /rejected 500 Internal Server Error {'Content-Type': 'application/json'}" in log
    assert "before GET /%61?b=c\n" in log
    assert re.search(r"after /a 200 OK \{'Content-Type': 'application/json'\} \d{2,}\n", log), log
    assert "LookupError: of the hook" in log


def test_ignored_settings() -> None:
    """One warning at startup names the settings that have no effect."""
    with start("--access-logfile", "-", "--proxy-protocol", "--workers", "1") as service:
        assert get(service) == 200
    warnings = [line for line in service.log().splitlines() if "[WARNING]" in line]
    assert len(warnings) == 1
    assert warnings[0].endswith("Ignored settings of gunicorn: accesslog, proxy_protocol")


def test_no_ignored_settings(limited: Running) -> None:
    """The server logs no warning if all settings work."""
    assert "[WARNING]" not in limited.log()


def test_readme_lists_settings_with_limits() -> None:
    """The README's table has every setting of gunicorn with limits, and its row shows whether a warning names it."""
    rows = re.findall(r"^\| (.*) \| (.*) \|$", README.read_text(), re.MULTILINE)
    ignored = {
        name
        for names, effect in rows
        if "warning" in effect
        for name in re.findall(r"`(\w+)`", names)
    }
    listed = {name for names, _ in rows for name in re.findall(r"`(\w+)`", names)}
    assert ignored == set(IGNORED_SETTINGS)
    assert {setting.name for setting in KNOWN_SETTINGS} <= listed | {*NOT_IN_README}
    assert not listed & {*NOT_IN_README}
