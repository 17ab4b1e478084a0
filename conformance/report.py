"""What became of each case, as a table, as JSON and for JUnit."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

GROUPS = {
    "R": "REST, and tensors of both transports",
    "B": "Binary tensor data",
    "G": "gRPC",
    "T": "What Triton's tools ask for",
}
OUTCOMES = ["passed", "failed", "not supported", "not run"]
RULE = re.compile(r"([A-Z]\d+)\b")


@dataclass
class Case:
    """`name` is the rule, the sentence that the test holds, and its parameters."""

    rule: str
    name: str
    outcome: str
    detail: str


def rule_of(item: pytest.Item) -> str:
    """The rule that the case is named by: the first in its test's docstring."""
    found = RULE.match(item.function.__doc__ or "")  # type: ignore[attr-defined]
    assert found, f"{item.nodeid}: its docstring does not begin with a rule"
    return found[1]


def name_of(item: pytest.Item) -> str:
    sentence = " ".join(item.function.__doc__.split()).rstrip(".")  # type: ignore[attr-defined]
    parameters = item.name.partition("[")[2].removesuffix("]")
    return f"{sentence} [{parameters}]" if parameters else sentence


class Report:
    """A pytest plugin that collects the cases; `server` is what the server says of itself."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}
        self.server: dict[str, Any] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            rule = rule_of(item)
            item.user_properties += [("rule", rule), ("name", name_of(item))]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        known: dict[str, Any] = dict(report.user_properties)
        case = self.cases.setdefault(report.nodeid, Case(known["rule"], known["name"], "passed", ""))
        if report.failed:
            case.outcome, case.detail = "failed", first_line(report)
        elif report.skipped:
            reason = report.longrepr[2].removeprefix("Skipped: ")  # type: ignore[index]
            case.outcome, _, case.detail = reason.partition(": ")

    @property
    def failed(self) -> list[Case]:
        return [case for case in self.cases.values() if case.outcome == "failed"]

    def counts(self) -> dict[str, dict[str, int]]:
        """How many cases of each outcome, by group."""
        counted = Counter((case.rule[0], case.outcome) for case in self.cases.values())
        return {group: {outcome: counted[group, outcome] for outcome in OUTCOMES} for group in GROUPS}

    def table(self) -> str:
        counts = self.counts()
        total = {outcome: sum(row[outcome] for row in counts.values()) for outcome in OUTCOMES}
        width = max(map(len, GROUPS.values())) + 3
        lines = [" " * width + "".join(f"{outcome:>15}" for outcome in OUTCOMES)]
        for label, row in [*((f"{group}  {GROUPS[group]}", counts[group]) for group in GROUPS), ("all", total)]:
            lines.append(f"{label:<{width}}" + "".join(f"{row[outcome]:>15}" for outcome in OUTCOMES))
        return "\n".join(lines)

    def write_json(self, path: Path) -> None:
        made = {
            "server": self.server,
            "date": date.today().isoformat(),
            "counts": self.counts(),
            "cases": [asdict(case) for case in self.cases.values()],
        }
        path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")


def first_line(report: pytest.TestReport) -> str:
    """What went wrong, in a line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else str(report.longrepr)
    return " ".join(text.split())[:300]
