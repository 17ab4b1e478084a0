"""The doctor command: find problems with the packages, this machine and the settings."""

import os
import shutil
import subprocess  # nosec B404
import sys
from dataclasses import fields
from importlib.util import find_spec
from typing import NamedTuple

import click

from app.cli.common import Failure, show_json, show_table
from app.cli.options import json_option, load_settings
from app.config.resources import raise_file_limit, usable_cores
from app.config.settings import Settings, find_warnings
from app.observability.metric_files import MEMORY, WORKER_BYTES, memory_directory
from app.runtime.healthcheck import is_healthy
from app.server.sockets import find_port_problem

COLORS = {"ok": "green", "warning": "yellow", "error": "red"}
OK, WARNING, ERROR = COLORS


class Finding(NamedTuple):
    """One line of the report: state, subject, description and remedy."""

    state: str
    what: str
    text: str
    advice: str = ""


def finding_if(
    is_problem: bool, what: str, text: str, advice: str, state: str = WARNING
) -> Finding:
    """Return a finding with `state` and `advice` if it is a problem, otherwise with the state "ok"."""
    return Finding(state, what, text, advice) if is_problem else Finding(OK, what, text)


@click.command(epilog="\b\nExamples:\n  PROGRAM doctor\n  WORKERS=8 PROGRAM doctor --json")
@json_option
def command(as_json: bool) -> None:
    """Find problems with the packages, this machine and the settings. The exit status is 1 if there is an error."""
    found = [packages(), open_files()]
    try:
        settings = load_settings()
        found += [Finding(WARNING, "variables", each) for each in find_warnings(settings)]
        found += [cores(settings), shared_memory(settings), changed_settings(settings)]
        found += [port(settings, name) for name in ("HTTP_PORT", "GRPC_PORT")]
    except Failure as error:
        found.append(Finding(ERROR, "settings", error.message))
    if as_json:
        show_json([each._asdict() for each in found])
    else:
        show_table([(click.style(each.state, fg=COLORS[each.state]), *each[1:]) for each in found])
    if errors := [each.what for each in found if each.state == ERROR]:
        raise Failure(f"The service cannot run here: {', '.join(errors)}")


def packages() -> Finding:
    """Check that the installed packages meet their requirements."""
    if not find_spec("pip"):
        return Finding(OK, "packages", "not checked, because pip is not installed")
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True)  # nosec B603
    text = (done.stdout or done.stderr).strip().replace("\n", "; ")
    return finding_if(done.returncode != 0, "packages", text, "run pip install -e .", ERROR)


def open_files() -> Finding:
    connections = raise_file_limit()
    text = f"enough for {connections:,} REST connections per worker"
    advice = "raise the hard limit: ulimit -Hn, LimitNOFILE, --ulimit nofile"
    return finding_if(connections < 1024, "open files", text, advice)  # a worker may need more


def cores(settings: Settings) -> Finding:
    advice = f"WORKERS={settings.workers} is more than they can use"
    return finding_if(
        settings.workers > 2 * usable_cores(),
        "cores",
        f"{usable_cores()} of {os.cpu_count()}",
        advice,
    )


def shared_memory(settings: Settings) -> Finding:
    """Check that the metrics of all workers fit into the free shared memory."""
    free, needed = (
        shutil.disk_usage(MEMORY).free if memory_directory() else 0,
        settings.workers * WORKER_BYTES,
    )
    text = f"{free // 2**20:,} MiB free, {needed // 2**20:,} MiB needed for metrics"
    return finding_if(
        free <= needed,
        str(MEMORY),
        text,
        "metrics go to the disk. Mount more, such as by --shm-size",
    )


def changed_settings(settings: Settings) -> Finding:
    changed = [
        each.name.upper()
        for each in fields(Settings)
        if getattr(settings, each.name) != each.default
    ]
    text = ", ".join(f"{name}={os.environ[name].strip()}" for name in changed)
    return Finding(OK, "settings", text or "all defaults")


def port(settings: Settings, name: str) -> Finding:
    number = getattr(settings, name.lower())
    problem = find_port_problem(settings.host, {name: number})
    if problem and is_healthy(settings, "live"):
        return Finding(OK, name, f"{number} is used by a running service")
    return Finding(ERROR, name, problem) if problem else Finding(OK, name, f"{number} is free")
