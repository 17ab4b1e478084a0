"""The pages, here and in a project: their links lead somewhere, and none says what another has said."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from .environments import ROOT, make_project

LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
# A line of this length that two pages have is no chance.
LONG = 80


@pytest.fixture(scope="module", params=["root", "project"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "root":
        return ROOT
    return make_project(tmp_path_factory.mktemp("docs"))


def pages(folder: Path) -> list[Path]:
    if folder != ROOT:
        return [*folder.rglob("*.md")]
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if not re.search(r"cookiecutter\.|/results/", name)]


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The headings as a link has them: in lower case, hyphens for blanks, without punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_somewhere(folder: Path) -> None:
    """What a page names by a relative link is there, and has the heading that the link names."""
    links = {(page, *found) for page in pages(folder) for found in LINK.findall(prose(page))}
    inside = {
        (page, page.parent / target if target else page, anchor)
        for page, target, anchor in links
        if "://" not in target
    }
    assert len(inside) > 5
    lost = [
        (page.name, str(target), anchor)
        for page, target, anchor in inside
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert not lost


def test_no_page_repeats_another(folder: Path) -> None:
    """Of what is said once, one page says it, and others link to it."""
    said = defaultdict(set)
    for page in pages(folder):
        if page.name == "calls.md":  # a project has one of them
            continue
        for line in page.read_text().splitlines():
            if len(line) >= LONG:
                said[line].add(str(page.relative_to(folder)))
    assert said
    assert not {line: names for line, names in said.items() if len(names) > 1}
