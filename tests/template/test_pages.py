"""The pages in docs/ list all settings and metrics correctly, and their examples run as printed."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import numpy as np
import pytest

from app.codecs import base
from app.config.settings import Settings, read_settings
from app.protocol.errors import ConfigurationError
from app.protocol.types import RequestInput
from app.testing import serve
from tests.service.observability.log_lines import Client
from tests.service.processes import Running, gunicorn
from tests.service.scrapes import scrape

from .environments import ROOT

DOCS = ROOT / "docs"
# The number of Python examples per page, and the test file that runs them.
EXAMPLES = {
    "content-types.md": 5,  # this file
    "growing.md": 1,  # test_growing.py
    "predict.md": 2,  # test_readme.py
    "configuration.md": 1,  # test_readme.py
    "architecture.md": 2,  # test_recipes.py
    "tutorial.md": 3,  # test_tutorial.py
    "batch-tools.md": 1,  # not executed: it needs Ray
}
# Appended to an example of app/predict.py.
SERVED = """

def create():
    import sys
    from app import create_app
    return create_app(module=sys.modules[__name__])
"""


def blocks(page: str) -> list[str]:
    """Return the Python examples of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def test_every_example_is_tested() -> None:
    """Every Python example is in the list of tested examples."""
    assert {page.name: len(blocks(page.name)) for page in DOCS.glob("*.md") if blocks(page.name)} == EXAMPLES


@pytest.mark.parametrize("field", fields(Settings), ids=lambda field: field.name)
def test_every_setting_is_listed(field: Any) -> None:
    """The table has a row for each setting with its variable, default and description."""
    words = {
        "model_dir": "`model/`",
        "workers": "number of available CPU cores",
        "model_name": "name in METADATA",
        "model_version": "version in METADATA",
        "preload_model": "`off`",
        "ui_enabled": "`on`",
        "disable_optimizations": "",
    }
    default = words.get(field.name, "" if field.default is None else f"`{field.default}`")
    row = f"| `{field.name.upper()}` | {default} | {field.metadata['doc']} |"
    assert row in (DOCS / "configuration.md").read_text()


def test_invalid_setting_is_reported_as_printed() -> None:
    """The error on the page is the service's error for that value."""
    (line,) = re.findall(r"^Cannot start: (.*)$", (DOCS / "configuration.md").read_text(), re.MULTILINE)
    variable, value = re.search(r"^(\w+): .* got '(.*)'\.$", line).groups()  # type: ignore[union-attr]
    with pytest.raises(ConfigurationError) as error:
        read_settings({variable: value})
    assert str(error.value) == line


def test_every_metric_is_listed() -> None:
    """The table has one row for each metric with its labels, and no other rows."""
    rows = {
        name: set(re.findall(r"`(\w+)`", labels))
        for name, labels in re.findall(
            r"^\| `(inference_\w+)` \| (.*?) \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE
        )
    }
    shown = {}
    with gunicorn(ROOT, "tests.service.apps:numbers()") as service:
        call(service, "test", {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]})
        families = scrape(service).families.values()
    for family in families:
        if family.name.startswith("inference_"):
            name = family.name + "_total" * (family.type == "counter")
            shown[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    rejected = {
        "inference_requests_rejected_total": {"model", "version", "protocol", "reason"}
    }  # no request was rejected yet
    assert rows == {**shown, **rejected}


TYPES = {str: "string", int: "integer", float: "number"}


def test_every_log_field_is_listed() -> None:
    """The table has a row for each field of the log, with its type, and no other. A field has one type."""
    rows = re.findall(
        r"^\| (`[a-z_`, ]+`) \| (string|integer|number) \|", (DOCS / "monitoring.md").read_text(), re.MULTILINE
    )
    listed = {name: kind for names, kind in rows for name in re.findall(r"\w+", names)}
    traced = {"traceparent": f"00-{'1' * 32}-{'1' * 16}-01"}
    settings = {"LOG_FORMAT": "json", "MAX_BATCH_SIZE": 2, "WORKERS": 1}
    with (
        gunicorn(ROOT, "tests.service.apps:logging_echo()", **settings) as service,
        grpc.insecure_channel(service.grpc) as channel,
    ):
        client = Client(service, channel)
        for protocol in ("rest", "grpc"):
            for value in ("good", "fail"):
                client.infer(protocol, value, **traced)
            client.infer(protocol, name="other")
        client.post("/unknown", None, "GET")
    found: dict[str, set[str]] = {}
    for line in service.last_words.splitlines():
        for name, value in json.loads(line).items():
            found.setdefault(name, set()).add(TYPES[type(value)])
    assert found == {name: {kind} for name, kind in listed.items()}


def call(service: Running, model: str, tensor: dict[str, Any]) -> Any:
    command = ["curl", "--silent", "--fail", f"http://{service.http}/v2/models/{model}/infer", "-d"]
    done = subprocess.run([*command, json.dumps({"inputs": [tensor]})], capture_output=True, check=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start the service with the predict.py from the page on content types."""
    folder = tmp_path_factory.mktemp("prices")
    (folder / "prices.py").write_text(blocks("content-types.md")[0] + SERVED)
    with gunicorn(ROOT, "prices:create()", PYTHONPATH=f"{folder}{os.pathsep}{ROOT}") as service:
        yield service


def test_client_examples(prices: Running, capsys: pytest.CaptureFixture[str]) -> None:
    """The examples for curl and Python return the printed responses over REST and gRPC."""
    page = (DOCS / "content-types.md").read_text()
    (command,) = re.findall(r"^ {4}curl .*?\n\n", page, re.MULTILINE | re.DOTALL)
    (response,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    local = command.replace("127.0.0.1:8080", prices.http).replace("curl ", "curl --silent ")
    assert json.loads(subprocess.run(["bash", "-c", local], capture_output=True).stdout) == json.loads(response)
    (printed,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    namespace: dict[str, Any] = {}
    for block in blocks("content-types.md")[1:3]:
        namespace.pop("prices", None)
        local = block.replace("127.0.0.1:8080", prices.http).replace("127.0.0.1:8081", prices.grpc)
        exec(local, namespace)
        assert f"{namespace['prices']}\n" == printed
    assert capsys.readouterr().out == printed


def test_codec_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The PNG codec of the page decodes the pixels that it encoded, and the model of the page uses it."""
    png, predict = ModuleType("app.png"), ModuleType("predict")
    monkeypatch.setitem(sys.modules, "app.png", png)
    exec(blocks("content-types.md")[3], vars(png))
    try:
        exec(blocks("content-types.md")[4], vars(predict))
        with serve(predict, forms=["binary", "grpc"]) as infer:
            assert infer(image=np.full((2, 3, 3), 7, np.uint8))["brightness"].tolist() == [7]
        pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
        sent = base.input_codecs["png"].encode_input("image", pixels)
        assert sent.data.item().startswith(b"\x89PNG")
        in_json = RequestInput("image", "BYTES", data=[base64.b64encode(sent.data.item()).decode()])
        for each in (sent, in_json):
            np.testing.assert_array_equal(base.input_codecs["png"].decode_input(each), pixels)
    finally:
        del base.input_codecs["png"]


def test_outputs_of_commands() -> None:
    """`check` and `info` print the lines that the page on the command line shows. Only times differ."""
    page = (DOCS / "command-line.md").read_text()
    check, info, _ = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with gunicorn(ROOT) as service:
        for command, shown in (("check", check), ("info", info)):
            environment = {**os.environ, "HTTP_PORT": str(service.http_port)}
            words = [sys.executable, "-m", "app", command]
            output = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
            printed = re.sub(r"\S+ ms", "ms", output).replace(service.http, "127.0.0.1:8080").splitlines()
            assert {*re.sub(r"\S+ ms", "ms", shown).splitlines()} - {"…"} <= {*printed}


def test_readme_first_call(tmp_path: Path) -> None:
    """The first call in this repository's README returns the printed response."""
    (shown,) = re.findall(r"^ {4}\$ (curl .*?\n.*)\n {4}(.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    command, response = shown
    with gunicorn(ROOT) as service:
        local = command.replace("127.0.0.1:8080", service.http)
        output = subprocess.run(["bash", "-c", local], capture_output=True, text=True, check=True).stdout
    first, _, rest = response.partition("…,")
    data, _, _ = rest.partition(",…")
    assert output.startswith(first)
    assert data.removesuffix("}") in output
