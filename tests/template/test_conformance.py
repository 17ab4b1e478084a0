"""The conformance suite passes for our service and reports each failure of a faulty server."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from conformance.large_requests import large_request
from conformance.model import INPUTS, NAME
from tests.service.processes import Running, free_ports, gunicorn, started, wait_for, workers
from tests.service.reviewed_messages import check_messages, one_of_each
from tests.template import faulty_servers
from tests.template.environments import ROOT

LIMIT = 2**20
OURS = "conformance.servers.ours:create()"
# 500 and INTERNAL have messages of the suite's model. Other names of statuses have messages of grpcio.
REVIEWED_STATUS = re.compile(r"(?!500)\d+|INVALID_ARGUMENT|NOT_FOUND")
RULES = set(re.findall(r"^\| ([RBGT]\d+) \|", (ROOT / "docs" / "protocol.md").read_text(), re.MULTILINE))


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
    return [sys.executable, "-m", "conformance", *map(str, options)]


def address_options(service: Running) -> list[str]:
    return ["--http", f"http://{service.http}", "--grpc", service.grpc]


@contextmanager
def start_server(app: str) -> Iterator[Running]:
    """Start a server that may end before the test does."""
    http, grpc = free_ports(2)
    settings = {
        "HOST": "127.0.0.1",
        "HTTP_PORT": http,
        "GRPC_PORT": grpc,
        "WORKERS": 1,
        "SHUTDOWN_DELAY_SECONDS": 0,
        "SHUTDOWN_TIMEOUT_SECONDS": 1,
    }
    with started([sys.executable, "-m", "gunicorn", app], ROOT, settings) as service:
        yield service


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """Start our service with the suite's model."""
    with gunicorn(ROOT, OURS) as service:
        yield service


@dataclass
class SuiteRun:
    """A run of the whole suite: the process, and the JSON report or {} if there is none."""

    done: subprocess.CompletedProcess[str]
    report: dict[str, Any]


@pytest.fixture(scope="module")
def suite_runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], SuiteRun]:
    """Return suite_runs(workers), which runs the suite for our service once per number of workers."""

    @cache
    def run_suite(workers: int) -> SuiteRun:
        file = tmp_path_factory.mktemp("suite") / "cases.json"
        with gunicorn(ROOT, OURS, WORKERS=workers, MAX_REQUEST_BYTES=LIMIT) as service:
            done = check(*address_options(service), "--limit", LIMIT, "--json", file)
        return SuiteRun(done, json.loads(file.read_text()) if file.exists() else {})

    return run_suite


@pytest.mark.parametrize("workers", [1, 4])
def test_our_service_passes_every_case(workers: int, suite_runs: Callable[[int], SuiteRun]) -> None:
    """Each rule of R, B, G and T has a case, and our service passes every case."""
    run = suite_runs(workers)
    assert run.done.returncode == 0, run.done.stdout + run.done.stderr
    assert {case["outcome"] for case in run.report["cases"]} == {"passed"}
    assert set(run.report["counts_by_rule"]) == RULES
    assert (run.report["complete"], run.report["limit"], run.report["rules"]) == (True, LIMIT, [])


def test_error_messages_are_reviewed(suite_runs: Callable[[int], SuiteRun]) -> None:
    """The file messages.txt contains our service's error messages, without those of the suite's model."""
    messages = [text for status, text in suite_runs(1).report["messages"] if REVIEWED_STATUS.fullmatch(status)]
    check_messages("Conformance suite (tests/template/test_conformance.py)", one_of_each(messages))


def test_our_service_passes_with_default_limit(running: Running) -> None:
    """The size cases pass, quickly and within memory, with the service's default limit of 64 MiB."""
    done = check(*address_options(running), "--limit", 2**26, "--rule", "r19,G6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^all +\d+ +0 +0 +0$", done.stdout, re.MULTILINE)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux reports the peak")
def test_memory_of_binary_request(running: Running) -> None:
    """A binary request of 60 MiB needs at most 2.2 times its size in memory: the body, and a copy for the model."""
    body, headers = large_request("rest binary", 60 * 2**20)
    with closing(http.client.HTTPConnection(running.http)) as connection:
        for _ in range(2):
            before = reset_peak(running)
            connection.request("POST", f"/v2/models/{NAME}/infer", body, headers)
            assert connection.getresponse().read().startswith(b'{"model_name"')
            assert peak(running) - before < 2.2 * len(body)


def reset_peak(running: Running) -> int:
    """Reset the peak memory of the workers to their memory, and return it in bytes."""
    for pid in workers(running):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak(running)


def peak(running: Running) -> int:
    """Return the sum of the workers' peak memory in bytes."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in workers(running)]
    return sum(1024 * int(text.split("VmHWM:")[1].split()[0]) for text in texts)


def test_rule_selects_every_case_that_names_it(running: Running, tmp_path: Path) -> None:
    """A case that names several rules runs for each of them, and is counted under its first rule."""
    done = check(*address_options(running), "--rule", "g5", "--json", tmp_path / "cases.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "cases.json").read_text())
    assert report["rules"] == ["G5"]
    assert {"G5", "R3", "R8", "R9"} <= set(report["counts_by_rule"])
    assert all(re.match(r"[^:]*\bG5\b", case["name"]) for case in report["cases"])
    assert "B  Binary" not in done.stdout


def test_failures_are_reported(tmp_path: Path) -> None:
    """A failed case is reported by rule in the text output, the JSON, the JUnit XML and the exit status."""
    with gunicorn(ROOT, "tests.template.faulty_servers:faulty_server()") as service:
        options = ["--rule", "R9", "--rule", "R18,G6", "--json", tmp_path / "cases.json", "--verbose"]
        done = check("--http", f"http://{service.http}", *options, "--junit", tmp_path / "cases.xml")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = re.findall(r"^failed  (R\d+): ", done.stdout, re.MULTILINE)
    assert failed == sorted(failed, key=lambda rule: int(rule[1:]))
    assert set(failed) == {"R9", "R18"}
    report = json.loads((tmp_path / "cases.json").read_text())
    outcomes = {case["outcome"] for case in report["cases"] if case["rule"] == "R9"}
    assert outcomes == {"passed", "failed", "not supported", "not run"}
    assert {case["outcome"] for case in report["cases"] if case["rule"] == "G6"} == {"not run"}
    failed = [case for case in report["cases"] if case["outcome"] == "failed"]
    assert report["counts"]["R"]["failed"] == len(failed)
    assert not [case for case in failed if re.search("0x|Use -v|HTTPMessage", case["detail"])]
    (case,) = [case for case in failed if case["name"].endswith("[[True]]")]
    assert case["detail"].startswith('expected 400, got 500 {"error":')
    assert case["sent"].startswith(f"POST /v2/models/{NAME}/infer\nContent-Type: application/json\n\n{{")
    assert '"shape": [true]' in case["sent"]
    assert f"sent: POST /v2/models/{NAME}/infer" in done.stdout
    (form,) = [case for case in failed if "rest json-[-1, 2]" in case["name"]]
    assert form["detail"].startswith("expected 400 / INVALID_ARGUMENT, got 500 ")
    (coded,) = [case for case in failed if "identity are understood [gzip]" in case["name"]]
    assert coded["detail"].startswith("expected 200, got 500 ")


def test_junit_report(tmp_path: Path) -> None:
    """The JUnit XML contains the server, the rules and the cases, and no details of the test runner."""
    with gunicorn(ROOT, "tests.template.faulty_servers:faulty_server()") as service:
        check(*address_options(service), "--rule", "R9", "--junit", tmp_path / "cases.xml")
    text = (tmp_path / "cases.xml").read_text()
    suite = ElementTree.fromstring(text).find("testsuite")
    assert suite is not None
    assert suite.attrib["name"] == "open-inference-service"
    assert {case.attrib["classname"] for case in suite} == {"R9"}
    assert all(case.attrib["name"].startswith("R9") for case in suite)
    failures = [each.attrib["message"] for each in suite.iter("failure")]
    assert len(failures) == int(suite.attrib["failures"]) > 0
    assert all(message.startswith("expected 400") for message in failures)
    assert {each.attrib["message"] for each in suite.iter("skipped")} == {
        "not supported: it lists no binary_tensor_data, and sends none"
    }
    assert str(ROOT) not in text
    assert ".py" not in text


@pytest.mark.parametrize("app", ["crashing_server", "hanging_server"])
def test_run_ends_when_server_stops_responding(app: str, tmp_path: Path) -> None:
    """A server that stops responding ends the run, and earlier results are kept."""
    with start_server(f"tests.template.faulty_servers:{app}()") as service:
        options = ["--rule", "R1", "--timeout", 1, "--json", tmp_path / "cases.json", "--junit", tmp_path / "cases.xml"]
        done = check(*address_options(service), *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the server stopped responding at R1: datatypes are case-sensitive [rest json-fp32]" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    check_partial_report(tmp_path)
    assert ElementTree.parse(tmp_path / "cases.xml").getroot().find("testsuite/testcase/failure") is not None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_keeps_results(number: signal.Signals, tmp_path: Path) -> None:
    """After SIGINT or SIGTERM, the results so far are kept and marked as partial."""
    with start_server("tests.template.faulty_servers:hanging_server()") as service:
        options = ["--rule", "R1", "--timeout", 60, "--json", tmp_path / "cases.json"]
        run = subprocess.Popen(
            command(*address_options(service), *options),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        wait_for(lambda: faulty_servers.TRIGGER_LINE.decode() in service.log() or run.poll() is not None)
        run.send_signal(number)
        output, _ = run.communicate()
    assert run.returncode == 1, output
    assert re.search(r"^partial, \d+ of \d+ cases: interrupted at R1: datatypes are ", output, re.MULTILINE)
    assert "Traceback" not in output
    check_partial_report(tmp_path)


def check_partial_report(folder: Path) -> None:
    """Check that the JSON in the folder contains the cases up to the trigger and is marked as incomplete."""
    report = json.loads((folder / "cases.json").read_text())
    assert report["complete"] is False
    assert report["counts"]["R"]["passed"] == 8
    assert report["counts"]["R"]["failed"] <= 1


@pytest.mark.parametrize("text", ["<html></html>", "[]", '{"name": "x", "version": "1", "extensions": null}'])
def test_invalid_server_metadata_fails_only_r4(text: str, tmp_path: Path) -> None:
    """A server with invalid metadata at GET /v2 fails R4. The other rules are still checked."""
    with gunicorn(ROOT, f"tests.template.faulty_servers:fixed_response_server('/v2', {text!r})") as service:
        done = check(*address_options(service), "--rule", "R2,R4,B7,T", "--json", tmp_path / "cases.json")
    assert done.returncode == 1, done.stdout + done.stderr
    cases = json.loads((tmp_path / "cases.json").read_text())["cases"]
    assert {case["rule"] for case in cases if case["outcome"] == "failed"} == {"R4"}
    assert {case["outcome"] for case in cases if case["rule"] == "B7"} == {"passed"}


def test_minimal_metadata_passes() -> None:
    """R6: a server passes without versions, parameters and properties in the model metadata."""
    with gunicorn(ROOT, "tests.template.faulty_servers:minimal_metadata_server()") as service:
        done = check(*address_options(service), "--rule", "R6")
    assert done.returncode == 0, done.stdout + done.stderr


def test_missing_tensors_are_reported() -> None:
    """Inputs that are missing in the model's metadata are reported, and nothing else."""
    inputs = [{"name": name} for name, *_ in INPUTS if name not in ("fp16_in", "cube_in")]
    metadata = json.dumps({"name": NAME, "inputs": inputs, "outputs": []})
    with gunicorn(
        ROOT, f"tests.template.faulty_servers:fixed_response_server('/v2/models/{NAME}', {metadata!r})"
    ) as service:
        done = check(*address_options(service), "--rule", "R13")
    assert done.stderr == "the model lacks: fp16_in, cube_in\n"
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--http", "127.0.0.1:8080"], "expected an address such as http://127.0.0.1:8080"),
        (["--http", "http://127.0.0.1:99999"], "expected an address such as http://127.0.0.1:8080"),
        (["--http", "http://127.0.0.1:abc"], "expected an address such as http://127.0.0.1:8080"),
        (["--http", "http://127.0.0.1:1"], "refused"),
        (["--http", "http://{grpc}"], "no HTTP server responds"),
        (["--http", "http://{http}", "--model", "iris"], "--model iris: "),
        (["--http", "http://{http}", "--grpc", "127.0.0.1:1"], "--grpc 127.0.0.1:1: "),
        (["--http", "http://{http}", "--grpc", "{http}"], "no gRPC server responds"),
        (["--http", "http://{http}", "--grpc", "http://{grpc}"], "expected HOST:PORT"),
        (["--http", "http://{http}", "--rule", "R9,x1"], "--rule X1: expected one of R, B, G, T, R1, R2, "),
        (["--http", "http://{http}", "--json", "no/such/folder/cases.json"], "expected a file in a folder that exists"),
        (["--http", "http://{http}", "--junit", "."], "expected a file in a folder that exists"),
    ],
)
def test_rejects_unusable_options(running: Running, options: list[str], text: str) -> None:
    """An address without a server or without the model, or an invalid option, is reported in one line."""
    done = check(*(option.replace("{http}", running.http).replace("{grpc}", running.grpc) for option in options))
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert text in line


def test_rejects_limit_of_zero() -> None:
    """A limit of 0 bytes is rejected."""
    done = check("--http", "http://127.0.0.1:1", "--limit", 0)
    assert done.returncode == 2
    assert "0 is not in the range" in done.stderr


def test_missing_dependency_is_reported(tmp_path: Path) -> None:
    """If a dependency of the suite is not installed, one line names it and how to install it."""
    (tmp_path / "pytest.py").write_text("raise ModuleNotFoundError(\"No module named 'pytest'\", name='pytest')")
    done = check("--help", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("No module named 'pytest'")
    assert "pip install" in line


def test_startup_example_with_only_optional_inputs(running: Running) -> None:
    """If no input is required, the example call in the startup message contains the first input."""
    wait_for(lambda: "curl" in running.log())
    (call,) = re.findall("curl .*", running.log())
    assert re.findall(r'"name":"(\w+)"', call) == ["bool_in"]
