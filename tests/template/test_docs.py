"""The pages of this repository and of a project: links work, pages are short, and no page repeats another."""

from __future__ import annotations

import json
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from tests.kit.environments import ROOT, make_project

LINK = re.compile(r"\]\(([^)\s#]*)(#[^)\s]*)?\)")
# Two pages have a line of this length in common only if one copies the other.
LONG = 80
FRAMEWORKS = json.loads((ROOT / "cookiecutter.json").read_text())["framework"]
DOCS_URL = "https://docs.example.org/"


@pytest.fixture(scope="module", params=["root", "project"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "root":
        return ROOT
    return make_project(tmp_path_factory.mktemp("docs"), docs_url=DOCS_URL)


def pages(folder: Path) -> list[Path]:
    if folder != ROOT:
        return [*folder.rglob("*.md")]
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [
        ROOT / name
        for name in listed.stdout.splitlines()
        if not re.search(r"cookiecutter\.|/results/", name)
    ]


def prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the headings in the form of links: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {
        "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


def links(page: Path) -> set[tuple[str, Path, str]]:
    """Return the links of a page to this repository's files: as written, the file, and the heading."""
    matches = LINK.findall(prose(page))
    docs = [
        (link, ROOT / "docs" / link.removeprefix(DOCS_URL), anchor)
        for link, anchor in matches
        if DOCS_URL in link
    ]
    relative = [
        (link, page.parent / link if link else page, anchor)
        for link, anchor in matches
        if "://" not in link
    ]
    return {*docs, *relative}


def test_links_have_targets(folder: Path) -> None:
    """A linked file exists and has the heading in the link. This includes links to pages that a project lacks."""
    all_links = {(page.name, *link) for page in pages(folder) for link in links(page)}
    assert len(all_links) > 5
    lost = [
        (name, link, anchor)
        for name, link, target, anchor in all_links
        if not target.exists() or (anchor and anchor not in anchors(target))
    ]
    assert not lost
    assert any(link.startswith(DOCS_URL) for _, link, _, _ in all_links) == (folder != ROOT)


def test_no_page_repeats_another(folder: Path) -> None:
    """Each subject has one page. Others link to it."""
    names_by_line = defaultdict(set)
    for page in pages(folder):
        if page.name == "calls.md":  # a project has one of them
            continue
        for line in page.read_text().splitlines():
            if len(line) >= LONG:
                names_by_line[line].add(str(page.relative_to(folder)))
    assert names_by_line
    assert not {line: names for line, names in names_by_line.items() if len(names) > 1}
