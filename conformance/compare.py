"""Test this service and other servers from PyPI against the rules, and update conformance/README.md.

python -m conformance.compare
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import click

from conformance.report import GROUPS, place
from tests.service.processes import free_ports, started
from tests.template.environments import ROOT, make_environment, make_mlserver, run

PAGE = Path(__file__).with_name("README.md")
LIMIT = 2**20
TABLES = re.compile(r"(<!-- tables -->\n).*(<!-- end of tables -->)", re.DOTALL)

# Cases with outcomes, as in the JSON report.
Cases = list[dict[str, Any]]


@dataclass
class Server:
    """The command and environment to start a server, with a request limit of LIMIT bytes if it supports one.

    The command contains {http} and {grpc} if the environment does not set the ports.
    """

    title: str
    command: str
    package: str = ""
    make_python: Callable[[], Path] = lambda: Path(sys.executable)
    environment: dict[str, Any] = field(default_factory=dict)


SERVERS = [
    Server(
        "this service",
        "-m gunicorn conformance.servers.ours:create()",
        environment={"HOST": "127.0.0.1", "MAX_REQUEST_BYTES": LIMIT},
    ),
    Server(
        "MLServer",
        "-m mlserver.cli.main start conformance/servers/mlserver",
        package="mlserver",
        make_python=make_mlserver,
        environment={"MLSERVER_GRPC_MAX_MESSAGE_LENGTH": LIMIT},
    ),
    Server(
        "KServe",
        "-m conformance.servers.kserve_model --http_port {http} --grpc_port {grpc} "
        f"--grpc_max_receive_message_length {LIMIT}",
        package="kserve",
        make_python=lambda: make_environment("clients", ROOT / "tests" / "template" / "clients" / "requirements.txt"),
    ),
]


@click.command()
def main() -> None:
    """Test this service and other servers against the rules, and update the tables in conformance/README.md."""
    columns = {}
    for server in SERVERS:
        python = server.make_python()
        if server.package:
            requested_output = f"from importlib.metadata import version; print(version('{server.package}'))"
            server.title += f" {run(python, '-c', requested_output).strip()}"
        click.echo(f"\n{server.title}")
        columns[server.title] = cases_of(server, python)
    PAGE.write_text(TABLES.sub(lambda found: found[1] + tables(columns) + found[2], PAGE.read_text()))


def cases_of(server: Server, python: Path) -> Cases:
    http, grpc = free_ports(2)
    command: list[str | Path] = [python, *server.command.format(http=http, grpc=grpc).split()]
    ports = {
        f"{prefix}{name}_PORT": port for prefix in ("", "MLSERVER_") for name, port in (("HTTP", http), ("GRPC", grpc))
    }
    environment = {"PYTHONPATH": ROOT, **ports, **server.environment}
    with started(command, ROOT, environment) as running, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.json"
        options = [
            "--http",
            f"http://{running.http}",
            "--grpc",
            running.grpc,
            "--json",
            str(path),
            "--limit",
            str(LIMIT),
        ]
        subprocess.run([sys.executable, "-m", "conformance", *options], cwd=ROOT)
        report = json.loads(path.read_text())
    if not report["complete"]:
        raise click.ClickException(f"{server.title} was lost before the end")
    cases: Cases = report["cases"]
    return cases


def tables(columns: dict[str, Cases]) -> str:
    """Return two tables, by group and by rule."""
    rules = sorted({case["rule"] for cases in columns.values() for case in cases}, key=place)
    groups = {f"{group}: {title}": [rule for rule in rules if rule[0] == group] for group, title in GROUPS.items()}
    summary = table(columns, {**groups, "all": rules})
    detail = table(columns, {rule: [rule] for rule in rules})
    made = f"Cases passed, of the cases judged, on {date.today().isoformat()} with `--limit {LIMIT}`:"
    return f"\n{made}\n\n{summary}\n\n{detail}\n\n"


def table(columns: dict[str, Cases], rows: dict[str, list[str]]) -> str:
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    lines += [[label, *(cell(cases, rules) for cases in columns.values())] for label, rules in rows.items()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(cases: Cases, rules: list[str]) -> str:
    """Return the numbers of passed, checked and skipped cases of the rules."""
    counts = Counter(case["outcome"] for case in cases if case["rule"] in rules)
    judged = counts["passed"] + counts["failed"]
    left_out = [f"{counts[outcome]} {outcome}" for outcome in ("not supported", "not run") if counts[outcome]]
    return ", ".join([*([f"{counts['passed']}/{judged}"] if judged else []), *left_out])


if __name__ == "__main__":
    main()
