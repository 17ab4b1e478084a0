"""The conformance suite: our service passes all of it, and a server that does not is told where."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.service.processes import Running, gunicorn
from tests.template.environments import ROOT

LIMIT = 2**20
OURS = "conformance.servers.ours:create()"
RULES = set(re.findall(r"^\| ([RBGT]\d+) \|", (ROOT / "docs" / "protocol.md").read_text(), re.MULTILINE))


def check(*options: Any) -> subprocess.CompletedProcess[str]:
    """The suite's command, with these options."""
    return subprocess.run(
        [sys.executable, "-m", "conformance", *map(str, options)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def against(service: Running) -> list[str]:
    return ["--http", f"http://{service.http}", "--grpc", service.grpc]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """Our service with the suite's model."""
    with gunicorn(ROOT, OURS) as service:
        yield service


@pytest.mark.parametrize("workers", [1, 4])
def test_our_service_passes_every_case(workers: int, tmp_path: Path) -> None:
    """Each rule of R, B, G and T has a case, and our service passes all, with none left out."""
    with gunicorn(ROOT, OURS, WORKERS=workers, MAX_REQUEST_BYTES=LIMIT) as service:
        done = check(*against(service), "--limit", LIMIT, "--json", tmp_path / "cases.json")
        assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads((tmp_path / "cases.json").read_text())["cases"]
    assert {case["outcome"] for case in cases} == {"passed"}
    assert {case["rule"] for case in cases} == RULES


def test_a_server_that_fails_is_told_where(tmp_path: Path) -> None:
    """What does not conform is failed, by its rule, in the text, the JSON, the JUnit XML and the exit status."""
    with gunicorn(ROOT, "tests.template.faulty:create()") as service:
        options = ["--rule", "R9", "--rule", "G5", "--json", tmp_path / "cases.json", "--junit", tmp_path / "cases.xml"]
        done = check("--http", f"http://{service.http}", *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"^failed  R9: ", done.stdout, re.MULTILINE)
    report = json.loads((tmp_path / "cases.json").read_text())
    outcomes = {case["outcome"] for case in report["cases"] if case["rule"] == "R9"}
    assert outcomes == {"passed", "failed", "not supported", "not run"}
    assert {case["outcome"] for case in report["cases"] if case["rule"] == "G5"} == {"not run"}
    failed = [case for case in report["cases"] if case["outcome"] == "failed"]
    assert report["counts"]["R"]["failed"] == len(failed)
    suite = ElementTree.parse(tmp_path / "cases.xml").getroot().find("testsuite")
    assert suite is not None
    assert int(suite.attrib["failures"]) == len(failed)
    assert {each.attrib["value"] for each in suite.iter("property") if each.attrib["name"] == "rule"} == {"R9", "G5"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--http", "127.0.0.1:8080"], "expected an address such as http://127.0.0.1:8080"),
        (["--http", "http://127.0.0.1:1"], "refused"),
        (["--http", "http://{http}", "--model", "iris"], "--model iris: "),
        (["--http", "http://{http}", "--grpc", "127.0.0.1:1"], "--grpc 127.0.0.1:1: "),
    ],
)
def test_a_server_that_cannot_be_tested(running: Running, options: list[str], text: str) -> None:
    """An address where no server is, or one without the model, is told in a line."""
    done = check(*(option.replace("{http}", running.http) for option in options))
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
