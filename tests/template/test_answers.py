"""The answers of a project: special characters, validation and prompts."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.template.baking import CONTEXT, ROOT, Bake, files, setup_metadata

SPECIAL_CHARACTERS = (
    """it's "quoted" \\ 'thrice''' \"\"\" #: {x} <&> % ${HOME} $(id) `id` — żółć 🌷 日本"""
)


def test_free_text_with_special_characters(bake: Bake, out: Path) -> None:
    """Free-text answers may contain quotes, shell and YAML syntax, markup and non-Latin scripts."""
    done = bake(
        project_name=SPECIAL_CHARACTERS,
        project_slug="special",
        description=SPECIAL_CHARACTERS,
        author=SPECIAL_CHARACTERS,
    )
    assert done.returncode == 0, done.stderr
    project = out / "special"
    metadata = setup_metadata(project)
    assert (metadata["description"], metadata["author"]) == (SPECIAL_CHARACTERS, SPECIAL_CHARACTERS)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "egg_info", "--egg-base", str(out)],
        cwd=project,
        check=True,
    )
    assert f"\nSummary: {SPECIAL_CHARACTERS}\n" in (out / "special.egg-info/PKG-INFO").read_text()
    assert (
        yaml.safe_load((project / "deploy/helm/Chart.yaml").read_text())["description"]
        == SPECIAL_CHARACTERS
    )
    assert (
        (project / "README.md")
        .read_text()
        .startswith(f"# {SPECIAL_CHARACTERS}\n\n{SPECIAL_CHARACTERS}\n")
    )
    assert (
        labels(project) >= {"title": SPECIAL_CHARACTERS, "description": SPECIAL_CHARACTERS}.items()
    )
    for name in files(project):
        if name.endswith(".py"):
            ast.parse((project / name).read_text())


def labels(project: Path) -> set[tuple[str, str]]:
    """Return the image's labels, parsed like a builder parses quoted values.

    A variable would expand to an empty text.
    """
    pairs = re.findall(
        r'image\.(\w+)="((?:\\.|[^"\\])*)"(?: \\)?$',
        (project / "deploy/Dockerfile").read_text(),
        re.M,
    )
    unset = [(name, re.sub(r"(\\.)|\$(\w+|\{\w+\})", r"\1", value)) for name, value in pairs]
    return {(name, re.sub(r'\\(["\\$])', r"\1", value)) for name, value in unset}


def test_hook_and_chart_accept_same_repositories() -> None:
    """The hook and the chart's schema accept docker's grammar of repositories.

    The schema also allows a host in capitals.
    """
    schema = json.loads((ROOT / "deploy/helm/values.schema.json").read_text())
    repository = schema["properties"]["image"]["properties"]["repository"]
    hook = ast.parse((ROOT / "hooks/pre_gen_project.py").read_text())
    (rules,) = (
        statement.value for statement in hook.body if ast.unparse(statement).startswith("RULES = ")
    )
    pattern, _ = ast.literal_eval(rules)["image_repository"]
    accepted = [
        "a",
        "a/b",
        "a.b-c__d--e_f",
        "a-b.c:5000/d/e.f",
        "localhost/a",
        "1/2",
        "a--b.c/d",
        "a.b:5/c",
        "a" * 255,
    ]
    for name, expected in {
        **dict.fromkeys(accepted, True),
        **dict.fromkeys(NO_REPOSITORIES, False),
    }.items():
        by_schema = (
            bool(re.search(repository["pattern"], name)) and len(name) <= repository["maxLength"]
        )
        assert (bool(re.fullmatch(pattern, name)), by_schema) == (expected, expected), name


@pytest.mark.parametrize(
    "repository", ["123", "1.0", "0x10", "1e5", "012", "1_000", "null", "true"]
)
def test_repository_is_always_text(bake: Bake, out: Path, repository: str) -> None:
    """YAML parses the image repository as text in every file, even if it looks like a number or a boolean."""
    assert bake(project_name="Text", image_repository=repository).returncode == 0
    texts = {
        name: (out / "text" / name).read_text()
        for name in files(out / "text")
        if name.endswith(("yaml", "yml"))
    }
    read = {
        name: list(yaml.safe_load_all(texts[name])) for name in texts if "/templates/" not in name
    }
    assert read["deploy/helm/values.yaml"][0]["image"]["repository"] == repository
    assert read[".github/workflows/release.yml"][0]["env"]["IMAGE_REPOSITORY"] == repository
    assert read["deploy/compose.yaml"][0]["services"]["service"]["image"] == f"{repository}:local"
    assert f"'image': '{repository}:0.1.0'" in str(read["deploy/kserve/inferenceservice.yaml"])


@pytest.mark.parametrize(
    ("project_name", "slug"),
    [
        *[
            ("Żółć i 日本", "zolc-i-ri-ben"),
            ("class", "class"),
            ("!!!", "service"),
            ("A  b", "a-b"),
        ],
        ("2nd try", "service-2nd-try"),
        (
            "A long way from here to the end of it all, twice",
            "a-long-way-from-here-to-the-end-of-it-all",
        ),
    ],
)
def test_project_name_becomes_slug(bake: Bake, out: Path, project_name: str, slug: str) -> None:
    """A project name in any script, or a Python keyword, becomes a valid slug."""
    done = bake(project_name=project_name)
    assert done.returncode == 0, done.stderr
    assert setup_metadata(out / slug)["name"] == slug


# Written as Jinja expressions, because cookiecutter renders answers from the command line.
JINJA = ["{{ 'a {{ b }}' }}", "{{ 'a {% if' }}", "{{ 'a {# b' }}"]
NO_REPOSITORIES = [
    "a..b",
    "a___b",
    "a._b",
    "a-_b",
    "a.",
    "-a",
    "a..b/c",
    "a-.b/c",
    "a:1",
    "a//b",
    "a/",
    "a" * 256,
]


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
        *(
            {"project_slug": word}
            for word in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
        ),
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
        *(
            {"apt_packages": names}
            for names in ("libGL1", "libgl1,libglib2.0-0", "libgl1-", "--yes", "a1 $(id)")
        ),
        {"docs_url": "docs"},
        {"docs_url": "https://example.org/a b"},
        *({"image_repository": name} for name in NO_REPOSITORIES[:2]),
        # Packages: in a lock file, of another framework, in an extra, for builds. And a framework.
        *(
            {"project_slug": name}
            for name in ("jinja2", "scikit--learn", "ruff", "setuptools", "mlflow")
        ),
        *({"project_slug": name} for name in ("python", "pip", "activate", "uv")),
    ],
    ids=lambda answers: repr(answers)[:40],
)
def test_rejects_invalid_answers(bake: Bake, tmp_path: Path, answers: dict[str, str]) -> None:
    """An invalid answer is rejected with its name and the expected form, and no files remain."""
    done = bake(**answers)
    assert done.returncode != 0
    assert f"Invalid {next(iter(answers))}. Expected " in done.stderr
    assert "Traceback" not in done.stderr
    assert not files(tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} <= {
        "out",
        ".cookiecutters",
        ".cookiecutter_replay",
    }


def test_every_question_has_a_prompt() -> None:
    """Each question has a prompt, and each choice a label."""
    questions = {name for name in CONTEXT if not name.startswith("_")}
    assert CONTEXT["__prompts__"].keys() == questions
    for name in ("framework", "license", "model_page", "batch_tools"):
        assert CONTEXT["__prompts__"][name].keys() - {"__prompt__"} == set(CONTEXT[name])
