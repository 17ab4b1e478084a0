"""Complete a new project: select and move files, name the model, and record the commit of the
template.

cookiecutter renders the answers into all other files. It copies app/ and some pages without
rendering them, because the template shares them with its root. So this hook writes the model's name
into METADATA. It also changes the links to pages that a project does not have.
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
# URLs of a template on GitHub, in the common formats. The group is OWNER/NAME.
GITHUB_URL = re.compile(
    r"(?:gh:|(?:https://|ssh://git@|git@)github\.com[:/])([\w.-]+/[\w.-]+?)(?:\.git)?/?"
)
# A link to another page. The groups are the text, the path and the heading.
PAGE_LINK = re.compile(r"\[([^\]]*)\]\(([^):#\s]+\.md)(#[^)]*)?\)")
# Paths in a project for the files of an example.
EXAMPLE_PATHS = {
    "predict.py": "app/predict.py",
    "signature.py": "app/signature.py",
    "test_predict.py": "tests/test_predict.py",
    "model": "model",
}
# Files of an example that README.md, setup.cfg and deploy/requirements.txt include.
INCLUDED_FILES = ["calls.md", "requirements.txt", "lock.txt"]


def main() -> None:
    check_links()
    check_slug()
    template = find_template()
    remove_ignored_files(template)
    Path("version.py").replace("app/version.py")  # app/ is copied without rendering
    choose_framework()
    choose_parts()
    name_model()
    link_docs()
    record_template(template)
    print_next_steps()


def check_links() -> None:
    """Exit if the template has lost its symbolic links, which are then text files."""
    if not Path("app").is_dir():
        sys.exit(
            "This copy of the template has lost its symbolic links (a zip download, or git's"
            " core.symlinks=false). Pass the repository's URL to cookiecutter, or clone it with"
            " git."
        )


def check_slug() -> None:
    """Exit if the project has the name of a framework or of a package that it needs, because it
    would replace this package.

    The packages of every framework count, because the owner can change the framework later. So call
    this before choose_framework(), which removes the lock files of the other frameworks.
    """
    requirements = []
    locks = [*Path("examples").glob("*/lock.txt"), *Path("deploy").glob("requirements*.txt")]
    for lock in locks:
        requirements += lock.read_text(encoding="utf-8").splitlines()
    setup = configparser.RawConfigParser()
    setup.read("setup.cfg", encoding="utf-8")
    for extra in setup["options.extras_require"].values():
        requirements += extra.splitlines()

    packages = {directory.name for directory in Path("examples").iterdir()}
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        if name:
            packages.add(normalize(name[0]))

    slug = ANSWERS["project_slug"]
    if normalize(slug) in packages:
        sys.exit(
            "Invalid project_slug. Expected a name that is not a framework or a package that the"
            f" project needs, got {slug!r}."
        )


def normalize(package: str) -> str:
    """Return the name of a package as pip compares it: scikit--learn is scikit-learn."""
    return re.sub(r"[-_.]+", "-", package).lower()


def find_template() -> Path | None:
    """Return the absolute path of the template, or None if it is unknown.

    `_repo_dir` can be relative to the directory in which the user ran cookiecutter. A hook does not
    know that directory, so it tries two: $PWD, which the shell sets, and the output directory,
    which is the same one by default.
    """
    if "_repo_dir" not in ANSWERS:
        return None
    for start in (os.environ.get("PWD", ""), ANSWERS["_output_dir"]):
        directory = Path(start, ANSWERS["_repo_dir"])
        if (directory / "cookiecutter.json").exists():
            return directory.resolve()
    return None


def remove_ignored_files(template: Path | None) -> None:
    """Remove files that match .gitignore, such as caches, which cookiecutter copied from a checkout
    of the template.

    Other files with such names are kept: with `cookiecutter -f`, the project can contain the
    owner's keys and caches.
    """
    if template is None:
        return
    (source,) = template.glob("{*}")  # the directory with cookiecutter's tag in its name
    patterns = [line.strip("/") for line in Path(".gitignore").read_text().splitlines()]

    # From the bottom up, so that the directories of removed files are empty.
    for directory, _, names in os.walk(source, topdown=False, followlinks=True):
        copy = Path(directory).relative_to(source)
        for name in names:
            if is_ignored(copy / name, patterns):
                (copy / name).unlink(missing_ok=True)
        if is_ignored(copy, patterns) and copy.is_dir() and not any(copy.iterdir()):
            copy.rmdir()


def is_ignored(path: Path, patterns: list[str]) -> bool:
    """Return True if the name of the path, or of a directory above it, matches a pattern."""
    for name in path.parts:
        for pattern in patterns:
            if fnmatch.fnmatch(name, pattern):
                return True
    return False


def choose_framework() -> None:
    """Replace the default model with the example of the chosen framework, and remove the other
    examples.
    """
    example = Path("examples", ANSWERS["framework"])
    for directory in Path("examples").iterdir():
        if directory != example:
            shutil.rmtree(directory)
    for name in INCLUDED_FILES:
        (example / name).unlink(missing_ok=True)

    if (example / "model").exists():
        shutil.rmtree("model")
    for name, path in EXAMPLE_PATHS.items():
        if (example / name).exists():
            (example / name).replace(path)


def choose_parts() -> None:
    """Remove the files of the parts and licenses that the answers exclude."""
    if ANSWERS["model_page"] == "no":
        shutil.rmtree("app/ui")
    if ANSWERS["batch_tools"] == "no":
        shutil.rmtree("app/cli/batch")
    if ANSWERS["license"] != "none":
        Path("licenses", ANSWERS["license"]).replace("LICENSE")
    shutil.rmtree("licenses")


def name_model() -> None:
    """Write the model's name and version into METADATA of app/predict.py.

    cookiecutter copies app/ without rendering. So replace the two values by their positions in the
    syntax tree.
    """
    path = Path("app/predict.py")
    code = path.read_bytes()
    lines = code.splitlines(keepends=True)
    answers = {"name": ANSWERS["model_name"], "version": ANSWERS["model_version"]}

    # From the last value to the first, because a new value moves those that follow it on its line.
    metadata = find_metadata(code)
    for argument in reversed(metadata.keywords):
        if argument.arg not in answers:
            continue
        value = argument.value
        line = lines[value.lineno - 1]
        before = line[: value.col_offset]
        after = line[value.end_col_offset :]
        answer = json.dumps(answers[argument.arg])
        lines[value.lineno - 1] = before + answer.encode() + after
    path.write_bytes(b"".join(lines))


def find_metadata(code: bytes) -> ast.Call:
    """Return the call whose result is assigned to METADATA: `METADATA = ModelMetadata(...)`."""
    for statement in ast.parse(code).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "METADATA":
            return statement.value
    raise LookupError("METADATA")


def link_docs() -> None:
    """Point links to pages that only the template has to docs_url(). If it is empty, name the
    pages.
    """
    url = docs_url()
    pages = [Path("README.md"), *Path("docs").glob("*.md"), *Path("deploy").rglob("*.md")]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        text = PAGE_LINK.sub(partial(project_link, page=page, url=url), text)
        page.write_text(text, encoding="utf-8")


def docs_url() -> str:
    """Return the URL of the template's documentation: the answer, or its URL on GitHub, or "" if
    both are unknown.
    """
    if ANSWERS["docs_url"]:
        return ANSWERS["docs_url"].rstrip("/")
    github_url = GITHUB_URL.fullmatch(ANSWERS.get("_template", ""))
    if github_url is None:
        return ""
    return f"https://github.com/{github_url[1]}/blob/HEAD/docs"


def project_link(link: re.Match[str], page: Path, url: str) -> str:
    """Return a link of `page` unchanged, unless it leads to a page that the project does not have.

    Then, return a link to the same page below `url` or, if `url` is empty, the text of the link and
    the path of the page in the template.
    """
    text, path, heading = link.groups(default="")
    docs = Path("docs").resolve()
    target = (page.parent / path).resolve()
    if target.exists() or not target.is_relative_to(docs):
        return link[0]
    name = target.relative_to(docs).as_posix()
    if not url:
        return f"{text} (`docs/{name}` in the template)"
    return f"[{text}]({url}/{name}{heading})"


def record_template(template: Path | None) -> None:
    """Write the template's source and commit to .cruft.json, for `cruft update` and `make
    conformance`.

    cruft writes this file itself, after this hook. It does not pass `_repo_dir`, so that `template`
    is None.
    """
    if template is None or not (template / ".git").exists() or not shutil.which("git"):
        return
    commit = git(template, "rev-parse", "HEAD")
    if not commit:
        return
    source = template_source(template)

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


def template_source(template: Path) -> str:
    """Return the URL from which cookiecutter has cloned the template, without a password.

    If the template is a directory of the user, or has no URL, return its path.
    """
    is_clone = ANSWERS["_repo_dir"] != ANSWERS["_template"]
    if not is_clone:
        return str(template)
    url = git(template, "config", "remote.origin.url")
    return re.sub(r"^(https?://)[^/@]*@", r"\1", url) or str(template)


def git(directory: Path, *arguments: str) -> str:
    """Return the output of a git command, or "" if it fails."""
    command = ["git", "-C", str(directory), *arguments]
    process = subprocess.run(  # nosec B603 - no shell, and the arguments are ours
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    if process.returncode != 0:
        return ""
    return process.stdout.strip()


def print_next_steps() -> None:
    print(
        f"\nCreated {ANSWERS['project_name']} in {Path.cwd()}\n\n"
        f"  cd {ANSWERS['project_slug']}\n"
        "  make serve    # REST on port 8080, gRPC on port 8081\n"
        "  make test     # tests of the model and the service\n\n"
        "To serve your own model, edit app/predict.py. docs/predict.md is the guide.\n"
    )


if __name__ == "__main__":
    main()
