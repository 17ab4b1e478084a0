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
from oip_conformance.origins import RULES, Origin
from oip_conformance.report import GROUPS, Report, name_of, new_case, place, rules_of
from oip_conformance.restart import restart, time_limit
from oip_conformance.target import TARGET, Target

HERE = Path(__file__).parent
OPTIONS = [
    str(HERE / "cases"),
    "-c",
    str(HERE / "pytest.ini"),
    "-qq",
    "--no-header",
    "--no-summary",
    "--tb=short",
]
OPTIONS += ["-p", "no:cacheprovider"]
CASE_SECONDS = 15.0
# Exit codes of pytest if it could run the cases.
RUN = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


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
    default=CASE_SECONDS,
    help="Timeout of a case in seconds. A case can send several requests.",
)
@click.option(
    "--restart",
    "restart_command",
    metavar="COMMAND",
    help="Shell command that restarts the server after a case has killed it. By default, the run ends.",
)
@click.option(
    "--rule",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Run only the cases of a rule (R9) or a group (B). Use commas or repeat the option for several.",
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
    """Test a running server of the Open Inference Protocol v2 against the rules in docs/protocol.md.

    The server must serve the model that the README of the suite describes.
    The exit status is 0 if no case failed. It is 1 if a case failed or killed the server, or if the
    run is partial. It is 2 if the server cannot be tested.
    """
    wanted = known(rules)
    for option, path in (("--json", json_path), ("--junit", junit_path)):
        if path and (path.is_dir() or not path.parent.is_dir()):
            raise InvalidTarget(f"{option} {path}: expected a file in a folder that exists")
    target = Target(url, address, model, limit, timeout)
    if lacking := target.missing_tensors():
        click.echo(f"the model lacks: {', '.join(lacking)}", err=True)
    requested_output = {
        "url": url,
        "grpc": address,
        "model": model,
        "limit": limit,
        "timeout": timeout,
        "rules": wanted,
        "origins": origins,
    }
    report = Report(
        {"suite": version("oip-conformance"), "server": target.server, **requested_output},
        target.last,
    )
    with closing(target):
        run(Run(target, report, wanted, origins, case_timeout, restart_command))
    report.echo(verbose)
    for path, text in ((json_path, report.as_json), (junit_path, report.as_junit)):
        if path:
            write(path, text())
    sys.exit(bool(report.failed or report.stopped))


def known(rules: tuple[str, ...]) -> list[str]:
    """Return the requested rules and groups. Raise InvalidTarget if one is unknown."""
    there = sorted(RULES, key=place)
    wanted = [rule.strip().upper() for each in rules for rule in each.split(",")]
    for rule in wanted:
        if rule not in {*there, *GROUPS}:
            raise InvalidTarget(f"--rule {rule}: expected one of {', '.join([*GROUPS, *there])}")
    return wanted


def run(plugin: Run) -> None:
    """Run the cases until a signal arrives. Exit if pytest cannot run them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # Plugins of the environment could change the cases.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    begun = time.monotonic()
    code = pytest.main(OPTIONS, plugins=[case_plugin, plugin.report, plugin])
    plugin.report.seconds = time.monotonic() - begun
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        options = [f"--rule {rule}" for rule in plugin.rules]
        options += [f"--origin {origin}" for origin in plugin.origins]
        raise InvalidTarget(f"{' '.join(options)}: the options select no case in common")
    if code not in RUN:
        sys.exit(int(code))


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidTarget(f"{path}: {error.strerror}") from None


class Run:
    """A pytest plugin that provides the server under test, selects the cases, and runs them."""

    def __init__(
        self,
        target: Target,
        report: Report,
        rules: list[str],
        origins: tuple[str, ...],
        case_timeout: float,
        restart_command: str | None,
    ):
        self.target, self.report, self.rules, self.origins = target, report, rules, origins
        self.case_timeout, self.restart_command = case_timeout, restart_command

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[TARGET] = self.target

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.rules:
            items[:] = [
                item
                for item in items
                if any({rule, rule[0]} & {*self.rules} for rule in rules_of(item))
            ]
        if self.origins:
            items[:] = [item for item in items if new_case(item).origin.key in self.origins]
        self.report.expected = len(items)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        with time_limit(self.case_timeout):
            yield

    # pytest reports an exception in each of these hooks as a failure of the case.
    pytest_runtest_call = pytest_runtest_teardown = pytest_runtest_setup

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        """Run the cases until the server stays dead or a signal arrives.

        pytest handles collection errors.
        """
        if session.testsfailed:
            return None
        for item, following in zip_longest(session.items, session.items[1:]):
            try:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                if not self.report.has_passed(item) and self.target.is_killed():
                    self.report.record_kill(item)
                    self.report.stopped = self.restart_server(name_of(item))
            except KeyboardInterrupt:
                self.report.stopped = f"interrupted at {name_of(item)}"
            if self.report.stopped:
                break
        return True

    def restart_server(self, case: str) -> str:
        """Restart the server after the case. Return the reason if the run cannot continue, otherwise ""."""
        if not self.restart_command:
            return f"the server stopped working at {case}"
        if reason := restart(self.restart_command, self.target):
            return f"{reason}, after {case}"
        return ""
