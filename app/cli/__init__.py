"""The command line: the project's name, or `python -m app`. A command is the module of its name, read when it runs."""

from __future__ import annotations

from importlib import import_module

import click

import app

COMMANDS = ()


class Commands(click.Group):
    """Reads only the command that is run: `info` need not wait for pandas."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return import_module(f"app.cli.{cmd_name}").command if cmd_name in COMMANDS else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(app.__version__, message="%(version)s")
def main() -> None:
    """One model behind the Open Inference Protocol v2: serve it, look at it, call it."""
