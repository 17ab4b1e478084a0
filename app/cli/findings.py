"""What doctor looks at in the project: Python, packages, settings, and the files that a start needs."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

from packaging.specifiers import SpecifierSet

from app.cli.packages import installed, option, requirements
from app.config import ROOT, Settings, find_warnings, read_settings
from app.errors import SetupError
from app.machine import THREAD_VARIABLES, usable_cores

OK, WARNING, ERROR = "ok", "warning", "error"
DESCRIPTOR = ROOT / "grpc_service/open_inference_grpc.binpb"


class Finding(NamedTuple):
    what: str
    state: str
    text: str
    advice: str = ""


def python() -> Iterator[Finding]:
    wanted = SpecifierSet(option("python_requires"))
    version = platform.python_version()
    text = f"{version}, {sys.executable}"
    if wanted.contains(version, prereleases=True):
        yield Finding("Python", OK, text)
    else:
        yield Finding("Python", ERROR, text, f"setup.cfg asks for {wanted}")
    system = f"{platform.system()} {platform.release()}, {platform.machine()}, {' '.join(platform.libc_ver())}".rstrip(
        ", "
    )
    if sys.platform == "linux":
        yield Finding("system", OK, system)
    else:
        yield Finding("system", WARNING, system, "good to develop on; production is Linux")


def packages() -> Iterator[Finding]:
    for each in requirements():
        version = installed(each.name)
        if version is None:
            yield Finding(each.name, ERROR, "not installed", "pip install -e .")
        elif each.specifier.contains(version, prereleases=True):
            yield Finding(each.name, OK, version)
        else:
            yield Finding(each.name, ERROR, version, f"setup.cfg asks for {each.specifier}: pip install -e .")


def files() -> Iterator[Finding]:
    if DESCRIPTOR.exists():
        yield Finding("protos", OK, "compiled")
    else:
        yield Finding("protos", ERROR, f"{DESCRIPTOR.relative_to(ROOT)} is missing", "pip install -e .")
    if (ROOT / "gunicorn.conf.py").exists():
        yield Finding("project", OK, str(ROOT))
    else:
        yield Finding("project", ERROR, f"{ROOT} has no gunicorn.conf.py", "install in the project: pip install -e .")


def settings() -> tuple[Settings | None, list[Finding]]:
    """The settings, where they will do, and what is to be said of them."""
    try:
        found = read_settings()
    except SetupError as error:
        return None, [Finding("settings", ERROR, str(error), "the service would not start")]
    useless = [Finding("settings", WARNING, warning, "") for warning in find_warnings(found)]
    changed = [each.name.upper() for each in fields(Settings) if getattr(found, each.name) != each.default]
    if not changed:
        return found, [*useless, Finding("settings", OK, "the defaults")]
    warned = {each.what for each in useless}
    return found, [*useless, *(Finding(name, OK, os.environ[name].strip()) for name in changed if name not in warned)]


def threads(settings: Settings) -> Iterator[Finding]:
    """Of all workers together, where the environment says how many a library has."""
    cores = usable_cores()
    if settings.workers > 2 * cores:
        yield Finding("WORKERS", WARNING, f"{settings.workers} on {cores} cores", "about one a core is enough")
    for variable in THREAD_VARIABLES:
        text = os.environ.get(variable, "")
        if text.isdigit() and int(text) * settings.workers > 2 * cores:
            total = int(text) * settings.workers
            yield Finding(
                variable, WARNING, f"{text} a worker, {total} in all on {cores} cores", "unset it: they are shared out"
            )
