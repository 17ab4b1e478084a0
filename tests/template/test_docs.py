"""The pages, here and in a project: their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .environments import ROOT, make_project

LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


@pytest.fixture(scope="module", params=["root", "project"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "root":
        return ROOT
    return make_project(tmp_path_factory.mktemp("docs"))


def test_links_lead_somewhere(folder: Path) -> None:
    """What a page names by a relative link is there."""
    if folder == ROOT:
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
        pages = [ROOT / name for name in listed.stdout.splitlines() if "cookiecutter." not in name]
    else:
        pages = [*folder.rglob("*.md")]
    links = {(page, target) for page in pages for target, _ in LINK.findall(page.read_text())}
    inside = {(page, target) for page, target in links if "://" not in target}
    assert len(inside) > 5
    lost = [(str(page.relative_to(folder)), target) for page, target in inside if not (page.parent / target).exists()]
    assert not lost
