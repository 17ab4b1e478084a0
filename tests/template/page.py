"""Fixtures: the model page of several services, open in a browser."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.serving import make_server

from app import create_app
from app.config.settings import Settings
from app.protocol.metadata import MetadataTensor
from tests.kit import models

# A path prefix that a proxy may add.
PREFIX = "team/model"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)
Open = Callable[..., Page]
Serve = Callable[[Any], Any]
# The browser's own console message for an error response.
REFUSED = "Failed to load resource"


def model_with_all_kinds() -> Any:
    """Return a model with every kind of field except a table, and every kind of output."""
    inputs = [
        MetadataTensor("text", "BYTES", [-1], "str"),
        MetadataTensor("matrix", "INT64", [-1, 2]),
        MetadataTensor("one", "FP32", [1]),
        MetadataTensor("flag", "BOOL", [1]),
        MetadataTensor("picture", "BYTES", [-1], "bytes"),
    ]
    outputs = [
        MetadataTensor("text back", "BYTES", [-1], "str"),
        MetadataTensor("sums", "INT64", [-1]),
        MetadataTensor("chances", "FP32", [-1, 3]),
        MetadataTensor("picture back", "BYTES", [-1], "bytes"),
        MetadataTensor("pixels", "UINT8", [-1, 8, 8, 3]),
    ]

    def predict(
        _: Any,
        text: list[str],
        matrix: np.ndarray,
        one: np.ndarray,
        flag: np.ndarray,
        picture: list[bytes] = [],  # noqa: B006
    ) -> dict[str, Any]:
        chances = (
            np.tile([0.25, 0.75, 0], (len(text), 1)) if flag[0] else np.ones((len(text), 3)) * one
        )
        pixels = np.full((len(picture), 8, 8, 3), 255, np.uint8)
        values = {"text back": text, "sums": matrix.sum(axis=1), "chances": chances}
        return {**values, "picture back": picture, "pixels": pixels}

    module = models.model(inputs, outputs, predict)
    module.EXAMPLE = {
        "text": ["it's $HOME", '"quoted"'],
        "matrix": [[2**53 + 1, 0], [3, 4]],
        "one": [0.5],
        "flag": [True],
        "picture": [base64.b64encode(PNG).decode()],
    }
    return module


def table() -> Any:
    """Return a model with one column of each kind that returns the columns, with numbers doubled."""
    columns = [
        MetadataTensor("number", "FP64", [-1]),
        MetadataTensor("word", "BYTES", [-1], "str"),
        MetadataTensor("is it", "BOOL", [-1]),
    ]

    def predict(_: Any, inputs: dict[str, Any]) -> dict[str, Any]:
        return {**inputs, "number": inputs["number"] * 2}

    module = models.model(columns, columns, predict)
    module.EXAMPLE = {"number": [1.5], "word": ["one"], "is it": [True]}
    return module


@pytest.fixture(scope="module")
def serve() -> Iterator[Serve]:
    """Return serve(module), which serves its application in this process, at `address` and under PREFIX."""
    servers = []

    def start(module: Any) -> Any:
        app = create_app(Settings(), module)
        server = make_server(
            "127.0.0.1", 0, DispatcherMiddleware(app, {f"/{PREFIX}": app}), threaded=True
        )
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        servers.append((server, thread))
        app.address = f"http://127.0.0.1:{server.server_port}/"
        return app

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def all_kinds(serve: Serve) -> str:
    return serve(model_with_all_kinds()).address


@pytest.fixture(scope="module")
def columns(serve: Serve) -> str:
    return serve(table()).address


@pytest.fixture
def visit(chromium: Browser) -> Iterator[Open]:
    """Return visit(address, ...), which opens the page in a new context, without errors or third-party requests."""
    faults: list[str] = []
    contexts = []

    def open_page(address: str, **options: Any) -> Page:
        context = chromium.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20000)
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith((address, "data:", "blob:")) else report(request.url)
            ),
        )
        page.on(
            "console",
            lambda message: report(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: report(str(error)))
        page.goto(address)
        return page

    def report(text: str) -> None:
        if not text.startswith(REFUSED):
            faults.append(text)

    yield open_page
    for context in contexts:
        context.close()
    assert not faults


def predict(page: Page) -> dict[str, Any]:
    """Send the form and return the request that it made."""
    with page.expect_response("**/infer") as response:
        page.get_by_role("button", name="Predict").click()
    expect(page.locator("#send")).to_have_attribute("aria-disabled", "false")
    return json.loads(response.value.request.post_data)


def check(page: Page) -> None:
    results = Axe().run(page)
    assert not results.violations_count, results.generate_report()
