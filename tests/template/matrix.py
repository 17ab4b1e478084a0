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
from itertools import product
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".cache" / "matrix"
FRAMEWORKS = json.loads((ROOT / "cookiecutter.json").read_text())["framework"]
PYTHONS = ["python3.11", "python3.12", "python3.13", "python3.14"]
NAMES = ["Plain", 'it\'s "quoted" \\ $(id) `id` {x} %s', "Żółć 🌷 日本", "class"]


def passes(framework: str, python: str, tests: str) -> bool:
    """Generate a project, run `make lint test` in it, and write the output to LOGS."""
    order = PYTHONS.index(python) if python in PYTHONS else 0
    name = NAMES[(FRAMEWORKS.index(framework) + order) % len(NAMES)]
    log = LOGS / f"{framework}-{python}.txt"
    with tempfile.TemporaryDirectory() as folder, log.open("w") as output:
        answers = [f"project_name={name}", "project_slug=made", f"framework={framework}"]
        bake = [sys.executable, "-m", "cookiecutter", ROOT, "--no-input", "-o", folder, *answers]
        make = ["make", "-C", f"{folder}/made", f"PYTHON={python}", f"ARGS={tests}"]
        environment = {**os.environ, "HOME": folder, "PIP_CACHE_DIR": str(LOGS.with_name("pip"))}
        return not any(
            subprocess.run(command, env=environment, stdout=output, stderr=output).returncode
            for command in (bake, [*make, ".venv/.dev", "lint", "test"])
        )


@click.command(help=__doc__)
@click.option(
    "--framework", "frameworks", multiple=True, type=click.Choice(FRAMEWORKS), default=FRAMEWORKS
)
@click.option(
    "--python",
    "pythons",
    multiple=True,
    default=[python for python in PYTHONS if shutil.which(python)],
)
@click.option("--tests", default="", help="A test file of the project. [default: all]")
def main(frameworks: tuple[str, ...], pythons: tuple[str, ...], tests: str) -> None:
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir(parents=True)
    has_failed = False
    for framework, python in product(frameworks, pythons):
        has_passed = passes(framework, python, tests)
        has_failed |= not has_passed
        click.echo(f"{framework} {python}: {'ok' if has_passed else 'failed'}")
    if has_failed:
        sys.exit(f"The outputs are in {LOGS}")


if __name__ == "__main__":
    main()
