"""Test every framework with every installed Python: generate a project with an unusual name, then lint and test it.

python -m tests.template.matrix [--framework NAME]... [--python COMMAND]... [--tests PATH]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
FRAMEWORKS = json.loads((ROOT / "cookiecutter.json").read_text())["framework"]
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14"]
NAMES = ["Plain", 'it\'s "quoted" \\ $(id) `id` {x} %s', "Żółć 🌷 日本", "class"]


@dataclass
class Cell:
    """A project of the matrix and its result."""

    framework: str
    python: str
    name: str
    failed: str = ""
    seconds: float = 0

    def run(self, tests: str) -> str:
        """Generate the project, run `make lint test` and return the output."""
        with tempfile.TemporaryDirectory() as folder:
            answers = [
                f"project_name={self.name}",
                "project_slug=made",
                f"framework={self.framework}",
            ]
            steps = {
                "bake": [
                    sys.executable,
                    "-m",
                    "cookiecutter",
                    str(ROOT),
                    "--no-input",
                    "-o",
                    folder,
                    *answers,
                ],
                "install": ["make", "-C", f"{folder}/made", f"PYTHON={self.python}", ".venv/.dev"],
                "lint": ["make", "-C", f"{folder}/made", "lint"],
                "test": ["make", "-C", f"{folder}/made", "test", f"ARGS={tests}"],
            }
            start, output = time.monotonic(), ""
            for step, command in steps.items():
                environment = {
                    **os.environ,
                    "HOME": folder,
                    "PIP_CACHE_DIR": str(ROOT / ".cache" / "pip"),
                }
                done = subprocess.run(
                    command,
                    env=environment,
                    text=True,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                )
                output += done.stdout
                if done.returncode:
                    self.failed = step
                    break
            self.seconds = time.monotonic() - start
        return output


def name(framework: str, python: str) -> str:
    """Return a project name that depends only on the cell. Every framework and every Python gets every name."""
    order = PYTHONS.index(python) if python in PYTHONS else 0
    return NAMES[(FRAMEWORKS.index(framework) + order) % len(NAMES)]


def table(cells: list[Cell]) -> str:
    rows = [("framework", "python", "project", "result", "seconds")]
    rows += [
        (each.framework, each.python, each.name, each.failed or "ok", f"{each.seconds:.0f}")
        for each in cells
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    )


@click.command(help=__doc__)
@click.option(
    "--framework", "frameworks", multiple=True, type=click.Choice(FRAMEWORKS), default=FRAMEWORKS
)
@click.option(
    "--python", "pythons", multiple=True, default=[each for each in PYTHONS if shutil.which(each)]
)
@click.option("--tests", default="", help="A test file of the project. [default: all]")
def main(frameworks: tuple[str, ...], pythons: tuple[str, ...], tests: str) -> None:
    cells = [Cell(*pair, name(*pair)) for pair in product(frameworks, pythons)]
    logs = ROOT / ".cache" / "matrix"
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    with click.progressbar(
        cells, label="matrix", item_show_func=lambda cell: cell and cell.framework
    ) as bar:
        for cell in bar:
            (logs / f"{cell.framework}-{cell.python}.txt").write_text(cell.run(tests))
    click.echo(table(cells))
    if any(cell.failed for cell in cells):
        sys.exit(f"what each printed is in {logs}")


if __name__ == "__main__":
    main()
