"""Finishes a new project: refuses a template without its links, sweeps, names the model, says what comes next."""

import ast
import fnmatch
import json
import shutil
import sys
from pathlib import Path

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")


def check_links() -> None:
    """A template unzipped, or cloned with core.symlinks=false, has text files where its links were."""
    if not Path("app").is_dir():
        sys.exit(
            "this copy of the template has lost its symbolic links (a zip download, or git's core.symlinks=false): "
            "give cookiecutter the repository's address, or clone it with git"
        )


def sweep() -> None:
    """Removes what a used checkout of the template brought along: whatever the project's own .gitignore names."""
    patterns = [line.strip("/") for line in Path(".gitignore").read_text().splitlines()]
    for path in sorted(Path().rglob("*")):
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


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


def say_what_is_next() -> None:
    print(
        f"\n{ANSWERS['project_name']} is in {Path.cwd()}\n\n"
        f"  cd {ANSWERS['project_slug']}\n"
        "  make serve    # REST on 8080, gRPC on 8081, and a curl line to try\n"
        "  make test     # the tests\n\n"
        "Then put your model into app/predict.py; README.md says how.\n"
    )


check_links()
sweep()
name_model()
say_what_is_next()
