"""The projects that `cookiecutter` generates from this repository."""

from __future__ import annotations

import ast
import configparser
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from app.version import __version__

ROOT = Path(__file__).parents[2]
SLUG = "{{cookiecutter.project_slug}}"
CONTEXT = json.loads((ROOT / "cookiecutter.json").read_text())
# Files that exist only in the template, and files whose text differs in a project.
TEMPLATE_ONLY = {
    ".ci",
    "benchmarks",
    "chaos",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "conformance",
    "LICENSE",
    "cookiecutter.json",
    "hooks",
    "licenses",
    "mypy.ini",
    "pytest.ini",
    "ruff.toml",
    "template.mk",
    "tools",
    SLUG,
}
PAGES = {"docs/predict.md", "docs/configuration.md", "docs/command-line.md", "docs/deployment.md"}
TEMPLATE_ONLY_BELOW = {
    "tests/service",
    "tests/template",
    *(f"examples/{each}" for each in CONTEXT["framework"][1:]),
    *({f"docs/{path.name}" for path in (ROOT / "docs").iterdir()} - PAGES),
}
TEMPLATE_ONLY_FILES = {"app/server/README.md", "examples/numpy/calls.md", "tests/__init__.py"}
OWN_TEXT = {"README.md", ".github/workflows/ci.yml"}
PROJECT_ONLY = {".github/dependabot.yml", ".github/workflows/release.yml"}

Bake = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bake(tmp_path: Path) -> Bake:
    """Return bake(source, option, answer=...), which runs cookiecutter on `source` into tmp_path / "out"."""

    def run(source: Path = ROOT, *options: str, **answers: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "out").mkdir(exist_ok=True)
        words = [*options, *(f"{name}={value}" for name, value in answers.items())]
        return subprocess.run(
            [sys.executable, "-m", "cookiecutter", str(source), "--no-input", "-o", str(tmp_path / "out"), *words],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )

    return run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


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
    for link in links(ROOT / SLUG):
        assert (ROOT / SLUG / link).resolve() == (ROOT / link).resolve()


def test_project_with_all_parts_equals_root(bake: Bake, out: Path) -> None:
    """A project with all optional parts equals the root byte for byte, without files that only the template needs."""
    assert bake(batch_tools="yes").returncode == 0
    project = out / "open-inference-service"
    expected = {
        name
        for name in tracked()
        if name.split("/")[0] not in TEMPLATE_ONLY and "/".join(name.split("/")[:2]) not in TEMPLATE_ONLY_BELOW
    } - TEMPLATE_ONLY_FILES
    assert files(project) == expected | PROJECT_ONLY
    assert not links(project)
    for name in PAGES | {"deploy/helm/README.md"}:  # links to pages that a project does not have
        relative = "../../docs/" if name.startswith("deploy") else ""
        text = (project / name).read_text()
        (project / name).write_text(text.replace(f"]({CONTEXT['docs_url']}/", f"]({relative}"))
    different = {name for name in expected - OWN_TEXT if (project / name).read_bytes() != (ROOT / name).read_bytes()}
    assert not different


def test_same_answers_give_same_project(bake: Bake, out: Path) -> None:
    """Generating a project twice with the same answers gives identical files."""
    contents = []
    for _ in range(2):
        bake(project_name="Twice")
        contents.append({name: (out / "twice" / name).read_bytes() for name in files(out / "twice")})
        shutil.rmtree(out / "twice")
    assert contents[0] == contents[1]


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
    assert yaml.safe_load((project / "deploy/helm/Chart.yaml").read_text())["name"] == "churn-of-customers"
    values = yaml.safe_load((project / "deploy/helm/values.yaml").read_text())
    assert values["image"]["repository"] == "ghcr.io/ada/churn"
    assert "ARG PYTHON_VERSION=3.11\n" in (project / "deploy/Dockerfile").read_text()
    assert (
        "](https://docs.example.com/inference/reliability.md#preload_model)"
        in (project / "docs/predict.md").read_text()
    )
    for name in files(project):
        assert "cookiecutter." not in (project / name).read_text(errors="replace"), name
    for line in ("make serve", "make test", "app/predict.py", str(project)):
        assert line in done.stdout


@pytest.mark.parametrize(("license_name", "author"), [("Apache-2.0", "Ada"), ("MIT", "Ada"), ("BSD-3-Clause", "")])
def test_license(bake: Bake, out: Path, license_name: str, author: str) -> None:
    """The license answer sets LICENSE, README, package and image metadata.

    License texts that were not chosen are removed.
    """
    assert bake(project_name="Free", license=license_name, author=author).returncode == 0
    project = out / "free"
    text = (project / "LICENSE").read_text()
    if license_name == "Apache-2.0":
        assert text == (ROOT / "LICENSE").read_text()
    else:
        assert f"\nCopyright (c) {author or 'The free authors'}\n" in text
    assert f"\n{license_name}. See [LICENSE](LICENSE).\n" in (project / "README.md").read_text()
    assert f"ARG LICENSES={license_name}\n" in (project / "deploy/Dockerfile").read_text()
    assert not (project / "licenses").exists()
    command = [sys.executable, "-W", "error", "setup.py", "--quiet", "egg_info", "--egg-base", str(out)]
    subprocess.run(command, cwd=project, check=True)
    package = (out / "free.egg-info/PKG-INFO").read_text().splitlines()
    assert {f"License-Expression: {license_name}", "License-File: LICENSE"} <= set(package)


def test_project_without_model_page(bake: Bake, out: Path) -> None:
    """With model_page=no, the page, the OpenAPI description and their package are left out, and the service works."""
    assert bake(project_name="Bare", model_page="no").returncode == 0
    project = out / "bare"
    assert not (project / "app/ui").exists()
    assert "browser" not in (project / "README.md").read_text()
    for name in ("setup.cfg", "deploy/requirements.txt"):
        assert "swagger" not in (project / name).read_text()
    code = """
from app import create_app
client = create_app().test_client()
print(*(client.get(path).status_code for path in ("/v2", "/", "/v2/docs", "/v2/docs/openapi.json", "/metrics")))
"""
    assert run_in(project, code) == "200 404 404 404 200\n"


def run_in(project: Path, code: str) -> str:
    """Return the output of the code in the project, without access to this repository's editable installation."""
    first = "import sys; sys.meta_path = [each for each in sys.meta_path if '__editable__' not in each.__module__]\n"
    done = subprocess.run([sys.executable, "-c", first + code], cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def test_project_without_batch_tools(bake: Bake, out: Path) -> None:
    """By default, a project lacks `infer`, `bench` and their extras, and is otherwise identical."""
    for name, answers in {"plain": {}, "full": {"batch_tools": "yes"}}.items():
        assert bake(project_name=name, project_slug="project", **answers).returncode == 0
        (out / "project").rename(out / name)
    of_batch = {name for name in files(out / "full") if name.startswith("app/cli/batch/")}
    assert "app/cli/batch/infer.py" in of_batch
    assert files(out / "plain") == files(out / "full") - of_batch
    extras = configparser.ConfigParser()
    extras.read(out / "plain/setup.cfg")
    assert set(extras["options.extras_require"]) == {"dev", "reload", "tracing"}
    for name, commands in (("plain", False), ("full", True)):
        told = run_in(out / name, "from app.cli import main; main(['--help'])")
        assert [f"  {command} " in told for command in ("serve", "infer", "bench")] == [True, commands, commands]


def setup_metadata(project: Path) -> configparser.SectionProxy:
    """Return the [metadata] section of setup.cfg."""
    parser = configparser.ConfigParser()
    parser.read(project / "setup.cfg", encoding="utf-8")
    return parser["metadata"]


def served(project: Path) -> tuple[str, str]:
    """Return the name and version in METADATA."""
    tree = ast.parse((project / "app/predict.py").read_text())
    call = next(
        node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "ModelMetadata"
    )
    values = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg in ("name", "version")}
    return values["name"], values["version"]


def server_name(project: Path) -> str:
    """Return the name in the server metadata."""
    code = "from app import create_app; print(create_app().test_client().get('/v2').json['name'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=project, capture_output=True, text=True, check=True)
    return done.stdout.strip()


HOSTILE = """it's "quoted" \\ 'thrice''' \"\"\" #: {x} <&> % ${HOME} $(id) `id` — żółć 🌷 日本"""


def test_free_text_with_special_characters(bake: Bake, out: Path) -> None:
    """Free-text answers may contain quotes, shell and YAML syntax, markup and non-Latin scripts."""
    done = bake(project_name=HOSTILE, project_slug="hostile", description=HOSTILE, author=HOSTILE)
    assert done.returncode == 0, done.stderr
    project = out / "hostile"
    metadata = setup_metadata(project)
    assert (metadata["description"], metadata["author"]) == (HOSTILE, HOSTILE)
    subprocess.run([sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(out)], cwd=project, check=True)
    assert f"\nSummary: {HOSTILE}\n" in (out / "hostile.egg-info/PKG-INFO").read_text()
    assert yaml.safe_load((project / "deploy/helm/Chart.yaml").read_text())["description"] == HOSTILE
    assert (project / "README.md").read_text().startswith(f"# {HOSTILE}\n\n{HOSTILE}\n")
    assert labels(project) >= {"title": HOSTILE, "description": HOSTILE}.items()
    for name in files(project):
        if name.endswith(".py"):
            ast.parse((project / name).read_text())


def labels(project: Path) -> set[tuple[str, str]]:
    """Return the image's labels, parsed like a builder parses quoted values.

    A variable would expand to an empty text.
    """
    found = re.findall(r'image\.(\w+)="((?:\\.|[^"\\])*)"(?: \\)?$', (project / "deploy/Dockerfile").read_text(), re.M)
    unset = [(name, re.sub(r"(\\.)|\$(\w+|\{\w+\})", r"\1", value)) for name, value in found]
    return {(name, re.sub(r'\\(["\\$])', r"\1", value)) for name, value in unset}


def test_hook_and_chart_accept_same_repositories() -> None:
    """The hook and the chart's schema accept docker's grammar of repositories.

    The schema also allows a host in capitals.
    """
    schema = json.loads((ROOT / "deploy/helm/values.schema.json").read_text())
    repository = schema["properties"]["image"]["properties"]["repository"]
    hook = ast.parse((ROOT / "hooks/pre_gen_project.py").read_text())
    (rules,) = (each.value for each in hook.body if ast.unparse(each).startswith("RULES = "))
    pattern, _ = ast.literal_eval(rules)["image_repository"]
    taken = ["a", "a/b", "a.b-c__d--e_f", "a-b.c:5000/d/e.f", "localhost/a", "1/2", "a--b.c/d", "a.b:5/c", "a" * 255]
    for name, expected in {**dict.fromkeys(taken, True), **dict.fromkeys(NO_REPOSITORIES, False)}.items():
        by_schema = bool(re.search(repository["pattern"], name)) and len(name) <= repository["maxLength"]
        assert (bool(re.fullmatch(pattern, name)), by_schema) == (expected, expected), name


@pytest.mark.parametrize("repository", ["123", "1.0", "0x10", "1e5", "012", "1_000", "null", "true"])
def test_repository_is_always_text(bake: Bake, out: Path, repository: str) -> None:
    """YAML parses the image repository as text in every file, even if it looks like a number or a boolean."""
    assert bake(project_name="Text", image_repository=repository).returncode == 0
    texts = {name: (out / "text" / name).read_text() for name in files(out / "text") if name.endswith(("yaml", "yml"))}
    read = {name: list(yaml.safe_load_all(texts[name])) for name in texts if "/templates/" not in name}
    assert read["deploy/helm/values.yaml"][0]["image"]["repository"] == repository
    assert read[".github/workflows/release.yml"][0]["env"]["IMAGE_REPOSITORY"] == repository
    assert read["deploy/compose.yaml"][0]["services"]["service"]["image"] == f"{repository}:local"
    assert f"'image': '{repository}:0.1.0'" in str(read["deploy/kserve/inferenceservice.yaml"])


@pytest.mark.parametrize(
    ("project_name", "slug"),
    [
        *[("Żółć i 日本", "zolc-i-ri-ben"), ("class", "class"), ("!!!", "service"), ("A  b", "a-b")],
        ("2nd try", "service-2nd-try"),
        ("A long way from here to the end of it all, twice", "a-long-way-from-here-to-the-end-of-it-all"),
    ],
)
def test_project_name_becomes_slug(bake: Bake, out: Path, project_name: str, slug: str) -> None:
    """A project name in any script, or a Python keyword, becomes a valid slug."""
    done = bake(project_name=project_name)
    assert done.returncode == 0, done.stderr
    assert setup_metadata(out / slug)["name"] == slug


# Written as Jinja expressions, because cookiecutter renders answers from the command line.
JINJA = ["{{ 'a {{ b }}' }}", "{{ 'a {% if' }}", "{{ 'a {# b' }}"]
NO_REPOSITORIES = ["a..b", "a___b", "a._b", "a-_b", "a.", "-a", "a..b/c", "a-.b/c", "a:1", "a//b", "a/", "a" * 256]


@pytest.mark.parametrize(
    "answers",
    [
        {"project_name": "   "},
        {"project_name": "two\nlines"},
        {"project_slug": "Upper"},
        {"project_slug": "under_score"},
        {"project_slug": "ends-"},
        {"project_slug": "../up"},
        {"project_slug": 'quo"te'},
        {"project_slug": "x" * 51},
        *({"project_slug": word} for word in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")),
        {"description": "file: /etc/passwd"},
        {"description": "two\nlines"},
        {"author": "two\rlines"},
        *({"description": text} for text in JINJA),
        {"project_name": JINJA[0], "project_slug": "jinja"},
        {"author": JINJA[1]},
        {"model_name": ""},
        {"model_name": "a/b"},
        {"model_name": "iris\n"},
        {"model_name": 'i"ris'},
        {"model_name": "äpfel"},
        {"model_version": "1 2"},
        {"model_version": "-"},
        {"image_repository": "Not A Repository"},
        {"image_repository": "ghcr.io/you/name:tag"},
        {"docs_url": "docs"},
        {"docs_url": "https://example.org/a b"},
        *({"image_repository": name} for name in NO_REPOSITORIES[:2]),
        *({"project_slug": name} for name in ("numpy", "jinja2", "scikit--learn")),
        *({"project_slug": name} for name in ("python", "activate", "mlflow", "torchrun", "transformers-cli", "hf")),
    ],
    ids=lambda answers: repr(answers)[:40],
)
def test_rejects_invalid_answers(bake: Bake, tmp_path: Path, answers: dict[str, str]) -> None:
    """An invalid answer is rejected with its name and the expected form, and no files remain."""
    done = bake(**answers)
    assert done.returncode != 0
    assert f"Invalid {next(iter(answers))} " in done.stderr
    assert ": expected " in done.stderr
    assert "Traceback" not in done.stderr
    assert not files(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {"out", ".cookiecutters", ".cookiecutter_replay"}


def copy_of_template(target: Path) -> Path:
    """Copy the template's own files to another directory, and keep symbolic links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


def test_project_has_no_build_files(bake: Bake, out: Path, tmp_path: Path) -> None:
    """Caches, compiled messages and environments in the checkout are not copied into a project."""
    template = copy_of_template(tmp_path / "template")
    for name in (
        "app/__pycache__/x.pyc",
        "app/cli/__pycache__/y.pyc",
        "grpc_service/old.binpb",
        "app/.venv/bin/z",
    ):
        (template / name).parent.mkdir(parents=True, exist_ok=True)
        (template / name).touch()
    assert bake(template, project_name="Swept").returncode == 0
    assert not {name for name in files(out / "swept") if "pyc" in name or "binpb" in name or "venv" in name}
    assert (out / "swept/app/predict.py").exists()


def test_overwrite_keeps_owner_files(bake: Bake, out: Path) -> None:
    """`cookiecutter -f` on an existing project keeps keys and environments, including a symbolic link."""
    assert bake(project_name="Kept").returncode == 0
    kept = {"keys.txt", "tls.key", "tls.crt", ".venv/bin/python", ".venv/lib/__pycache__/x.pyc", "dist/x.whl"}
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
    template = copy_of_template(tmp_path / "template")
    subprocess.run(["make", "-C", template, "version", "VERSION=7.8.9"], check=True)
    assert links(template / SLUG) == links(ROOT / SLUG)
    assert bake(template, project_name="Later").returncode == 0
    command = ["git", "grep", "--files-with-matches", "--fixed-strings", __version__, "--", SLUG]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        text = (out / "later" / name.removeprefix(f"{SLUG}/")).read_text()
        assert "7.8.9" in text, name
        assert __version__ not in text, name


def test_rejects_template_without_links(bake: Bake, out: Path, tmp_path: Path) -> None:
    """A template whose symbolic links became text files is rejected with an error that explains this."""
    template = copy_of_template(tmp_path / "template")
    for link in links(template / SLUG):
        target = os.readlink(template / SLUG / link)
        (template / SLUG / link).unlink()
        (template / SLUG / link).write_text(target)
    done = bake(template)
    assert done.returncode != 0
    assert "This copy of the template has lost its symbolic links" in done.stderr
    assert not files(out)


def test_every_question_has_a_prompt() -> None:
    """Each question has a prompt, and each choice a label."""
    questions = {name for name in CONTEXT if not name.startswith("_")}
    assert CONTEXT["__prompts__"].keys() == questions
    for name in ("framework", "license", "model_page", "batch_tools"):
        assert CONTEXT["__prompts__"][name].keys() - {"__prompt__"} == set(CONTEXT[name])


def taken(kind: str) -> list[str]:
    """Return PACKAGES or COMMANDS, the project names that the hook rejects."""
    return (ROOT / "hooks/pre_gen_project.py").read_text().split(f"\n{kind} = ")[1].split('"""')[1].split()


def test_hook_rejects_names_of_dependencies() -> None:
    """The package names that the hook rejects are exactly those in setup.cfg and the lock files."""
    parser = configparser.RawConfigParser()
    parser.read(ROOT / "setup.cfg")
    lists = [parser["options"]["install_requires"], *parser["options.extras_require"].values()]
    lines = "".join(lists).strip().splitlines()
    for requirements in ROOT.glob("examples/*/requirements.txt"):
        lines += [line for line in requirements.read_text().splitlines() if line[0] != "#"]
    needed = {re.split("[<>=~!;]", line)[0].lower() for line in lines}
    for lock in [*ROOT.glob("deploy/requirements*.txt"), *ROOT.glob("examples/*/lock.txt")]:
        needed |= set(re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE))
    assert sorted(needed) == taken("PACKAGES")


def test_hook_rejects_names_of_commands() -> None:
    """The hook rejects the names of commands that the installed dependencies provide."""
    packages, commands = taken("PACKAGES"), taken("COMMANDS")
    assert commands == sorted(commands)
    installed = {each.metadata["Name"].lower(): each for each in importlib.metadata.distributions()}
    found = {
        script.name
        for name in installed.keys() & {*packages, "pip", "uv"}
        for script in installed[name].entry_points.select(group="console_scripts")
    }
    assert {"flask", "f2py", "pytest", "stubgen"} <= found
    assert {name for name in found if re.fullmatch("[a-z][a-z0-9-]*", name)} <= {*packages, *commands}
