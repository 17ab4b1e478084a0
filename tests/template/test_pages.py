"""The pages in docs/ list all settings and metrics correctly, and their examples run as printed."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import fields
from typing import Any

import grpc
import pytest

from app.config.settings import Settings, read_settings
from app.protocol.errors import ConfigurationError
from tests.kit.environments import ROOT
from tests.kit.log_lines import Client
from tests.kit.processes import Running, gunicorn
from tests.kit.scrapes import scrape

DOCS = ROOT / "docs"


def blocks(page: str) -> list[str]:
    """Return the Python examples of a page."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("field", fields(Settings), ids=lambda field: field.name)
def test_every_setting_is_listed(field: Any) -> None:
    """The table has a row for each setting with its variable, default and description."""
    words = {
        "model_dir": "`model/`",
        "workers": "number of available CPU cores",
        "model_name": "name in [`METADATA`](predict.md#metadata)",
        "model_version": "version in [`METADATA`](predict.md#metadata)",
        "ui_enabled": "`on`",
        "capture_redact": "",
        "cors_origins": "",
        "devices": "",
        "disable_optimizations": "",
    }
    default = words.get(field.name, "" if field.default is None else f"`{field.default}`")
    row = f"| `{field.name.upper()}` | {default} | {field.metadata['doc']} |"
    assert row in (DOCS / "configuration.md").read_text()


def test_invalid_setting_is_reported_as_printed() -> None:
    """The error on the page is the service's error for that value."""
    (line,) = re.findall(
        r"^Cannot start: (.*)$", (DOCS / "configuration.md").read_text(), re.MULTILINE
    )
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
    scraped_rows = {}
    with gunicorn(ROOT, "tests.service.apps:numbers()") as service:
        call(service, "test", {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]})
        families = scrape(service).families.values()
    for family in families:
        if family.name.startswith("inference_"):
            name = family.name + "_total" * (family.type == "counter")
            scraped_rows[name] = {label for sample in family.samples for label in sample.labels} - {
                "le"
            }
    none_yet = {  # no request was rejected or captured
        "inference_requests_rejected_total": {"model", "version", "protocol", "reason"},
        "inference_captures_dropped_total": {"reason"},
    }
    assert rows == {**scraped_rows, **none_yet}


TYPES = {str: "string", int: "integer", float: "number"}


def test_every_log_field_is_listed() -> None:
    """The table has a row for each field of the log, with its type, and no other. A field has one type."""
    rows = re.findall(
        r"^\| (`[a-z_`, ]+`) \| (string|integer|number) \|",
        (DOCS / "monitoring.md").read_text(),
        re.MULTILINE,
    )
    listed = {name: kind for names, kind in rows for name in re.findall(r"\w+", names)}
    traced = {"traceparent": f"00-{'1' * 32}-{'1' * 16}-01"}
    settings = {"LOG_FORMAT": "json", "MAX_BATCH_SIZE": 2, "WORKERS": 1}
    with (
        gunicorn(ROOT, "tests.service.apps:logging_echo()", **settings) as service,
        grpc.insecure_channel(service.grpc_address) as channel,
    ):
        client = Client(service, channel)
        for protocol in ("rest", "grpc"):
            for value in ("good", "fail"):
                client.infer(protocol, value, **traced)
            client.infer(protocol, name="other")
        client.post("/unknown", None, "GET")
    types_by_field: dict[str, set[str]] = {}
    for line in service.last_words.splitlines():
        for name, value in json.loads(line).items():
            types_by_field.setdefault(name, set()).add(TYPES[type(value)])
    assert types_by_field == {name: {kind} for name, kind in listed.items()}


def call(service: Running, model: str, tensor: dict[str, Any]) -> Any:
    command = [
        "curl",
        "--silent",
        "--fail",
        f"http://{service.http_address}/v2/models/{model}/infer",
        "-d",
    ]
    done = subprocess.run(
        [*command, json.dumps({"inputs": [tensor]})], capture_output=True, check=True
    )
    return json.loads(done.stdout)
