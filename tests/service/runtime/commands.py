"""Start a service as a command, and send requests to it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.kit.processes import Running, free_ports

ROOT = Path(__file__).parents[3]


def post(
    connection: http.client.HTTPConnection, body: Any, path: str = "/v2/models/test/infer"
) -> tuple[int, Any]:
    """Send bytes or a JSON value, and return the status and the JSON of the response."""
    content = body if isinstance(body, bytes) else json.dumps(body)
    connection.request("POST", path, content)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def post_on_new_connection(
    service: Running, body: Any, path: str = "/v2/models/test/infer"
) -> tuple[int, Any]:
    """Call post() with a separate connection."""
    with closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection:
        return post(connection, body, path)


def tensor(name: str, *values: str) -> dict[str, Any]:
    """Return a BYTES input of an inference request."""
    return {"name": name, "datatype": "BYTES", "shape": [len(values)], "data": values}


GOOD = {"inputs": [tensor("x", "a", "b")]}


def start(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command that is expected to fail at startup."""
    http_port, grpc_port = free_ports(2)
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": str(http_port),
        "GRPC_PORT": str(grpc_port),
        **environment,
    }
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        timeout=180,
    )
