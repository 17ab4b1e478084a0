"""Reports of the outcomes: a table, JSON and JUnit XML."""

from __future__ import annotations

import http.client
import json
import re
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from datetime import date
from typing import Any
from xml.etree import ElementTree

import click
import grpc
import pytest

from oip_conformance.client import LastExchange
from oip_conformance.origins import Origin, origin_of, split_case_name
from oip_conformance.skips import NOT_RUN, NOT_SUPPORTED, outcome_of_skip
from oip_conformance.texts import escape, shorten

GROUPS = {
    "R": "REST, and tensors of both transports",
    "B": "Binary tensor data",
    "G": "gRPC",
    "T": "Triton's tools",
    "C": "Content types",
}
KILLED = "killed the server"
OUTCOMES = ["passed", "failed", KILLED, NOT_SUPPORTED, NOT_RUN]
FAILURES = ("failed", KILLED)
# The rules at the start of a docstring, as in "R19, G1: an exception results in 500".
LEADING_RULES = re.compile(r"[A-Z]\d+(?:, [A-Z]\d+)*(?=: )")
MAX_DETAIL_LENGTH = 400
# Characters that XML 1.0 does not allow.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Case:
    """A case. `test` is the name of the test with its parameters.

    `name` contains the rule, the sentence in the test's docstring, and the parameters. If the case
    failed, `request` is the last request and `trace` is the location in the test.
    """

    rule: str
    origin: Origin
    test: str
    name: str
    outcome: str = "passed"
    detail: str = ""
    request: str = ""
    seconds: float = 0.0
    trace: str = ""

    @property
    def is_failed(self) -> bool:
        return self.outcome in FAILURES

    def counts_toward(self, rule_or_group: str) -> bool:
        """Return True if the case counts toward this rule, or toward this group of rules."""
        return rule_or_group in (self.rule, group_of(self.rule))

    def members(self) -> dict[str, str]:
        """Return the case for the JSON report."""
        members = {
            "origin": self.origin.key,
            "rule": self.rule,
            "test": self.test,
            "name": self.name,
            "outcome": self.outcome,
            "detail": self.detail,
        }
        if self.is_failed:
            members["sent"] = self.request
        return members


def group_of(rule: str) -> str:
    """Return the group of a rule: "R" for R10."""
    return rule[0]


def rule_order(rule: str) -> tuple[int, int]:
    """Return the sort key for a rule: the order of the groups, then the number."""
    return list(GROUPS).index(group_of(rule)), int(rule[1:])


def rules_of(item: pytest.Item) -> list[str]:
    """Return the rules at the start of the test's docstring. The case counts toward the first."""
    match = LEADING_RULES.match(item.function.__doc__ or "")  # type: ignore[attr-defined]
    assert match, f"{item.nodeid}: its docstring does not begin with a rule"
    return match[0].split(", ")


def name_of(item: pytest.Item) -> str:
    """Return the sentence in the test's docstring, and the parameters of the case if it has any."""
    sentence = " ".join(item.function.__doc__.split()).rstrip(".")  # type: ignore[attr-defined]
    _, parameters = split_case_name(item.name)
    return f"{sentence} [{parameters}]" if parameters else sentence


def new_case(item: pytest.Item) -> Case:
    """Return the case of an item. Its outcome is "passed" until the report records another one."""
    rule = rules_of(item)[0]
    origin = origin_of(rule, item.name)
    return Case(rule, origin, test=item.name, name=name_of(item))


def report_order(case: Case) -> tuple[int, tuple[int, int]]:
    """Return the sort key for a case: the order of the origins, then the rule."""
    origins = list(Origin)
    return origins.index(case.origin), rule_order(case.rule)


class Report:
    """A pytest plugin that collects the outcomes.

    `context` describes the run, and `last_exchange` has the last request. `stop_reason` is the
    reason if the run ended before it had completed as many cases as `expected_cases`.
    """

    def __init__(self, context: dict[str, Any], last_exchange: LastExchange) -> None:
        self.context = context
        self.last_exchange = last_exchange
        # The cases by the ids of their items.
        self.cases: dict[str, Case] = {}
        self.expected_cases = 0
        self.seconds = 0.0
        self.stop_reason = ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record the outcome of the setup, the call or the teardown of a case."""
        report = yield
        if call.when != "call" and call.excinfo is None:
            return report  # only the call decides that a case has passed

        case = self.cases.setdefault(item.nodeid, new_case(item))
        case.seconds += call.duration
        if call.excinfo is None:
            return report

        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            case.outcome, case.detail = outcome_of_skip(str(error.msg))
            return report

        # An error in the teardown does not replace the outcome of the call.
        if case.outcome != "passed":
            return report
        case.outcome = "failed"
        case.detail = detail_of(error, self.last_exchange.response)
        case.request = self.last_exchange.request
        case.trace = report.longreprtext
        return report

    def has_passed(self, item: pytest.Item) -> bool:
        return self.cases[item.nodeid].outcome == "passed"

    def record_kill(self, item: pytest.Item) -> None:
        """Record that the server does not work after this case.

        This can also be a case that was not run.
        """
        case = self.cases[item.nodeid]
        case.outcome = KILLED
        case.request = case.request or self.last_exchange.request

    @property
    def failed(self) -> list[Case]:
        """Return the failed cases, sorted by origin and rule."""
        failed = [case for case in self.cases.values() if case.is_failed]
        return sorted(failed, key=report_order)

    def counts(self, rule_or_group: str = "", origin: Origin | None = None) -> dict[str, int]:
        """Count the cases by outcome. Without a rule or group, or an origin, count those of all."""
        counter: Counter[str] = Counter()
        for case in self.cases.values():
            if rule_or_group and not case.counts_toward(rule_or_group):
                continue
            if origin and case.origin is not origin:
                continue
            counter[case.outcome] += 1
        return {outcome: counter[outcome] for outcome in OUTCOMES}

    def echo(self, verbose: bool) -> None:
        """Print the failed cases by origin, and the table."""
        origin = None
        for case in self.failed:
            if case.origin is not origin:
                origin = case.origin
                click.echo(f"\n{origin.value}")
            click.echo(f"{case.outcome}  {case.name}: {case.detail}")
            if verbose:
                click.echo(indented(f"sent: {case.request}\n{case.trace}\n"))
        click.echo(f"\n{self.table()}")
        if self.stop_reason:
            count = f"{len(self.cases)} of {self.expected_cases} cases"
            click.echo(f"\npartial, {count}: {self.stop_reason}")

    def table(self) -> str:
        """Return a table of the counts by origin, group and outcome, without groups of no cases."""
        labels = {}
        for group, title in GROUPS.items():
            labels[group] = f"  {group}  {title}"
        width = max(len(label) for label in labels.values())
        header = "  ".join([" " * width, *OUTCOMES])
        lines = [header]
        for origin in Origin:
            rows = []
            for group, label in labels.items():
                counts = self.counts(group, origin)
                if any(counts.values()):
                    rows.append(table_row(label, width, counts=counts))
            if rows:
                lines += [origin.value, *rows]
        lines.append(table_row("all", width, counts=self.counts()))
        return "\n".join(lines)

    def as_json(self) -> str:
        """Return the JSON report."""
        rules = sorted({case.rule for case in self.cases.values()}, key=rule_order)
        report = {
            **self.context,
            "date": date.today().isoformat(),
            "seconds": round(self.seconds, 1),
            "complete": not self.stop_reason,
            "counts": {group: self.counts(group) for group in GROUPS},
            "counts_by_origin": {origin.key: self.counts(origin=origin) for origin in Origin},
            "counts_by_rule": {rule: self.counts(rule) for rule in rules},
            "messages": sorted(self.last_exchange.messages),
            "cases": [case.members() for case in self.cases.values()],
        }
        return json.dumps(report, indent=1, ensure_ascii=False) + "\n"

    def as_junit(self) -> str:
        """Return the report as JUnit XML. A case that kills the server is an error."""
        counts = self.counts()
        server_name = self.context["server"].get("name") or self.context["url"]
        attributes = {
            "name": in_xml(str(server_name)),
            "tests": str(len(self.cases)),
            "failures": str(counts["failed"]),
            "errors": str(counts[KILLED]),
            "skipped": str(counts[NOT_SUPPORTED] + counts[NOT_RUN]),
            "time": f"{self.seconds:.3f}",
        }
        root = ElementTree.Element("testsuites")
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for case in self.cases.values():
            suite.append(junit_element(case))
        ElementTree.indent(root)
        document = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
        return document.decode() + "\n"


def table_row(label: str, width: int, *, counts: dict[str, int]) -> str:
    """Return a row of the table: each count is right-aligned below the name of its outcome."""
    cells = [label.ljust(width)]
    for outcome, count in counts.items():
        cells.append(str(count).rjust(len(outcome)))
    return "  ".join(cells)


def junit_element(case: Case) -> ElementTree.Element:
    """Return the case as an element of JUnit XML."""
    attributes = {
        "classname": case.rule,
        "name": in_xml(case.name),
        "time": f"{case.seconds:.3f}",
    }
    element = ElementTree.Element("testcase", attributes)
    if case.is_failed:
        tag = "error" if case.outcome == KILLED else "failure"
        failure = ElementTree.SubElement(element, tag, message=in_xml(case.detail))
        failure.text = in_xml(f"sent: {case.request}")
    elif case.outcome != "passed":
        message = in_xml(f"{case.outcome}: {case.detail}")
        ElementTree.SubElement(element, "skipped", message=message)
    return element


def detail_of(error: BaseException, response: str) -> str:
    """Describe a failure in one line: expected and actual result.

    `response` is the last response.
    """
    if isinstance(error, grpc.RpcError):
        text = f"got {error.code().name}: {error.details()}"
    elif isinstance(error, AssertionError):
        text = assertion_text(error)
    elif isinstance(error, (OSError, http.client.HTTPException)):
        text = f"no response: {str(error) or repr(error)}"
    else:
        text = f"{type(error).__name__}: {error}"
        if response:
            text += f"; last response: {response}"

    without_addresses = re.sub(r" at 0x[0-9a-f]+", "", text)
    line = " ".join(without_addresses.split())
    return shorten(line, MAX_DETAIL_LENGTH)


def assertion_text(error: AssertionError) -> str:
    """Return the text of a failed assertion without the source of its expression.

    pytest rewrites the text. If the assertion has a message, the text is "MESSAGE\\nassert SOURCE".
    Otherwise, it is "assert DESCRIPTION", with the description of pytest_assertrepr_compare().
    """
    message, _, _ = str(error).partition("\nassert ")
    return message.removeprefix("assert ")


def indented(text: str) -> str:
    lines = [f"        {line}".rstrip() for line in text.splitlines()]
    return "\n".join(lines)


def in_xml(text: str) -> str:
    """Return the text with Python escapes for characters that XML does not allow."""
    return NOT_IN_XML.sub(escape_match, text)


def escape_match(match: re.Match[str]) -> str:
    return escape(match[0])
