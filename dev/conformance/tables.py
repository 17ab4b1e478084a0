"""Write the tables of docs/conformance.md from the files in dev/conformance/results.

python -m dev.conformance.tables
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import click

from oip_conformance.origins import Origin
from oip_conformance.report import FAILURES, KILLED, OUTCOMES, rule_order

RESULTS = Path(__file__).with_name("results")
REASONS = RESULTS / "reasons.toml"
PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
TABLES = re.compile(r"(<!-- tables -->\n).*(<!-- end of tables -->)", re.DOTALL)
ORDER = ["service", "mlserver", "kserve", "triton"]

# The content of a file of results, as summarize() returns it.
Result = dict[str, Any]


def summarize(title: str, package: str, report: dict[str, Any]) -> Result:
    """Return the results of a server: counts by origin and rule, and the names of the failed cases."""
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for case in report["cases"]:
        counts[case["origin"]][case["rule"]][case["outcome"]] += 1
    failed = [case for case in report["cases"] if case["outcome"] in FAILURES]
    return {
        "title": title,
        "version": report["server"].get("version", ""),
        "package": package,
        "suite": report["suite"],
        "date": report["date"],
        "limit": report["limit"],
        "counts": counts,
        "failed": sorted(case["name"] for case in failed if case["outcome"] != KILLED),
        "killed": sorted(case["name"] for case in failed if case["outcome"] == KILLED),
    }


def load_results() -> dict[str, Result]:
    return {name: json.loads((RESULTS / f"{name}.json").read_text()) for name in ORDER}


def load_reasons() -> dict[str, dict[str, dict[str, str]]]:
    """Return the reasons of failures by server, origin and rule."""
    return tomllib.loads(REASONS.read_text())


def count(result: Result, origins: list[str], rule: str = "") -> Counter[str]:
    """Count the cases of some origins, and of a rule or of all rules (""), by outcome."""
    total: Counter[str] = Counter()
    for origin in origins:
        for of, counts in result["counts"].get(origin, {}).items():
            if rule in ("", of):
                total.update(counts)
    return total


def cell(counts: Counter[str]) -> str:
    """Return the passed cases of those that passed or failed, and the numbers of the other outcomes."""
    judged = counts["passed"] + sum(counts[outcome] for outcome in FAILURES)
    others = [f"{counts[outcome]} {outcome}" for outcome in OUTCOMES[2:] if counts[outcome]]
    return ", ".join([*([f"{counts['passed']}/{judged}"] if judged else []), *others])


def table(lines: list[list[str]]) -> str:
    """Return a Markdown table whose first line is the head."""
    head, *rows = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, ["---"] * len(head), *rows])


def name_of(result: Result) -> str:
    return f"{result['title']} {result['version']}"


def versions_table(results: dict[str, Result]) -> str:
    head = ["Server", "Version", "Package", "Date", "Size limit of requests"]
    rows = [
        [
            result["title"],
            result["version"],
            result["package"] or "this repository",
            result["date"],
            f"{result['limit']:,} bytes" if result["limit"] else "none",
        ]
        for result in results.values()
    ]
    return table([head, *rows])


def summary_table(results: dict[str, Result]) -> str:
    keys = [origin.key for origin in Origin]
    head = ["Origin", *(result["title"] for result in results.values())]
    rows = [
        [origin.value, *(cell(count(result, [origin.key])) for result in results.values())]
        for origin in Origin
    ]
    return table(
        [head, *rows, ["all", *(cell(count(result, keys)) for result in results.values())]]
    )


def rules_table(results: dict[str, Result], origin: str) -> str:
    rules = sorted(
        {rule for result in results.values() for rule in result["counts"].get(origin, {})},
        key=rule_order,
    )
    head = ["Rule", *(result["title"] for result in results.values())]
    return table(
        [
            head,
            *(
                [rule, *(cell(count(each, [origin], rule)) for each in results.values())]
                for rule in rules
            ),
        ]
    )


def failed_groups(result: Result) -> list[tuple[str, str, int]]:
    """Return the origin, the rule and the number of failures of each group of cases that has failures."""
    return [
        (origin.key, rule, failed)
        for origin in Origin
        for rule in sorted(result["counts"].get(origin.key, {}), key=rule_order)
        if (failed := sum(count(result, [origin.key], rule)[outcome] for outcome in FAILURES))
    ]


def reasons_table(result: Result, reasons: dict[str, dict[str, str]]) -> str:
    titles = {origin.key: origin.value for origin in Origin}
    rows = [
        [titles[origin], rule, str(failed), reasons.get(origin, {}).get(rule, "")]
        for origin, rule, failed in failed_groups(result)
    ]
    return table([["Origin", "Rule", "Failures", "Reason"], *rows])


def make_tables() -> str:
    """Return the Markdown of all tables."""
    results, reasons = load_results(), load_reasons()
    parts = ["## Versions", versions_table(results), "## Summary", summary_table(results)]
    for origin in Origin:
        parts += [f"## {origin.value}", rules_table(results, origin.key)]
    for name, result in results.items():
        if failed_groups(result):
            parts += [
                f"## Failures of {result['title']}",
                reasons_table(result, reasons.get(name, {})),
            ]
    return "\n\n".join(parts)


def missing_reasons() -> list[str]:
    """Return the groups of failed cases without a reason, and the reasons without a failed case."""
    reasons = load_reasons()
    given = {
        (name, origin, rule)
        for name, of in reasons.items()
        for origin, rules in of.items()
        for rule in rules
    }
    failed = {
        (name, *group[:2])
        for name, result in load_results().items()
        for group in failed_groups(result)
    }
    missing = [f"{' '.join(each)}: no reason" for each in sorted(failed - given)]
    return missing + [
        f"{' '.join(each)}: a reason, but no failed case" for each in sorted(given - failed)
    ]


def write_page() -> None:
    """Write the tables into the page, and print the reasons to add to or remove from reasons.toml."""
    PAGE.write_text(
        TABLES.sub(lambda found: f"{found[1]}\n{make_tables()}\n\n{found[2]}", PAGE.read_text())
    )
    for line in missing_reasons():
        click.echo(line)


if __name__ == "__main__":
    write_page()
