"""Command-line interface: the project's name, or `python -m app`. Each command is in the module of the same name."""

from copy import copy
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from app.cli.common import INTERRUPTED, Failure

# Projects without batch_tools do not contain this package.
BATCH_COMMANDS = ("infer", "bench") if find_spec("app.cli.batch") else ()
COMMANDS = ("serve", *BATCH_COMMANDS, "info", "describe", "check", "healthcheck")


class Commands(click.Group):
    """A group that imports only the module of the invoked command, so that commands start faster."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        package = "app.cli.batch" if cmd_name in BATCH_COMMANDS else "app.cli"
        command: click.Command = copy(import_module(f"{package}.{cmd_name}").command)
        command.epilog = (command.epilog or "").replace("PROGRAM", ctx.find_root().info_name or "")
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = None  # click then prints one line, without the usage
            raise
        except KeyboardInterrupt:
            raise Failure("Interrupted", INTERRUPTED) from None


def show_version(ctx: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    """Show versions, and end the command. click calls this for the option --version."""
    if is_set and not ctx.resilient_parsing:
        import_module("app.cli.versions").show()
        ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Exit status:
      0    success
      1    a setting, a call or a check failed
      2    invalid usage
      3    the service does not respond or is not ready, or load() or the warm-up failed
      4    predict.py cannot be imported or its functions do not match METADATA, or a package is missing
      130  interrupted""",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_version,
    help="Show the versions of the service and its packages, for bug reports.",
)
def main() -> None:
    """Serve one model over the Open Inference Protocol v2, inspect it and call it."""
