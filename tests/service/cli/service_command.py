"""Run a command of the service."""

from __future__ import annotations

from click.testing import CliRunner, Result

from app.cli import main


def run(*arguments: str, program: str = "adder", **environment: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, arguments, prog_name=program, env=environment)
