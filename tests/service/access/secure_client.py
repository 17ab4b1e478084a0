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
KEY, OTHER_KEY, WRONG_KEY = ("first-key-0123456789", "second-key-012345678", "wrong-key-0123456789")
INFER = "/v2/models/test/infer"
MODEL_INFER = f"/{messages.SERVICE_NAME}/ModelInfer"
LARGE = 2**21


class Files:
    """Certificates of two authorities, private keys and API keys, as files in `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.authority, self.untrusted_authority = trustme.CA(), trustme.CA()
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
        return http.client.HTTPSConnection(
            "127.0.0.1", self.service.http_port, timeout=60, context=context
        )

    def channel(self) -> grpc.Channel:
        key, cert = (
            [path.read_bytes() for path in self.identity[::-1]] if self.identity else (None, None)
        )
        credentials = grpc.ssl_channel_credentials(self.ca.read_bytes(), key, cert)
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.use_local_subchannel_pool", 1)]
        return grpc.secure_channel(self.service.grpc_address, credentials, unlimited)

    def rest(
        self, method: str, path: str, body: bytes | None = None, headers: Any = ()
    ) -> tuple[int, Any]:
        """Return the status, and a dict of the headers with the body under the key ""."""
        with closing(self.connect()) as connection:
            return send_request(connection, method, path, body, {**self.headers, **dict(headers)})

    def grpc(self, method: str, body: bytes = b"", headers: Any = ()) -> str:
        """Return the status of a call. Its request is empty by default."""
        with self.channel() as channel:
            return call(channel, method, body, {**self.headers, **dict(headers)})


def send_request(
    connection: Any, method: str, path: str, body: bytes | None, headers: Any
) -> tuple[int, Any]:
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


def serve(
    files: Files, app: str = "numbers", client: dict[str, Any] | None = None, **settings: Any
) -> Any:
    """Run the service under gunicorn, and yield it when it is ready for a Client with the fields in `client`."""

    def is_ready(service: Running) -> bool:
        try:
            return (
                Client(service, files.ca, **client or {}).rest("GET", "/v2/health/ready")[0] == 200
            )
        except (OSError, http.client.HTTPException):
            return False

    environment = {"WORKERS": 1, **settings}
    return gunicorn(ROOT, f"tests.service.apps:{app}()", is_ready=is_ready, **environment)


def numbers(count: int) -> InferenceRequest:
    return InferenceRequest(
        [RequestInput("x", "FP32", [count], np.arange(count, dtype="f4"))], "test"
    )
