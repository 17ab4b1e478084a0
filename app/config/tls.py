"""TLS configuration from PEM files."""

import ssl
from pathlib import Path

from app.protocol.errors import ConfigurationError


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context for REST.

    It requires TLS 1.2 or later, and client certificates if `client_ca` is set. Raise
    ConfigurationError with the name of the setting if a file is invalid.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # For a key with a passphrase, this password causes an error instead of a prompt.
        context.load_cert_chain(cert, key, password="")  # nosec B106
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"TLS_CERT_FILE={str(cert)!r}, TLS_KEY_FILE={str(key)!r}: {error}."
            " Expected a certificate chain and its private key in PEM, without a passphrase."
        ) from None

    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"TLS_CLIENT_CA_FILE='{client_ca}': {error}. Expected PEM certificates."
            ) from None
    return context
