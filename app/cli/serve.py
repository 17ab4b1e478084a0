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


def setting_option(setting: Field[Any]) -> click.Option:
    """Return the option for a setting. It accepts the same text as the environment variable."""
    text, default = setting.metadata["doc"].replace("`", ""), setting.default
    if isinstance(default, bool):
        shown = "on" if default else "off"
    else:
        shown = "none" if default in (None, ()) else str(default).removeprefix(f"{ROOT}/")
    name, description = setting.name.replace("_", "-"), f"{text}.  [default: {shown}]"
    return click.Option([f"--{name}"], metavar="VALUE", help=description)


def merge_environment(options: dict[str, str | None]) -> dict[str, str]:
    """Return the environment with the options added. Paths are absolute, because gunicorn runs in ROOT."""
    environ = dict(os.environ)
    for each in fields(Settings):
        name = each.name.upper()
        text = (options[each.name] or environ.get(name, "")).strip()
        if text:
            environ[name] = os.path.abspath(text) if "Path" in str(each.type) else text
    return environ


def serve(reload: bool, arguments: tuple[str, ...], **options: str | None) -> None:
    """Run the service over REST and gRPC in gunicorn.

    Each option overrides an environment variable: --http-port overrides HTTP_PORT. Arguments after -- go to gunicorn.
    Exit status of gunicorn: 1 for an invalid setting, 3 if load() or the warm-up fails, 4 if predict.py is invalid.
    """
    if arguments and not arguments[0].startswith("-"):
        raise click.UsageError(
            f"Unexpected argument {arguments[0]!r}. Arguments for gunicorn follow --."
        )
    if not (ROOT / "gunicorn.conf.py").exists():
        raise Failure(f"{ROOT} is not the project. Run pip install -e . in the project.", BROKEN)
    environ = merge_environment(options)
    settings = load_settings(environ)
    os.chdir(ROOT)
    if reload:
        from app.cli.watch import start_watching

        start_watching(settings)
        environ["PYTHONDONTWRITEBYTECODE"] = (
            "1"  # bytecode can be stale after two changes within a second
        )
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until gunicorn handles it
    # After an upgrade of the binary (SIGUSR2), `-m gunicorn` would first import packages from another directory.
    script = shutil.which("gunicorn", path=Path(sys.executable).parent)
    gunicorn = [script] if script else ["-m", "gunicorn"]
    # gunicorn replaces this process, so it receives signals directly and sets the exit status.
    os.execve(sys.executable, [sys.executable, *gunicorn, "app:create_app()", *arguments], environ)  # noqa: S606 # nosec B606


command = click.Command(
    "serve",
    callback=serve,
    help=serve.__doc__,
    params=[
        click.Option(
            ["--reload"],
            is_flag=True,
            help="Reload when code or the model changes (needs watchfiles).",
        ),
        *map(setting_option, fields(Settings)),
        click.Argument(
            ["arguments"], nargs=-1, type=click.UNPROCESSED, metavar="[-- GUNICORN ARGUMENTS]"
        ),
    ],
    epilog="\b\nExamples:\n  PROGRAM serve --http-port 9000 --workers 2\n  PROGRAM serve -- --backlog 4096",
)
