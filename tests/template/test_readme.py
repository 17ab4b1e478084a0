"""The commands in a project's README and pages work in a new project."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from oip_conformance.wires import Grpc
from tests.kit.environments import LOCAL, ROOT, link_packages, make_project, run
from tests.kit.processes import Running, free_ports, started, wait_for

from .test_pages import blocks

MODEL = "parcel-times"
# The file that tests each command in the README, by the beginning of the command.
TRIED = {
    "make serve": "tests/template/test_readme.py",
    "make test ARGS=tests/test_predict.py": "tests/template/test_readme.py",
    "make test": ".ci/run",
    "make lint": ".ci/run",
    "make format": "tests/template/test_readme.py",
    "make help": "tests/template/test_readme.py",
    "make conformance": "tests/template/test_project_conformance.py",
    "make clean": "tests/template/test_readme.py",
    ".venv/bin/python -m app check": "tests/service/cli/test_cli.py",
    ".venv/bin/python -m app serve --reload": "tests/service/cli/test_reload.py",
    "make lock": "tests/template/test_lock.py",
    "make version VERSION=": "tests/template/test_workflows.py",
    "curl ": "tests/template/test_readme.py",
    "docker build -f deploy/Dockerfile -t ": "tests/template/test_image.py",
    "docker compose -f deploy/compose.yaml up": "tests/template/test_compose.py",
    "helm install ": "tests/template/test_chart.py",
    "kubectl apply -f deploy/kserve/inferenceservice.yaml": "tests/template/test_kserve.py",
    "cruft ": "tests/template/test_update.py",
}
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
    found = re.findall(
        r"^ {4}(\S.*)$",
        re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return [line.split("    #")[0].strip() for line in found]


def settings(**more: Any) -> dict[str, Any]:
    """Return settings for a service on free ports that imports its own directory."""
    http_port, grpc_port = free_ports(2)
    return {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http_port,
        "GRPC_PORT": grpc_port,
        "SHUTDOWN_DELAY_SECONDS": 0,
        "WORKERS": 1,
        "PYTHONPATH": "",
        **LOCAL,
        **more,
    }


def shell(folder: Path, command: str, service: Running | None = None) -> str:
    """Return the output of a command that calls the service. It must exit with 0."""
    if service:
        command = command.replace(":8080", f":{service.http_port}").replace(
            "curl ", "curl --silent --show-error "
        )
    env = {name: str(value) for name, value in settings().items()}
    return run("bash", "-c", f"cd '{folder}' && {command}", **env)


@pytest.fixture(scope="module")
def served(project: Path) -> Iterator[Running]:
    """Start `make serve` with a PID file, like the page on reliability."""
    command, _ = lines(chapter(ROOT / "docs/reliability.md", "Reload the model or the code"))
    assert command.endswith(" make serve")
    with started(["bash", "-c", command], project, settings()) as service:
        yield service


def test_make_serve_and_its_calls(project: Path, served: Running) -> None:
    """The call that `make serve` prints works, and so do the README's other calls."""
    wait_for(lambda: "Try it:" in served.log())
    (printed,) = re.findall(r"^ +(curl .*)$", served.log(), re.MULTILINE)
    assert json.loads(shell(project, printed, served))["model_name"] == MODEL
    readme = (
        (project / "README.md").read_text().replace(chapter(project / "README.md", "Calls"), "")
    )
    about, metrics, is_ready = [line for line in lines(readme) if line.startswith("curl ")]
    assert json.loads(shell(project, about, served))["name"] == MODEL
    assert json.loads(shell(project, is_ready, served)) == {"name": MODEL, "ready": True}
    assert "inference_requests_total" in shell(project, metrics, served)


def test_hup_reloads_workers(project: Path, served: Running) -> None:
    """The page's command replaces the worker by a new one, which becomes ready."""
    _, command = lines(chapter(ROOT / "docs/reliability.md", "Reload the model or the code"))
    before = served.ready_count()
    shell(project, command)
    wait_for(lambda: served.ready_count() == before + 1)
    assert served.ready()


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
    shown, _ = re.findall(r"^```text\n(.*?)^```", guide.read_text(), re.MULTILINE | re.DOTALL)
    assert shell(copy, ".venv/bin/python -m app check").endswith(shown)
    rows = re.findall(r"^\| .* \| `(.*)` \|$", chapter(guide, "Startup errors"), re.MULTILINE)
    env = {name: str(value) for name, value in settings().items()}
    messages = subprocess.run(
        [copy / ".venv/bin/python", "-B", "-c", START, json.dumps(MISTAKES)],
        cwd=copy,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for line, row in zip(messages, rows, strict=True):
        assert row.removesuffix(", …") in line


def test_make_help_format_and_clean(copy: Path) -> None:
    """make lists its targets, does not reformat a new project, and removes the environment."""
    before = (copy / "app/predict.py").read_text()
    assert "serve" in shell(copy, "make help")
    shell(copy, "make format")
    assert (copy / "app/predict.py").read_text() == before
    shell(copy, "make clean")
    assert not (copy / ".venv").exists()


def test_tls_and_keys(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's certificate and key work for the service, curl and the gRPC channel in Python.

    Without the key, the response is the printed error.
    """
    page = chapter(copy / "docs/configuration.md", "TLS and API keys")
    *make, serve, refused, call = lines(page)
    for each in make:
        shell(copy, each)
    with started(
        ["bash", "-c", serve], copy, settings(), lambda service: "Try it:" in service.log()
    ) as service:
        assert (
            shell(copy, refused, service)
            == re.findall(r"^```json\n(.*)\n```$", page, re.MULTILINE)[0]
        )
        assert "binary_tensor_data" in json.loads(shell(copy, call, service))["extensions"]
        monkeypatch.chdir(copy)
        namespace: dict[str, Any] = {}
        exec(
            blocks("configuration.md")[0].replace(
                "localhost:8081", f"localhost:{service.grpc_port}"
            ),
            namespace,
        )
        channel: grpc.Channel = namespace["channel"]
        with channel:
            assert Grpc(channel).call("ModelMetadata", name=MODEL).name == MODEL


def test_every_command_is_tested(project: Path) -> None:
    """Each command in the README has a test, and each file and cruft command that it names exists."""
    text = (project / "README.md").read_text()
    spans = re.findall(
        r"`([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    )
    tools = tuple({begin.split()[0] + " " for begin in TRIED})
    typed = [
        *lines(text.replace(chapter(project / "README.md", "Calls"), "")),
        *(s for s in spans if s.startswith(tools)),
    ]
    assert len(typed) > 15
    for command in typed:
        by = next((file for begin, file in TRIED.items() if f"{command} ".startswith(begin)), None)
        assert by, f"nobody tries: {command}"
        assert (ROOT / by).exists() or (project / by).exists()
    for word in {*spans, *" ".join(typed).split()}:
        if re.fullmatch(r"[\w.-]+/[\w./-]*", word):
            assert (project / word).exists(), word
    cruft = run(Path(sys.executable).parent / "cruft", "--help")
    assert all(command.split()[1] in cruft for command in typed if command.startswith("cruft "))


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
