"""Finishes a new project: its model in place, named, and shown in the README, its licence; says what comes next."""

import ast
import fnmatch
import json
import re
import shutil
import sys
from pathlib import Path

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")
# Where the files of an example go in a project.
PLACES = {
    "predict.py": "app/predict.py",
    "signature.py": "app/signature.py",
    "test_predict.py": "tests/service/test_predict.py",
    "lock.txt": "deploy/requirements.txt",
}


def check_links() -> None:
    """A template unzipped, or cloned with core.symlinks=false, has text files where its links were."""
    if not Path("app").is_dir():
        sys.exit(
            "this copy of the template has lost its symbolic links (a zip download, or git's core.symlinks=false): "
            "give cookiecutter the repository's address, or clone it with git"
        )


def sweep() -> None:
    """Removes what a used checkout of the template brought along: whatever the project's own .gitignore names.

    That lies below the template's folders; beside them, `cookiecutter -f` finds its owner's own keys and .venv.
    """
    patterns = [line.strip("/") for line in Path(".gitignore").read_text().splitlines()]

    def ignored(path: Path) -> bool:
        return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)

    folders = [path for path in Path().iterdir() if path.is_dir() and not ignored(path)]
    for path in sorted(below for folder in folders for below in folder.rglob("*")):
        if ignored(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def choose_framework() -> None:
    """Puts the chosen framework's model in the place of the template's own, and drops the other examples."""
    chosen = Path("examples", ANSWERS["framework"])
    for folder in Path("examples").iterdir():
        if folder != chosen:
            shutil.rmtree(folder)
    if not (chosen / "predict.py").exists():  # the template runs with this one
        return
    shutil.rmtree("model")
    (chosen / "model").rename("model")
    for name, place in PLACES.items():
        if (chosen / name).exists():
            (chosen / name).replace(place)
    require((chosen / "requirements.txt").read_text().splitlines())
    (chosen / "requirements.txt").unlink()


def require(requirements: list[str], setup: Path = Path("setup.cfg")) -> None:
    """Adds packages to what the project needs, in place of what it says of them so far."""
    lines = setup.read_text(encoding="utf-8").splitlines()
    start = lines.index("install_requires =") + 1
    end = next(index for index in range(start, len(lines)) if not lines[index].startswith("    "))
    needed = [line.strip() for line in [*lines[start:end], *requirements] if line.strip() and line[0] != "#"]
    by_name = {re.split(r"[^\w.-]", line)[0]: line for line in needed}
    lines[start:end] = [f"    {line}" for _, line in sorted(by_name.items())]
    setup.write_text("\n".join(lines) + "\n", encoding="utf-8")


def choose_model_page() -> None:
    """Remove the model page and the package that only it needs, if the answer is no."""
    if ANSWERS["model_page"] == "no":
        shutil.rmtree("app/ui")
        for path, pattern in (
            ("setup.cfg", r"^(    flask-swagger-ui.*|app\.ui = .*)\n"),
            ("deploy/requirements.txt", r"^flask-swagger-ui==.*\n(    .*\n)*"),
        ):
            text = Path(path).read_text(encoding="utf-8")
            Path(path).write_text(re.sub(pattern, "", text, flags=re.MULTILINE), encoding="utf-8")


def choose_license() -> None:
    """Puts the text of the chosen licence in the project's root, in the author's name."""
    if ANSWERS["license"] != "none":
        author = ANSWERS["author"].strip() or f"The {ANSWERS['project_slug']} authors"
        text = Path("licenses", ANSWERS["license"]).read_text(encoding="utf-8")
        Path("LICENSE").write_text(text.replace("<author>", author), encoding="utf-8")
    shutil.rmtree("licenses")


def name_model(path: Path = Path("app/predict.py")) -> None:
    """Writes the model's name and version into METADATA. app/ is copied as it stands, so nothing else did."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    call = next(
        node.value
        for node in ast.parse("".join(lines)).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "METADATA"
    )
    answers = {"name": ANSWERS["model_name"], "version": ANSWERS["model_version"]}
    for keyword in call.keywords:
        if keyword.arg in answers:
            row, value = keyword.value.lineno - 1, keyword.value
            old = ast.get_source_segment("".join(lines), value)
            lines[row] = lines[row].replace(old, json.dumps(answers[keyword.arg]), 1)
    path.write_text("".join(lines), encoding="utf-8")


def name_service(path: Path = Path("app/dataplane.py")) -> None:
    """Writes the project's name as the one that the service tells of itself."""
    text = path.read_text(encoding="utf-8")
    line = f'SERVER_NAME = "{ANSWERS["project_slug"]}"'
    path.write_text(re.sub(r'^SERVER_NAME = ".*"$', line, text, flags=re.MULTILINE), encoding="utf-8")


def show_calls(readme: Path = Path("README.md")) -> None:
    """Writes into the README how this model is called."""
    calls = Path("examples", ANSWERS["framework"], "calls.md")
    text = calls.read_text(encoding="utf-8").replace("MODEL", ANSWERS["model_name"])
    readme.write_text(readme.read_text(encoding="utf-8").replace("<!-- calls -->\n", text), encoding="utf-8")
    calls.unlink()


def say_what_is_next() -> None:
    print(
        f"\n{ANSWERS['project_name']} is in {Path.cwd()}\n\n"
        f"  cd {ANSWERS['project_slug']}\n"
        "  make serve    # REST on 8080, gRPC on 8081, and a curl line to try\n"
        "  make test     # the tests, some minutes of them\n\n"
        "Then put your model into app/predict.py; docs/predict.md says how.\n"
    )


check_links()
sweep()
choose_framework()
choose_model_page()
choose_license()
name_model()
name_service()
show_calls()
say_what_is_next()
