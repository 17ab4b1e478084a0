"""The guide to predict.py works in a new project, and the make targets that pages name exist."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.environments import LOCAL, ROOT, link_packages, make_project, run

from .test_pages import blocks

MODEL = "parcel-times"
# The mistakes in the table of predict.md, applied to its example.
MISTAKES = [
    ("import numpy as np", "import numpy as np\nimport catboost"),
    ("import numpy as np", "import numpy as np\nfrom features import scaled"),
    ("def load()", "def lod()"),
    ("predict(model, parcel:", "predict(model, parcels:"),
    ('"parcel", "FP32"', '"parcel", "float32"'),
    ("[[1.5, 120.0]]", "[1.5, 120.0]"),
    ('return {"hours"', 'return {"hour"'),
    ("parcels.json", "parcel.json"),
]
# Starts app/predict.py with each of the changes, in one process.
START = """
import json, sys
from pathlib import Path
import app

path, right = Path("app/predict.py"), Path("app/predict.py").read_text()
for old, new in json.loads(sys.argv[1]):
    assert old in right, old
    path.write_text(right.replace(old, new, 1))
    sys.modules.pop("app.predict", None)
    vars(app).pop("predict", None)
    try:
        app.create_app()
    except Exception as error:
        print(error)
    else:
        print("it starts")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new project with the packages installed here."""
    return link_packages(make_project(tmp_path_factory.mktemp("made"), model_name=MODEL))


@pytest.fixture
def copy(project: Path, tmp_path: Path) -> Path:
    """Return a copy of the project that a test may change."""
    return shutil.copytree(project, tmp_path / "copy", symlinks=True)


def chapter(page: Path, name: str) -> str:
    return page.read_text().split(f"\n## {name}\n")[1].split("\n## ")[0]


def lines(text: str) -> list[str]:
    """Return the indented commands without their comments."""
    commands = re.findall(
        r"^ {4}(\S.*)$",
        re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return [line.split("    #")[0].strip() for line in commands]


def shell(folder: Path, command: str) -> str:
    """Return the output of a command. It must exit with 0."""
    return run("bash", "-c", f"cd '{folder}' && {command}", PYTHONPATH="", **LOCAL)


def test_guide_model(copy: Path) -> None:
    """The guide's model passes the guide's tests in a project, and its mistakes give the listed errors."""
    guide = copy / "docs/predict.md"
    (model,) = re.findall(r"^```json\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    (copy / "model/parcels.json").write_text(model)
    predict, tests = blocks(guide.name)
    (copy / "app/predict.py").write_text(predict)
    (copy / "app/features.py").write_text("def scaled(rows):\n    return rows\n")
    (copy / "tests/test_predict.py").write_text(tests)
    (command,) = [line for line in lines((copy / "README.md").read_text()) if "ARGS=tests/" in line]
    assert "2 passed" in shell(copy, command)
    output, _ = re.findall(r"^```text\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert shell(copy, ".venv/bin/python -m app check").endswith(output)
    rows = re.findall(r"^\| .* \| `(.*)` \|$", chapter(guide, "Startup errors"), re.MULTILINE)
    messages = subprocess.run(
        [copy / ".venv/bin/python", "-B", "-c", START, json.dumps(MISTAKES)],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for line, row in zip(messages, rows, strict=True):
        assert row.removesuffix(", …") in line


@pytest.mark.parametrize("of", ["root", "project"])
def test_make_targets_on_pages_exist(project: Path, of: str) -> None:
    """Every make target that a page names exists, except those of the template's repository."""
    folder = ROOT if of == "root" else project
    pages = [folder / "README.md", *folder.glob("docs/*.md"), *folder.glob("deploy/**/*.md")]
    named = {
        word
        for page in pages
        for word in re.findall(r"(?:`|^ {4})make ([a-z]+)\b", page.read_text(), re.MULTILINE)
    }
    assert {"serve", "test"} < named
    theirs = {"chaos"} if of == "project" else set()
    for target in named - theirs:
        run("make", "--dry-run", "-C", folder, target, "VERSION=1.2.3")
