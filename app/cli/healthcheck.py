"""healthcheck: ask the service on this machine, for Docker and Kubernetes."""

from __future__ import annotations

import click

from app.cli.common import Failure
from app.cli.options import own_settings
from app.runtime.healthcheck import is_healthy


@click.command(epilog="\b\nExamples:\n  PROGRAM healthcheck\n  PROGRAM healthcheck ready")
@click.argument("check", type=click.Choice(["live", "ready"]), default="live")
def command(check: str) -> None:
    """Exit with status 0 if the service on this machine is live (the default) or ready, and else with 1."""
    if not is_healthy(own_settings(), check):
        raise Failure(f"The service is not {check}")
