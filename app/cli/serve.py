"""serve: gunicorn with the project's configuration, in the place of this process."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click

from app.cli.common import BROKEN, Failure
from app.config import ROOT, Settings, folder, readable

METAVARS = {
    "int": "NUMBER",
    "float": "NUMBER",
    "bool": "on|off",
    "Path": "PATH",
    "str": "TEXT",
    "frozenset[str]": "NAMES",
}


def setting_option(each: Field[Any]) -> click.Option:
    """The option of a setting, which has its doc, and gives its text as the environment would have it."""
    parse, text = each.metadata["parse"], each.metadata["doc"].replace("`", "")

    def check(_: click.Context, __: click.Parameter, given: str | None) -> str | None:
        try:
            return given and absolute(parse, given.strip())
        except ValueError as error:
            raise click.BadParameter(f"{given!r}: expected {error}") from None

    return click.Option(
        [f"--{each.name.replace('_', '-')}"],
        metavar=METAVARS[str(each.type).split(" ")[0]],
        callback=check,
        help=f"{text[0].upper()}{text[1:]}. [default: {shown(each.default)}]",
    )


def absolute(parse: Any, text: str) -> str:
    """`text` as the service, which runs in the project's folder, is to have it; ValueError where it will not do."""
    return os.path.abspath(text) if isinstance(parse(text), Path) else text


def shown(default: Any) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, Path):
        return str(default.relative_to(ROOT))
    return "none" if default is None else str(default)


def environment(options: dict[str, str | None]) -> dict[str, str]:
    """The environment, with the options in it; its paths are of the folder that the command runs in."""
    environ = dict(os.environ)
    for each in fields(Settings):
        name = each.name.upper()
        if each.metadata["parse"] in (folder, readable) and environ.get(name, "").strip():
            environ[name] = os.path.abspath(environ[name].strip())
        if given := options[each.name]:
            environ[name] = given
    return environ


def serve(reload: bool, arguments: tuple[str, ...], **options: str | None) -> None:
    """Serve the model: REST and gRPC, by gunicorn.

    Each option is also an environment variable, by its name in capitals: --http-port is HTTP_PORT. What follows -- goes
    to gunicorn. The exit status is gunicorn's: 1 for a setting that will not do, 3 where the model does not load, 4
    where the project cannot work.
    """
    if arguments and not arguments[0].startswith("-"):
        raise click.UsageError(f"unexpected {arguments[0]!r}; what is for gunicorn comes after --")
    if not (ROOT / "gunicorn.conf.py").exists():
        raise Failure(f"{ROOT} is not the project: install it there, by pip install -e .", BROKEN)
    environ = environment(options)
    os.chdir(ROOT)
    if reload:
        from app.cli.watch import watch_beside

        environ["PYTHONDONTWRITEBYTECODE"] = "1"  # which knows no two saves within a second
        watch_beside(environ)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until gunicorn listens
    # Started by -m it would, upgraded in place, take its own folder for the one whose packages come first.
    script = shutil.which("gunicorn", path=Path(sys.executable).parent)
    gunicorn = [script] if script else ["-m", "gunicorn"]
    # in place: signals and the exit status are to be gunicorn's own
    os.execve(sys.executable, [sys.executable, *gunicorn, "app:create_app()", *arguments], environ)  # noqa: S606 # nosec B606


command = click.Command(
    "serve",
    callback=serve,
    help=serve.__doc__,
    params=[
        click.Option(
            ["--reload"],
            is_flag=True,
            help="Replace the workers when predict.py, other code or the model changes; what is broken never serves.",
        ),
        *map(setting_option, fields(Settings)),
        click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED, metavar="[-- GUNICORN ARGUMENTS]"),
    ],
    epilog="""\b
    Examples:
      PROGRAM serve --http-port 9000 --workers 2
      PROGRAM serve --reload --host 127.0.0.1
      MODEL_DIR=/models/7 PROGRAM serve -- --backlog 4096""",
)
