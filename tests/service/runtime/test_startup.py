"""Startup: the message, and settings and models that stop it."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.kit.processes import gunicorn, python_path, wait_for, workers
from tests.service.access.secure_client import Files
from tests.service.runtime.commands import ROOT, post_on_new_connection, start


def test_read_only_shared_memory(tmp_path: Path) -> None:
    """If /dev/shm is read-only, the service stores metrics and heartbeats in another directory."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\n"
        "allowed = os.access\n"
        "os.access = lambda path, *mode, **how: str(path) != '/dev/shm' and allowed(path, *mode, **how)\n"
    )
    with gunicorn(
        ROOT, "tests.service.apps:echoing()", PYTHONPATH=python_path(tmp_path)
    ) as service:
        for worker in workers(service):
            files = [
                os.path.realpath(link) for link in Path(f"/proc/{worker}/fd").iterdir()
            ]  # some are closed by now
            assert any("wgunicorn-" in path for path in files)
            assert not any(path.startswith("/dev/shm/") for path in files)


def test_startup_message_has_working_command() -> None:
    """The startup message shows the gRPC address, the PID for signals, and a curl command that works."""
    with gunicorn(ROOT, "tests.service.apps:echoing()") as service:
        wait_for(lambda: "curl" in service.log())
        assert f"gRPC  {service.grpc_address}\n" in service.log()
        assert f"PID   {service.process.pid}: HUP " in service.log()
        _, url, _, body = shlex.split(re.search(r"curl .*", service.log()).group())  # type: ignore[union-attr]
        parts = urlsplit(url)
        assert parts.netloc == service.http_address
        assert post_on_new_connection(service, body.encode(), parts.path)[0] == 200


@pytest.mark.parametrize(
    ("host", "is_local"), [("", True), ("127.0.0.1", True), ("0.0.0.0", False)]
)
def test_default_host_is_local(host: str, is_local: bool) -> None:
    """By default, only this machine can connect to both ports, and the startup message says what others need."""
    with gunicorn(ROOT, "tests.service.apps:echoing()", HOST=host) as service:
        wait_for(lambda: "curl" in service.log())
        hint = "Host  only this machine can connect. HOST=0.0.0.0 accepts others\n"
        assert (hint in service.log()) == is_local

        for port in (service.http_port, service.grpc_port):
            with socket.socket() as client:
                # Another address of this machine than HOST.
                is_refused = client.connect_ex(("127.0.0.2", port)) != 0
            assert is_refused == is_local


def test_startup_message_for_large_input(tmp_path: Path) -> None:
    """For a large input, the curl command in the startup message reads a file, and a comment has the example's URL."""
    (tmp_path / "keys").write_text("secret-of-the-test\n")
    with gunicorn(
        ROOT, "tests.service.apps:measuring()", UI_ENABLED="off", API_KEYS_FILE=tmp_path / "keys"
    ) as service:
        wait_for(lambda: "curl" in service.log())
        call = re.search(r"curl .*", service.log()).group()  # type: ignore[union-attr]
        url = re.search(r"# (http://.*) has an example", call).group(1)  # type: ignore[union-attr]
        headers = {"Authorization": "Bearer secret-of-the-test"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
            paths = json.load(response)["paths"]
        example = paths["/v2/models/{name}/infer"]["post"]["requestBody"]["content"][
            "application/json"
        ]["example"]
        (tmp_path / "request.json").write_text(json.dumps(example))
        env = {**os.environ, "API_KEY": "secret-of-the-test", "no_proxy": "127.0.0.1"}
        done = subprocess.run(
            ["bash", "-c", call], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        assert json.loads(done.stdout)["outputs"][0]["data"] == [1.0]


@pytest.mark.parametrize("command", [("gunicorn", "app:create_app()"), ("grpc_service",)])
def test_invalid_setting_stops_startup(command: tuple[str, ...]) -> None:
    """Startup fails with an error that names the setting, without a traceback."""
    done = start(*command, MAX_REQUEST_BYTES="64MB")
    assert done.returncode != 0
    assert "Cannot start: MAX_REQUEST_BYTES: invalid value. Expected a whole number" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "environment"),
    [(["--preload"], {}), ([], {"GUNICORN_CMD_ARGS": "--preload"})],
    ids=["command line", "environment"],
)
def test_preload_stops_startup(options: list[str], environment: dict[str, str]) -> None:
    """Startup fails with gunicorn's option --preload before the model is loaded, and the error has the remedy."""
    done = start("gunicorn", *options, "tests.service.apps:echoing()", **environment)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Cannot start: --preload (preload_app): not available" in line
    assert line.endswith("map its file in load().")


@pytest.mark.parametrize(
    ("app", "text"),
    [
        (
            "signature_mismatch",
            'predict() does not match METADATA. Expected none after the model, as METADATA declares, got "x"',
        ),
        ("load_error", "FileNotFoundError: the model file is gone"),
    ],
)
@pytest.mark.parametrize("workers", [1, 3])
def test_invalid_model_stops_startup(app: str, text: str, workers: int) -> None:
    """If predict() does not match METADATA or load() raises an exception, gunicorn logs the error once and exits."""
    done = start("gunicorn", f"tests.service.apps:{app}()", WORKERS=str(workers))
    assert done.returncode != 0
    assert "HaltServer" not in done.stderr
    *_, last = done.stderr.splitlines()
    assert "Cannot start: " in last
    assert text in last
    assert done.stderr.count("Traceback") == (app == "load_error")


@pytest.mark.parametrize(
    "command", [("gunicorn", "tests.service.apps:load_error()"), ("grpc_service",)]
)
def test_warns_of_settings_without_effect(command: tuple[str, ...], tmp_path: Path) -> None:
    """Before the model is loaded, warnings name a misspelled setting, and a setting without effect."""
    done = start(
        *command,
        API_KEY_FILE="keys.txt",
        MAX_BATCH_DELAY_MS="5",
        MODEL_DIR=str(tmp_path),
        WORKERS="1",
    )
    assert "Unknown setting API_KEY_FILE. Did you mean API_KEYS_FILE?" in done.stderr
    assert "MAX_BATCH_DELAY_MS has no effect. Set MAX_BATCH_SIZE, too." in done.stderr


# Files and directories, a mode with which others can misuse them, one with which they cannot, and the warning.
MODES = {
    "API_KEYS_FILE": (0o644, 0o640, "all users can read the file, mode 0644. Run chmod o-r "),
    "TLS_KEY_FILE": (0o604, 0o600, "all users can read the file, mode 0604. Run chmod o-r "),
    "CAPTURE_DIR": (
        0o1777,
        0o755,
        "other users can write to the directory, mode 1777. Run chmod go-w ",
    ),
}


@pytest.mark.parametrize(
    "command", [("gunicorn", "tests.service.apps:load_error()"), ("grpc_service",)]
)
@pytest.mark.parametrize("is_exposed", [True, False])
def test_warns_of_exposed_files(command: tuple[str, ...], is_exposed: bool, tmp_path: Path) -> None:
    """A warning names each file with secrets that all users can read, and a CAPTURE_DIR that others can change."""
    files = Files(tmp_path)
    captured = tmp_path / "captured requests"
    captured.mkdir()
    paths = {"API_KEYS_FILE": files.keys, "TLS_KEY_FILE": files.key, "CAPTURE_DIR": captured}
    for variable, (exposed_mode, other_mode, _) in MODES.items():
        paths[variable].chmod(exposed_mode if is_exposed else other_mode)

    settings = {**paths, "TLS_CERT_FILE": files.cert, "MODEL_DIR": tmp_path}
    done = start(*command, **{name: str(value) for name, value in settings.items()})
    for variable, (_, _, problem) in MODES.items():
        line = f" WARNING app: {variable}: {problem}{shlex.quote(str(paths[variable]))}\n"
        assert done.stderr.count(line) == is_exposed, variable


# A package, and limits of the process, that are insufficient for three workers.
BROKEN_PACKAGE = (
    "Metadata-Version: 2.1\nName: click\nVersion: 0.1\nRequires-Dist: nosuchpackage>=2\n"
)
LIMITS = """
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
"""
ENVIRONMENT_WARNINGS = [
    "Package click: unmet requirement of setup.cfg. Expected click>=8.2, got 0.1. ",
    "Package nosuchpackage: unmet requirement of click 0.1. Expected nosuchpackage>=2, got none. ",
    "Open files: low limit. Expected enough for 1024 connections per worker and protocol, got 448. ",
    "WORKERS: more than the CPU cores can use. Expected at most 2 (2 per core), got 3. ",
]


def test_environment_in_log(tmp_path: Path) -> None:
    """The log of a start has the changed settings, and one warning per problem."""
    (tmp_path / "click-0.1.dist-info").mkdir()
    (tmp_path / "click-0.1.dist-info/METADATA").write_text(BROKEN_PACKAGE)
    (tmp_path / "sitecustomize.py").write_text(LIMITS)

    with gunicorn(
        ROOT,
        "tests.service.apps:echoing()",
        WORKERS=3,
        LOG_LEVEL="INFO",
        MAX_QUEUE_SIZE=5,
        PYTHONPATH=python_path(tmp_path),
    ) as service:
        log = service.log()

    for warning in ENVIRONMENT_WARNINGS:
        assert log.count(f" WARNING app: {warning}") == 1
    [changes] = re.findall("INFO app: Changed settings: (.*)", log)
    assert {"WORKERS=3", "MAX_QUEUE_SIZE=5"} < set(changes.split(", "))
    assert "LOG_LEVEL" not in changes


def test_environment_in_log_of_grpc_service(tmp_path: Path) -> None:
    """`python -m grpc_service` logs the same before it loads the model."""
    (tmp_path / "sitecustomize.py").write_text(LIMITS)
    done = start(
        "grpc_service", MODEL_DIR=str(tmp_path), WORKERS="3", PYTHONPATH=python_path(tmp_path)
    )
    for warning in ENVIRONMENT_WARNINGS[2:]:
        assert done.stderr.count(f" WARNING app: {warning}") == 1
    assert re.search(
        f"INFO app: Changed settings: .*, WORKERS=3, MODEL_DIR={tmp_path}\n", done.stderr
    )
