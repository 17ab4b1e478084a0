"""Every block of shell and Python on a page is executed, or is in the list of commands that need other systems."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.environments import ROOT

from .blocks import find_blocks, read_guide, split_commands
from .guides import GUIDES
from .helm import Helm
from .listed import LISTED, PERMITTED
from .test_guides import NAMES, OTHER_TESTS

# The pages whose blocks test_tool_commands.py runs: those of the command line.
TOOL_PAGES = ["docs/batch-tools.md", "docs/command-line.md", "docs/performance.md"]
# The page whose blocks test_tutorial.py runs.
TUTORIAL = "docs/tutorial.md"
# The pages whose blocks test_project_commands.py runs, because they create a project or run its tests.
PROJECT_PAGES = [
    "README.md",
    "docs/predict.md",
    "docs/upgrading.md",
    "{{cookiecutter.project_slug}}/README.md",
]
# The pages whose blocks test_commands.py runs.
PAGES = [
    *(
        f"docs/{name}.md"
        for name in ("configuration", "content-types", "deployment", "growing", "kserve")
    ),
    *(
        f"docs/{name}.md"
        for name in ("monitoring", "optimizations", "options", "page", "releases", "reliability")
    ),
    "deploy/helm/README.md",
    "app/server/README.md",
]
# The edits of this page are applied and tested by test_recipes.py.
RECIPES = "docs/architecture.md"
# The commands of these pages need hours, other servers or a release. Their targets, modules and files are checked.
CONTRIBUTORS = [
    "CONTRIBUTING.md",
    *(
        f"{name}/README.md"
        for name in (
            "dev/benchmarks",
            "dev/chaos",
            "dev/chaos/abuse",
            "dev/conformance",
            "conformance",
        )
    ),
]
CONTRIBUTORS += ["tests/fuzz/README.md"]
ALL = [(page, command) for page, commands in LISTED.items() for command in commands]


def text_of(page: str, project: Path) -> str:
    """Return a page. A project's README is that of a new project, without the calls: test_frameworks.py runs these."""
    if not page.startswith("{{"):
        return (ROOT / page).read_text()
    before, calls, after = re.split(
        "\n## Calls\n|(?<=\n)## Deployment\n", (project / "README.md").read_text()
    )
    assert len([*find_blocks(calls)]) > 1
    return before + after


def test_every_page_with_blocks_is_run(linked_project: Path) -> None:
    """A page with shell or Python is run by the tests of commands, of guides or of recipes."""
    folders = [ROOT, ROOT / "docs", GUIDES, ROOT / "deploy/helm", ROOT / "app/server"]
    known = {
        *PAGES,
        *PROJECT_PAGES,
        *TOOL_PAGES,
        TUTORIAL,
        RECIPES,
        *(f"docs/guides/{name}.md" for name in {*NAMES, *OTHER_TESTS}),
    }
    assert known >= LISTED.keys()
    others = ["CHANGELOG.md", "CONTRIBUTING.md"]
    for path in (
        page for folder in folders for page in folder.glob("*.md") if page.name not in others
    ):
        page = str(path.relative_to(ROOT))
        if page != RECIPES:
            assert page in known or not read_guide(path.read_text()).parts, page


PAGE = """Save `client.py`:

```python
print(1)
```

    python client.py  # prints a number
    echo 'two
    lines'

```text
1
two
lines
```

```python
x = 2
```

```python
print(x)
```
"""


def test_reader() -> None:
    """Blocks are files, commands with their output, or scripts that continue each other."""
    guide = read_guide(PAGE)
    assert [*guide.files] == ["client.py", "script1.py", "script2.py"]
    assert [step.commands for step in guide.steps] == [
        ["python client.py", "echo 'two\nlines'"],
        [".venv/bin/python script1.py"],
        [".venv/bin/python script2.py"],
    ]
    assert guide.steps[0].output == "1\ntwo\nlines\n"
    assert "from script1 import *" in guide.files["script2.py"]


@pytest.mark.parametrize("language", ["", "sh", "console"])
def test_unknown_block(language: str) -> None:
    """A block without a language, or in another notation for commands, is rejected, because nothing would run it."""
    with pytest.raises(AssertionError, match="not tested"):
        read_guide(f"Text.\n\n```{language}\nmake serve\n```\n")


@pytest.mark.parametrize("page", [*PAGES, *PROJECT_PAGES, *TOOL_PAGES, TUTORIAL])
def test_every_block_is_taken(page: str, linked_project: Path) -> None:
    """Each block is a file, a script or commands, and each script of the page is executed, imported or a test."""
    guide = read_guide(text_of(page, linked_project))
    commands = " ".join(command for step in guide.steps for command in step.commands)
    scripts = [name for name in guide.files if name.endswith(".py")]
    for name in scripts:
        is_run = re.search(rf"\b{Path(name).stem}\b", commands)
        assert is_run or name.startswith(("app/", "tests/")), f"nothing executes {name}"
        assert name.startswith("app/") or "def predict(" not in guide.files[name], (
            f"no path before a model: {name}"
        )


@pytest.mark.parametrize(("page", "command"), ALL)
def test_listed_command(page: str, command: str, linked_project: Path) -> None:
    """A command that is not executed needs another system, is on its page, is valid in bash and names real files."""
    steps = read_guide(text_of(page, linked_project)).steps
    assert command in [command for step in steps for command in step.commands]
    assert PERMITTED.match(command)
    plain = re.sub(r"<[^>]+>", "ADDRESS", command)
    subprocess.run(["bash", "-n", "-c", plain], check=True)
    assert split_commands(command) == [command]
    for name in re.findall(r"\b(?:deploy|model)/[\w./-]+", command):
        assert (linked_project / name).exists(), name


@pytest.mark.parametrize("page", CONTRIBUTORS)
def test_commands_for_contributors(page: str) -> None:
    """Each command of a page for contributors is valid in bash, and names targets, modules and files that exist."""
    commands = [
        command for step in read_guide((ROOT / page).read_text()).steps for command in step.commands
    ]
    assert commands
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)
    text = "\n".join(commands)
    for target in re.findall(r"^make ([a-z]+)", text, re.MULTILINE):
        subprocess.run(
            ["make", "--dry-run", target, "VERSION=1.2.3"],
            cwd=ROOT,
            check=True,
            capture_output=True,
        )
    modules = {
        name.replace(".", "/") for name in re.findall(r"(?:python -m |gunicorn ')([a-z_.]+)", text)
    }
    files = set(re.findall(r"(?<![\w./-])(?:/repo/)?((?:tests|conformance|\.ci)/[\w./-]+)", text))
    for name in {*modules, *files} - {"", "venv"}:
        assert (ROOT / name).exists() or (ROOT / f"{name}.py").exists(), name


OPTIONS = [
    (page, command)
    for page, command in ALL
    if re.match(r"(docker|helm|kubectl|cruft) .*\s-", command)
]


@pytest.mark.parametrize(("page", "command"), OPTIONS)
def test_listed_options_exist(page: str, command: str, helm: Helm) -> None:
    """The options of docker, helm, kubectl and cruft are in the help of the tool, if it is installed."""
    tool, *words = command.replace("\\\n", " ").split()
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    if tool == "helm":
        help_text = helm(words[0], "--help").stdout
    elif words[0] == "compose":
        help_text = help_of("docker-compose") + help_of("docker-compose", "up")
    else:
        help_text = help_of(tool, *words[: 3 if words[0] == "create" else 1])
    assert words[0] in help_text
    assert not [option for option in given if not re.search(rf"(?<![\w-]){option}\b", help_text)]


def help_of(tool: str, *words: str) -> str:
    executable = shutil.which(
        tool, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    if not executable:
        pytest.skip(f"{tool} is not installed")
    return subprocess.run(
        [executable, *words, "--help"], capture_output=True, text=True, check=True
    ).stdout
