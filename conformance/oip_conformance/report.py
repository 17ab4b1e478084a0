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
from oip_conformance.origins import Origin, origin_of

GROUPS = {
    "R": "REST, and tensors of both transports",
    "B": "Binary tensor data",
    "G": "gRPC",
    "T": "Triton's tools",
    "C": "Content types",
}
KILLED = "killed the server"
OUTCOMES = ["passed", "failed", KILLED, "not supported", "not run"]
FAILURES = ("failed", KILLED)
LEAD = re.compile(r"[A-Z]\d+(?:, [A-Z]\d+)*(?=: )")
DETAIL_CHARACTERS = 400
# Characters that XML 1.0 does not allow.
NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Case:
    """A case. `test` is the name of the test with its parameters.

    `name` contains the rule, the sentence in the test's docstring, and the parameters. If the case failed, `sent` is
    the last request and `trace` is the location in the test.
    """

    rule: str
    origin: Origin
    test: str
    name: str
    outcome: str = "passed"
    detail: str = ""
    sent: str = ""
    seconds: float = 0.0
    trace: str = ""

    @property
    def is_failed(self) -> bool:
        return self.outcome in FAILURES

    def members(self) -> dict[str, str]:
        """Return the case for the JSON report."""
        named = ["rule", "test", "name", "outcome", "detail", *(["sent"] if self.is_failed else [])]
        return {"origin": self.origin.key, **{name: getattr(self, name) for name in named}}


def rules_of(item: pytest.Item) -> list[str]:
    """Return the rules at the start of the test's docstring. The case counts toward the first rule."""
    found = LEAD.match(item.function.__doc__ or "")  # type: ignore[attr-defined]
    assert found, f"{item.nodeid}: its docstring does not begin with a rule"
    return found[0].split(", ")


def place(rule: str) -> tuple[int, int]:
    """Return the sort key for a rule."""
    return list(GROUPS).index(rule[0]), int(rule[1:])


def name_of(item: pytest.Item) -> str:
    sentence = " ".join(item.function.__doc__.split()).rstrip(".")  # type: ignore[attr-defined]
    parameters = item.name.partition("[")[2].removesuffix("]")
    return f"{sentence} [{parameters}]" if parameters else sentence


def new_case(item: pytest.Item) -> Case:
    rule = rules_of(item)[0]
    return Case(rule, origin_of(rule, item.name), item.name, name_of(item))


class Report:
    """A pytest plugin that collects the outcomes. `context` describes the run, and `last` is the last request.

    `stopped` is the reason if the run ended before all `expected` cases were complete.
    """

    def __init__(self, context: dict[str, Any], last: LastExchange) -> None:
        self.context, self.last = context, last
        self.cases: dict[str, Case] = {}
        self.expected, self.seconds, self.stopped = 0, 0.0, ""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        error = call.excinfo.value if call.excinfo else None
        if error is None and call.when != "call":
            return report
        case = self.cases.setdefault(item.nodeid, new_case(item))
        case.seconds += call.duration
        if isinstance(error, pytest.skip.Exception):
            case.outcome, case.detail = outcome_of_skip(str(error.msg))
        elif error is not None and case.outcome == "passed":
            case.outcome, case.sent, case.trace = "failed", self.last.request, report.longreprtext
            case.detail = detail_of(error, self.last.response)
        return report

    def has_passed(self, item: pytest.Item) -> bool:
        return self.cases[item.nodeid].outcome == "passed"

    def record_kill(self, item: pytest.Item) -> None:
        """Record that the server does not work after this case, which can also be one that was not run."""
        case = self.cases[item.nodeid]
        case.outcome, case.sent = KILLED, case.sent or self.last.request

    @property
    def failed(self) -> list[Case]:
        """Return the failed cases, sorted by origin and rule."""
        origins = [*Origin]
        failed = (case for case in self.cases.values() if case.is_failed)
        return sorted(failed, key=lambda case: (origins.index(case.origin), place(case.rule)))

    def counts(self, of: str = "", origin: Origin | None = None) -> dict[str, int]:
        """Count the cases of a rule, of a group, or of all groups (""), by outcome. `origin` selects an origin."""
        cases = (case for case in self.cases.values() if origin in (None, case.origin))
        counted = Counter(case.outcome for case in cases if of in ("", case.rule, case.rule[0]))
        return {outcome: counted[outcome] for outcome in OUTCOMES}

    def echo(self, verbose: bool) -> None:
        """Print the failed cases by origin, and the table."""
        origin = None
        for case in self.failed:
            if case.origin is not origin:
                origin = case.origin
                click.echo(f"\n{origin.value}")
            click.echo(f"{case.outcome}  {case.name}: {case.detail}")
            if verbose:
                click.echo(indented(f"sent: {case.sent}\n{case.trace}\n"))
        click.echo(f"\n{self.table()}")
        if self.stopped:
            click.echo(f"\npartial, {len(self.cases)} of {self.expected} cases: {self.stopped}")

    def table(self) -> str:
        """Return a table of the counts by origin, group and outcome."""
        rows: list[tuple[str, dict[str, int] | None]] = []
        for origin in Origin:
            groups = {
                f"  {group}  {title}": self.counts(group, origin) for group, title in GROUPS.items()
            }
            if found := [(label, row) for label, row in groups.items() if any(row.values())]:
                rows += [(origin.value, None), *found]
        rows.append(("all", self.counts()))
        width = max(map(len, GROUPS.values())) + 5
        lines = [" " * width + "".join(f"  {outcome}" for outcome in OUTCOMES)]
        for label, row in rows:
            cells = [f"{row[outcome]:>{len(outcome) + 2}}" for outcome in OUTCOMES] if row else []
            lines.append(f"{label:<{width}}{''.join(cells)}".rstrip())
        return "\n".join(lines)

    def as_json(self) -> str:
        rules = sorted({case.rule for case in self.cases.values()}, key=place)
        made = {
            **self.context,
            "date": date.today().isoformat(),
            "seconds": round(self.seconds, 1),
            "complete": not self.stopped,
            "counts": {group: self.counts(group) for group in GROUPS},
            "counts_by_origin": {origin.key: self.counts(origin=origin) for origin in Origin},
            "counts_by_rule": {rule: self.counts(rule) for rule in rules},
            "messages": sorted(self.last.messages),
            "cases": [case.members() for case in self.cases.values()],
        }
        return json.dumps(made, indent=1, ensure_ascii=False) + "\n"

    def as_junit(self) -> str:
        counts = self.counts()
        attributes = {
            "name": in_xml(str(self.context["server"].get("name") or self.context["url"])),
            "tests": str(len(self.cases)),
            "failures": str(counts["failed"]),
            "errors": str(counts[KILLED]),
            "skipped": str(counts["not supported"] + counts["not run"]),
            "time": f"{self.seconds:.3f}",
        }
        root = ElementTree.Element("testsuites")
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for case in self.cases.values():
            named = {
                "classname": case.rule,
                "name": in_xml(case.name),
                "time": f"{case.seconds:.3f}",
            }
            element = ElementTree.SubElement(suite, "testcase", named)
            if case.is_failed:
                kind = "error" if case.outcome == KILLED else "failure"
                failure = ElementTree.SubElement(element, kind, message=in_xml(case.detail))
                failure.text = in_xml(f"sent: {case.sent}")
            elif case.outcome != "passed":
                ElementTree.SubElement(
                    element, "skipped", message=in_xml(f"{case.outcome}: {case.detail}")
                )
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True).decode() + "\n"


def outcome_of_skip(message: str) -> tuple[str, str]:
    """Return the outcome and the reason from the message of a skip, which is "OUTCOME: REASON".

    A skip with another message, such as one of pytest itself, counts as not run.
    """
    outcome, _, reason = message.partition(": ")
    if outcome in ("not supported", "not run"):
        return outcome, reason
    return "not run", message


def detail_of(error: BaseException, response: str) -> str:
    """Describe a failure in one line: expected and actual result. `response` is the last response."""
    if isinstance(error, grpc.RpcError):
        text = f"got {error.code().name}: {error.details()}"
    elif isinstance(error, AssertionError):
        text = str(error).partition("\nassert ")[0].removeprefix("assert ")
    elif isinstance(error, (OSError, http.client.HTTPException)):
        text = f"no response: {str(error) or repr(error)}"
    else:
        text = f"{type(error).__name__}: {error}" + (
            f"; last response: {response}" if response else ""
        )
    text = " ".join(re.sub(r" at 0x[0-9a-f]+", "", text).split())
    return text if len(text) <= DETAIL_CHARACTERS else f"{text[:DETAIL_CHARACTERS]}..."


def indented(text: str) -> str:
    return "\n".join(f"        {line}".rstrip() for line in text.splitlines())


def in_xml(text: str) -> str:
    """Return the text with Python escapes for characters that XML does not allow."""
    return NOT_IN_XML.sub(lambda found: repr(found[0])[1:-1], text)
