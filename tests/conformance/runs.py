"""Run the command of the conformance suite."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.kit.environments import ROOT
from tests.kit.processes import Running


def check(*options: Any, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the suite's command with these options."""
    return subprocess.run(
        command(*options),
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def command(*options: Any) -> list[str]:
    return [sys.executable, "-m", "oip_conformance", *map(str, options)]


def address_options(service: Running) -> list[str]:
    return ["--http", f"http://{service.http_address}", "--grpc", service.grpc_address]
