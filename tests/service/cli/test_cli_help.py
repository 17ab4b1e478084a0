"""Interrupts, help texts and completion of the commands."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from contextlib import closing

from app.cli import COMMANDS
from tests.kit.projects import ROOT
from tests.service.cli.service_command import run


def test_interrupted_command() -> None:
    """SIGINT ends a command with a one-line error and status 130."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        arguments = [
            sys.executable,
            "-m",
            "app",
            "info",
            "--url",
            f"http://127.0.0.1:{silent.getsockname()[1]}",
        ]
        process = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True)
        with process, silent.accept()[0]:
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=180) == (None, "Error: Interrupted\n")
    assert process.returncode == 130


def test_help_has_examples() -> None:
    """The help of each command has examples with the name of the program that was called."""
    assert "Exit status:" in run("--help").output
    for name in COMMANDS:
        _, _, examples = run(name, "--help").output.partition("Examples:")
        assert f"adder {name}" in examples


def test_help_is_quick() -> None:
    """--help and shell completion import no large package."""
    code = "import sys; from app.cli import main; main(['--help'], standalone_mode=False); "
    code += "sys.exit(bool({'numpy', 'pandas', 'grpc', 'flask'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_completion() -> None:
    """click provides the shell completion: a variable selects the script, which calls the command."""
    assert "_ADDER_COMPLETE=bash_complete" in run(_ADDER_COMPLETE="bash_source").output
    words = {"_ADDER_COMPLETE": "bash_complete", "COMP_CWORD": "1", "COMP_WORDS": "adder de"}
    assert run(**words).output == "plain,describe\n"
