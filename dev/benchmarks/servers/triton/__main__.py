"""Replace this process with Triton's server, without the proxy of PyTriton."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytriton

REPOSITORY = Path(__file__).with_name("repository")


def main(http_port: str, grpc_port: str, repository: str | Path = REPOSITORY) -> None:
    """Combine the Python backend with the stub for this Python version, and start the server."""
    package = Path(pytriton.__file__).parent / "tritonserver"
    backends = Path(sys.prefix) / "backends"
    if not backends.exists():
        make_backends(package, backends)

    options = {
        "model-repository": repository,
        "backend-directory": backends,
        "http-address": "127.0.0.1",
        "http-port": http_port,
        "grpc-address": "127.0.0.1",
        "grpc-port": grpc_port,
        "allow-metrics": "false",
        "log-info": "false",
    }
    environment = {
        **os.environ,
        "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{distribution('nvidia-pytriton').locate_file('nvidia_pytriton.libs')}",
    }
    command = [
        f"{package}/bin/tritonserver",
        *(f"--{name}={value}" for name, value in options.items()),
    ]
    os.execve(command[0], command, environment)


def make_backends(package: Path, backends: Path) -> None:
    """Write the directory `backends`. It never exists with only some of its files."""
    incomplete = backends.with_name(f"backends-{os.getpid()}")
    stub = package / "python_backend_stubs" / "{}.{}".format(*sys.version_info)
    for source in package / "backends/python", stub:
        shutil.copytree(source, incomplete / "python", dirs_exist_ok=True)
    incomplete.rename(backends)


if __name__ == "__main__":
    main(*sys.argv[1:])
