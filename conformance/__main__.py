"""The command: python -m conformance --http http://127.0.0.1:8080 --grpc 127.0.0.1:8081 --model conformance"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import click
import pytest

from conformance.model import NAME
from conformance.report import Report, rule_of
from conformance.target import TARGET, Target

HERE = Path(__file__).parent


@click.command(context_settings={"show_default": True})
@click.option("--http", "url", required=True, metavar="URL", help="Where REST is served, such as http://127.0.0.1:8080")
@click.option("--grpc", "address", metavar="ADDRESS", help="Where gRPC is served, such as 127.0.0.1:8081")
@click.option("--model", default=NAME, help="The name that the model of conformance/model.py is served under.")
@click.option("--limit", type=int, metavar="BYTES", help="The largest request that the server is set to take.")
@click.option(
    "--rule", "rules", multiple=True, metavar="RULE", help="Only cases of this rule, such as R9, or group, B."
)
@click.option("--json", "json_path", type=Path, metavar="FILE", help="Write the cases and the counts as JSON.")
@click.option("--junit", "junit_path", type=Path, metavar="FILE", help="Write JUnit XML.")
@click.option("--verbose", is_flag=True, help="Show the whole of each failure.")
def main(
    url: str,
    address: str | None,
    model: str,
    limit: int | None,
    rules: tuple[str, ...],
    json_path: Path | None,
    junit_path: Path | None,
    verbose: bool,
) -> None:
    """Holds a live server of the Open Inference Protocol v2 against the rules of docs/protocol.md.

    The server must serve the model of conformance/model.py; conformance/README.md says how some do. The exit status
    is 0 where no case failed, 1 where one did, and 2 where the server cannot be tested.
    """
    target = Target(url, address, model, limit)
    report = Report()
    report.server = target.server
    options = [str(HERE), "-c", str(HERE / "pytest.ini"), "-q", "--no-header", "-p", "no:cacheprovider"]
    options += ["--tb=short"] if verbose else ["--tb=no", "--no-summary"]
    if junit_path:
        options.append(f"--junitxml={junit_path.absolute()}")
    with closing(target):
        code = pytest.main(options, plugins=[report, Chosen(target, rules)])
    if json_path:
        report.write_json(json_path)
    for case in report.failed:
        click.echo(f"failed  {case.name}: {case.detail}")
    click.echo(f"\n{report.table()}")
    sys.exit(code)


class Chosen:
    """A pytest plugin that has the server under test, and leaves out the rules that were not asked for."""

    def __init__(self, target: Target, rules: tuple[str, ...]):
        self.target, self.rules = target, rules

    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[TARGET] = self.target

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.rules:
            items[:] = [item for item in items if self.wanted(rule_of(item))]

    def wanted(self, rule: str) -> bool:
        return rule in self.rules or rule[0] in self.rules


if __name__ == "__main__":
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    main()
