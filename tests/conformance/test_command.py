"""The conformance suite passes for our service, and its results for other servers are published."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dev.conformance.tables import PAGE, failed_groups, load_results, make_tables, missing_reasons
from oip_conformance.command import main
from oip_conformance.large_requests import large_request
from oip_conformance.model import NAME
from oip_conformance.origins import CASE_ORIGINS, RULE_ORIGINS, matches_case, split_case_name
from tests.conformance.runs import address_options, check
from tests.kit.environments import ROOT
from tests.kit.processes import Running, gunicorn, peak, reset_peak, wait_for, workers
from tests.kit.reviewed_messages import check_messages, one_of_each

LIMIT = 2**20
OURS = "tests.conformance_model:create_service()"
# The tests can run on a busy machine.
PATIENT = ["--timeout", 30, "--case-timeout", 60]
# 500 and INTERNAL have messages of the suite's model. Other names of statuses have messages of grpcio.
REVIEWED_STATUS = re.compile(r"(?!500)\d+|INVALID_ARGUMENT|NOT_FOUND")
RULES = set(
    re.findall(r"^\| ([RBGT]\d+) \|", (ROOT / "docs" / "protocol.md").read_text(), re.MULTILINE)
)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """Start our service with the suite's model."""
    with gunicorn(ROOT, OURS) as service:
        yield service


@dataclass
class SuiteRun:
    """A run of the whole suite: the process, and the JSON report, which is {} if the suite wrote no file."""

    done: subprocess.CompletedProcess[str]
    report: dict[str, Any]


@pytest.fixture(scope="module")
def suite_run(tmp_path_factory: pytest.TempPathFactory) -> SuiteRun:
    """Run the suite for four workers of our service. tests/service/conformance runs it for one, in its process."""
    file = tmp_path_factory.mktemp("suite") / "cases.json"
    with gunicorn(ROOT, OURS, WORKERS=4, MAX_REQUEST_BYTES=LIMIT) as service:
        done = check(*address_options(service), *PATIENT, "--limit", LIMIT, "--json", file)
    return SuiteRun(done, json.loads(file.read_text()) if file.exists() else {})


def test_our_service_passes_every_case(suite_run: SuiteRun) -> None:
    """Each rule of R, B, G and T has a case, and several workers of our service pass every case."""
    done, report = suite_run.done, suite_run.report
    assert done.returncode == 0, done.stdout + done.stderr
    assert {case["outcome"] for case in report["cases"]} == {"passed"}
    assert {rule for rule in report["counts_by_rule"] if rule[0] in "RBGT"} == RULES
    assert (report["complete"], report["limit"], report["rules"]) == (True, LIMIT, [])


def test_error_messages_are_reviewed(suite_run: SuiteRun) -> None:
    """The file messages.txt contains our service's error messages, without those of the suite's model."""
    messages = [
        text for status, text in suite_run.report["messages"] if REVIEWED_STATUS.fullmatch(status)
    ]
    check_messages("Conformance suite (tests/conformance/test_command.py)", one_of_each(messages))


@pytest.mark.slow
def test_our_service_passes_with_default_limit(running: Running) -> None:
    """G6: requests of all sizes up to the service's default limit of 64 MiB pass, in every form and coding."""
    done = check(*address_options(running), *PATIENT, "--limit", 2**26, "--rule", "g6")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^all +\d+ +0 +0 +0 +0$", done.stdout, re.MULTILINE)


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="only Linux reports the peak"
)
def test_memory_of_binary_request(running: Running) -> None:
    """A binary request of 60 MiB needs at most 2.2 times its size in memory: the body, and a copy for the model."""
    body, headers = large_request("rest binary", 60 * 2**20)
    with closing(http.client.HTTPConnection(running.http_address)) as connection:
        for _ in range(2):
            before = reset_peak(workers(running))
            connection.request("POST", f"/v2/models/{NAME}/infer", body, headers)
            assert connection.getresponse().read().startswith(b'{"model_name"')
            assert peak(workers(running)) - before < 2.2 * len(body)


def test_rule_selects_every_case_that_names_it(running: Running, tmp_path: Path) -> None:
    """A case that names several rules runs for each of them, and is counted under its first rule."""
    done = check(*address_options(running), "--rule", "g5", "--json", tmp_path / "cases.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "cases.json").read_text())
    assert report["rules"] == ["G5"]
    assert {"G5", "R3", "R8", "R9"} <= set(report["counts_by_rule"])
    assert all(re.match(r"[^:]*\bG5\b", case["name"]) for case in report["cases"])
    assert "B  Binary" not in done.stdout


def test_every_case_has_an_origin(suite_run: SuiteRun) -> None:
    """Each rule has an origin, each exception matches a case, and the counts by origin include all cases."""
    assert set(RULES) <= set(RULE_ORIGINS)
    report = suite_run.report
    cases = {(case["rule"], *split_case_name(case["test"])) for case in report["cases"]}
    unused = [line for line in CASE_ORIGINS if not any(matches_case(line, *case) for case in cases)]
    assert unused == []
    assert sum(counts["passed"] for counts in report["counts_by_origin"].values()) == len(
        report["cases"]
    )
    assert all(
        case["origin"] != "specification"
        for case in report["cases"]
        if "[rest binary" in case["test"]
    )


def test_page_contains_results() -> None:
    """The tables in docs/conformance.md match the stored results, and each group of failures has a reason."""
    assert make_tables() in PAGE.read_text()
    assert missing_reasons() == []
    for result in load_results().values():
        assert sum(failed for *_, failed in failed_groups(result)) == len(result["failed"]) + len(
            result["killed"]
        )


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
        (
            ["--http", "http://{http}", "--rule", "R9,x1"],
            "--rule X1: expected one of R, B, G, T, C, R1, R2, ",
        ),
        (
            ["--http", "http://{http}", "--json", "no/such/folder/cases.json"],
            "expected a file in a folder that exists",
        ),
        (["--http", "http://{http}", "--junit", "."], "expected a file in a folder that exists"),
    ],
)
def test_rejects_unusable_options(running: Running, options: list[str], text: str) -> None:
    """An address without a server or without the model, or an invalid option, is reported in one line."""
    addresses = {"{http}": running.http_address, "{grpc}": running.grpc_address}
    for name, address in addresses.items():
        options = [option.replace(name, address) for option in options]

    result = CliRunner().invoke(main, options)

    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert text in line


def test_rejects_options_that_select_no_case(running: Running) -> None:
    """A rule and an origin that have no case in common are reported in one line."""
    done = check(*address_options(running), "--rule", "R22", "--origin", "specification")
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout.strip() == ""
    assert done.stderr == (
        "Error: --rule R22 --origin specification: the options select no case in common\n"
    )


def test_rejects_limit_of_zero() -> None:
    """A limit of 0 bytes is rejected."""
    result = CliRunner().invoke(main, ["--http", "http://127.0.0.1:1", "--limit", "0"])
    assert result.exit_code == 2
    assert "0 is not in the range" in result.stderr


def test_startup_example_with_only_optional_inputs(running: Running) -> None:
    """If no input is required, the example call in the startup message contains the first input."""
    wait_for(lambda: "curl" in running.log())
    (call,) = re.findall("curl .*", running.log())
    assert re.findall(r'"name":"(\w+)"', call) == ["bool_in"]
