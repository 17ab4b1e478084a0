"""The command `oip-conformance`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Generator
from contextlib import closing
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import pytest

from oip_conformance import plugin as case_plugin
from oip_conformance.addresses import InvalidTarget
from oip_conformance.client import TIMEOUT_SECONDS
from oip_conformance.model import NAME
from oip_conformance.origins import RULE_ORIGINS, Origin
from oip_conformance.report import (
    GROUPS,
    Report,
    group_of,
    name_of,
    new_case,
    rule_order,
    rules_of,
)
from oip_conformance.restart import restart, time_limit
from oip_conformance.target import TARGET, Target

DIRECTORY = Path(__file__).parent
PYTEST_OPTIONS = [
    str(DIRECTORY / "cases"),
    "-c",
    str(DIRECTORY / "pytest.ini"),
    "-qq",
    "--no-header",
    "--no-summary",
    "--tb=short",
    "-p",
    "no:cacheprovider",
]
CASE_TIMEOUT_SECONDS = 15.0
# Exit codes of pytest if it has run the cases.
COMPLETED_RUN_CODES = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


@click.command(context_settings={"show_default": True})
@click.option(
    "--http",
    "url",
    required=True,
    metavar="URL",
    help="Base URL of REST, such as http://127.0.0.1:8080",
)
@click.option(
    "--grpc", "address", metavar="HOST:PORT", help="Address of gRPC, such as 127.0.0.1:8081"
)
@click.option("--model", default=NAME, help="Served name of the suite's model.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Maximum request size in the server's configuration.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=TIMEOUT_SECONDS,
    help="Timeout of a request in seconds.",
)
@click.option(
    "--case-timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    default=CASE_TIMEOUT_SECONDS,
    help="Timeout of a case in seconds. A case can send several requests.",
)
@click.option(
    "--restart",
    "restart_command",
    metavar="COMMAND",
    help="Shell command that restarts the server after a case has killed it. "
    "By default, the run ends.",
)
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Run only the cases of a rule (R9) or a group (B). "
    "Use commas or repeat the option for several.",
)
@click.option(
    "--origin",
    "origins",
    multiple=True,
    type=click.Choice([origin.key for origin in Origin]),
    help="Run only the cases of an origin. Repeat the option for several.",
)
@click.option(
    "--json", "json_path", type=Path, metavar="FILE", help="Write cases and counts to a JSON file."
)
@click.option("--junit", "junit_path", type=Path, metavar="FILE", help="Write a JUnit XML file.")
@click.option("--verbose", is_flag=True, help="Show the request and the traceback of each failure.")
def main(
    url: str,
    address: str | None,
    model: str,
    limit: int | None,
    timeout: float,
    case_timeout: float,
    restart_command: str | None,
    rules: tuple[str, ...],
    origins: tuple[str, ...],
    json_path: Path | None,
    junit_path: Path | None,
    verbose: bool,
) -> None:
    """Test a running server of the Open Inference Protocol v2 against the rules in
    docs/protocol.md.

    The server must serve the model that the README of the suite describes.
    The exit status is 0 if no case failed. It is 1 if a case failed or killed the server, or if the
    run is partial. It is 2 if the server cannot be tested.
    """
    rules_and_groups = parse_rules(rules)
    check_writable("--json", json_path)
    check_writable("--junit", junit_path)

    target = Target(url, address, model=model, limit=limit, timeout=timeout)
    missing = target.missing_tensors()
    if missing:
        click.echo(f"the model lacks: {', '.join(missing)}", err=True)

    context = {
        "suite": version("oip-conformance"),
        "server": target.server,
        "url": url,
        "grpc": address,
        "model": model,
        "limit": limit,
        "timeout": timeout,
        "rules": rules_and_groups,
        "origins": origins,
    }
    report = Report(context, target.last_exchange)
    with closing(target):
        runner = CaseRunner(
            target,
            report,
            rules=rules_and_groups,
            origins=origins,
            case_timeout=case_timeout,
            restart_command=restart_command,
        )
        run_cases(runner)

    report.echo(verbose)
    if json_path:
        write(json_path, report.as_json())
    if junit_path:
        write(junit_path, report.as_junit())
    sys.exit(bool(report.failed or report.stop_reason))


def check_writable(option: str, path: Path | None) -> None:
    """Raise InvalidTarget if the value of the option cannot be the path of a new file."""
    if path and (path.is_dir() or not path.parent.is_dir()):
        raise InvalidTarget(f"{option} {path}: expected a file in a folder that exists")


def parse_rules(options: tuple[str, ...]) -> list[str]:
    """Return the rules and groups in the values of --rule. Raise InvalidTarget for others."""
    known = [*GROUPS, *sorted(RULE_ORIGINS, key=rule_order)]
    rules = []
    for option in options:
        for text in option.split(","):
            rule = text.strip().upper()
            if rule not in known:
                raise InvalidTarget(f"--rule {rule}: expected one of {', '.join(known)}")
            rules.append(rule)
    return rules


def run_cases(runner: CaseRunner) -> None:
    """Run the cases until a signal arrives. Exit if pytest cannot run them.

    Raise InvalidTarget if the options select no case.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # Plugins of the environment could change the cases.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"

    start = time.monotonic()
    code = pytest.main(PYTEST_OPTIONS, plugins=[case_plugin, runner.report, runner])
    runner.report.seconds = time.monotonic() - start
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        options = [f"--rule {rule}" for rule in runner.rules]
        options += [f"--origin {origin}" for origin in runner.origins]
        raise InvalidTarget(f"{' '.join(options)}: the options select no case in common")
    if code not in COMPLETED_RUN_CODES:
        sys.exit(int(code))


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidTarget(f"{path}: {error.strerror}") from None


class CaseRunner:
    """A pytest plugin that provides the server under test, selects the cases, and runs them.

    `rules` are rules and groups, and `origins` are keys of origins. If one of them is empty, it
    selects all cases.
    """

    def __init__(
        self,
        target: Target,
        report: Report,
        *,
        rules: list[str],
        origins: tuple[str, ...],
        case_timeout: float,
        restart_command: str | None,
    ):
        self.target = target
        self.report = report
        self.rules = rules
        self.origins = origins
        self.case_timeout = case_timeout
        self.restart_command = restart_command

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[TARGET] = self.target

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self.is_selected(item)]
        self.report.expected_cases = len(items)

    def is_selected(self, item: pytest.Item) -> bool:
        """Return True if the case names a selected rule and has a selected origin."""
        if self.origins and new_case(item).origin.key not in self.origins:
            return False
        if not self.rules:
            return True
        return any(rule in self.rules or group_of(rule) in self.rules for rule in rules_of(item))

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Limit the time of the setup. The call and the teardown have the same limit each."""
        with time_limit(self.case_timeout):
            yield

    # pytest reports an exception in each of these hooks as a failure of the case.
    pytest_runtest_call = pytest_runtest_setup
    pytest_runtest_teardown = pytest_runtest_setup

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        """Run the cases until the server stays dead or a signal arrives.

        pytest handles collection errors.
        """
        if session.testsfailed:
            return None
        for item, next_item in zip_longest(session.items, session.items[1:]):
            try:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=next_item)
                if not self.report.has_passed(item) and self.target.is_killed():
                    self.report.record_kill(item)
                    self.report.stop_reason = self.restart_server(name_of(item))
            except KeyboardInterrupt:
                self.report.stop_reason = f"interrupted at {name_of(item)}"
            if self.report.stop_reason:
                break
        return True

    def restart_server(self, case: str) -> str:
        """Restart the server after the case.

        Return the reason if the run cannot continue, otherwise "".
        """
        if not self.restart_command:
            return f"the server stopped working at {case}"
        reason = restart(self.restart_command, self.target)
        return f"{reason}, after {case}" if reason else ""
