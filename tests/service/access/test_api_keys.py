"""API keys, on both protocols of a real service."""

from __future__ import annotations

import json
import signal
import ssl
import sys
from base64 import b64encode
from contextlib import ExitStack, closing
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from app.config.api_keys import read_keys
from app.config.settings import read_settings
from app.protocol.errors import ConfigurationError
from grpc_service import messages
from grpc_service.converters import write_request
from tests.kit.processes import (
    Running,
    free_ports,
    gunicorn,
    peak,
    reset_peak,
    started,
    wait_for,
    workers,
)
from tests.kit.silent_call import SilentCall
from tests.kit.stalling_proxy import StallingProxy
from tests.service.access.secure_client import (
    INFER,
    KEY,
    LARGE,
    MODEL_INFER,
    OTHER_KEY,
    ROOT,
    WRONG_KEY,
    Client,
    Files,
    bearer,
    call,
    numbers,
    send_request,
    serve,
)

MIB = 2**20


def basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(text.encode()).decode()}"}


@pytest.fixture
def client_without_key(service: Running, files: Files) -> Client:
    return Client(service, files.ca)


REST_FREE = {
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/test/ready",
    "/v2/models/test/versions/1/ready",
}


def rest_calls() -> list[tuple[str, str]]:
    """Return every method and path of the REST API."""
    from tests.service import apps

    calls = []
    for rule in apps.numbers().url_map.iter_rules():
        path = rule.rule.replace("<name>", "test").replace("<version>", "1")
        calls += [(method, path) for method in sorted(rule.methods or ())]
    return calls


@pytest.mark.parametrize(
    "path", ["/", "/v2/", "/v3", "/v2/models/test/ready/infer", "/v2//health/live"]
)
def test_unknown_paths_need_a_key(
    client_without_key: Client, client_with_key: Client, path: str
) -> None:
    """Without a key, unknown paths return 401, so that clients cannot find out which paths exist."""
    assert client_without_key.rest("GET", path)[0] == 401
    assert client_with_key.rest("GET", path)[0] in (200, 404)


def test_rest_routes_that_need_a_key(client_without_key: Client, client_with_key: Client) -> None:
    """Health checks and metrics need no key. All other REST routes require one."""
    calls = rest_calls()
    assert {path for _, path in calls} > REST_FREE
    with closing(client_without_key.connect()) as connection:
        for method, path in calls:
            status, response = send_request(connection, method, path, None, {})
            assert (status != 401) == (path in REST_FREE or path == "/metrics"), (method, path)
            if status == 401:
                assert response["WWW-Authenticate"] == "Bearer"
                if method != "HEAD":
                    assert list(json.loads(response[""])) == ["error"]
            assert send_request(connection, method, path, None, client_with_key.headers)[0] != 401


def test_grpc_methods_that_need_a_key(client_without_key: Client, client_with_key: Client) -> None:
    """gRPC health checks need no key. All other methods require one, including unknown methods."""
    free = {"ServerLive", "ServerReady", "ModelReady"}
    with client_without_key.channel() as channel:
        for name in [*messages.SERVICE.methods_by_name, "Unknown"]:
            method = f"/{messages.SERVICE_NAME}/{name}"
            assert (call(channel, method, b"", {}) != "UNAUTHENTICATED") == (name in free), name
            assert call(channel, method, b"", client_with_key.headers) != "UNAUTHENTICATED"
        status = (
            health_pb2_grpc.HealthStub(channel)
            .Check(health_pb2.HealthCheckRequest(), timeout=180)
            .status
        )
        assert status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize(
    "path",
    [
        b"/inference.GRPCInferenceService/ServerLive",
        b"/inference.GRPCInferenceService/ModelReady",
        b"/grpc.health.v1.Health/Check",
    ],
)
def test_silent_calls_without_a_key(
    client_without_key: Client, path: bytes, stack: ExitStack
) -> None:
    """Calls of clients without a key that send no message do not delay others."""
    channel = stack.enter_context(client_without_key.channel())
    silent = [stack.enter_context(closing(SilentCall(channel, path))) for _ in range(100)]
    health = health_pb2_grpc.HealthStub(channel)
    for _ in range(3):
        reply = health.Check(health_pb2.HealthCheckRequest(), timeout=180)
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
    assert not any(call.result.done() for call in silent)


def test_memory_of_messages_without_a_key(files: Files, stack: ExitStack) -> None:
    """Incomplete messages of clients without a key occupy little memory together."""
    app = "tests.service.apps:echoing()"
    service = stack.enter_context(gunicorn(ROOT, app, API_KEYS_FILE=files.keys))
    proxy = StallingProxy(service.grpc_port, 40 * MIB, stack)
    idle = reset_peak(workers(service))
    calls = []
    for _ in range(12):
        options = [("grpc.max_send_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        channel = stack.enter_context(grpc.insecure_channel(proxy.address, options))
        invoke = channel.unary_unary("/grpc.health.v1.Health/Check")
        calls.append(invoke.future(bytes(60 * MIB), timeout=180))
    # One is not limited: it is not compared with others.
    wait_for(lambda: sum(call.done() for call in calls) >= len(calls) - 1)
    ended = [call.code() for call in calls if call.done()]
    assert set(ended) == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert peak(workers(service)) - idle < 128 * MIB


@pytest.mark.parametrize(
    "path",
    [
        "/inference.GRPCInferenceService/ServerLive",
        "/inference.GRPCInferenceService/ModelReady",
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
    ],
)
def test_limit_of_bytes_without_a_key(client_without_key: Client, path: str) -> None:
    """A message for a method that needs no key can have at most 4 KiB, also after decompression."""
    # A text of an unknown field, which all methods ignore.
    valid_body = b"\xfa\x01\xfc\x1f" + bytes(2**12 - 4)
    with client_without_key.channel() as channel:
        invoke = channel.unary_stream(path)
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            responses = invoke(valid_body + b"\0", timeout=180, compression=compression)
            assert responses.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert responses.details() == "Message too large. Expected at most 4096 bytes."

        responses = invoke(valid_body, timeout=180)
        if path.endswith("ModelReady"):
            assert responses.code() == grpc.StatusCode.NOT_FOUND
        else:
            assert next(responses)
        responses.cancel()


def test_watch_without_a_message_needs_no_thread(
    client_without_key: Client, stack: ExitStack
) -> None:
    """A client without a key cannot occupy the threads of streams with calls of Watch that have no message."""
    channel = stack.enter_context(client_without_key.channel())
    path = b"/grpc.health.v1.Health/Watch"
    silent = [stack.enter_context(closing(SilentCall(channel, path))) for _ in range(300)]
    watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=180)
    assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    watch.cancel()
    assert not any(call.result.done() for call in silent)


def test_reflection_needs_a_key(client_without_key: Client) -> None:
    """Server reflection requires a key."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with client_without_key.channel() as channel:
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        assert list(reflect(iter([request]), metadata=[("x-api-key", KEY)], timeout=180))
        with pytest.raises(grpc.RpcError) as caught:
            list(reflect(iter([request]), timeout=180))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("headers", "is_accepted"),
    [
        (bearer(KEY), True),
        (bearer(OTHER_KEY), True),
        ({"authorization": f"bearer  {KEY}"}, True),
        ({"X-Api-Key": KEY}, True),
        ({"X-Api-Key": KEY, **bearer(WRONG_KEY)}, True),
        ({"X-Api-Key": WRONG_KEY, **bearer(OTHER_KEY)}, True),
        (basic(f"anyone:{KEY}"), True),
        (basic(f":{OTHER_KEY}"), True),
        (basic(f"anyone:{WRONG_KEY}"), False),
        (basic(f"{KEY}:anyone"), False),
        (basic(KEY), False),
        ({"Authorization": "Basic /w=="}, False),
        (bearer(WRONG_KEY), False),
        (bearer(KEY[:-1]), False),
        (bearer(KEY + "0"), False),
        (bearer(KEY.upper()), False),
        (bearer(""), False),
        ({"Authorization": KEY}, False),
        ({"Authorization": f"Basic {KEY}"}, False),
        ({"Authorization": "Bearer"}, False),
        ({"X-Api-Key": f"Bearer {KEY}"}, False),
        ({"X-Api-Key": "# who has which"}, False),
        ({"X-Api-Key": f"{KEY},{OTHER_KEY}"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_api_key_headers(
    client_without_key: Client, headers: dict[str, str], is_accepted: bool
) -> None:
    """Both protocols accept a complete key in `Authorization` or `X-Api-Key`, and reject all other values."""
    assert client_without_key.rest("GET", "/v2", headers=headers)[0] == (
        200 if is_accepted else 401
    )
    status = client_without_key.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata", headers=headers)
    assert status == ("OK" if is_accepted else "UNAUTHENTICATED")


AUTHORIZATION = "authorization"
API_KEY = "x-api-key"
VALID = f"Bearer {KEY}"
WRONG = f"Bearer {WRONG_KEY}"


@pytest.mark.parametrize(
    "headers",
    [
        [(AUTHORIZATION, VALID), (AUTHORIZATION, WRONG)],
        [(AUTHORIZATION, WRONG), (AUTHORIZATION, VALID)],
        [(AUTHORIZATION, VALID), (AUTHORIZATION, VALID)],
        [(AUTHORIZATION, VALID), (AUTHORIZATION, "Digest a")],
        [(AUTHORIZATION, "Digest a"), (AUTHORIZATION, VALID)],
        [(API_KEY, KEY), (API_KEY, WRONG_KEY)],
        [(API_KEY, WRONG_KEY), (API_KEY, KEY)],
        [(API_KEY, KEY), (API_KEY, KEY)],
        [(API_KEY, KEY), (API_KEY, "")],
        [(API_KEY, ""), (API_KEY, KEY)],
        [(AUTHORIZATION, VALID), (API_KEY, KEY), (API_KEY, KEY)],
        [(API_KEY, KEY), (AUTHORIZATION, VALID), (AUTHORIZATION, VALID)],
        [(API_KEY, KEY), (AUTHORIZATION, VALID), (AUTHORIZATION, WRONG)],
        [*basic(f"a:{KEY}").items(), *basic(f"b:{KEY}").items()],
        [(API_KEY, KEY), *basic(f"a:{KEY}").items(), *basic(f"b:{KEY}").items()],
    ],
    ids=str,
)
def test_repeated_key_headers(client_without_key: Client, headers: list[tuple[str, str]]) -> None:
    """Both protocols reject repeated key headers, because a proxy may have checked another one of them."""
    with closing(client_without_key.connect()) as connection:
        connection.putrequest("GET", "/v2")
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == 401

    metadata = [(name.lower(), value) for name, value in headers]
    with client_without_key.channel() as channel:
        describe = channel.unary_unary(f"/{messages.SERVICE_NAME}/ServerMetadata")
        with pytest.raises(grpc.RpcError) as caught:
            describe(b"", metadata=metadata, timeout=180)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("scheme", ["Digest", "AWS4-HMAC-SHA256"])
def test_authorization_with_commas(client_without_key: Client, scheme: str) -> None:
    """A valid x-api-key is sufficient next to an Authorization header of a scheme with commas, as for a proxy."""
    headers = {API_KEY: KEY, AUTHORIZATION: f"{scheme} Credential=a, Signature=b"}
    assert client_without_key.rest("GET", "/v2", headers=headers)[0] == 200
    method = f"/{messages.SERVICE_NAME}/ServerMetadata"
    assert client_without_key.grpc(method, headers=headers) == "OK"


@pytest.mark.parametrize("key", [None, WRONG_KEY])
def test_large_request_without_a_valid_key(client_with_key: Client, key: str | None) -> None:
    """The client of a large request can read the error, although the server does not receive its body."""
    body, headers = numbers(LARGE).to_http()
    invalid_headers = bearer(key) if key else {}
    with closing(client_with_key.connect()) as connection, client_with_key.channel() as channel:
        status, response = send_request(
            connection, "POST", INFER, body, {**headers, **invalid_headers}
        )
        assert status == 401
        assert "API key" in json.loads(response[""])["error"]
        assert response["Connection"] == "close"
        valid_headers = {**headers, **client_with_key.headers}
        assert send_request(connection, "POST", INFER, body, valid_headers)[0] == 200
        message = write_request(numbers(LARGE))
        assert call(channel, MODEL_INFER, message, invalid_headers) == "UNAUTHENTICATED"
        assert call(channel, MODEL_INFER, message, client_with_key.headers) == "OK"


def test_checks_key_before_parsing_body(client_without_key: Client) -> None:
    """Without a key, a malformed request is rejected as unauthenticated, because its body is not parsed."""
    assert client_without_key.rest("POST", INFER, b"{")[0] == 401
    assert client_without_key.grpc(MODEL_INFER, b"\xff") == "UNAUTHENTICATED"


def test_server_and_content_type_options_headers(client_with_key: Client) -> None:
    """The Server header has the service's name, and browsers may not guess the content type of JSON responses."""
    status, response = client_with_key.rest("GET", "/v2")
    assert (status, response["Server"]) == (200, json.loads(response[""])["name"])
    assert response["X-Content-Type-Options"] == "nosniff"


def test_sighup_reloads_keys_and_certificates(tmp_path: Path) -> None:
    """SIGHUP reloads keys and certificates on both ports. If a file is invalid, the service keeps its current keys."""
    files = Files(tmp_path)
    settings = {**files.tls, "API_KEYS_FILE": files.keys}

    def certificates() -> set[str]:
        ports = running.http_port, running.grpc_port
        return {
            ssl.get_server_certificate(("127.0.0.1", port), timeout=180).strip() for port in ports
        }

    with serve(files, **settings) as running:
        client = Client(running, files.ca)
        assert certificates() == {files.cert.read_text().strip()}
        files.keys.write_text("short")
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "Reload rejected: API_KEYS_FILE=" in running.log())
        assert client.rest("GET", "/v2", headers=bearer(KEY))[0] == 200
        files.keys.write_text(WRONG_KEY)
        for new, old in zip(
            files.issue(files.authority, "127.0.0.1"), (files.cert, files.key), strict=True
        ):
            old.write_bytes(new.read_bytes())
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: running.log().count("Worker exiting") == 1)
        assert certificates() == {files.cert.read_text().strip()}
        assert client.rest("GET", "/v2", headers=bearer(KEY))[0] == 401
        assert client.rest("GET", "/v2", headers=bearer(WRONG_KEY))[0] == 200
        assert (
            client.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata", headers=bearer(WRONG_KEY))
            == "OK"
        )


def test_standalone_grpc_uses_tls_and_keys(files: Files) -> None:
    """`python -m grpc_service` uses the same TLS files and API keys."""
    ports = dict(zip(("HTTP_PORT", "GRPC_PORT"), free_ports(2), strict=True))
    environment = {
        "HOST": "127.0.0.1",
        "SHUTDOWN_DELAY_SECONDS": 0,
        **ports,
        **files.tls,
        "API_KEYS_FILE": files.keys,
    }

    def is_ready(running: Running) -> bool:
        return Client(running, files.ca).grpc(f"/{messages.SERVICE_NAME}/ServerReady") == "OK"

    with started([sys.executable, "-m", "grpc_service"], ROOT, environment, is_ready) as running:
        client = Client(running, files.ca)
        assert client.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata") == "UNAUTHENTICATED"
        assert client.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata", headers=bearer(KEY)) == "OK"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no keys. Expected keys"),
        ("# nothing\n\n", "no keys. Expected keys"),
        (f"{KEY}\nsecret\n", "invalid key in line 2. Expected keys of 16 to 1024"),
        ("a key that has blanks", "invalid key in line 1. Expected keys"),
        ("a,key,that,has,commas", "invalid key in line 1. Expected keys"),
        ("ключ-ключ-ключ-ключ", "invalid key in line 1. Expected keys"),
    ],
)
def test_rejects_invalid_key_files(tmp_path: Path, text: str, expected: str) -> None:
    """A key file without keys, or with an invalid one, is a configuration error that does not contain the key."""
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=f"^API_KEYS_FILE=.*{expected}") as caught:
        read_settings({"API_KEYS_FILE": str(path)})
    assert "secret" not in str(caught.value)


def test_keys_are_not_kept_in_memory(files: Files) -> None:
    """Workers do not keep the text of the keys in memory."""
    assert KEY not in repr(vars(read_keys(files.keys)))


def test_metrics_count_unauthenticated_requests(client_without_key: Client) -> None:
    """The metrics of both protocols count requests without a valid key."""
    assert client_without_key.rest("POST", INFER, b"{}")[0] == 401
    assert client_without_key.grpc(MODEL_INFER, b"") == "UNAUTHENTICATED"
    metrics = client_without_key.rest("GET", "/metrics")[1][""].decode()
    for protocol, code in (("rest", "401"), ("grpc", "UNAUTHENTICATED")):
        labels = f'code="{code}",model="test",operation="infer",protocol="{protocol}",version="1"'
        assert f"inference_requests_total{{{labels}}}" in metrics
