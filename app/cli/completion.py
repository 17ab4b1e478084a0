"""completion: the script by which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from app.cli.common import FAILED, Failure

SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog="""\b
    Examples:
      eval "$(NAME completion bash)"                    # in ~/.bashrc
      NAME completion fish > ~/.config/fish/completions/NAME.fish

    NAME is the command that pip installed, in .venv/bin/: the project's name."""
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes this command."""
    root = ctx.find_root()
    name = root.info_name or ""
    if " " in name:
        raise Failure(
            f"a shell completes a command, which `{name}` is not; run it by the name that pip installed", FAILED
        )
    variable = f"_{name}_COMPLETE".replace("-", "_").replace(".", "_").upper()
    completion = get_completion_class(shell)
    if completion is None:
        raise Failure(f"there is no completion for {shell}")
    click.echo(completion(root.command, {}, name, variable).source())
