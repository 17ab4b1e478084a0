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
    # It ends the connection of who shows none, with an alert of TLS, which a reset may overtake.
    ends_others = settings.tls_client_ca is not None and path.endswith("live")
    has_met = False
    try:
        connection.connect()
        has_met = True
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except ssl.SSLError:
        return ends_others
    except (ConnectionError, http.client.HTTPException):
        return ends_others and has_met
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not answers(read_settings(), f"/v2/health/{'ready' if sys.argv[1:] == ['ready'] else 'live'}"))
