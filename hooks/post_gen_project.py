"""Complete a new project: select the example and the license, and write the answers into copied files."""

import ast
import fnmatch
import json
import re
import shutil
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
    "lock.txt": "deploy/requirements.txt",
}


def check_links() -> None:
    """Exit if the template was unzipped or cloned with core.symlinks=false. Its links are then text files."""
    if not Path("app").is_dir():
        sys.exit(
            "This copy of the template has lost its symbolic links (a zip download, or git's core.symlinks=false). "
            "Pass the repository's URL to cookiecutter, or clone it with git."
        )


def sweep() -> None:
    """Remove files that match .gitignore, such as caches, which cookiecutter copied from a checkout of the template.

    Only search the template's directories. With `cookiecutter -f`, the root can contain the owner's keys and .venv.
    """
    patterns = [line.strip("/") for line in Path(".gitignore").read_text().splitlines()]

    def ignored(path: Path) -> bool:
        return any(fnmatch.fnmatch(path.name, pattern) for pattern in patterns)

    directories = [path for path in Path().iterdir() if path.is_dir() and not ignored(path)]
    for path in sorted(below for directory in directories for below in directory.rglob("*")):
        if ignored(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def choose_framework() -> None:
    """Replace the default model with the example of the chosen framework, and remove the other examples."""
    chosen = Path("examples", ANSWERS["framework"])
    for directory in Path("examples").iterdir():
        if directory != chosen:
            shutil.rmtree(directory)
    if not (chosen / "predict.py").exists():  # the framework of the template's own model
        return
    shutil.rmtree("model")
    (chosen / "model").rename("model")
    for name, place in PLACES.items():
        if (chosen / name).exists():
            (chosen / name).replace(place)
    require((chosen / "requirements.txt").read_text().splitlines())
    (chosen / "requirements.txt").unlink()


def require(requirements: list[str], setup: Path = Path("setup.cfg")) -> None:
    """Add packages to install_requires. Replace entries with the same name."""
    lines = setup.read_text(encoding="utf-8").splitlines()
    start = lines.index("install_requires =") + 1
    end = next(index for index in range(start, len(lines)) if not lines[index].startswith("    "))
    needed = [
        line.strip()
        for line in [*lines[start:end], *requirements]
        if line.strip() and line[0] != "#"
    ]
    by_name = {re.split(r"[^\w.-]", line)[0]: line for line in needed}
    lines[start:end] = [f"    {line}" for _, line in sorted(by_name.items())]
    setup.write_text("\n".join(lines) + "\n", encoding="utf-8")


def choose_model_page() -> None:
    """Remove the model page and its package if `model_page` is "no"."""
    if ANSWERS["model_page"] == "no":
        shutil.rmtree("app/ui")
        for path, pattern in (
            ("setup.cfg", r"^(    flask-swagger-ui.*|app\.ui = .*)\n"),
            ("deploy/requirements.txt", r"^flask-swagger-ui==.*\n(    .*\n)*"),
        ):
            text = Path(path).read_text(encoding="utf-8")
            Path(path).write_text(re.sub(pattern, "", text, flags=re.MULTILINE), encoding="utf-8")


def choose_batch_tools() -> None:
    """Remove `infer`, `bench` and their packages if `batch_tools` is "no"."""
    if ANSWERS["batch_tools"] == "no":
        shutil.rmtree("app/cli/batch")
        setup = Path("setup.cfg")
        text = setup.read_text(encoding="utf-8")
        setup.write_text(
            re.sub(r"^(batch|plots) =\n(    .*\n)+", "", text, flags=re.MULTILINE), encoding="utf-8"
        )


def choose_license() -> None:
    """Write LICENSE with the text of the chosen license and the author's name."""
    if ANSWERS["license"] != "none":
        author = ANSWERS["author"].strip() or f"The {ANSWERS['project_slug']} authors"
        text = Path("licenses", ANSWERS["license"]).read_text(encoding="utf-8")
        Path("LICENSE").write_text(text.replace("<author>", author), encoding="utf-8")
    shutil.rmtree("licenses")


def name_model(path: Path = Path("app/predict.py")) -> None:
    """Write the model's name and version into METADATA, because cookiecutter copies app/ without rendering."""
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


def show_calls(readme: Path = Path("README.md")) -> None:
    """Write example requests for the model into the README."""
    calls = Path("examples", ANSWERS["framework"], "calls.md")
    text = calls.read_text(encoding="utf-8").replace("MODEL", ANSWERS["model_name"])
    readme.write_text(
        readme.read_text(encoding="utf-8").replace("<!-- calls -->\n", text), encoding="utf-8"
    )
    calls.unlink()


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
sweep()
Path("version.py").replace("app/version.py")  # app/ is copied without rendering
Path("app/server/README.md").unlink()  # for the developers of the server
choose_framework()
choose_model_page()
choose_batch_tools()
choose_license()
name_model()
show_calls()
link_docs()
print_next_steps()
