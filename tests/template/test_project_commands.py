"""The files and commands of the pages that create or test a project work, and give the output that the page shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .prepared import run_page
from .test_blocks import PROJECT_PAGES, text_of


# The gate runs the commands that every user runs first.
@pytest.mark.parametrize(
    "page",
    [
        page if page == "README.md" else pytest.param(page, marks=pytest.mark.slow)
        for page in PROJECT_PAGES
    ],
)
def test_page(tmp_path: Path, linked_project: Path, page: str) -> None:
    """The commands of the page work in order, and give the printed output."""
    folder = shutil.copytree(
        linked_project, tmp_path / "cookiecutter-open-inference", symlinks=True
    )
    run_page(page, text_of(page, linked_project), folder)
