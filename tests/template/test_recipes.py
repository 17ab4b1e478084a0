"""The additions in docs/architecture.md work as printed, each in a copy of the service."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.kit.environments import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
# The line before a block names the file and the place.
EDIT = re.compile(
    r"^Add to (?:the end of )?`(?P<file>[^`]+)`"
    r"(?:, (?P<where>before|after) (?P<every>the|each) line with (?:``? ?)(?P<anchor>.+?)(?: ?``?))?:\n\n"
    r"```\w*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
# The parts of the repository that the recipes change, and those that import them.
COPIED = ["app", "grpc_service", "docs", "model", "protos", "pyproject.toml"]
# Put in front of each script. `make_model` returns a module whose predict() returns its input.
PREPARED = """
from pathlib import Path
from types import SimpleNamespace
import app
from app.api import MetadataTensor, ModelMetadata
assert Path(app.__file__).is_relative_to(Path.cwd()), app.__file__

def make_model(tensor):
    metadata = ModelMetadata("m", "1", "test", inputs=[tensor], outputs=[tensor])
    return SimpleNamespace(__name__="m", METADATA=metadata, load=lambda: None, predict=lambda model, x: {"x": x})
"""


class Edit(NamedTuple):
    file: str
    where: str | None
    every: str | None
    anchor: str | None
    code: str

    def apply(self, folder: Path) -> None:
        """Insert the code at the end, after two blank lines, or next to the line with the anchor."""
        path = folder / self.file
        if self.anchor is None:
            path.write_text(f"{path.read_text()}\n\n{self.code}")
            return
        lines = path.read_text().splitlines(keepends=True)
        places = [index for index, line in enumerate(lines) if self.anchor in line]
        assert len(places) > 1 if self.every == "each" else len(places) == 1, (self.anchor, places)
        for index in reversed(places):
            lines.insert(index + (self.where == "after"), self.code)
        path.write_text("".join(lines))


def chapter(name: str) -> str:
    return PAGE.split(f"\n## {name}\n")[1].split("\n## ")[0]


def edits(name: str) -> list[Edit]:
    return [Edit(**match.groupdict()) for match in EDIT.finditer(chapter(name))]


def make_copy(folder: Path, recipe: str) -> Path:
    """Return `folder` with a copy of the service, with the changes of the recipe. Its code passes the linter."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "_build")
            )
        else:
            shutil.copy(ROOT / name, folder)
    for edit in edits(recipe):
        edit.apply(folder)
    changed = [edit.file for edit in edits(recipe) if edit.file.endswith(".py")]
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *changed],
            cwd=folder,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout
    return folder


def python(folder: Path, *arguments: str, **environment: str) -> str:
    """Run Python in the copy and return its output."""
    command = [sys.executable, "-B", *arguments]
    env = {**os.environ, "PYTHONPATH": str(folder), **environment}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_paths_exist() -> None:
    """Every file and directory that the page names exists, and the page names every package."""
    named = set(
        re.findall(r"\b(?:app|grpc_service|deploy|docs)/[\w./-]*|\bgunicorn\.conf\.py", PAGE)
    )
    assert not [name for name in named if not (ROOT / name).exists()]
    packages = {f"app/{path.parent.name}/" for path in (ROOT / "app").glob("*/__init__.py")}
    assert packages | {"grpc_service/"} <= named


def test_every_block_is_applied() -> None:
    """Each block of code belongs to one of the six recipes, and starts with its file and place."""
    recipes = re.findall(r"^## (Add a .*)$", PAGE, re.MULTILINE)
    assert recipes == [
        f"Add a {thing}"
        for thing in ("datatype", "built-in codec", "route", "setting", "log field", "metric")
    ]
    for recipe in recipes:
        assert len(edits(recipe)) == chapter(recipe).count("\n```") / 2 > 0


def test_datatype(tmp_path: Path) -> None:
    """The new datatype travels as JSON, as binary data and over gRPC. Arrays keep the datatype that they had."""
    script = """
from app import create_app
from app.codecs import NumpyCodec
from app.protocol.datatypes import DATATYPES
from app.testing import serve
import numpy as np

model = make_model(MetadataTensor("x", "TIMESTAMP", [-1]))
with serve(model) as infer:
    assert infer(x=[-1, 0, 2**53 + 1])["x"].tolist() == [-1, 0, 2**53 + 1]
assert NumpyCodec.encode(np.array([1]))[0] == "INT64"
client = create_app(module=model).test_client()
schemas = client.get("/v2/docs/openapi.json").get_json()["components"]["schemas"]
assert schemas["Datatype"]["enum"] == list(DATATYPES)
config = client.get("/v2/models/m/config").get_json()
for side in ("input", "output"):
    enum = schemas["ModelConfig"]["properties"][side]["items"]["properties"]["data_type"]["enum"]
    assert (enum[0], len(enum)) == (config[side][0]["data_type"], len(DATATYPES))
"""
    python(make_copy(tmp_path, "Add a datatype"), "-c", PREPARED + script)


def test_datatype_without_typed_contents(tmp_path: Path) -> None:
    """G4: a tensor of a datatype without a field of typed contents is raw in a response."""
    script = """
from app.api import InferenceResponse, ResponseOutput
from grpc_service import converters

outputs = [ResponseOutput("x", "TIMESTAMP", data=[1, 2]), ResponseOutput("y", "INT64", data=[3])]
body = converters.write_response(InferenceResponse(outputs, "m"), raw=False)
assert [each.data.tolist() for each in converters.read_response(body).outputs] == [[1, 2], [3]]
"""
    copy = make_copy(tmp_path, "Add a datatype")
    table = copy / "app/protocol/datatypes.py"
    table.write_text(
        table.read_text().replace(
            '"TIMESTAMP", "<i8", "int64_contents"', '"TIMESTAMP", "<i8", None'
        )
    )
    python(copy, "-c", PREPARED + script)


def test_codec(tmp_path: Path) -> None:
    """An input and an output with the new content type have the decoded value in Python, and errors name the input."""
    script = """
from app.protocol.errors import InvalidInput
from app.testing import serve

seen = []
model = make_model(MetadataTensor("x", "BYTES", [-1], content_type="hex"))
model.predict = lambda model, x: seen.append(list(x)) or {"x": list(x)}
with serve(model) as infer:
    assert infer(x=[b"\\x00\\xff", b""])["x"] == [b"\\x00\\xff", b""]
    assert seen[-3:] == [[b"\\x00\\xff", b""]] * 3  # REST with JSON, REST with binary data, gRPC
from app import create_app
body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["0g"]}]}
response = create_app(module=model).test_client().post("/v2/models/m/infer", json=body)
assert (response.status_code, "invalid hexadecimal text" in response.get_json()["error"]) == (400, True), response.data
"""
    python(make_copy(tmp_path, "Add a built-in codec"), "-c", PREPARED + script)


def test_route(tmp_path: Path) -> None:
    """The new route responds, and the OpenAPI description contains it."""
    script = """
from app import create_app

client = create_app().test_client()
assert client.get("/v2/limits").get_json() == {"max_request_bytes": 4096}
description = client.get("/v2/docs/openapi.json").get_json()
assert description["paths"]["/v2/limits"]["get"]["operationId"] == "server_limits"
"""
    python(make_copy(tmp_path, "Add a route"), "-c", PREPARED + script, MAX_REQUEST_BYTES="4096")


def test_setting(tmp_path: Path) -> None:
    """The new setting is read from its variable, is an option of `serve`, and is listed as the page's row."""
    copy = make_copy(tmp_path, "Add a setting")
    script = "from app.api import read_settings; print(read_settings().contact)"
    assert python(copy, "-c", PREPARED + script, CONTACT="team@example.org") == "team@example.org\n"
    assert re.search(
        r"--contact VALUE +Contact of the team", python(copy, "-m", "app", "serve", "--help")
    )
    (doc,) = re.findall(r'contact: .*, "(.*)"', (copy / "app/config/settings.py").read_text())
    assert f"\n| `CONTACT` |  | {doc} |\n" in (copy / "docs/configuration.md").read_text()


def test_log_field(tmp_path: Path) -> None:
    """The new field is in the lines of decoded requests, in the span, and in the table of the page."""
    script = """
import logging
from app import create_app
from app.observability.access_log import AccessLog
from app.observability.log import handler

logging.getLogger("app.requests").setLevel("INFO")
lines = []
handler.enqueue = lines.append
app = create_app(module=make_model(MetadataTensor("x", "FP32", [-1])))
app.extensions["service"].observer_queue.add_observer(AccessLog("json"))
tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
client = app.test_client()
client.post("/v2/models/m/infer", json={"inputs": [tensor]})
client.post("/v2/models/m/infer", json={})
good, bad = lines
assert '"inputs":1,"duration_ms"' in good, good
assert "inputs" not in bad.partition("error_message")[0], bad
"""
    copy = make_copy(tmp_path, "Add a log field")
    python(copy, "-c", PREPARED + script)
    assert '"inference.inputs"' in (copy / "app/observability/spans.py").read_text()
    assert "\n| `inputs` | integer |" in (copy / "docs/monitoring.md").read_text()


def test_metric(tmp_path: Path) -> None:
    """The new metric is on /metrics with its value, and the page on monitoring has its row."""
    script = """
from app import create_app

print(create_app().test_client().get("/metrics").text)
"""
    copy = make_copy(tmp_path, "Add a metric")
    metrics = python(copy, "-c", PREPARED + script, MAX_CONCURRENCY="7")
    assert "\ninference_max_concurrency 7.0\n" in metrics
    assert "\n| `inference_max_concurrency` |  |" in (copy / "docs/monitoring.md").read_text()
