"""The command line: the project's name, or `python -m app`. A command is the module of its name, read when it runs."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from app.cli.common import INTERRUPTED, Failure
from app.version import __version__

# What a write to stdout may end with, beside a pipe that is gone.
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# Projects without batch_tools do not have the package.
BATCH_COMMANDS = ("infer", "bench") if find_spec("app.cli.batch") else ()
COMMANDS = ("serve", *BATCH_COMMANDS, "info", "check", "doctor", "completion")


class Commands(click.Group):
    """Reads only the command that is run: `info` need not wait for pandas."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        package = "app.cli.batch" if cmd_name in BATCH_COMMANDS else "app.cli"
        command = copy(import_module(f"{package}.{cmd_name}").command)
        command.epilog = (command.epilog or "").replace("PROGRAM", ctx.find_root().info_name or "")
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with failing_in_a_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with failing_in_a_line():
            return super().invoke(ctx)


@contextmanager
def failing_in_a_line() -> Iterator[None]:
    """What every command may fail by; wrong usage is told without the lines on how to ask for help."""
    try:
        yield
    except click.UsageError as error:
        if not isinstance(error, NoArgsIsHelpError):
            error.ctx = None
        raise
    except KeyboardInterrupt:
        raise Failure("interrupted", INTERRUPTED) from None
    except OSError as error:
        if error.errno not in FULL or error.filename:
            raise
        raise Failure(f"stdout: {error.strerror}") from None


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="""\b
    Exit status:
      0  done
      1  it failed: a setting, a call, a check
      2  wrong usage
      3  no service answers, or it is not ready; or load() or the warm-up fails
      4  the project cannot work: predict.py and METADATA do not fit, or a package is missing
      130  interrupted""",
)
@click.version_option(__version__, message="%(version)s")
def main() -> None:
    """One model behind the Open Inference Protocol v2: serve it, look at it, call it."""
