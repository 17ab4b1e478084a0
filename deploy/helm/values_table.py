"""Writes the table of values.yaml, made of its keys and comments, to the end of the README beside it: make values."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HEADING = "## Values\n"
LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):(?: (?P<default>[^ #].*?))?(?:  # (?P<comment>.*))?")


def rows(text: str) -> Iterator[tuple[str, str, str]]:
    """The key, default and comment of each value; of a group of values only where it has a comment."""
    path: list[str] = []
    above: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("# "):
            above.append(line.lstrip(" #"))
        elif match := LINE.fullmatch(line):
            path[len(match["indent"]) // 2 :] = [match["key"]]
            comment = " ".join([*above, match["comment"] or ""]).strip()
            if match["default"] or comment:
                yield ".".join(path), match["default"] or "", comment
            above = []


def table(text: str) -> str:
    lines = ["| value | default | what it is |", "|---|---|---|"]
    for name, default, comment in rows(text):
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{name}` | {shown} | {comment} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def write(chart: Path) -> None:
    readme = chart / "README.md"
    before, heading, _ = readme.read_text(encoding="utf-8").partition(HEADING)
    values = (chart / "values.yaml").read_text(encoding="utf-8")
    readme.write_text(f"{before}{heading}\n{table(values)}", encoding="utf-8")


if __name__ == "__main__":
    for folder in sys.argv[1:] or [Path(__file__).parent]:
        write(Path(folder))
