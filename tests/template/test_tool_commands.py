"""The files and commands of the pages about the command line work, and give the output that the page shows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .prepared import run_page
from .test_blocks import TOOL_PAGES, text_of


@pytest.mark.slow
@pytest.mark.parametrize("page", TOOL_PAGES)
def test_page(tmp_path: Path, linked_project: Path, page: str) -> None:
    """The commands of the page work in order, and give the printed output."""
    folder = shutil.copytree(
        linked_project, tmp_path / "cookiecutter-open-inference", symlinks=True
    )
    run_page(page, text_of(page, linked_project), folder)
