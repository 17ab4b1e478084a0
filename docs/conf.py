"""The documentation site. `make docs` builds it from the pages of the whole repository.

The source directory is the root of the repository. So a link between two pages is the same on the
site and in git.
"""

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # autodoc imports app.api

import click  # noqa: E402

from app.cli import main  # noqa: E402
from app.version import __version__  # noqa: E402

project = "cookiecutter-open-inference"
author = "The open-inference-service authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "docs/index"
include_patterns = [
    "docs/*.md",
    "docs/guides/*.md",
    "CHANGELOG.md",
    ".github/CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    ".github/SECURITY.md",
    "app/server/README.md",
    "deploy/helm/README.md",
    "dev/benchmarks/README.md",
    "dev/benchmarks/results/*.md",
    "dev/chaos/README.md",
    "dev/chaos/results/*.md",
    "dev/chaos/abuse/README.md",
    "dev/chaos/abuse/results/*.md",
    "dev/conformance/README.md",
    "conformance/README.md",
    "tests/fuzz/README.md",
]
# Sphinx does not search these directories. Some are large, and others contain links to the rest.
# Of the hidden ones, only .github has pages.
exclude_patterns = [".git", ".[!g]*", "*cookiecutter*", "docs/_build", "build", "**/__pycache__"]

# The anchors are those of GitHub, for headings of up to this level.
myst_heading_anchors = 4
# Indented blocks contain commands and their output.
highlight_language = "text"

# Docstrings have code in single backticks.
default_role = "literal"
# Without this, the default `os.environ` would show the environment of the build, which may contain
# secrets.
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
maximum_signature_line_length = 90
# The site has no pages about these names.
nitpick_ignore_regex = [
    ("py:class", r"(collections|grpc|np|numpy|pathlib|pd|pandas)\..*"),
    (
        "py:class",
        r"app\.(codecs\.base\.Codec|codecs\.strings\.TextCodec|config\.settings\.Settings)",
    ),
    ("py:class", r"dict\[str"),  # part of the signature of a dataclass, which Sphinx cannot parse
]

html_theme = "furo"
html_title = f"{project} {release}"
html_extra_path = ["_extra"]  # index.html, which opens the root document
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

# Generated tables of results have no title of their own.
TITLES = {
    "dev/benchmarks/results/batching": "Results with and without batching",
    "dev/benchmarks/results/factors": "Results for the memory of single requests",
    "dev/benchmarks/results/growth": "Results by size and load",
    "dev/benchmarks/results/memory": "Results for memory",
    "dev/benchmarks/results/results": "Results of the comparison",
    "dev/chaos/results/results": "Results with faults",
    "dev/chaos/abuse/results/results": "Results of attacks",
}


def describe_commands() -> str:
    """Return a section with the help of each command."""
    group = click.Context(
        main, info_name="python -m app", max_content_width=100, terminal_width=100
    )
    sections = []
    commands = {name: main.get_command(group, name) for name in main.list_commands(group)}
    for name, command in commands.items():
        context = click.Context(command, group, name, max_content_width=100, terminal_width=100)
        sections.append(f"## `{name}`\n\n```text\n{command.get_help(context)}\n```\n")
    return "\n".join(sections)


def complete_source(_app: Any, page: str, source: list[str]) -> None:
    """Add the generated parts of a page to its Markdown."""
    if page in TITLES:
        source[0] = f"# {TITLES[page]}\n\n{source[0]}"
    if page == "docs/options":
        source[0] += f"\n{describe_commands()}"


def setup(app: Any) -> None:
    app.connect("source-read", complete_source)
