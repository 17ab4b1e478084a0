"""TLS and client certificates, on both protocols of a real service."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from app.config.settings import read_settings
from app.config.tls import server_context
from app.protocol.errors import ConfigurationError
from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from grpc_service import messages
from tests.kit.processes import Running, wait_for
from tests.service.access.secure_client import (
    INFER,
    ROOT,
    Client,
    Files,
    call,
    serve,
)


def test_rejects_connections_without_tls(service: Running, client_with_key: Client) -> None:
    """Both ports reject connections without TLS, and continue to serve other clients."""
    with closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection:
        connection.request("GET", "/v2/health/live")
        with pytest.raises((http.client.HTTPException, OSError)):
            connection.getresponse()
    with grpc.insecure_channel(service.grpc_address) as channel:
        assert call(channel, f"/{messages.SERVICE_NAME}/ServerLive", b"", {}) == "UNAVAILABLE"
    assert client_with_key.rest("GET", "/v2")[0] == 200


def test_client_rejects_certificate_of_unknown_authority(service: Running, files: Files) -> None:
    """A client that trusts only another authority does not connect to the service."""
    other = files.folder / "other.pem"
    files.untrusted_authority.cert_pem.write_to_path(other)
    with pytest.raises(ssl.SSLCertVerificationError):
        Client(service, other).rest("GET", "/v2/health/live")
    assert Client(service, other).grpc(f"/{messages.SERVICE_NAME}/ServerLive") == "UNAVAILABLE"


def test_startup_message_uses_tls(service: Running) -> None:
    """The startup message shows https URLs, and a curl command with an API key."""
    wait_for(lambda: "curl" in service.log())
    assert f"REST  https://{service.http_address}/v2\n" in service.log()
    assert f"Page  https://{service.http_address}/\n" in service.log()
    assert (
        f'curl --insecure -H "Authorization: Bearer $API_KEY" https://{service.http_address}{INFER} -d'
        in service.log()
    )


def probe(service: Running, **environment: Any) -> int:
    """Run a container's health check, and return its exit status."""
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": service.http_port,
        "GRPC_PORT": service.grpc_port,
        **environment,
    }
    env = {**os.environ, **{name: str(value) for name, value in settings.items()}}
    return subprocess.run(
        [sys.executable, "-m", "app", "healthcheck"], cwd=ROOT, env=env, timeout=180
    ).returncode


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
    settings = {
        **files.tls,
        "TLS_CLIENT_CA_FILE": files.ca,
        "MAX_CONCURRENCY": 1,
        "MAX_QUEUE_SIZE": 1,
    }
    with serve(files, "waiting", {"identity": identity}, **settings) as running:
        yield running


def test_requires_client_certificate(
    strict: Running, files: Files, identity: tuple[Path, Path]
) -> None:
    """The service accepts only clients with a certificate of the configured authority. They need no API key."""
    assert Client(strict, files.ca, identity).rest("GET", "/v2")[0] == 200
    assert (
        Client(strict, files.ca, identity).grpc(f"/{messages.SERVICE_NAME}/ServerMetadata") == "OK"
    )
    for other in (None, files.issue(files.untrusted_authority, "client.test")):
        with pytest.raises(OSError):  # noqa: PT011 - an alert, or a reset if that arrives first
            Client(strict, files.ca, other).rest("GET", "/v2/health/live")
        assert (
            Client(strict, files.ca, other).grpc(f"/{messages.SERVICE_NAME}/ServerLive")
            == "UNAVAILABLE"
        )
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
        return client.rest("POST", INFER, *request("rejected", timeout=1000))[0] == 503

    with ThreadPoolExecutor() as pool:
        running = pool.submit(client.rest, "POST", INFER, *request("first"))
        wait_for((tmp_path / "first.begun").exists)
        for _ in range(
            100
        ):  # until it is queued. The request of is_full() may have taken its place
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


def test_missing_tls_setting_stops_startup(files: Files) -> None:
    """Startup fails with one line that names the missing setting."""
    done = subprocess.run(
        [sys.executable, "-m", "gunicorn", "app:create_app()"],
        cwd=ROOT,
        env={**os.environ, "TLS_CERT_FILE": str(files.cert)},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert line.endswith(
        "Cannot start: TLS_KEY_FILE: missing value. TLS needs a certificate and its private key."
    )


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
        (
            lambda files: {"TLS_KEY_FILE": files.key},
            "TLS_CERT_FILE: missing value. TLS needs a certificate",
        ),
        (
            lambda files: {"TLS_CLIENT_CA_FILE": files.ca},
            "TLS_CERT_FILE and TLS_KEY_FILE: missing value",
        ),
        (
            lambda files: {**files.tls, "TLS_KEY_FILE": "/no/such"},
            "TLS_KEY_FILE: invalid value. Expected a file that exists .*, got '/no/such'",
        ),
        (
            lambda files: {**files.tls, "TLS_CERT_FILE": files.folder},
            "TLS_CERT_FILE: invalid value. Expected a file that exists",
        ),
        (
            lambda files: {**files.tls, "TLS_CERT_FILE": files.key},
            "TLS_CERT_FILE=.*Expected a certificate chain",
        ),
        (
            lambda files: {**files.tls, "TLS_KEY_FILE": files.cert},
            "TLS_CERT_FILE=.*, TLS_KEY_FILE=.*Expected a certificate",
        ),
        (
            lambda files: {**files.tls, "TLS_KEY_FILE": encrypted(files)},
            "TLS_CERT_FILE=.*without a passphrase",
        ),
        (
            lambda files: {**files.tls, "TLS_CLIENT_CA_FILE": files.keys},
            "TLS_CLIENT_CA_FILE=.*Expected PEM certificates",
        ),
        (
            lambda files: {
                **files.tls,
                "TLS_KEY_FILE": files.issue(files.authority, "127.0.0.1")[1],
            },
            "TLS_CERT_FILE=.*MISMATCH",
        ),
    ],
)
def test_rejects_invalid_tls_files(
    files: Files, choose: Callable[[Files], dict[str, Any]], expected: str
) -> None:
    """Missing settings, missing files, invalid files and a key of another certificate are configuration errors."""
    with pytest.raises(ConfigurationError, match=f"^{expected}"):
        read_settings({name: str(value) for name, value in choose(files).items()})


def test_minimum_tls_version(files: Files) -> None:
    """The server does not accept TLS versions before 1.2."""
    assert server_context(files.cert, files.key).minimum_version is ssl.TLSVersion.TLSv1_2
