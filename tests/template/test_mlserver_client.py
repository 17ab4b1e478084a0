"""A client that is written for MLServer's types runs with ours, after a change of its imports."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from werkzeug.serving import make_server

from app import create_app
from app.api import MetadataTensor, ModelMetadata
from app.config.settings import Settings
from tests.kit.environments import LOCAL, make_mlserver, run

CLIENT = Path(__file__).parent / "mlserver_codecs" / "client.py"
IMPORTS = {"mlserver.types": "app.api", "mlserver.codecs": "app.codecs"}
TENSORS = [
    MetadataTensor("number", "FP64", [-1, 1], "np"),
    MetadataTensor("text", "BYTES", [-1], "str"),
    MetadataTensor("octets", "BYTES", [-1], "base64"),
    MetadataTensor("moment", "BYTES", [-1], "datetime"),
]
CODECS = ["NumpyCodec", "StringCodec", "Base64Codec", "DatetimeCodec"]
REQUEST_CODECS = ["NumpyRequestCodec", "StringRequestCodec", "PandasCodec"]
FORMS = ["dict, parse_raw", "model_dump, keywords", "json, parse_obj", "model_dump_json", "copied"]
RESULTS = [
    f"{name}: {form}"
    for name in (*CODECS, *REQUEST_CODECS, "keywords", "objects")
    for form in FORMS
]


def echo(
    model: Any,
    number: np.ndarray = np.empty((0, 1)),  # noqa: B008
    text: list[str] = [],  # noqa: B006
    octets: list[bytes] = [],  # noqa: B006
    moment: list[datetime] = [],  # noqa: B006
) -> dict[str, Any]:
    return {"number": number, "text": text, "octets": octets, "moment": moment}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve a model that returns its inputs, which are all optional, and yield the address of its infer route."""
    metadata = ModelMetadata("echo", "3", "python", TENSORS, TENSORS)
    module: Any = SimpleNamespace(
        __name__="echo", METADATA=metadata, load=lambda: None, predict=echo
    )
    server = make_server("127.0.0.1", 0, create_app(Settings(), module), threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.port}/v2/models/echo/infer"
    server.shutdown()
    thread.join()


@pytest.fixture(scope="module")
def theirs(url: str) -> dict[str, Any]:
    """Return the results of the client with MLServer's types."""
    return dict(json.loads(run(make_mlserver(), "-W", "ignore", CLIENT, url, **LOCAL)))


@pytest.fixture(scope="module")
def ours(url: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the results of the client with our types."""
    text = CLIENT.read_text()
    for old, new in IMPORTS.items():
        assert f"from {old} import" in text
        text = text.replace(f"from {old} import", f"from {new} import")
    script = tmp_path_factory.mktemp("client") / "client.py"
    script.write_text(text)
    return dict(
        json.loads(run(sys.executable, script, url, **LOCAL, PYTHONPATH=str(CLIENT.parent)))
    )


@pytest.mark.timeout(900)  # the first test installs MLServer
@pytest.mark.parametrize("name", RESULTS)
def test_client_runs_with_our_types(
    name: str, ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    """C3: each codec returns equal values with MLServer's types and with ours, in each form of MLServer's documents."""
    assert ours[name] == theirs[name]


@pytest.mark.timeout(900)  # the first test installs MLServer
def test_every_form_is_compared(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """The clients return the values that they send, in the forms that this file lists."""
    assert [*ours] == [*theirs] == RESULTS
    for form in FORMS:
        assert ours[f"StringCodec: {form}"]["values"] == ["'setosa'", "'naïve ☃'"]
        assert [column for column, _ in ours[f"PandasCodec: {form}"]["columns"]] == [
            "number",
            "text",
        ]
