"""The README's examples, as printed."""

from __future__ import annotations

import base64
import re
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from werkzeug.serving import make_server

from app.codecs import base
from app.types import RequestInput

README = Path(__file__).parents[2] / "README.md"


def blocks() -> list[str]:
    """The Python examples of the chapter on content types."""
    chapter = README.read_text().split("\n## Content types\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)


@pytest.fixture
def prices(serve) -> Iterator[Any]:
    """The example's predict.py, served over real sockets."""
    module = types.ModuleType("prices")
    sys.modules["prices"] = module
    exec(blocks()[0], module.__dict__)
    service = serve(module)
    server = make_server("127.0.0.1", 0, service.app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield service, server.server_port
    server.shutdown()
    thread.join()
    server.server_close()
    del sys.modules["prices"]


def test_the_client_examples(prices) -> None:
    """The frame comes back with prices, over REST and, by the same objects, over gRPC."""
    service, port = prices
    namespace: dict[str, Any] = {}
    for block in blocks()[1:3]:
        namespace.pop("prices", None)
        local = block.replace("127.0.0.1:8080", f"127.0.0.1:{port}")
        exec(local.replace("127.0.0.1:8081", f"127.0.0.1:{service.server.port}"), namespace)
        assert namespace["prices"]["price"].tolist() == pytest.approx([465000.0, 196000.0])


def test_the_codec_example() -> None:
    """A picture goes in and comes out, pixel by pixel."""
    namespace: dict[str, Any] = {}
    exec(blocks()[3], namespace)
    try:
        pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
        sent = base.input_codecs["png"].encode_input("image", pixels)
        assert sent.data.item().startswith(b"\x89PNG")
        in_json = RequestInput("image", "BYTES", data=[base64.b64encode(sent.data.item()).decode()])
        for each in (sent, in_json):
            np.testing.assert_array_equal(base.input_codecs["png"].decode_input(each), pixels)
    finally:
        del base.input_codecs["png"]


def test_no_example_is_left_out() -> None:
    """The tests above run every example that there is."""
    assert len(blocks()) == 4
