"""PRELOAD_MODEL with threads that load() starts in the master. A fork does not copy them."""

from __future__ import annotations

from tests.kit.processes import gunicorn, wait_for
from tests.kit.waiting_client import ROOT

# Longer than the tests wait for a shutdown.
SETTINGS = {"PRELOAD_MODEL": "on", "WORKERS": 2, "SHUTDOWN_TIMEOUT_SECONDS": 3600}
WARNING = "Native threads only in the master: "


def test_native_thread() -> None:
    """A warning names a native thread, and neither the workers nor the master wait for it at shutdown."""
    with gunicorn(ROOT, "tests.service.library_apps:native_thread()", **SETTINGS) as service:
        wait_for(
            lambda: (
                f"{WARNING}telemetry. If workers need them, set PRELOAD_MODEL=off." in service.log()
            )
        )
    assert service.log().count(WARNING) == 1
    assert " was sent SIG" not in service.log()


def test_python_thread() -> None:
    """The master does not wait for a thread of Python. BLAS threads, which end before a fork, cause no warning."""
    with gunicorn(
        ROOT, "tests.service.library_apps:python_thread()", OPENBLAS_NUM_THREADS=2, **SETTINGS
    ) as service:
        pass
    assert WARNING not in service.log()
