"""Command-line interface: the project's name, or `python -m app`.

Each command is in the module of the same name, which calls it `command`. In the epilog of a
command, PROGRAM stands for the name of the program.
"""

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
    """A group that imports only the module of the invoked command, so that commands start fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        package = "app.cli.batch" if cmd_name in BATCH_COMMANDS else "app.cli"
        module = import_module(f"{package}.{cmd_name}")

        # A copy, because the program can have another name in the next call, for example in tests.
        command: click.Command = copy(module.command)
        program = ctx.find_root().info_name or ""
        epilog = command.epilog or ""
        command.epilog = epilog.replace("PROGRAM", program)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            error.ctx = None  # click then prints one line, without the usage
            raise
        except KeyboardInterrupt:
            raise Failure("Interrupted", INTERRUPTED) from None


def _show_versions(ctx: click.Context, parameter: click.Parameter, is_set: bool) -> None:
    """Print versions, and end the command. click calls this for the option --version."""
    if not is_set or ctx.resilient_parsing:
        return
    from app.cli.versions import show_versions

    show_versions()
    ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="\b\nExit status:\n"
    "  0    success\n"
    "  1    a setting, a call or a check failed\n"
    "  2    invalid usage\n"
    "  3    the service does not respond or is not ready, or load() or the warm-up failed\n"
    "  4    predict.py cannot be imported or its functions do not match METADATA, or a package is"
    " missing\n"
    "  130  interrupted",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_versions,
    help="Show the versions of the service and its packages, for bug reports.",
)
def main() -> None:
    """Serve one model over the Open Inference Protocol v2, inspect it and call it."""
