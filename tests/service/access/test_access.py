"""TLS, client certificates and API keys, on both protocols of a real service."""

from __future__ import annotations

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import trustme
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from app.config.api_keys import read_keys
from app.config.settings import read_settings
from app.config.tls import server_context
from app.protocol.errors import ConfigurationError
from app.protocol.types import InferenceRequest, RequestInput
from grpc_service import messages
from grpc_service.converters import write_request
from tests.service.processes import Running, free_ports, gunicorn, started, wait_for

ROOT = Path(__file__).parents[3]
KEY, OTHER_KEY, WRONG_KEY = ("first-key-0123456789", "second-key-012345678", "wrong-key-0123456789")
INFER = "/v2/models/test/infer"
MODEL_INFER = f"/{messages.SERVICE_NAME}/ModelInfer"
LARGE = 2**21


class Files:
    """Certificates of two authorities, private keys and API keys, as files in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.authority, self.stranger = trustme.CA(), trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.cert, self.key = self.issue(self.authority, "127.0.0.1")
        self.keys = folder / "keys.txt"
        self.keys.write_text(f"# who has which\n{KEY}\n\n  {OTHER_KEY}  \n")

    def issue(self, authority: trustme.CA, name: str) -> tuple[Path, Path]:
        """Issue a certificate. Return the paths of the certificate and its private key."""
        issued = authority.issue_cert(name)
        serial = len(list(self.folder.iterdir()))
        cert, key = self.folder / f"{serial}.crt", self.folder / f"{serial}.key"
        issued.cert_chain_pems[0].write_to_path(cert)
        issued.private_key_pem.write_to_path(key)
        return cert, key

    @property
    def tls(self) -> dict[str, Path]:
        return {"TLS_CERT_FILE": self.cert, "TLS_KEY_FILE": self.key}


@dataclass
class Client:
    """A client of `service` that trusts the authorities in `ca`. `identity` is its certificate and private key."""

    service: Running
    ca: Path
    identity: tuple[Path, Path] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.ca)
        if self.identity:
            context.load_cert_chain(*self.identity)
        return http.client.HTTPSConnection("127.0.0.1", self.service.http_port, timeout=60, context=context)

    def channel(self) -> grpc.Channel:
        key, cert = [path.read_bytes() for path in self.identity[::-1]] if self.identity else (None, None)
        credentials = grpc.ssl_channel_credentials(self.ca.read_bytes(), key, cert)
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.secure_channel(self.service.grpc, credentials, unlimited)

    def rest(self, method: str, path: str, body: bytes | None = None, headers: Any = ()) -> tuple[int, Any]:
        """Return the status, and a dict of the headers with the body under the key ""."""
        with closing(self.connect()) as connection:
            return ask(connection, method, path, body, {**self.headers, **dict(headers)})

    def grpc(self, method: str, body: bytes = b"", headers: Any = ()) -> str:
        """Return the status of a call. Its request is empty by default."""
        with self.channel() as channel:
            return call(channel, method, body, {**self.headers, **dict(headers)})


def ask(connection: Any, method: str, path: str, body: bytes | None, headers: Any) -> tuple[int, Any]:
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    return response.status, {**dict(response.getheaders()), "": response.read()}


def call(channel: grpc.Channel, method: str, body: bytes, headers: dict[str, str]) -> str:
    metadata = [(name.lower(), value) for name, value in headers.items()]
    try:
        channel.unary_unary(method)(body, metadata=metadata, timeout=60)
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def basic(text: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(text.encode()).decode()}"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("doors"))


def serve(files: Files, app: str = "numbers", client: dict[str, Any] | None = None, **settings: Any) -> Any:
    """Run the service under gunicorn, and yield it when it is ready for a Client with the fields in `client`."""

    def is_ready(service: Running) -> bool:
        try:
            return Client(service, files.ca, **client or {}).rest("GET", "/v2/health/ready")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    environment = {"WORKERS": 1, **settings}
    return gunicorn(ROOT, f"tests.service.apps:{app}()", is_ready=is_ready, **environment)


@pytest.fixture(scope="module")
def service(files: Files) -> Iterator[Running]:
    """An FP32 echo with TLS and API keys, which must not be in its log."""
    with serve(files, **files.tls, API_KEYS_FILE=files.keys) as running:
        yield running
        assert KEY not in running.log()
        assert WRONG_KEY not in running.log()


@pytest.fixture
def anyone(service: Running, files: Files) -> Client:
    return Client(service, files.ca)


@pytest.fixture
def known(service: Running, files: Files) -> Client:
    return Client(service, files.ca, headers=bearer(KEY))


def numbers(count: int) -> InferenceRequest:
    return InferenceRequest([RequestInput("x", "FP32", [count], np.arange(count, dtype="f4"))], "test")


def test_large_messages_over_tls(known: Client) -> None:
    """Requests and responses of several MiB pass through TLS on a persistent connection."""
    with closing(known.connect()) as connection, known.channel() as channel:
        for count in (1, LARGE, 3000):
            body, headers = numbers(count).to_http()
            status, answer = ask(connection, "POST", INFER, body, {**headers, **known.headers})
            assert status == 200
            assert answer[""].endswith(np.arange(count, dtype="f4").tobytes())
            assert call(channel, MODEL_INFER, write_request(numbers(count)), known.headers) == "OK"


def test_rejects_connections_without_tls(service: Running, known: Client) -> None:
    """Both ports reject connections without TLS, and continue to serve other clients."""
    with closing(http.client.HTTPConnection(service.http, timeout=60)) as connection:
        connection.request("GET", "/v2/health/live")
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
    with grpc.insecure_channel(service.grpc) as channel:
        assert call(channel, f"/{messages.SERVICE_NAME}/ServerLive", b"", {}) == "UNAVAILABLE"
    assert known.rest("GET", "/v2")[0] == 200


def test_client_rejects_certificate_of_unknown_authority(service: Running, files: Files) -> None:
    """A client that trusts only another authority does not connect to the service."""
    other = files.folder / "other.pem"
    files.stranger.cert_pem.write_to_path(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(service, other).rest("GET", "/v2/health/live")
    assert Client(service, other).grpc(f"/{messages.SERVICE_NAME}/ServerLive") == "UNAVAILABLE"


REST_FREE = {"/v2/health/live", "/v2/health/ready", "/v2/models/test/ready", "/v2/models/test/versions/1/ready"}


def rest_calls() -> list[tuple[str, str]]:
    """Return every method and path of the REST API."""
    from tests.service import apps

    calls = []
    for rule in apps.numbers().url_map.iter_rules():
        path = rule.rule.replace("<name>", "test").replace("<version>", "1")
        calls += [(method, path) for method in sorted(rule.methods or ())]
    return calls


@pytest.mark.parametrize("path", ["/", "/v2/", "/v3", "/v2/models/test/ready/infer", "/v2//health/live"])
def test_unknown_paths_need_a_key(anyone: Client, known: Client, path: str) -> None:
    """Without a key, unknown paths return 401, so that clients cannot find out which paths exist."""
    assert anyone.rest("GET", path)[0] == 401
    assert known.rest("GET", path)[0] in (200, 404)


def test_rest_routes_that_need_a_key(anyone: Client, known: Client) -> None:
    """Health checks and metrics need no key. All other REST routes require one."""
    calls = rest_calls()
    assert {path for _, path in calls} > REST_FREE
    with closing(anyone.connect()) as connection:
        for method, path in calls:
            status, answer = ask(connection, method, path, None, {})
            assert (status != 401) == (path in REST_FREE or path == "/metrics"), (method, path)
            if status == 401:
                assert answer["WWW-Authenticate"] == "Bearer"
                if method != "HEAD":
                    assert list(json.loads(answer[""])) == ["error"]
            assert ask(connection, method, path, None, known.headers)[0] != 401


def test_grpc_methods_that_need_a_key(anyone: Client, known: Client) -> None:
    """gRPC health checks need no key. All other methods require one, including unknown methods."""
    free = {"ServerLive", "ServerReady", "ModelReady"}
    with anyone.channel() as channel:
        for name in [*messages.SERVICE.methods_by_name, "Unknown"]:
            method = f"/{messages.SERVICE_NAME}/{name}"
            assert (call(channel, method, b"", {}) != "UNAUTHENTICATED") == (name in free), name
            assert call(channel, method, b"", known.headers) != "UNAUTHENTICATED"
        status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60).status
        assert status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_needs_a_key(anyone: Client) -> None:
    """Server reflection requires a key."""
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    with anyone.channel() as channel:
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        assert list(reflect(iter([request]), metadata=[("x-api-key", KEY)], timeout=60))
        with pytest.raises(grpc.RpcError) as refusal:
            list(reflect(iter([request]), timeout=60))
    assert refusal.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("headers", "is_let_in"),
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
def test_api_key_headers(anyone: Client, headers: dict[str, str], is_let_in: bool) -> None:
    """Both protocols accept a complete key in `Authorization` or `X-Api-Key`, and reject all other values."""
    assert anyone.rest("GET", "/v2", headers=headers)[0] == (200 if is_let_in else 401)
    status = anyone.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata", headers=headers)
    assert status == ("OK" if is_let_in else "UNAUTHENTICATED")


@pytest.mark.parametrize("key", [None, WRONG_KEY])
def test_rejected_request_keeps_connection_open(known: Client, key: str | None) -> None:
    """The connection stays open after a large request with a missing or invalid key."""
    body, headers = numbers(LARGE).to_http()
    refused = bearer(key) if key else {}
    with closing(known.connect()) as connection, known.channel() as channel:
        status, answer = ask(connection, "POST", INFER, body, {**headers, **refused})
        assert status == 401
        assert "API key" in json.loads(answer[""])["error"]
        sock = connection.sock
        assert ask(connection, "POST", INFER, body, {**headers, **known.headers})[0] == 200
        assert connection.sock is sock
        message = write_request(numbers(LARGE))
        assert call(channel, MODEL_INFER, message, refused) == "UNAUTHENTICATED"
        assert call(channel, MODEL_INFER, message, known.headers) == "OK"


def test_checks_key_before_parsing_body(anyone: Client) -> None:
    """Without a key, a malformed request is rejected as unauthenticated, because its body is not parsed."""
    assert anyone.rest("POST", INFER, b"{")[0] == 401
    assert anyone.grpc(MODEL_INFER, b"\xff") == "UNAUTHENTICATED"


def test_server_and_content_type_options_headers(known: Client) -> None:
    """The Server header has the service's name, and browsers may not guess the content type of JSON responses."""
    status, answer = known.rest("GET", "/v2")
    assert (status, answer["Server"]) == (200, json.loads(answer[""])["name"])
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_startup_message_uses_tls(service: Running) -> None:
    """The startup message shows https URLs, and a curl command with an API key."""
    wait_for(lambda: "curl" in service.log())
    assert f"REST  https://{service.http}/v2\n" in service.log()
    assert f"Page  https://{service.http}/\n" in service.log()
    assert f'curl --insecure -H "Authorization: Bearer $API_KEY" https://{service.http}{INFER} -d' in service.log()


def probe(service: Running, **environment: Any) -> int:
    """Run a container's health check, and return its exit status."""
    settings = {"HOST": "127.0.0.1", "HTTP_PORT": service.http_port, "GRPC_PORT": service.grpc_port, **environment}
    env = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    return subprocess.run([sys.executable, "-m", "app", "healthcheck"], cwd=ROOT, env=env, timeout=60).returncode


def test_health_check_uses_tls(service: Running, files: Files) -> None:
    """The health check uses TLS if the settings do, and needs neither an API key nor a matching certificate name."""
    assert probe(service, **files.tls, API_KEYS_FILE=files.keys) == 0
    assert probe(service) == 1


@pytest.fixture(scope="module")
def identity(files: Files) -> tuple[Path, Path]:
    return files.issue(files.authority, "client.test")


@pytest.fixture(scope="module")
def strict(files: Files, identity: tuple[Path, Path]) -> Iterator[Running]:
    """A service with mutual TLS that runs one call at a time. Its model waits for FOLDER/go."""
    settings = {**files.tls, "TLS_CLIENT_CA_FILE": files.ca, "MAX_CONCURRENCY": 1, "MAX_QUEUE_SIZE": 1}
    with serve(files, "waiting", {"identity": identity}, **settings) as running:
        yield running


def test_requires_client_certificate(strict: Running, files: Files, identity: tuple[Path, Path]) -> None:
    """The service accepts only clients with a certificate of the configured authority. They need no API key."""
    assert Client(strict, files.ca, identity).rest("GET", "/v2")[0] == 200
    assert Client(strict, files.ca, identity).grpc(f"/{messages.SERVICE_NAME}/ServerMetadata") == "OK"
    for other in (None, files.issue(files.stranger, "client.test")):
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or a reset if that arrives first
            Client(strict, files.ca, other).rest("GET", "/v2/health/live")
        assert Client(strict, files.ca, other).grpc(f"/{messages.SERVICE_NAME}/ServerLive") == "UNAVAILABLE"
    assert probe(strict, **files.tls, TLS_CLIENT_CA_FILE=files.ca) == 0


def test_drops_queued_request_of_disconnected_client(
    strict: Running, files: Files, identity: tuple[Path, Path], tmp_path: Path
) -> None:
    """A queued request is dropped if its client closes the TLS connection."""
    client = Client(strict, files.ca, identity)

    def request(name: str, **parameters: Any) -> tuple[bytes, dict[str, str]]:
        values = {"folder": str(tmp_path), "name": name}
        tensors = [RequestInput(key, "BYTES", [1], [value]) for key, value in values.items()]
        return InferenceRequest(tensors, "test", parameters=parameters).to_http()

    def is_full() -> bool:
        return client.rest("POST", INFER, *request("refused", timeout=1000))[0] == 503

    with ThreadPoolExecutor() as pool:
        running = pool.submit(client.rest, "POST", INFER, *request("first"))
        wait_for((tmp_path / "first.begun").exists)
        for _ in range(100):  # until it is queued. The request of is_full() may have taken its place
            leaving = client.connect()
            leaving.request("POST", INFER, *request("gone"))
            if is_full():
                break
            leaving.close()
        leaving.close()
        (tmp_path / "go").touch()
        assert running.result()[0] == 200
    assert client.rest("POST", INFER, *request("later"))[0] == 200
    assert not (tmp_path / "gone.begun").exists()


def test_sighup_reloads_keys_and_certificates(tmp_path: Path) -> None:
    """SIGHUP reloads keys and certificates on both ports. If a file is invalid, the service keeps its current keys."""
    files = Files(tmp_path)
    settings = {**files.tls, "API_KEYS_FILE": files.keys}

    def certificates() -> set[str]:
        ports = running.http_port, running.grpc_port
        return {ssl.get_server_certificate(("127.0.0.1", port), timeout=60).strip() for port in ports}

    with serve(files, **settings) as running:
        client = Client(running, files.ca)
        assert certificates() == {files.cert.read_text().strip()}
        files.keys.write_text("short")
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "Reload rejected: API_KEYS_FILE=" in running.log())
        assert client.rest("GET", "/v2", headers=bearer(KEY))[0] == 200
        files.keys.write_text(WRONG_KEY)
        for new, old in zip(files.issue(files.authority, "127.0.0.1"), (files.cert, files.key), strict=True):
            old.write_bytes(new.read_bytes())
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: running.log().count("Worker exiting") == 1)
        assert certificates() == {files.cert.read_text().strip()}
        assert client.rest("GET", "/v2", headers=bearer(KEY))[0] == 401
        assert client.rest("GET", "/v2", headers=bearer(WRONG_KEY))[0] == 200
        assert client.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata", headers=bearer(WRONG_KEY)) == "OK"


def test_standalone_grpc_uses_tls_and_keys(files: Files) -> None:
    """`python -m grpc_service` uses the same TLS files and API keys."""
    ports = dict(zip(("HTTP_PORT", "GRPC_PORT"), free_ports(2), strict=True))
    environment = {"HOST": "127.0.0.1", "SHUTDOWN_DELAY_SECONDS": 0, **ports, **files.tls, "API_KEYS_FILE": files.keys}

    def is_ready(running: Running) -> bool:
        return Client(running, files.ca).grpc(f"/{messages.SERVICE_NAME}/ServerReady") == "OK"

    with started([sys.executable, "-m", "grpc_service"], ROOT, environment, is_ready) as running:
        client = Client(running, files.ca)
        assert client.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata") == "UNAUTHENTICATED"
        assert client.grpc(f"/{messages.SERVICE_NAME}/ServerMetadata", headers=bearer(KEY)) == "OK"


def test_missing_tls_setting_stops_startup(files: Files) -> None:
    """Startup fails with one line that names the missing setting."""
    done = subprocess.run(
        [sys.executable, "-m", "gunicorn", "app:create_app()"],
        cwd=ROOT,
        env={**os.environ, "TLS_CERT_FILE": str(files.cert)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert line.endswith("cannot start: TLS_KEY_FILE: not set; TLS needs a certificate and its private key")


def encrypted(files: Files) -> Path:
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    path = files.folder / "encrypted.key"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    )
    return path


@pytest.mark.parametrize(
    ("choose", "expected"),
    [
        (lambda files: {"TLS_KEY_FILE": files.key}, "TLS_CERT_FILE: not set; TLS needs a certificate"),
        (lambda files: {"TLS_CLIENT_CA_FILE": files.ca}, "TLS_CERT_FILE and TLS_KEY_FILE: not set"),
        (
            lambda files: {**files.tls, "TLS_KEY_FILE": "/no/such"},
            "TLS_KEY_FILE='/no/such': expected a file that exists",
        ),
        (lambda files: {**files.tls, "TLS_CERT_FILE": files.folder}, "TLS_CERT_FILE=.*: expected a file that exists"),
        (lambda files: {**files.tls, "TLS_CERT_FILE": files.key}, "TLS_CERT_FILE=.*: expected a certificate chain"),
        (
            lambda files: {**files.tls, "TLS_KEY_FILE": files.cert},
            "TLS_CERT_FILE=.*, TLS_KEY_FILE=.*: expected a certificate",
        ),
        (
            lambda files: {**files.tls, "TLS_KEY_FILE": encrypted(files)},
            "TLS_CERT_FILE=.*without a passphrase",
        ),
        (
            lambda files: {**files.tls, "TLS_CLIENT_CA_FILE": files.keys},
            "TLS_CLIENT_CA_FILE=.*: expected PEM certificates",
        ),
        (
            lambda files: {**files.tls, "TLS_KEY_FILE": files.issue(files.authority, "127.0.0.1")[1]},
            "TLS_CERT_FILE=.*MISMATCH",
        ),
    ],
)
def test_rejects_invalid_tls_files(files: Files, choose: Callable[[Files], dict[str, Any]], expected: str) -> None:
    """Missing settings, missing files, invalid files and a key of another certificate are configuration errors."""
    with pytest.raises(ConfigurationError, match=f"^{expected}"):
        read_settings({name: str(value) for name, value in choose(files).items()})


def test_minimum_tls_version(files: Files) -> None:
    """The server does not accept TLS versions before 1.2."""
    assert server_context(files.cert, files.key).minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no keys: expected keys"),
        ("# nothing\n\n", "no keys: expected keys"),
        (f"{KEY}\nsecret\n", "line 2: expected keys of 16 to 1024"),
        ("a key that has blanks", "line 1: expected keys"),
        ("ключ-ключ-ключ-ключ", "line 1: expected keys"),
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


def test_metrics_count_unauthenticated_requests(anyone: Client) -> None:
    """The metrics of both protocols count requests without a valid key."""
    assert anyone.rest("POST", INFER, b"{}")[0] == 401
    assert anyone.grpc(MODEL_INFER, b"") == "UNAUTHENTICATED"
    told = anyone.rest("GET", "/metrics")[1][""].decode()
    for protocol, code in (("rest", "401"), ("grpc", "UNAUTHENTICATED")):
        labels = f'code="{code}",model="test",operation="infer",protocol="{protocol}",version="1"'
        assert f"inference_requests_total{{{labels}}}" in told
