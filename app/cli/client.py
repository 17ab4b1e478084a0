"""Address and credentials of a running service, and REST requests to it."""

import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from app.cli.common import FAILED, NOT_READY, Failure

RESPONSE_TIMEOUT_SECONDS = 10.0


class Response(NamedTuple):
    status: int
    body: bytes


@dataclass(frozen=True)
class ServiceClient:
    """A client for one service, with API key and certificates.

    - url: base URL for REST without /v2, or grpc://HOST:PORT, or grpcs://HOST:PORT with TLS.
    - transport: rest-json, rest-binary or grpc.
    - pinned: certificate in the settings of the service on this machine. Over REST, the host name
      is not verified.
    """

    url: str
    transport: str
    model: str | None = None
    api_key: str | None = field(default=None, repr=False)
    cacert: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    pinned: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Return the HTTP headers or gRPC metadata for all requests."""
        if not self.api_key:
            return {}
        return {"authorization": f"Bearer {self.api_key}"}

    @property
    def prefix(self) -> str:
        """Return the path of the base URL, which a gateway may require."""
        return urlsplit(self.url).path

    def model_path(self, name: str | None = None) -> str:
        """Return /v2/models/NAME. `name` defaults to model_name()."""
        model = name or self.model_name()
        return f"/v2/models/{quote(model, safe='')}"

    def model_name(self, index: list[dict[str, Any]] | None = None) -> str:
        """Return --model, or the name of the only model in the repository index of the service.

        Without `index`, request it over REST.
        """
        if self.model:
            return self.model
        if index is None:
            response = self.send("POST", "/v2/repository/index", b"{}")
            index = read_json(response)

        names: list[str] = [model["name"] for model in index]
        if len(names) != 1:
            got = ", ".join(names) or "none"
            raise Failure(f"Expected one model in the service, got {got}. Use --model NAME.")
        return names[0]

    def send(self, method: str, path: str, body: bytes | None = None) -> Response:
        """Send a request over REST, and return the response with any status.

        Raise Failure if the service does not respond.
        """
        try:
            with closing(self.connect()) as connection:
                connection.request(method, self.prefix + path, body, self.headers)
                with connection.getresponse() as response:
                    return Response(response.status, response.read())
        except (OSError, http.client.HTTPException, ValueError) as error:
            # The port of the URL is out of range if this is a ValueError.
            reason = os_error_text(error)
            raise Failure(f"No response from {self.url}: {reason}", NOT_READY) from None

    def get(self, path: str) -> Any:
        """Send a GET request and return the JSON value of the response.

        Raise Failure if the service does not respond, or responds with an error.
        """
        return read_json(self.send("GET", path))

    def connect(self, timeout: float = RESPONSE_TIMEOUT_SECONDS) -> http.client.HTTPConnection:
        """Return an HTTP connection, which opens with the first request."""
        address = urlsplit(self.url)
        host = address.hostname or ""
        # The port is never None, because http.client would then search for one in an IPv6 address.
        if address.scheme == "https":
            port = address.port or http.client.HTTPS_PORT
            context = self._tls_context()
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
        port = address.port or http.client.HTTP_PORT
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _tls_context(self) -> ssl.SSLContext:
        """Return a context with the certificates. Raise Failure if a file is invalid."""
        try:
            context = ssl.create_default_context(cafile=self.pinned or self.cacert)
            if self.pinned:
                context.check_hostname = False
                # Trust this certificate even if its issuer is unknown.
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            if self.cert:
                context.load_cert_chain(self.cert, self.cert_key)
        except (OSError, ValueError) as error:
            raise Failure(f"Cannot use a certificate or its key: {os_error_text(error)}") from None
        return context


def read_json(response: Response) -> Any:
    """Return the JSON value of a response.

    If the response is an error, raise Failure with its message.
    """
    try:
        value = json.loads(response.body)
    except ValueError:
        raise Failure(
            f"Invalid response. Expected JSON, got status {response.status} with other content."
        ) from None
    if response.status == 200:
        return value

    message = None
    if isinstance(value, dict):
        message = value.get("error")
    if not message:
        message = "not ready"
    exit_status = NOT_READY if response.status == 503 else FAILED
    raise Failure(f"The service responded with {response.status}: {message}", exit_status)


def os_error_text(error: Exception) -> str:
    """Return the text of an OS, TLS or HTTP error, such as "Connection refused"."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
