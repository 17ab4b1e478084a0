"""Whether the service on this machine is live, by its own settings, for a container's health check; or ready.

python -m app.probe [ready]
"""

from __future__ import annotations

import http.client
import ssl
import sys

from app.config import Settings, read_settings

PATIENCE_SECONDS = 4


def answers(settings: Settings, path: str) -> bool:
    """Asks the service on HTTP_PORT. Where it asks for a client's certificate in turn, it lives."""
    here = settings.here()
    connection = http.client.HTTPConnection(here.host, here.http_port, timeout=PATIENCE_SECONDS)
    if settings.tls_cert:  # its certificate is for its name, and not for this address
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(here.host, here.http_port, timeout=PATIENCE_SECONDS, context=context)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except ssl.SSLError:
        return settings.tls_client_ca is not None and path.endswith("live")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not answers(read_settings(), f"/v2/health/{'ready' if sys.argv[1:] == ['ready'] else 'live'}"))
