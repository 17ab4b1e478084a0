"""The conformance suite reports each failure of a faulty server, also if a case kills the server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from oip_conformance.model import INPUTS, NAME
from tests.conformance import faulty_servers
from tests.conformance.runs import address_options, check, command
from tests.kit.environments import ROOT
from tests.kit.processes import Running, free_ports, gunicorn, started, wait_for

KILLING_CASE = "R1: datatypes are case-sensitive [rest json-fp32]"


SETTINGS = {
    "HOST": "127.0.0.1",
    "WORKERS": 1,
    "SHUTDOWN_DELAY_SECONDS": 0,
    "SHUTDOWN_TIMEOUT_SECONDS": 1,
}


@contextmanager
def start_server(app: str) -> Iterator[Running]:
    """Start a server that may end before the test does."""
    http, grpc = free_ports(2)
    settings = {**SETTINGS, "HTTP_PORT": http, "GRPC_PORT": grpc}
    with started([sys.executable, "-m", "gunicorn", app], ROOT, settings) as service:
        yield service


@dataclass
class FaultyRun:
    """A run of the suite for a faulty server, and the paths of its reports."""

    done: subprocess.CompletedProcess[str]
    cases_json: Path
    cases_xml: Path


@pytest.fixture(scope="module")
def faulty_run(tmp_path_factory: pytest.TempPathFactory) -> FaultyRun:
    """Run the cases of R9, R18 and G6 without --grpc for a server that fails some of them."""
    folder = tmp_path_factory.mktemp("faulty")
    json_path, xml_path = folder / "cases.json", folder / "cases.xml"
    reports = ["--json", json_path, "--junit", xml_path, "--verbose"]
    with gunicorn(ROOT, "tests.conformance.faulty_servers:faulty_server()") as service:
        url = f"http://{service.http_address}"
        done = check("--http", url, "--rule", "R9", "--rule", "R18,G6", *reports)
    return FaultyRun(done, json_path, xml_path)


def test_failures_are_reported(faulty_run: FaultyRun) -> None:
    """A failed case is reported by rule in the text output, the JSON and the exit status."""
    done = faulty_run.done
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.findall(r"^failed  (R\d+): ", done.stdout, re.MULTILINE)
    assert set(failed) == {"R9", "R18"}
    report = json.loads(faulty_run.cases_json.read_text())
    outcomes = {case["outcome"] for case in report["cases"] if case["rule"] == "R9"}
    assert outcomes == {"passed", "failed", "not supported", "not run"}
    assert {case["outcome"] for case in report["cases"] if case["rule"] == "G6"} == {"not run"}
    failed = [case for case in report["cases"] if case["outcome"] == "failed"]
    assert report["counts"]["R"]["failed"] == len(failed)
    assert not [case for case in failed if re.search("0x|Use -v|HTTPMessage", case["detail"])]
    (case,) = [case for case in failed if case["name"].endswith("[[True]]")]
    assert case["detail"].startswith('expected 400, got 500 {"error":')
    assert case["sent"].startswith(
        f"POST /v2/models/{NAME}/infer\nContent-Type: application/json\n\n{{"
    )
    assert '"shape": [true]' in case["sent"]
    assert f"sent: POST /v2/models/{NAME}/infer" in done.stdout
    (form,) = [case for case in failed if "rest json-[-1, 2]" in case["name"]]
    assert form["detail"].startswith("expected 400 / INVALID_ARGUMENT, got 500 ")
    (coded,) = [case for case in failed if case["test"] == "test_content_codings[gzip]"]
    assert coded["detail"].startswith("expected 200, got 500 ")


def test_junit_report(faulty_run: FaultyRun) -> None:
    """The JUnit XML contains the server, the rules and the cases, and no details of the test runner."""
    text = faulty_run.cases_xml.read_text()
    suite = ElementTree.fromstring(text).find("testsuite")
    assert suite is not None
    assert suite.attrib["name"] == "open-inference-service"
    assert {case.attrib["classname"] for case in suite} == {"R9", "R18", "G6"}
    assert all(case.attrib["name"].startswith(case.attrib["classname"]) for case in suite)
    failures = [each.attrib["message"] for each in suite.iter("failure")]
    assert len(failures) == int(suite.attrib["failures"]) > 0
    assert {message[:12] for message in failures} == {"expected 200", "expected 400"}
    assert {each.attrib["message"] for each in suite.iter("skipped")} == {
        "not run: no --grpc ADDRESS was given",
        "not run: no --limit BYTES was given",
        "not supported: it lists no binary_tensor_data, and sends none",
    }
    assert str(ROOT) not in text
    assert ".py" not in text


@pytest.mark.parametrize(
    ("app", "options", "reason"),
    [
        ("crashing_server", [], "the server stopped working at"),
        ("hanging_server", [], "the server stopped working at"),
        (
            "crashing_server",
            ["--restart", "echo no such server >&2 && exit 3"],
            "--restart: the command exited with status 3: no such server, after",
        ),
    ],
)
def test_run_ends_when_server_is_killed(
    app: str, options: list[str], reason: str, tmp_path: Path
) -> None:
    """A server that stops working and is not restarted ends the run, and earlier results are kept."""
    with start_server(f"tests.conformance.faulty_servers:{app}()") as service:
        reports = ["--json", tmp_path / "cases.json", "--junit", tmp_path / "cases.xml"]
        done = check(*address_options(service), "--rule", "R1", "--timeout", 1, *reports, *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{reason} {KILLING_CASE}" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    check_partial_report(tmp_path)
    assert (
        ElementTree.parse(tmp_path / "cases.xml").getroot().find("testsuite/testcase/error")
        is not None
    )


@pytest.mark.slow
def test_killed_server_is_restarted(tmp_path: Path) -> None:
    """After a case that kills the server, --restart starts it again, and the run continues."""
    app, pid = "tests.conformance.faulty_servers:crashing_server()", tmp_path / "pid"
    # Without setsid, the server would also kill this process.
    restart = f"(exec setsid {sys.executable} -m gunicorn '{app}') & echo $! > {pid}"
    with start_server(app) as service:
        ports = {"HTTP_PORT": service.http_port, "GRPC_PORT": service.grpc_port}
        environment = {name: str(value) for name, value in {**SETTINGS, **ports}.items()}
        try:
            done = check(
                *address_options(service),
                *r1_options(tmp_path),
                "--restart",
                restart,
                **environment,
            )
        finally:
            if pid.exists():
                os.kill(int(pid.read_text()), signal.SIGTERM)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"\nSpecification\nkilled the server  {KILLING_CASE}: no response: " in done.stdout
    check_complete_report(tmp_path, {"passed": 14, "killed the server": 1})


@pytest.mark.slow
def test_case_that_waits_is_ended(tmp_path: Path) -> None:
    """A case that takes longer than --case-timeout fails, and the run continues."""
    with start_server("tests.conformance.faulty_servers:waiting_server()") as service:
        limits = ["--timeout", 60, "--case-timeout", 2]
        done = check(*address_options(service), *limits, *r1_options(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"failed  {KILLING_CASE}: no response: the case took longer than 2 s" in done.stdout
    check_complete_report(tmp_path, {"passed": 14, "failed": 1})


def r1_options(folder: Path) -> list[Any]:
    """Return options for the cases of R1 that are from the specification. One of them contains the trigger."""
    return ["--rule", "R1", "--origin", "specification", "--json", folder / "cases.json"]


def check_complete_report(folder: Path, counts: dict[str, int]) -> None:
    report = json.loads((folder / "cases.json").read_text())
    assert (report["complete"], report["rules"], report["origins"]) == (
        True,
        ["R1"],
        ["specification"],
    )
    assert {name: count for name, count in report["counts"]["R"].items() if count} == counts


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_keeps_results(number: signal.Signals, tmp_path: Path) -> None:
    """After SIGINT or SIGTERM, the results so far are kept and marked as partial."""
    with start_server("tests.conformance.faulty_servers:hanging_server()") as service:
        options = ["--rule", "R1", "--timeout", 60, "--json", tmp_path / "cases.json"]
        run = subprocess.Popen(
            command(*address_options(service), *options),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_for(
            lambda: faulty_servers.TRIGGER_LINE.decode() in service.log() or run.poll() is not None
        )
        run.send_signal(number)
        output, _ = run.communicate()
    assert run.returncode == 1, output
    assert re.search(
        r"^partial, \d+ of \d+ cases: interrupted at R1: datatypes are ", output, re.MULTILINE
    )
    assert "Traceback" not in output
    check_partial_report(tmp_path)


def check_partial_report(folder: Path) -> None:
    """Check that the JSON in the folder contains the cases up to the trigger and is marked as incomplete."""
    report = json.loads((folder / "cases.json").read_text())
    assert report["complete"] is False
    assert report["counts"]["R"]["passed"] == 8
    assert report["counts"]["R"]["failed"] == 0


@pytest.mark.parametrize(
    "text", ["<html></html>", "[]", '{"name": "x", "version": "1", "extensions": null}']
)
def test_invalid_server_metadata_fails_only_r4(text: str, tmp_path: Path) -> None:
    """A server with invalid metadata at GET /v2 fails R4. The other rules are still checked."""
    with gunicorn(
        ROOT, f"tests.conformance.faulty_servers:fixed_response_server('/v2', {text!r})"
    ) as service:
        done = check(
            *address_options(service), "--rule", "R2,R4,B7,T", "--json", tmp_path / "cases.json"
        )
    assert done.returncode == 1, done.stdout + done.stderr
    cases = json.loads((tmp_path / "cases.json").read_text())["cases"]
    assert {case["rule"] for case in cases if case["outcome"] == "failed"} == {"R4"}
    assert {case["outcome"] for case in cases if case["rule"] == "B7"} == {"passed"}


def test_wrong_json_types_are_detected(tmp_path: Path) -> None:
    """R19, T3: an error object with a traceback is a failure, and so are statistics with true as a count."""
    replacements = {
        rb'"error":.*}': b'"error": {"message": "Traceback (most recent call last)"}}',
        rb'"count":\s*\d+': b'"count": true',
    }
    app = f"tests.conformance.faulty_servers:replaced_text_server({replacements!r})"
    with gunicorn(ROOT, app) as service:
        url = f"http://{service.http_address}"
        check("--http", url, "--rule", "C2,T3", "--json", tmp_path / "cases.json")

    details = case_details(tmp_path)
    assert details["test_unknown_content_type[rest json]"].startswith("expected no traceback, got ")
    assert details["test_statistics"] == "expected int, got True"


def test_error_may_be_null(tmp_path: Path) -> None:
    """R19: the cases that only require a rejection pass if the error is null instead of a text."""
    replacements = {rb'"error":.*}': b'"error": null}'}
    app = f"tests.conformance.faulty_servers:replaced_text_server({replacements!r})"
    with gunicorn(ROOT, app) as service:
        url = f"http://{service.http_address}"
        done = check("--http", url, "--rule", "C2", "--json", tmp_path / "cases.json")

    assert done.returncode == 0, done.stdout + done.stderr
    assert case_details(tmp_path)["test_unknown_content_type[rest json]"] == ""


def case_details(folder: Path) -> dict[str, str]:
    """Return the details of the cases in the JSON in the folder by the name of the test."""
    report = json.loads((folder / "cases.json").read_text())
    return {case["test"]: case["detail"] for case in report["cases"]}


def test_minimal_metadata_passes() -> None:
    """R6: a server passes without versions, parameters and properties in the model metadata."""
    with gunicorn(ROOT, "tests.conformance.faulty_servers:minimal_metadata_server()") as service:
        done = check(*address_options(service), "--rule", "R6")
    assert done.returncode == 0, done.stdout + done.stderr


def test_missing_tensors_are_reported() -> None:
    """Inputs that are missing in the model's metadata are reported, and nothing else."""
    inputs = [{"name": name} for name, *_ in INPUTS if name not in ("fp16_in", "cube_in")]
    metadata = json.dumps({"name": NAME, "inputs": inputs, "outputs": []})
    with gunicorn(
        ROOT,
        f"tests.conformance.faulty_servers:fixed_response_server('/v2/models/{NAME}', {metadata!r})",
    ) as service:
        done = check(*address_options(service), "--rule", "R13")
    assert done.stderr == "the model lacks: fp16_in, cube_in\n"
    assert done.returncode == 0, done.stdout
