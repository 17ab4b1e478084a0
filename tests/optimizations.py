"""Run the conformance suite without each optimization in turn, and with gunicorn's own worker.

    python -m tests.optimizations [NAME ...]

By default, all variants run. The exit status is 1 if a case failed in a variant with this service's
worker.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from app.config.settings import OPTIMIZATIONS
from tests.kit.environments import ROOT
from tests.kit.processes import free_ports, started

LIMIT = 2**20
VARIANTS: dict[str, dict[str, str]] = {
    "none": {},
    **{name: {"DISABLE_OPTIMIZATIONS": name} for name in sorted(OPTIMIZATIONS)},
    "gthread": {"GUNICORN_CMD_ARGS": "--worker-class gthread"},
}
# gunicorn's own worker rejects some requests before the application is called.
MAY_FAIL = ("worker", "gthread")


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(list(VARIANTS)))
def main(names: tuple[str, ...]) -> None:
    """Test the rules with each optimization disabled in turn. NAME selects variants.

    In the variant `none`, all optimizations are enabled. `gthread` uses the worker of gunicorn.
    """
    is_failed = False
    for name in names or VARIANTS:
        cases = run(VARIANTS[name])
        failed = [case for case in cases if case["outcome"] != "passed"]
        click.echo(f"{name}: {len(cases) - len(failed)} of {len(cases)} passed")
        for case in failed:
            click.echo(f"    {case['outcome']}  {case['name']}: {case['detail']}")
        is_failed |= bool(failed) and name not in MAY_FAIL
    sys.exit(is_failed)


def run(environment: dict[str, str]) -> list[dict[str, Any]]:
    """Run the conformance suite against the service with these environment variables.

    Return the cases.
    """
    http, grpc = free_ports(2)
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "MAX_REQUEST_BYTES": LIMIT,
        "WORKERS": 1,
    }
    command = [sys.executable, "-m", "gunicorn", "tests.conformance_model:create_service()"]
    with (
        started(command, ROOT, {**settings, **environment}) as service,
        tempfile.TemporaryDirectory() as folder,
    ):
        path = Path(folder) / "cases.json"
        options = [
            "--http",
            f"http://{service.http_address}",
            "--grpc",
            service.grpc_address,
            "--limit",
            str(LIMIT),
            "--json",
            str(path),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "oip_conformance", *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if not path.exists():
            raise click.ClickException(done.stderr or done.stdout)
        report = json.loads(path.read_text())
    if not report["complete"]:
        raise click.ClickException(f"The service stopped responding: {done.stdout}")
    cases: list[dict[str, Any]] = report["cases"]
    return cases


if __name__ == "__main__":
    main(prog_name="python -m tests.optimizations")
