"""The projects that `cookiecutter` generates from this repository."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from app.version import __version__
from tests.template.baking import (
    CONTEXT,
    ROOT,
    Bake,
    commit_all,
    copy_template,
    files,
    setup_metadata,
    setup_without_docs,
)

SLUG = "{{cookiecutter.project_slug}}"

# Files that exist only in the template, and files whose text differs in a project.
TEMPLATE_ONLY = {
    ".ci",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "conformance",
    "dev",
    "LICENSE",
    "cookiecutter.json",
    "hooks",
    SLUG,
}
PAGES = {
    "docs/architecture.md",
    "docs/command-line.md",
    "docs/configuration.md",
    "docs/deployment.md",
    "docs/monitoring.md",
    "docs/predict.md",
    "docs/protocol.md",
}
TEMPLATE_ONLY_BELOW = {
    "tests/conformance",
    "tests/fuzz",
    "tests/kit",
    "tests/optimizations.py",
    "tests/service",
    "tests/template",
    ".github/CODE_OF_CONDUCT.md",
    ".github/ISSUE_TEMPLATE",
    ".github/SECURITY.md",
    ".github/pull_request_template.md",
    *(f"examples/{framework}" for framework in CONTEXT["framework"][1:]),
    *({f"docs/{path.name}" for path in (ROOT / "docs").iterdir()} - PAGES),
}
TEMPLATE_ONLY_FILES = {
    ".github/workflows/slow.yml",
    "examples/numpy/calls.md",
    "examples/numpy/lock.txt",
    "tests/__init__.py",
    "tests/conftest.py",
}
DOCS_URL = "https://docs.example.com"
HOSTS = (
    "https://github.com/",
    "git@github.com:",
    "https://git.example.com/",
    "https://you:secret@git.example.com/",
)
OWN_TEXT = {"README.md", ".github/workflows/ci.yml", "pyproject.toml", "setup.cfg"}
PROJECT_ONLY = {".cruft.json", ".github/dependabot.yml", ".github/workflows/release.yml"}


def tracked() -> set[str]:
    """Return this repository's files as git lists them, without other files in the directory."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}


def links(folder: Path) -> set[str]:
    """Return the symbolic links below `folder`, without following them."""
    return {
        str((Path(here) / name).relative_to(folder))
        for here, folders, names in os.walk(folder)
        for name in [*folders, *names]
        if (Path(here) / name).is_symlink()
    }


def test_every_link_is_listed() -> None:
    """Every symbolic link of the template is in `_copy_without_render`.

    Otherwise the project would get empty directories.
    """
    assert links(ROOT / SLUG) == set(CONTEXT["_copy_without_render"])
    for link in links(ROOT / SLUG) - {"licenses/Apache-2.0"}:  # the template's own LICENSE
        assert (ROOT / SLUG / link).resolve() == (ROOT / link).resolve()


def test_project_with_all_parts_equals_root(bake: Bake, out: Path) -> None:
    """A project with all optional parts equals the root byte for byte, without files that only the template needs."""
    assert bake(batch_tools="yes", docs_url=DOCS_URL).returncode == 0
    project = out / "open-inference-service"
    expected = {
        name
        for name in tracked()
        if name.split("/")[0] not in TEMPLATE_ONLY
        and "/".join(name.split("/")[:2]) not in TEMPLATE_ONLY_BELOW
    } - TEMPLATE_ONLY_FILES
    assert files(project) == expected | PROJECT_ONLY
    assert not links(project)
    for name in PAGES | {"deploy/helm/README.md"}:  # links to pages that a project does not have
        relative = "../../docs/" if name.startswith("deploy") else ""
        text = (project / name).read_text()
        (project / name).write_text(text.replace(f"]({DOCS_URL}/", f"]({relative}"))
    assert (project / "setup.cfg").read_text() == setup_without_docs()
    different = {
        name
        for name in expected - OWN_TEXT
        if (project / name).read_bytes() != (ROOT / name).read_bytes()
    }
    assert not different


@pytest.fixture(scope="module")
def hosted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a git repository of the template, you/made. It replaces the hosts of repositories."""
    repositories = tmp_path_factory.mktemp("repositories")
    commit_all(copy_template(repositories / "you/made"))
    (repositories / "you/made.git").symlink_to("made")
    hosts = "".join(f"insteadOf = {host}\n" for host in HOSTS)
    (repositories / "gitconfig").write_text(f'[url "file://{repositories}/"]\n{hosts}')
    return repositories


@pytest.mark.parametrize(
    ("template", "has_link"),
    [
        ("gh:you/made", True),
        ("https://github.com/you/made", True),
        ("https://github.com/you/made.git", True),
        ("git@github.com:you/made.git", True),
        ("https://git.example.com/you/made", False),
        ("../made", False),
    ],
)
def test_default_links(
    bake: Bake,
    out: Path,
    hosted: Path,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
    has_link: bool,
) -> None:
    """By default, a project links to the pages of a template on GitHub, and has no links to other templates."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(hosted / "gitconfig"))
    monkeypatch.chdir(hosted / "you/made")
    done = bake(template, project_name="Linked")
    assert done.returncode == 0, done.stderr
    linked = set()
    for page in (out / "linked").rglob("*.md"):
        text = page.read_text()
        assert all(
            (page.parent / name).exists() for name in re.findall(r"\]\(([^):#\s]+\.md)", text)
        ), page
        linked |= {
            *re.findall(r"\]\(https://github\.com/you/made/blob/HEAD/docs/([^)#]+\.md)", text)
        }
        assert has_link or "/blob/HEAD/docs/" not in text
    assert ("reliability.md" in linked) == has_link
    assert all((ROOT / "docs" / name).exists() for name in linked)


@pytest.mark.parametrize(
    ("template", "source"),
    [
        ("gh:you/made", "https://github.com/you/made.git"),
        ("git@github.com:you/made.git", "git@github.com:you/made.git"),
        ("https://you:secret@git.example.com/you/made", "https://git.example.com/you/made"),
        ("../made", "{path}"),
        ("{path}", "{path}"),
    ],
)
def test_project_records_template(
    bake: Bake,
    out: Path,
    hosted: Path,
    monkeypatch: pytest.MonkeyPatch,
    template: str,
    source: str,
) -> None:
    """A project records the URL of its template without a password, or the path of a clone, and the commit."""
    path = hosted / "you/made"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(hosted / "gitconfig"))
    monkeypatch.setenv("PWD", str(path))  # as in a shell
    monkeypatch.chdir(path)

    done = bake(template.format(path=path), project_name="Recorded", model_name="known")

    assert done.returncode == 0, done.stderr
    record = json.loads((out / "recorded/.cruft.json").read_text())
    assert record["template"] == source.format(path=path)
    assert record["commit"] == commit_of(path)
    assert record["context"]["cookiecutter"]["model_name"] == "known"


def commit_of(repository: Path) -> str:
    command = ["git", "-C", str(repository), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_template_without_repository_is_not_recorded(bake: Bake, out: Path, tmp_path: Path) -> None:
    """A project does not record the commit of another repository, if its template is only a directory in it."""
    template = copy_template(tmp_path / "other/template")
    commit_all(tmp_path / "other")
    assert bake(template, project_name="Unknown").returncode == 0
    assert (out / "unknown/app").exists()
    assert not (out / "unknown/.cruft.json").exists()


def test_project_contains_answers(bake: Bake, out: Path) -> None:
    """Each answer appears in the files that use it, and no placeholder remains."""
    done = bake(
        project_name="Churn of Customers",
        description="Says who leaves",
        author="Ada",
        model_name="churn-2",
        model_version="v10",
        image_repository="ghcr.io/ada/churn",
        python_version="3.11",
        docs_url="https://docs.example.com/inference/",
    )
    project = out / "churn-of-customers"
    metadata = setup_metadata(project)
    assert (metadata["name"], metadata["description"], metadata["author"]) == (
        "churn-of-customers",
        "Says who leaves",
        "Ada",
    )
    assert served(project) == ("churn-2", "v10")
    assert server_name(project) == "churn-of-customers"
    assert "\n    churn-of-customers = app.cli:main\n" in (project / "setup.cfg").read_text()
    readme = (project / "README.md").read_text()
    assert readme.startswith("# Churn of Customers\n\nSays who leaves\n")
    assert "/v2/models/churn-2/infer" in readme
    assert (
        yaml.safe_load((project / "deploy/helm/Chart.yaml").read_text())["name"]
        == "churn-of-customers"
    )
    values = yaml.safe_load((project / "deploy/helm/values.yaml").read_text())
    assert values["image"]["repository"] == "ghcr.io/ada/churn"
    assert "ARG PYTHON_VERSION=3.11\n" in (project / "deploy/Dockerfile").read_text()
    assert (
        "](https://docs.example.com/inference/guides/large-models.md#share-the-model-between-workers)"
        in (project / "docs/predict.md").read_text()
    )
    for name in files(project):
        assert "cookiecutter." not in (project / name).read_text(errors="replace"), name
    for line in ("make serve", "make test", "app/predict.py", str(project)):
        assert line in done.stdout


def served(project: Path) -> tuple[str, str]:
    """Return the name and version in METADATA."""
    tree = ast.parse((project / "app/predict.py").read_text())
    call = next(
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ModelMetadata"
    )
    values = {
        keyword.arg: ast.literal_eval(keyword.value)
        for keyword in call.keywords
        if keyword.arg in ("name", "version")
    }
    return values["name"], values["version"]


def server_name(project: Path) -> str:
    """Return the name in the server metadata."""
    code = "from app import create_app; print(create_app().test_client().get('/v2').json['name'])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_project_has_no_build_files(bake: Bake, out: Path, tmp_path: Path) -> None:
    """Caches, compiled messages and environments in the checkout are not copied into a project."""
    template = copy_template(tmp_path / "template")
    for name in (
        "app/__pycache__/x.pyc",
        "app/cli/__pycache__/y.pyc",
        "grpc_service/old.binpb",
        "app/.venv/bin/z",
    ):
        (template / name).parent.mkdir(parents=True, exist_ok=True)
        (template / name).touch()
    assert bake(template, project_name="Swept").returncode == 0
    assert not {
        name for name in files(out / "swept") if "pyc" in name or "binpb" in name or "venv" in name
    }
    assert (out / "swept/app/predict.py").exists()


def test_overwrite_keeps_owner_files(bake: Bake, out: Path) -> None:
    """`cookiecutter -f` on an existing project keeps keys and environments, including a symbolic link."""
    assert bake(project_name="Kept").returncode == 0
    kept = {
        "keys.txt",
        "tls.key",
        "tls.crt",
        ".venv/bin/python",
        ".venv/lib/__pycache__/x.pyc",
        "dist/x.whl",
        "certificates/tls.key",
        "notebooks/build/figure.png",
        "deploy/secrets/password",
        ".git/refs/heads/build",
    }
    for name in kept:
        (out / "kept" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "kept" / name).touch()
    (out / "kept/.venv-old").symlink_to(".venv")
    again = bake(ROOT, "--overwrite-if-exists", project_name="Kept")
    assert again.returncode == 0, again.stderr
    assert kept <= files(out / "kept")
    assert (out / "kept/.venv-old").is_symlink()


def test_new_version_reaches_projects(bake: Bake, out: Path, tmp_path: Path) -> None:
    """`make version` in the template replaces the old version in every file of a project, and keeps symbolic links."""
    template = copy_template(tmp_path / "template")
    subprocess.run(["make", "-C", template, "version", "VERSION=7.8.9"], check=True)
    assert links(template / SLUG) == links(ROOT / SLUG)
    assert bake(template, project_name="Later").returncode == 0
    command = ["git", "grep", "--files-with-matches", "--fixed-strings", __version__, "--", SLUG]
    names = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in names:
        place = name.removeprefix(f"{SLUG}/").replace("version.py", "app/version.py")
        text = (out / "later" / place).read_text()
        assert "7.8.9" in text, name
        assert __version__ not in text, name


def test_rejects_template_without_links(bake: Bake, out: Path, tmp_path: Path) -> None:
    """A template whose symbolic links became text files is rejected with an error that explains this."""
    template = copy_template(tmp_path / "template")
    for link in links(template / SLUG):
        target = os.readlink(template / SLUG / link)
        (template / SLUG / link).unlink()
        (template / SLUG / link).write_text(target)
    done = bake(template)
    assert done.returncode != 0
    assert "This copy of the template has lost its symbolic links" in done.stderr
    assert not files(out)
