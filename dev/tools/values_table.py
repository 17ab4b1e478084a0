"""Write the table of a chart's values into its README, from the keys and comments of values.yaml.

python dev/tools/values_table.py CHART...
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

HEADING = "## Values\n"
NOTE = """\
[Configuration](../../docs/configuration.md) describes the values in `config`. The table omits
`enabled` (`false` by default), `annotations`, `labels`, and fields that the chart copies into
Kubernetes objects, such as `nodeSelector`. See `values.yaml` for these.
"""
LINE = re.compile(r"(?P<indent> *)(?P<key>\w+):(?: (?P<default>[^ #].*?))?(?:  # (?P<comment>.*))?")


def rows(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield the key, default and comment of each value that has a comment.

    The service's settings are left out: docs/configuration.md has them.
    """
    path: list[str] = []
    above: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("# "):
            above.append(line.lstrip(" #"))
        elif match := LINE.fullmatch(line):
            path[len(match["indent"]) // 2 :] = [match["key"]]
            comment = " ".join([*above, match["comment"] or ""]).strip()
            if comment and path[:-1] != ["config"]:
                yield ".".join(path), match["default"] or "", comment
            above = []


def table(text: str) -> str:
    lines = ["| Value | Default | Description |", "|---|---|---|"]
    for name, default, comment in rows(text):
        shown = f"`{default}`" if default else ""
        lines.append(f"| `{name}` | {shown} | {comment} |".replace("  ", " "))
    return "\n".join(lines) + "\n"


def write(chart: Path) -> None:
    readme = chart / "README.md"
    before, heading, _ = readme.read_text(encoding="utf-8").partition(HEADING)
    values = (chart / "values.yaml").read_text(encoding="utf-8")
    readme.write_text(f"{before}{heading}\n{NOTE}\n{table(values)}", encoding="utf-8")


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        write(Path(folder))
