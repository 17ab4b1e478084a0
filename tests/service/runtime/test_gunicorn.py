"""The service as users run it, under gunicorn with both protocols."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import closing
from email.utils import formatdate

import pytest

from tests.kit.processes import Running, gunicorn, wait_for
from tests.service.runtime.commands import ROOT, start


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """A BYTES echo with two workers and a limit of 1 MiB per request."""
    with gunicorn(
        ROOT, "tests.service.apps:echoing()", WORKERS=2, MAX_REQUEST_BYTES=2**20
    ) as service:
        yield service


@pytest.fixture
def connection(running: Running) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(running.http_address, timeout=180)
    yield connection
    connection.close()


@pytest.mark.parametrize("allowed", ["127.0.0.1", "10.0.0.1,127.0.0.0/8", "*", "10.0.0.1", ""])
def test_forwarded_proto(allowed: str) -> None:
    """X-Forwarded-Proto sets the URL scheme of its request if FORWARDED_ALLOW_IPS contains the client."""
    scheme = "http" if allowed in ("10.0.0.1", "") else "https"
    with (
        gunicorn(ROOT, "tests.service.apps:url_route()", FORWARDED_ALLOW_IPS=allowed) as service,
        closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection,
    ):
        for headers, expected in [({"X-Forwarded-Proto": "https"}, scheme), ({}, "http")] * 2:
            connection.request("GET", "/where", headers=headers)
            assert (
                connection.getresponse().read().decode()
                == f"{expected}://{service.http_address}/where"
            )


@pytest.mark.parametrize("disabled", ["", "worker"])
def test_headers_do_not_change_the_path(disabled: str) -> None:
    """By default, the path of a request is that of its target, whatever headers a trusted proxy forwards."""
    paths = {
        "/v2/health/live": ({"PATH_INFO": "/metrics"}, 200),
        "/v2/metrics": ({"SCRIPT_NAME": "/v2"}, 404),
        "/where": ({"SCRIPT_NAME": "/a", "PATH_INFO": "/metrics"}, 200),
    }
    settings = {"FORWARDED_ALLOW_IPS": "*", "DISABLE_OPTIMIZATIONS": disabled}
    bodies = {}
    with (
        gunicorn(ROOT, "tests.service.apps:url_route()", **settings) as service,
        closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection,
    ):
        for path, (headers, status) in paths.items():
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            bodies[path] = response.read().decode()
            assert response.status == status, path

    assert bodies["/v2/health/live"] == '{"live":true}'
    assert bodies["/where"] == f"http://{service.http_address}/where"


@pytest.mark.parametrize("disabled", ["", "worker"])
def test_script_name_of_a_proxy(disabled: str) -> None:
    """With --forwarder-headers SCRIPT_NAME, a proxy that keeps a prefix of the path can name it."""
    settings = {
        "GUNICORN_CMD_ARGS": "--forwarder-headers SCRIPT_NAME",
        "DISABLE_OPTIMIZATIONS": disabled,
    }
    with (
        gunicorn(ROOT, "tests.service.apps:url_route()", **settings) as service,
        closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection,
    ):
        for headers, prefix in [({"SCRIPT_NAME": "/a", "PATH_INFO": "/b"}, "/a"), ({}, "")] * 2:
            connection.request("GET", f"{prefix}/where", headers=headers)
            url = connection.getresponse().read().decode()
            assert url == f"http://{service.http_address}{prefix}/where"


@pytest.mark.parametrize("disabled", ["", "worker"])
def test_script_name_of_the_environment(disabled: str) -> None:
    """The variable SCRIPT_NAME has no effect, and the log says so. Probes, for example, know no prefix."""
    settings = {"SCRIPT_NAME": "/a", "DISABLE_OPTIMIZATIONS": disabled}
    with gunicorn(ROOT, "tests.service.apps:url_route()", **settings) as service:
        url = service.get("/where")
    assert url == f"http://{service.http_address}/where".encode()
    assert "SCRIPT_NAME has no effect. Let the proxy remove the path prefix." in service.log()


def test_date_header(connection: http.client.HTTPConnection) -> None:
    """The Date header of each response has the current second."""
    dates = set()

    def has_second_passed() -> bool:
        earliest = int(time.time())
        connection.request("GET", "/v2/health/live")
        response = connection.getresponse()
        response.read()
        date = response.headers["Date"]
        assert date in [
            formatdate(second, usegmt=True) for second in range(earliest, int(time.time()) + 1)
        ]
        dates.add(date)
        return len(dates) > 2

    wait_for(has_second_passed)


@pytest.mark.parametrize("path", ["/static/page.js", "/v2/docs/openapi.json", "/v2/docs/index.css"])
def test_files_have_one_date(connection: http.client.HTTPConnection, path: str) -> None:
    """RFC 9110, 5.3: the response with a file has one Date header."""
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    assert response.status == 200
    assert len(response.headers.get_all("Date")) == 1


@pytest.mark.parametrize(
    ("command", "variable"),
    [
        (("gunicorn", "app:create_app()"), "HTTP_PORT"),
        (("gunicorn", "app:create_app()"), "GRPC_PORT"),
        (("grpc_service",), "GRPC_PORT"),
    ],
)
def test_port_in_use_stops_startup(
    running: Running, command: tuple[str, ...], variable: str
) -> None:
    """Startup fails with an error that names a port in use, even though the workers of one service share ports."""
    port = running.http_port if variable == "HTTP_PORT" else running.grpc_port
    done = start(*command, **{variable: str(port)})
    assert done.returncode != 0
    assert f"Cannot start: {variable}={port}" in done.stderr
    assert "Traceback" not in done.stderr
