"""Which running service a command is about: its addresses, keys and certificates, and how it is asked."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from app.cli.common import FAILED, NOT_READY, Failure

PATIENCE_SECONDS = 10.0
# X509_V_ERR_HOSTNAME_MISMATCH, and of an IP address.
NAMES_ANOTHER = {62, 64}
# How OpenSSL calls an answer that is no TLS, by its age.
NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"}
# What helps where gRPC says so.
GRPC_ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "; --cacert FILE has who signed its certificate",
    "Socket closed": "; grpcs://HOST:PORT, if it is there by TLS",
}


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@dataclass(frozen=True)
class Service:
    """Where it is, as the options say: `url` is REST's, without /v2, and `grpc`, where that is wanted, HOST:PORT.

    `pinned` is the certificate that the service on this machine has by its own settings: it is for its name, and not
    for this address, so it is enough that it is the one. `expected` is the name that its model has by these, None
    where the options say which service or model is meant.
    """

    url: str
    grpc: str | None = None
    model: str | None = None
    key: str | None = field(default=None, repr=False)
    cacert: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    pinned: Path | None = None
    expected: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What every request carries, as headers of HTTP or as metadata of gRPC."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}

    def model_path(self, name: str | None = None) -> str:
        """/v2/models/NAME, of the model that the service has unless named."""
        return f"/v2/models/{quote(name or self.model_name(), safe='')}"

    def model_name(self) -> str:
        """--model, or the only one that the service has; Failure where that is another project's."""
        if self.model:
            return self.model
        names = self._names_by_grpc() if self.grpc else [each["name"] for each in self._index()]
        if len(names) != 1:
            raise Failure(f"which model? --model NAME; the service has {', '.join(names) or 'none'}")
        if self.expected not in (None, names[0]):
            raise Failure(f"{self.stranger(names[0])}: --model {names[0]} if that is meant, or --url URL")
        return names[0]

    def stranger(self, name: str) -> str:
        return f'the model at {self.url} is "{name}", and this project\'s is "{self.expected}"'

    def _index(self) -> list[dict[str, str]]:
        answer = self.ask("POST", "/v2/repository/index", b"{}")
        if answer.status in (404, 405):
            raise Failure("the service does not say which models it has; --model NAME does")
        return read(answer)

    def _names_by_grpc(self) -> list[str]:
        import grpc

        from grpc_service.messages import SERVICE_NAME, RepositoryIndexResponse

        with self.channel() as channel:
            call = channel.unary_unary(f"/{SERVICE_NAME}/RepositoryIndex")
            try:
                message = call(b"", timeout=PATIENCE_SECONDS, metadata=[*self.headers.items()])
            except grpc.RpcError as error:
                raise refused(error, self.grpc) from None
        return [each.name for each in RepositoryIndexResponse.FromString(message).models]

    def connect(self, timeout: float = PATIENCE_SECONDS) -> http.client.HTTPConnection:
        """A connection to REST, not open yet; paths go behind `prefix`."""
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            port = parts.port or http.client.HTTPS_PORT  # without one, an IPv6 address would be taken for host and port
            return http.client.HTTPSConnection(parts.hostname or "", port, timeout=timeout, context=self.tls_context())
        return http.client.HTTPConnection(parts.hostname or "", parts.port or http.client.HTTP_PORT, timeout=timeout)

    @property
    def prefix(self) -> str:
        """The path of `url`, as behind a gateway."""
        return urlsplit(self.url).path

    def ask(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """One request to REST, whatever the answer; Failure where none comes."""
        connection = self.connect()
        try:
            connection.request(method, self.prefix + path, body, self.headers)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        except (OSError, http.client.HTTPException) as error:
            is_plain = isinstance(error, ConnectionResetError) and self.url.startswith("http:")
            advice = "; https://HOST:PORT, if it is there by TLS" if is_plain else ""
            raise Failure(f"no answer from {self.url}: {reason(error)}{advice}", NOT_READY) from None
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """What GET answers, from JSON; Failure where that is an error."""
        return read(self.ask("GET", path))

    def tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.pinned or self.cacert)
            if self.pinned:
                context.check_hostname = False
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if self.cert:
                context.load_cert_chain(self.cert, self.cert_key)
        except (OSError, ValueError) as error:
            raise Failure(f"a certificate or its key cannot be used: {reason(error)}") from None
        return context

    def channel(self, *own_options: tuple[str, Any]) -> Any:
        """A grpc.Channel to `grpc`, by TLS where the address begins with grpcs://, or REST's is https."""
        import grpc

        address = (self.grpc or "").removeprefix("grpcs://")
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        options = [*unlimited, *own_options]
        if address == self.grpc and not self.cacert and not self.url.startswith("https:"):
            return grpc.insecure_channel(address, options)
        if self.pinned:
            options.append(("grpc.ssl_target_name_override", self._name_in_certificate()))
        roots, cert, key = (
            path.read_bytes() if path else None
            for path in (self.pinned or self.cacert, self.cert, self.cert_key or self.cert)
        )
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(roots, key, cert), options)

    def _name_in_certificate(self) -> str:
        """What the pinned certificate is for, which gRPC wants to know."""
        connection: Any = self.connect()
        try:
            connection.connect()
            names = connection.sock.getpeercert().get("subjectAltName", ())
        except OSError as error:
            raise Failure(f"no answer from {self.url}: {reason(error)}", NOT_READY) from None
        finally:
            connection.close()
        return next((name for _, name in names), "localhost")


def read(answer: Answer) -> Any:
    """The JSON of an answer; Failure with the service's own words where it is an error."""
    try:
        value = json.loads(answer.body)
    except ValueError:
        raise Failure(f"expected JSON from the service, got status {answer.status} and something else") from None
    if answer.status != 200:
        text = value.get("error") if isinstance(value, dict) else None
        raise Failure(
            f"the service answers {answer.status}: {text or 'not ready'}", NOT_READY if answer.status == 503 else FAILED
        )
    return value


def refused(error: Any, address: str | None) -> Failure:
    """The Failure for a grpc.RpcError."""
    kind = error.code().name
    if kind == "UNAVAILABLE":
        advice = next((text for mark, text in GRPC_ADVICE.items() if mark in error.details()), "")
        return Failure(f"no answer from {address}: {error.details()}{advice}", NOT_READY)
    return Failure(f"the service answers {kind}: {error.details()}", FAILED)


def reason(error: Exception) -> str:
    """Why, without the number: `Connection refused`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        is_stranger = error.verify_code not in NAMES_ANOTHER
        return f"its certificate: {error.verify_message}{'; --cacert FILE has who signed it' if is_stranger else ''}"
    if isinstance(error, ssl.SSLError) and "CERTIFICATE_REQUIRED" in (error.reason or ""):
        return "it asks for a certificate of yours; --cert FILE shows one"
    if isinstance(error, ssl.SSLError) and error.reason in NO_TLS:
        return "it does not speak TLS; http://HOST:PORT asks without"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
