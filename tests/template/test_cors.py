"""CORS_ORIGINS in a browser: pages of two other origins call the service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.kit.processes import gunicorn

from .helm import ROOT

KEY = "first-key-0123456789"
# Sends a request that needs a preflight request. Returns the status, and headers of the response.
CALL = """
async ([url, key]) => {
    const tensor = {name: "x", datatype: "FP32", shape: [2], data: [1.5, -2]};
    const body = JSON.stringify({inputs: [tensor], parameters: {binary_data_output: true}});
    const headers = {"Content-Type": "application/json", "X-API-Key": key};
    try {
        const response = await fetch(url, {method: "POST", headers, body});
        const names = ["Inference-Header-Content-Length", "X-Request-Id"];
        const size = (await response.arrayBuffer()).byteLength;
        return {status: response.status, size, headers: names.map(name => response.headers.get(name))};
    } catch (error) {
        return String(error);
    }
}
"""


class EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def page_server() -> Iterator[str]:
    """Serve an empty page, and yield its origin."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_pages_of_other_origins(chromium: Browser, tmp_path: Path) -> None:
    """A page of a permitted origin reads responses, errors and headers. A page of another origin cannot."""
    file = tmp_path / "keys.txt"
    file.write_text(KEY)
    with (
        page_server() as permitted,
        page_server() as other,
        gunicorn(
            ROOT, "tests.service.apps:numbers()", API_KEYS_FILE=file, CORS_ORIGINS=permitted
        ) as running,
    ):
        url = f"http://{running.http_address}/v2/models/test/infer"
        page = chromium.new_page()

        def call(origin: str, key: str) -> Any:
            page.goto(origin)
            return page.evaluate(CALL, [url, key])

        response = call(permitted, KEY)
        length, request_id = response["headers"]
        assert (response["status"], response["size"]) == (200, int(length) + 2 * 4)
        assert request_id
        assert call(permitted, "wrong-key-0123456789")["status"] == 401
        assert call(other, KEY) == "TypeError: Failed to fetch"
        page.close()
