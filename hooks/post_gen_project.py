"""Complete a new project: select and move files, name the model, and record the commit of the template.

cookiecutter renders the answers into all other files. It copies app/ and some pages without rendering them, because the
template shares them with its root. So this hook writes the model's name into METADATA. It also changes the links to pages
that a project does not have.
"""

import ast
import configparser
import fnmatch
import json
import os
import re
import shutil
import subprocess  # nosec B404 - it only runs git
import sys
from functools import partial
from pathlib import Path

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")
# URLs of a template on GitHub, in the common formats.
GITHUB = re.compile(
    r"(?:gh:|(?:https://|ssh://git@|git@)github\.com[:/])([\w.-]+/[\w.-]+?)(?:\.git)?/?"
)
# A link to another page: text, path and heading.
LINK = re.compile(r"\[([^\]]*)\]\(([^):#\s]+\.md)(#[^)]*)?\)")
# Paths in a project for the files of an example.
PLACES = {
    "predict.py": "app/predict.py",
    "signature.py": "app/signature.py",
    "test_predict.py": "tests/test_predict.py",
    "model": "model",
}
# Files of an example that README.md, setup.cfg and deploy/requirements.txt include.
RENDERED = ["calls.md", "requirements.txt", "lock.txt"]


def check_links() -> None:
    """Exit if the template was unzipped or cloned with core.symlinks=false. Its links are then text files."""
    if not Path("app").is_dir():
        sys.exit(
            "This copy of the template has lost its symbolic links (a zip download, or git's core.symlinks=false). "
            "Pass the repository's URL to cookiecutter, or clone it with git."
        )


def check_slug() -> None:
    """Exit if the project has the name of a framework or of a package that it needs: it would replace this package.

    The packages of every framework count, because the owner can change the framework later. So call this before
    choose_framework(), which removes the lock files of the other frameworks.
    """
    locks = [*Path("examples").glob("*/lock.txt"), *Path("deploy").glob("requirements*.txt")]
    requirements = [
        line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines()
    ]
    setup = configparser.RawConfigParser()
    setup.read("setup.cfg", encoding="utf-8")
    for extra in setup["options.extras_require"].values():
        requirements += extra.splitlines()

    packages = {path.name for path in Path("examples").iterdir()}
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        if name:
            packages.add(normalize(name[0]))
    if normalize(ANSWERS["project_slug"]) in packages:
        sys.exit(
            "Invalid project_slug. Expected a name that is not a framework or a package that the project needs, "
            f"got {ANSWERS['project_slug']!r}."
        )


def normalize(package: str) -> str:
    """Return the name of a package as pip compares it: scikit--learn is scikit-learn."""
    return re.sub(r"[-_.]+", "-", package).lower()


def sweep(template: Path | None) -> None:
    """Remove files that match .gitignore, such as caches, which cookiecutter copied from a checkout of the template.

    Other files with such names are kept: with `cookiecutter -f`, the project can contain the owner's keys and caches.
    """
    if template is None:
        return
    (source,) = template.glob("{*}")
    patterns = [line.strip("/") for line in Path(".gitignore").read_text().splitlines()]

    def is_ignored(name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    # From the bottom up, so that the directories of removed files are empty.
    for directory, _, files in os.walk(source, topdown=False, followlinks=True):
        copy = Path(directory).relative_to(source)
        is_in_ignored_directory = any(map(is_ignored, copy.parts))
        for file in files:
            if is_in_ignored_directory or is_ignored(file):
                (copy / file).unlink(missing_ok=True)
        if is_in_ignored_directory and copy.is_dir() and not any(copy.iterdir()):
            copy.rmdir()


def choose_framework() -> None:
    """Replace the default model with the example of the chosen framework, and remove the other examples."""
    example = Path("examples", ANSWERS["framework"])
    for directory in Path("examples").iterdir():
        if directory != example:
            shutil.rmtree(directory)
    for name in RENDERED:
        (example / name).unlink(missing_ok=True)
    if (example / "model").exists():
        shutil.rmtree("model")
    for name, place in PLACES.items():
        if (example / name).exists():
            (example / name).replace(place)


def choose_parts() -> None:
    """Remove the files of the parts and licenses that the answers exclude."""
    if ANSWERS["model_page"] == "no":
        shutil.rmtree("app/ui")
    if ANSWERS["batch_tools"] == "no":
        shutil.rmtree("app/cli/batch")
    if ANSWERS["license"] != "none":
        Path("licenses", ANSWERS["license"]).replace("LICENSE")
    shutil.rmtree("licenses")
    Path("app/server/README.md").unlink()  # for the developers of the server


def name_model(path: Path = Path("app/predict.py")) -> None:
    """Write the model's name and version into METADATA, because cookiecutter copies app/ without rendering."""
    code = path.read_bytes()
    call = next(
        node.value
        for node in ast.parse(code).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "METADATA"
    )
    answers = {"name": ANSWERS["model_name"], "version": ANSWERS["model_version"]}
    values = {word.arg: word.value for word in call.keywords if word.arg in answers}

    lines = code.splitlines(keepends=True)
    # From the last value to the first, because a new value moves those that follow it on its line.
    for name, value in sorted(values.items(), key=lambda item: position(item[1]), reverse=True):
        row, column = position(value)
        line = lines[row]
        lines[row] = (
            line[:column] + json.dumps(answers[name]).encode() + line[value.end_col_offset :]
        )
    path.write_bytes(b"".join(lines))


def position(value: ast.expr) -> tuple[int, int]:
    """Return the index of the line in which a value begins, and the index of its first byte there."""
    return value.lineno - 1, value.col_offset


def record_template(template: Path | None) -> None:
    """Write the template's source and commit to .cruft.json, for `cruft update` and `make conformance`.

    cruft writes this file itself, after this hook. It does not pass `_repo_dir`.
    """
    if template is None or not (template / ".git").exists() or not shutil.which("git"):
        return
    commit = git(template, "rev-parse", "HEAD")
    if not commit:
        return
    url = ""
    if ANSWERS["_repo_dir"] != ANSWERS["_template"]:  # a clone that cookiecutter has made
        url = git(template, "config", "remote.origin.url")
    source = re.sub(r"^(https?://)[^/@]*@", r"\1", url) or str(template)  # without a password

    answers = {name: answer for name, answer in ANSWERS.items() if not name.startswith("_")}
    record = {
        "template": source,
        "commit": commit,
        "checkout": ANSWERS.get("_checkout"),
        "context": {"cookiecutter": {**answers, "_template": source, "_commit": commit}},
        "directory": None,
    }
    text = json.dumps(record, ensure_ascii=False, indent=2)
    Path(".cruft.json").write_text(f"{text}\n", encoding="utf-8")


def find_template() -> Path | None:
    """Return the absolute path of the template, or None if it is unknown.

    `_repo_dir` can be relative to the directory in which the user ran cookiecutter. A hook does not know that directory,
    so it tries two: $PWD, which the shell sets, and the output directory, which is the same one by default.
    """
    if "_repo_dir" not in ANSWERS:
        return None
    for start in (os.environ.get("PWD", ""), ANSWERS["_output_dir"]):
        directory = Path(start, ANSWERS["_repo_dir"])
        if (directory / "cookiecutter.json").exists():
            return directory.resolve()
    return None


def git(directory: Path, *arguments: str) -> str:
    """Return the output of a git command, or "" if it fails."""
    command = ["git", "-C", str(directory), *arguments]
    done = subprocess.run(  # nosec B603 - no shell, and the arguments are ours
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def docs_url() -> str:
    """Return the URL of the template's documentation: the answer, or its URL on GitHub, or "" if both are unknown."""
    on_github = GITHUB.fullmatch(ANSWERS.get("_template", ""))
    default = f"https://github.com/{on_github[1]}/blob/HEAD/docs" if on_github else ""
    return ANSWERS["docs_url"].rstrip("/") or default


def link_docs() -> None:
    """Point links to pages that only the template has to docs_url(). If it is empty, remove the links."""
    docs, url = Path("docs").resolve(), docs_url()

    def replace(page: Path, link: re.Match[str]) -> str:
        text, target = link[1], (page.parent / link[2]).resolve()
        if target.exists() or not target.is_relative_to(docs):
            return link[0]
        return (
            f"[{text}]({url}/{target.relative_to(docs).as_posix()}{link[3] or ''})" if url else text
        )

    for page in [Path("README.md"), *Path("docs").glob("*.md"), *Path("deploy").rglob("*.md")]:
        text = page.read_text(encoding="utf-8")
        page.write_text(LINK.sub(partial(replace, page), text), encoding="utf-8")


def print_next_steps() -> None:
    print(
        f"\nCreated {ANSWERS['project_name']} in {Path.cwd()}\n\n"
        f"  cd {ANSWERS['project_slug']}\n"
        "  make serve    # REST on port 8080, gRPC on port 8081\n"
        "  make test     # tests of the model and the service\n\n"
        "To serve your own model, edit app/predict.py. docs/predict.md is the guide.\n"
    )


check_links()
check_slug()
template = find_template()
sweep(template)
Path("version.py").replace("app/version.py")  # app/ is copied without rendering
choose_framework()
choose_parts()
name_model()
link_docs()
record_template(template)
print_next_steps()
