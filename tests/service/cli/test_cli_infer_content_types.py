"""`infer` and `bench`: files, bytes and missing values, which each transport sends in its own form."""

from __future__ import annotations

import csv
import json
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from werkzeug.serving import make_server

from app.api import MetadataTensor
from app.cli import main
from tests.kit import models
from tests.kit.service import Service
from tests.service.cli.tables import Infer

TRANSPORTS = pytest.mark.parametrize("transport", ["rest-json", "rest-binary", "grpc"])
PNG = b"\x89PNG\xff"


@pytest.fixture(scope="module")
def address(serve: Callable[..., Service]) -> Iterator[Callable[[Any], Any]]:
    """Yield address(module), which serves a model in this process and returns its `http_address` and `grpc_address`."""
    servers = []

    def start(module: Any) -> Any:
        service = serve(module)
        servers.append(make_server("127.0.0.1", 0, service.app, threaded=True))
        threading.Thread(target=servers[-1].serve_forever).start()
        return SimpleNamespace(
            http_address=f"127.0.0.1:{servers[-1].server_port}",
            grpc_address=f"127.0.0.1:{service.server.port}",
            service=service,
        )

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def gapped(address: Callable[[Any], Any]) -> Any:
    """Return the address of an echo of text, datetimes and files. Text and datetimes can be missing."""
    tensors = [
        MetadataTensor("text", "BYTES", [-1], "str", missing=""),
        MetadataTensor("when", "BYTES", [-1], "datetime", missing="NA"),
        MetadataTensor("file", "BYTES", [-1], "bytes"),
    ]

    def predict(_: Any, text: list[str], when: list[datetime], file: list[bytes]) -> dict[str, Any]:
        assert "" not in text
        assert all(isinstance(moment, datetime | None) for moment in when)
        return {"text": text, "when": when, "file": file}

    module = models.model(tensors, tensors, predict)
    module.EXAMPLE = {"text": ["a", None], "when": [None, "2024-01-02"], "file": [PNG, b""]}
    return address(module)


ROWS = [("a", "2024-01-02T00:00:00", PNG), (None, None, b"")]


@TRANSPORTS
@pytest.mark.parametrize("gap", ["", "-"])
def test_gaps_in_csv(gapped: Any, infer: Infer, tmp_path: Path, transport: str, gap: str) -> None:
    """C12, C13: on every transport, an empty cell or --na-value is a missing value, and text for `bytes` is base64."""
    (tmp_path / "in.csv").write_text(f"text,when,file\na,2024-01-02,iVBORw==\n{gap},{gap},/w==\n")
    words = ["--na-value", gap] if gap else []
    output = infer(tmp_path / "in.csv", *words, at=gapped, transport=transport).stdout
    _, *rows = csv.reader(output.splitlines())
    assert rows == [["a", "2024-01-02T00:00:00", "iVBORw=="], ["", "", "/w=="]]


@TRANSPORTS
def test_gaps_in_parquet(gapped: Any, infer: Infer, tmp_path: Path, transport: str) -> None:
    """C12, C13: on every transport, null in Parquet is a missing value, and bytes are binary columns."""
    rows = [
        {"text": text, "when": when and datetime.fromisoformat(when), "file": file}
        for text, when, file in ROWS
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    infer(tmp_path / "in.parquet", "-o", tmp_path / "out.parquet", at=gapped, transport=transport)
    assert pq.read_table(tmp_path / "out.parquet").to_pylist() == rows


@TRANSPORTS
def test_gaps_in_json_lines(gapped: Any, infer: Infer, tmp_path: Path, transport: str) -> None:
    """C12, C13: on every transport, null in JSON Lines is a missing value, and base64 text is bytes."""
    rows = [
        {"text": text, "when": when, "file": b64encode(file).decode()} for text, when, file in ROWS
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    output = infer(
        tmp_path / "in.jsonl", "--output-format", "jsonl", at=gapped, transport=transport
    ).stdout
    assert [json.loads(line) for line in output.splitlines()] == rows
    (tmp_path / "in.jsonl").write_text(json.dumps({**rows[0], "file": "no base64"}))
    assert (
        'Input "file": invalid base64'
        in infer(tmp_path / "in.jsonl", at=gapped, transport=transport, status=1).stderr
    )


@TRANSPORTS
@pytest.mark.parametrize("content_type", ["bytes", "base64", None])
def test_files(
    address: Callable[[Any], Any],
    infer: Infer,
    tmp_path: Path,
    transport: str,
    content_type: str | None,
) -> None:
    """C12: files reach predict() unchanged on every transport. Only JSON needs a content type."""

    def predict(_: Any, image: list[bytes]) -> list[str]:
        return [repr(content) for content in image]

    inputs = [MetadataTensor("image", "BYTES", [-1], content_type)]
    at = address(models.model(inputs, [MetadataTensor("text", "BYTES", [-1], "str")], predict))
    (tmp_path / "a.png").write_bytes(PNG)
    if content_type is None and transport == "rest-json":
        assert (
            'content type "bytes"'
            in infer(tmp_path / "a.png", at=at, transport=transport, status=1).stderr
        )
        return
    output = infer(
        tmp_path / "a.png", "--output-format", "jsonl", at=at, transport=transport
    ).stdout
    assert json.loads(output) == {"text": repr(PNG)}


def test_bench(gapped: Any, tmp_path: Path) -> None:
    """C12, C13: `bench` sends a request in JSON form, with gaps and base64 text, as binary data."""
    path = tmp_path / "request.json"
    path.write_text(json.dumps(gapped.service.core.info.example()))
    words = [
        "--input",
        str(path),
        "--seconds",
        "0.1",
        "--warm-up",
        "0",
        "--concurrency",
        "1",
        "--json",
    ]
    where = ["--transport", "rest-binary", "--url", f"http://{gapped.http_address}"]
    result = CliRunner().invoke(main, ["bench", *words, *where])
    assert (result.exit_code, json.loads(result.stdout)["errors"]) == (0, 0), result.stderr
