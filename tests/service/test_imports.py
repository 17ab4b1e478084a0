"""The order in which libraries are loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["app", "app.config.settings", "grpc_service.__main__"])
def test_numpy_is_imported_after_thread_limits(module: str) -> None:
    """No way to start imports numpy early, because numeric libraries read their number of threads at import."""
    code = f"import sys, {module}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_gunicorn_configuration_imports_little() -> None:
    """gunicorn.conf.py imports no package that must follow the CPU limits, the metrics directory and the log level."""
    late = {"numpy", "prometheus_client", "grpc", "flask"}
    code = f"import runpy, sys; runpy.run_path('gunicorn.conf.py'); print({late} & {{*sys.modules}} or 'none')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "none\n"), done.stderr


def test_healthcheck_is_cold() -> None:
    """The command that Docker runs every few seconds loads no library of the model and of the servers."""
    late = {"numpy", "prometheus_client", "grpc", "flask", "gunicorn"}
    code = "import sys; from app.cli import main; main(['healthcheck', '--help'], standalone_mode=False); "
    code += f"print({late} & {{*sys.modules}} or 'none')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "none"), done.stderr
