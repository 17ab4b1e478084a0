"""The model page in a browser: the service accepts the calls that it shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import Parse
from playwright.sync_api import Page, expect

from app.api import InvalidInput, MetadataTensor
from grpc_service.messages import ModelInferRequest
from oip_conformance.wires import Grpc
from tests.kit import models

from .page import Open, Serve, predict
from .test_page_calls import arguments, shown


def picky() -> Any:
    """Return a model with inputs of several kinds, which also rejects the count 13."""
    inputs = [
        MetadataTensor("count", "UINT8", [1]),
        MetadataTensor("rows", "FP32", [-1, 2]),
        MetadataTensor("when", "BYTES", [-1], "datetime"),
        MetadataTensor("flag", "BOOL", [-1]),
        MetadataTensor("note", "BYTES", [1], "str"),
    ]

    def predict_(
        _: Any, count: Any, rows: Any, when: list[datetime], flag: Any, note: Any = None
    ) -> dict[str, Any]:
        if count[0] == 13:
            raise InvalidInput("Count: unlucky.")
        return {"rows": rows}

    module = models.model(inputs, inputs[1:2], predict_)
    module.EXAMPLE = {"count": [1], "rows": [[1, 2]], "when": ["2024-01-31"], "flag": [True]}
    return module


@pytest.fixture
def accept(serve: Serve, visit: Open) -> Iterator[tuple[Page, Callable[[], str]]]:
    """Return a page, and a function that sends its calls for curl and grpcurl, and returns that for curl."""
    app = serve(picky())
    page, service = visit(app.address), app.extensions["service"]
    server = service.make_grpc_server(reuse_port=False)
    server.start()

    def send() -> str:
        calls = shown(page)
        _, _, body = arguments(calls["curl"])
        assert app.test_client().post("/v2/models/test/infer", data=body).status_code == 200, body
        message = Parse(arguments(calls["grpcurl"])[2], ModelInferRequest())
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            assert Grpc(channel).send(message).is_success, message
        return body

    yield page, send
    server.close(0)


def test_calls_are_accepted(accept: tuple[Page, Callable[[], str]]) -> None:
    """The calls are those of the last accepted request. A note says so if the form has changed since then."""
    page, send = accept
    expect(page.locator("#calls")).to_be_hidden()
    predict(page)
    previous = send()
    note = page.get_by_text(
        "This is the last request that the service accepted. Send the form to update it."
    )
    expect(note).to_have_count(0)
    for label, text, is_valid in (
        ("count", "300", False),
        ("count", "1.5", False),
        ("count", "null", False),
        ("count", "", False),
        ("count", "13", False),
        ("count", "2", True),
        ("rows", "1 2 3", False),
        ("rows", "1 1e39", False),
        ("rows", '[[1, 2], [3, "a"]]', False),
        ("rows", "1 2\n3 4", True),
        ("when", "tomorrow", False),
        ("when", "", False),
        ("when", '["2024-01-31", 1]', False),
        ("when", "2024-01-31\n2024-02-29T12:00:00Z", True),
        ("flag", "2", False),
        ("flag", "1 0", True),
        ("note", "text", True),
        ("note", "", True),
    ):
        field = page.get_by_label(label)
        before = field.input_value()
        field.fill(text)
        expect(note).to_have_count(1)
        assert send() == previous
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#send")).to_have_attribute("aria-disabled", "false")
        expect(note).to_have_count(0 if is_valid else 1)
        assert (send() != previous) == is_valid, text
        previous = send()
        if not is_valid:
            field.fill(before)
