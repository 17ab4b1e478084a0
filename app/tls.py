"""TLS for both protocols, from files in PEM."""

from __future__ import annotations

import ssl
from pathlib import Path

from app.errors import SetupError


def server_context(cert: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """Return the context for REST: TLS 1.2 or later, with client certificates if `client_ca` is given.

    Raise SetupError with the setting's name if a file does not contain what it should.
    """
    holds_certificates("TLS_CERT", cert)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, password=no_passphrase)
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            raise SetupError(f"TLS_KEY={str(key)!r}: is not the key of the certificate in TLS_CERT") from None
        raise SetupError(f"TLS_KEY={str(key)!r}: expected the certificate's private key, in PEM ({error})") from None
    except ValueError as error:
        raise SetupError(f"TLS_KEY={str(key)!r}: {error}") from None
    if client_ca:
        holds_certificates("TLS_CLIENT_CA", client_ca)
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def holds_certificates(variable: str, path: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise SetupError(f"{variable}={str(path)!r}: expected certificates in PEM ({error})") from None


def no_passphrase() -> str:
    """Replace OpenSSL's own function, which asks at the terminal."""
    raise ValueError("is encrypted, and there is nobody to ask for the passphrase; give the key without one")
