"""Certificates and keys in files, and a client that uses them on both protocols."""

from __future__ import annotations

import http.client
import ssl
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import trustme

from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput
from grpc_service import messages
from tests.kit.processes import Running, gunicorn

ROOT = Path(__file__).parents[3]
KEY = "first-key-0123456789"
OTHER_KEY = "second-key-012345678"
WRONG_KEY = "wrong-key-0123456789"
INFER = "/v2/models/test/infer"
MODEL_INFER = f"/{messages.SERVICE_NAME}/ModelInfer"
LARGE = 2**21


class Files:
    """Certificates of two authorities, private keys and API keys, as files in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.authority = trustme.CA()
        self.untrusted_authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.cert, self.key = self.issue(self.authority, "127.0.0.1")
        self.keys = folder / "keys.txt"
        self.keys.write_text(f"# who has which\n{KEY}\n\n  {OTHER_KEY}  \n")

    def issue(self, authority: trustme.CA, name: str) -> tuple[Path, Path]:
        """Issue a certificate. Return the paths of the certificate and its private key."""
        # Names that no file in the directory has yet.
        serial = len(list(self.folder.iterdir()))
        cert = self.folder / f"{serial}.crt"
        key = self.folder / f"{serial}.key"

        certificate = authority.issue_cert(name)
        certificate.cert_chain_pems[0].write_to_path(cert)
        certificate.private_key_pem.write_to_path(key)
        return cert, key

    @property
    def tls(self) -> dict[str, Path]:
        return {"TLS_CERT_FILE": self.cert, "TLS_KEY_FILE": self.key}


@dataclass
class Client:
    """A client of `service` that trusts the authorities in `ca`.

    `identity` is its own certificate and private key.
    """

    service: Running
    ca: Path
    identity: tuple[Path, Path] | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def connect(self) -> http.client.HTTPSConnection:
        context = ssl.create_default_context(cafile=self.ca)
        if self.identity:
            context.load_cert_chain(*self.identity)
        return http.client.HTTPSConnection(
            "127.0.0.1", self.service.http_port, timeout=180, context=context
        )

    def channel(self) -> grpc.Channel:
        cert = None
        key = None
        if self.identity:
            cert_file, key_file = self.identity
            cert = cert_file.read_bytes()
            key = key_file.read_bytes()
        credentials = grpc.ssl_channel_credentials(
            self.ca.read_bytes(), private_key=key, certificate_chain=cert
        )
        options = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.secure_channel(self.service.grpc_address, credentials, options)

    def rest(
        self, method: str, path: str, body: bytes | None = None, headers: Any = ()
    ) -> tuple[int, Any]:
        """Return the status, and a dict of the headers with the body under the key ""."""
        all_headers = {**self.headers, **dict(headers)}
        with closing(self.connect()) as connection:
            return send_request(connection, method, path, body, all_headers)

    def grpc(self, method: str, body: bytes = b"", headers: Any = ()) -> str:
        """Return the status of a call. Its request is empty by default."""
        all_headers = {**self.headers, **dict(headers)}
        with self.channel() as channel:
            return call(channel, method, body, all_headers)


def send_request(
    connection: Any, method: str, path: str, body: bytes | None, headers: Any
) -> tuple[int, Any]:
    """Return the status, and a dict of the headers with the body under the key ""."""
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    headers_and_body: dict[str, Any] = dict(response.getheaders())
    headers_and_body[""] = response.read()
    return response.status, headers_and_body


def call(channel: grpc.Channel, method: str, body: bytes, headers: dict[str, str]) -> str:
    """Return the name of the status of a gRPC call."""
    metadata = [(name.lower(), value) for name, value in headers.items()]
    invoke = channel.unary_unary(method)
    try:
        invoke(body, metadata=metadata, timeout=180)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def serve(
    files: Files, app: str = "numbers", client: dict[str, Any] | None = None, **settings: Any
) -> Any:
    """Run the service under gunicorn, and yield it when it is ready.

    A Client with the fields in `client` sends the readiness probes.
    """
    fields = client or {}

    def is_ready(service: Running) -> bool:
        probe = Client(service, files.ca, **fields)
        try:
            status, _ = probe.rest("GET", "/v2/health/ready")
        except (OSError, http.client.HTTPException):
            return False
        return status == 200

    environment = {"WORKERS": 1, **settings}
    return gunicorn(ROOT, f"tests.service.apps:{app}()", is_ready=is_ready, **environment)


def numbers(count: int) -> InferenceRequest:
    """Return a request with the numbers from 0 to `count` - 1."""
    tensor = RequestInput("x", "FP32", [count], np.arange(count, dtype="f4"))
    return InferenceRequest([tensor], "test")
