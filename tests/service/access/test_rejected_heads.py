"""Requests that are rejected because of their head: the server does not receive their bodies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.kit.processes import Running, gunicorn, resident, wait_for, workers
from tests.service.access.secure_client import KEY, ROOT, WRONG_KEY, Files
from tests.service.runtime.raw_client import LIMIT, Client, body_of, chunked, head_of

FRAMINGS = {
    "length": [f"Content-Length: {LIMIT}"],
    "chunks": ["Transfer-Encoding: chunked"],
    "expectation": [f"Content-Length: {LIMIT}", "Expect: 100-continue"],
    "upgrade": [f"Content-Length: {LIMIT}", "Connection: Upgrade", "Upgrade: websocket"],
}


@pytest.fixture(scope="module", params=["api_keys", "middleware"])
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A text echo that needs a key. The service's own middleware checks it, or the owner's."""
    settings = {}
    app = "with_key_in_middleware"
    if request.param == "api_keys":
        app = "echoing"
        settings = {"API_KEYS_FILE": Files(tmp_path_factory.mktemp("keys")).keys}
    with gunicorn(ROOT, f"tests.service.apps:{app}()", WORKERS=1, **settings) as running:
        yield running


@pytest.fixture
def client(service: Running, stack: ExitStack) -> Client:
    return Client(service.http_port, stack)


def key_field(key: str) -> str:
    return f"Authorization: Bearer {key}"


@pytest.mark.parametrize("framing", FRAMINGS.values(), ids=FRAMINGS)
@pytest.mark.parametrize("credentials", [[], [key_field(WRONG_KEY)]], ids=["no key", "wrong key"])
def test_error_before_the_body(client: Client, framing: list[str], credentials: list[str]) -> None:
    """The client receives the error, and no 100 Continue, before it sends the body."""
    client.send(head_of(b"", *framing, *credentials))
    status, headers, body = client.read_response()
    assert status == 401
    assert headers["connection"] == "close"
    assert list(json.loads(body)) == ["error"]
    assert client.has_ended()


@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_that_follows_is_ignored(client: Client, is_chunked: bool) -> None:
    """A body in the same packet is not parsed as the next request."""
    body = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 10
    framing = f"Content-Length: {len(body)}"
    if is_chunked:
        framing = "Transfer-Encoding: chunked"
        body = chunked(body)
    client.send(head_of(b"", framing) + body)
    assert client.read_response()[0] == 401
    assert client.has_ended()


def test_body_occupies_no_memory(service: Running, stack: ExitStack) -> None:
    """Bodies of clients without a key are discarded while they arrive."""
    (worker,) = workers(service)
    before = resident(worker)
    for _ in range(8):
        client = Client(service.http_port, stack)
        client.send(head_of(b"", f"Content-Length: {LIMIT}"))
        assert client.read_response()[0] == 401
        with suppress(OSError):  # the server closes the connection at some time
            client.send(bytes(LIMIT))
    assert resident(worker) - before < LIMIT


def test_valid_key(client: Client) -> None:
    """The server receives the body of a request with a valid key."""
    body = body_of("a")
    client.send(
        head_of(body, key_field(KEY), "Expect: 100-continue", f"Content-Length: {len(body)}")
    )
    assert client.file.readline() == b"HTTP/1.1 100 Continue\r\n"
    assert client.file.readline() == b"\r\n"
    client.send(body)
    assert client.texts() == ["a"]


def test_check_that_raises(stack: ExitStack) -> None:
    """If the check raises an exception, it is logged, and the middleware decides."""
    with gunicorn(ROOT, "tests.service.apps:with_failing_head_check()", WORKERS=1) as service:
        client = Client(service.http_port, stack)
        body = body_of("a")
        client.send(head_of(body) + body)
        assert client.texts() == ["a"]
        wait_for(lambda: "A check of the head of a request failed" in service.log())
