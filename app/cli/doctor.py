"""doctor: find problems of the packages, this machine and the settings."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from importlib.util import find_spec
from typing import NamedTuple

import click

from app.cli.common import Failure, show_json, show_table
from app.cli.options import json_option, own_settings
from app.config import Settings, without_effect
from app.machine import CGROUP, allow_connections, quota, usable_cores
from app.metricfiles import MEMORY, WORKER_BYTES, folder_in_memory
from app.probe import answers
from app.transport import try_to_listen

OK, WARNING, ERROR = "ok", "warning", "error"
COLORS = {OK: "green", WARNING: "yellow", ERROR: "red"}
# A worker that can have fewer connections than this is likely to run out of them.
FEW_CONNECTIONS = 1024
MIB = 2**20


class Finding(NamedTuple):
    """One line of the report: the subject, its state, a description, and a remedy."""

    what: str
    state: str
    text: str
    advice: str = ""


def finding_if(is_problem: bool, what: str, text: str, advice: str, state: str = WARNING) -> Finding:
    """Return a finding with the state and the remedy of a problem, if it is one, or else with "ok"."""
    return Finding(what, state, text, advice) if is_problem else Finding(what, OK, text)


@click.command(epilog="\b\nExamples:\n  PROGRAM doctor\n  WORKERS=8 PROGRAM doctor --json")
@json_option
def command(as_json: bool) -> None:
    """Find problems of the packages, this machine and the settings.

    The exit status is 1 if there is an error.
    """
    found = [packages(), open_files()]
    try:
        settings = own_settings()
        found += [cores(settings), shared_memory(settings), *settings_in_use(settings), *ports(settings)]
    except Failure as error:
        found.append(Finding("settings", ERROR, error.message))
    if as_json:
        show_json([each._asdict() for each in found])
    else:
        show_table([row(each) for each in found])
    if errors := [each.what for each in found if each.state == ERROR]:
        raise Failure(f"The service cannot run here: {', '.join(errors)}")


def row(finding: Finding) -> tuple[str, str, str]:
    text = f"{finding.text}; {finding.advice}" if finding.advice else finding.text
    return click.style(finding.state, fg=COLORS[finding.state]), finding.what, text


def packages() -> Finding:
    """Compare the installed packages with what they require."""
    if not find_spec("pip"):
        return Finding("packages", OK, "not checked, because pip is not installed")
    check = [sys.executable, "-m", "pip", "check", "--disable-pip-version-check"]
    done = subprocess.run(check, capture_output=True, text=True)  # noqa: S603 # nosec B603
    text = "; ".join((done.stdout or done.stderr).splitlines())
    return finding_if(done.returncode != 0, "packages", text, "run pip install -e .", ERROR)


def open_files() -> Finding:
    connections = allow_connections()
    text = f"enough for {connections:,} REST connections per worker"
    advice = "raise the hard limit: ulimit -Hn, LimitNOFILE, --ulimit nofile"
    return finding_if(connections < FEW_CONNECTIONS, "open files", text, advice)


def cores(settings: Settings) -> Finding:
    limit = quota(CGROUP)
    text = f"{usable_cores()} of {os.cpu_count()}" + (f", limited to {limit:g} by the control group" if limit else "")
    advice = f"WORKERS={settings.workers} is more than they can use"
    return finding_if(settings.workers > 2 * usable_cores(), "cores", text, advice)


def shared_memory(settings: Settings) -> Finding:
    """Compare the free memory with what the metrics of all workers need."""
    free, needed = shutil.disk_usage(MEMORY).free if folder_in_memory() else 0, settings.workers * WORKER_BYTES
    text = f"{free // MIB:,} MiB free, {-(-needed // MIB):,} MiB needed for metrics"
    advice = "metrics go to the disk, unless you mount more, for example by --shm-size"
    return finding_if(free <= needed, str(MEMORY), text, advice)


def settings_in_use(settings: Settings) -> Iterator[Finding]:
    """Return the settings that differ from their defaults, and the variables without an effect."""
    for variable, problem, remedy in without_effect(settings):
        yield Finding(variable, WARNING, problem, remedy)
    changed = [each.name.upper() for each in fields(Settings) if getattr(settings, each.name) != each.default]
    text = ", ".join(f"{name}={os.environ[name].strip()}" for name in changed)
    yield Finding("settings", OK, text or "all defaults")


def ports(settings: Settings) -> Iterator[Finding]:
    for name, port in (("HTTP_PORT", settings.http_port), ("GRPC_PORT", settings.grpc_port)):
        try:
            try_to_listen(settings.host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                yield Finding(name, ERROR, f"{port}: {error.strerror}", f"change HOST or {name}")
            elif answers(settings, "/v2/health/live"):
                yield Finding(name, OK, f"{port} is in use by a running service")
            else:
                yield Finding(name, ERROR, f"{port} is in use", f"stop the other process, or set {name}")
        else:
            yield Finding(name, OK, f"{port} is free")
