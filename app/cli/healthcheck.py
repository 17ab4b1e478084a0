"""The healthcheck command: probe the service on this machine, for Docker and Kubernetes."""

import click

from app.cli.common import Failure
from app.cli.options import load_settings
from app.runtime.healthcheck import is_healthy


@click.command(epilog="\b\nExamples:\n  PROGRAM healthcheck\n  PROGRAM healthcheck ready")
@click.argument("check", type=click.Choice(["live", "ready"]), default="live")
def command(check: str) -> None:
    """Check that the service on this machine is live, or that its model is ready. The exit status
    is 1 if not.
    """
    if not is_healthy(load_settings(), check):
        raise Failure(f"The service is not {check}")
