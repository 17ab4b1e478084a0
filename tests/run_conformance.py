"""Test this project's code with the conformance suite: make conformance

The suite is a package in the template's repository, at the commit that .cruft.json records.
CONFORMANCE is another requirement for pip, such as a path. The suite has an environment of its own.
It sends requests to a service that runs this project's code with the model in conformance_model.py.
The arguments of this script are options of the suite.
"""

import http.client
import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.config.settings import Settings

ROOT = Path(__file__).parents[1]
ENVIRONMENT = Path(f"{sys.prefix}-conformance")
READY_SECONDS = 120
STOP_SECONDS = 60
REMEDY = (
    "Run make conformance CONFORMANCE=TEMPLATE/conformance "
    "with the path of a clone of the template."
)


def suite_requirement() -> str:
    """Return the requirement of pip for the suite."""
    if os.environ.get("CONFORMANCE"):
        return os.environ["CONFORMANCE"]
    record = ROOT / ".cruft.json"
    if not record.exists():
        sys.exit(f"Commit of the template unknown: .cruft.json does not exist. {REMEDY}")

    template = json.loads(record.read_text(encoding="utf-8"))
    source = template["template"]
    if Path(source).is_dir():
        url = Path(source).resolve().as_uri()
    elif "://" in source:
        url = source
    else:  # git@github.com:you/template.git
        url = f"ssh://{source.replace(':', '/', 1)}"
    return f"git+{url}@{template['commit']}#subdirectory=conformance"


def install_suite(requirement: str) -> Path:
    """Return the suite's command. Install the suite if the environment has another requirement."""
    stamp = ENVIRONMENT / "requirement.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != requirement:
        print(
            f"Installing the conformance suite into {ENVIRONMENT.name}: {requirement}", flush=True
        )
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        pip = [ENVIRONMENT / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
        option = ["--editable"] if Path(requirement).is_dir() else []
        if subprocess.run([*pip, "install", "--quiet", *option, requirement]).returncode:
            sys.exit(f"Conformance suite not installed: {requirement}. {REMEDY}")
        stamp.write_text(requirement, encoding="utf-8")
    return ENVIRONMENT / "bin" / "oip-conformance"


@contextmanager
def run_service(http_port: int, grpc_port: int) -> Iterator[None]:
    """Run the service until the end of the `with` block. Exit if it does not start."""
    settings = {name.upper() for name in Settings.__dataclass_fields__}
    environment = {name: value for name, value in os.environ.items() if name not in settings}
    environment["HOST"] = "127.0.0.1"
    environment["HTTP_PORT"] = str(http_port)
    environment["GRPC_PORT"] = str(grpc_port)
    environment["WORKERS"] = "1"
    environment["SHUTDOWN_DELAY_SECONDS"] = "0"
    gunicorn = [sys.executable, "-m", "gunicorn", "--pythonpath", "tests"]
    log = ENVIRONMENT / "service.log"

    with log.open("wb") as output:
        service = subprocess.Popen(
            [*gunicorn, "conformance_model:create_service()"],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + READY_SECONDS
        while not is_ready(http_port):
            if service.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{log.read_text(errors='replace')}\nThe service does not start.")
            time.sleep(0.1)
        yield
    finally:
        service.terminate()
        try:
            service.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            service.kill()  # its workers notice that and exit


def is_ready(http_port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", http_port, timeout=5)
    try:
        connection.request("GET", "/v2/health/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def find_free_ports() -> set[int]:
    """Return two ports below the range that the system gives to clients."""
    ports: set[int] = set()
    while len(ports) < 2:
        port = 10_000 + secrets.randbelow(22_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            ports.add(port)
    return ports


def main() -> int:
    suite = install_suite(suite_requirement())
    http_port, grpc_port = find_free_ports()
    addresses = ["--http", f"http://127.0.0.1:{http_port}", "--grpc", f"127.0.0.1:{grpc_port}"]
    # The default, because run_service() passes none of this environment's settings to the service.
    limit = ["--limit", str(Settings().max_request_bytes)]
    with run_service(http_port, grpc_port):
        return subprocess.run([suite, *addresses, *limit, *sys.argv[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
