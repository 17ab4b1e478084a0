"""The serve command: replace this process with gunicorn."""

import os
import shutil
import signal
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click

from app.cli.common import BROKEN, Failure
from app.cli.options import load_settings
from app.config.settings import ROOT, Settings


def _setting_option(setting: Field[Any]) -> click.Option:
    """Return the option for a setting. It accepts the same text as the environment variable."""
    name = setting.name.replace("_", "-")
    description = setting.metadata["doc"].replace("`", "")
    default = _default_text(setting.default)
    help_text = f"{description}.  [default: {default}]"
    return click.Option([f"--{name}"], metavar="VALUE", help=help_text)


def _default_text(default: Any) -> str:
    """Return the default value of a setting for the help text."""
    if isinstance(default, bool):
        return "on" if default else "off"
    if default is None or default == ():
        return "none"
    return str(default).removeprefix(f"{ROOT}/")


def _merge_environment(options: dict[str, str | None]) -> dict[str, str]:
    """Return the environment with the options as variables.

    Paths are absolute, because gunicorn runs in ROOT.
    """
    environ = dict(os.environ)
    for setting in fields(Settings):
        variable = setting.name.upper()
        text = options[setting.name] or environ.get(variable, "")
        text = text.strip()
        if not text:
            continue
        if setting.metadata["is_path"]:
            text = os.path.abspath(text)
        environ[variable] = text
    return environ


def _serve(reload: bool, arguments: tuple[str, ...], **options: str | None) -> None:
    """Run the service over REST and gRPC in gunicorn.

    Each option overrides an environment variable: --http-port overrides HTTP_PORT. Arguments after
    -- go to gunicorn. Exit status of gunicorn: 1 for an invalid setting, 3 if load() or the warm-up
    fails, 4 if predict.py is invalid.
    """
    if arguments and not arguments[0].startswith("-"):
        raise click.UsageError(
            f"Unexpected argument {arguments[0]!r}. Arguments for gunicorn follow --."
        )
    if not (ROOT / "gunicorn.conf.py").exists():
        raise Failure(f"{ROOT} is not the project. Run pip install -e . in the project.", BROKEN)

    environ = _merge_environment(options)
    settings = load_settings(environ)
    os.chdir(ROOT)
    if reload:
        from app.cli.watch import start_watching

        start_watching(settings)
        # Bytecode can be stale after two changes within a second.
        environ["PYTHONDONTWRITEBYTECODE"] = "1"
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until gunicorn handles it

    # After an upgrade of the binary (SIGUSR2), `-m gunicorn` would first import packages from
    # another directory.
    script = shutil.which("gunicorn", path=Path(sys.executable).parent)
    gunicorn = [script] if script else ["-m", "gunicorn"]
    command_line = [sys.executable, *gunicorn, "app:create_app()", *arguments]
    # gunicorn replaces this process, so it receives signals directly and sets the exit status.
    os.execve(sys.executable, command_line, environ)  # noqa: S606 # nosec B606


command = click.Command(
    "serve",
    callback=_serve,
    help=_serve.__doc__,
    params=[
        click.Option(
            ["--reload"],
            is_flag=True,
            help="Reload when code or the model changes (needs watchfiles).",
        ),
        *map(_setting_option, fields(Settings)),
        click.Argument(
            ["arguments"], nargs=-1, type=click.UNPROCESSED, metavar="[-- GUNICORN ARGUMENTS]"
        ),
    ],
    epilog="\b\nExamples:\n"
    "  PROGRAM serve --http-port 9000 --workers 2\n"
    "  PROGRAM serve -- --backlog 4096",
)
