"""Print wording to reconsider in files, by default in all files of the repository: python -m dev.prose [FILE]...

The findings are advice for authors. No test depends on them.
"""

import subprocess
import sys
from pathlib import Path

from dev.prose.rules import find, find_long_lines, report
from dev.prose.texts import read_texts

SUFFIXES = (".py", ".md", ".yaml", ".yml", ".proto", ".mk", ".toml", "Makefile", "Dockerfile")
# Licenses have other authors, measurements write the results, and the rules contain the words to avoid.
EXEMPT = (
    "{{cookiecutter.project_slug}}/licenses/",
    "dev/benchmarks/results/",
    "dev/chaos/results/",
    "dev/chaos/abuse/results/",
    "dev/prose/rules.py",
)


def tracked_files() -> list[str]:
    """Return the files of the repository that contain texts, without links and exempt files."""
    command = ["git", "ls-files", "-z"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [
        name
        for name in listing.split("\0")
        if name.endswith(SUFFIXES) and not name.startswith(EXEMPT) and not Path(name).is_symlink()
    ]


def main() -> None:
    for name in sys.argv[1:] or tracked_files():
        for text in read_texts(Path(name)):
            sys.stdout.write(report(name, find(text)))
        if name.endswith(".md"):
            sys.stdout.write(report(name, find_long_lines(Path(name).read_text())))


if __name__ == "__main__":
    main()
