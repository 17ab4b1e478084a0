"""Health check: one request to the service on this machine."""

import http.client
import socket
import ssl

from app.config.settings import Settings

TIMEOUT_SECONDS = 4


def is_healthy(settings: Settings, check: str) -> bool:
    """Return True if GET /v2/health/{check} has status 200. `check` is live or ready."""
    address = settings.with_local_host().host, settings.http_port
    try:
        if settings.tls_client_ca_file and check == "live":  # this probe has no client certificate
            socket.create_connection(address, TIMEOUT_SECONDS).close()
            return True
        connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_SECONDS)
        if settings.tls_cert_file:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # The certificate is for another name than that of this machine's loopback address.
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(
                *address, timeout=TIMEOUT_SECONDS, context=context
            )
        connection.request("GET", f"/v2/health/{check}")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
