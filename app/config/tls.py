"""TLS for both protocols, from files in PEM."""

from __future__ import annotations

import ssl
from pathlib import Path

from app.protocol.errors import ConfigurationError


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the context for REST: TLS 1.2 or later, with client certificates if `client_ca` is given.

    Raise ConfigurationError with the setting's name if a file does not contain what it should.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password="")  # without, OpenSSL asks at the terminal # nosec B106
    except ssl.SSLError as error:
        problem = f"{error}. Expected a certificate chain and its private key in PEM, without a passphrase."
        raise ConfigurationError(f"TLS_CERT_FILE={str(cert)!r}, TLS_KEY_FILE={str(key)!r}: {problem}") from None
    if client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ConfigurationError(f"TLS_CLIENT_CA_FILE='{client_ca}': {error}. Expected PEM certificates.") from None
    return context
