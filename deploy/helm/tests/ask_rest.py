"""Check over REST that the model at ADDRESS is ready, for `helm test`. SERVER_NAME enables TLS."""

import http.client
import os
import socket
import ssl
import sys
from pathlib import Path

host, _, port = os.environ["ADDRESS"].rpartition(":")
connection = http.client.HTTPConnection(host, int(port), timeout=10)
if name := os.environ.get("SERVER_NAME"):
    files = sorted(Path(os.environ["CERTIFICATES"]).glob("*.crt"))
    context = ssl.create_default_context(cadata="\n".join(file.read_text() for file in files))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the Secret may not contain ca.crt
    connection.sock = context.wrap_socket(
        socket.create_connection((host, int(port)), 10), server_hostname=name
    )
connection.request("GET", "/v2/health/ready")
status = connection.getresponse().status
sys.exit(
    None
    if status == 200
    else f"/v2/health/ready: model not ready. Expected status 200, got {status}"
)
