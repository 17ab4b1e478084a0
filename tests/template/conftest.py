"""Fixtures: `helm` and `render` for the tests of deploy/, and `chromium` for the tests of the page."""

from .browser import chromium
from .helm import run_helm
from .manifests import render

__all__ = ["chromium", "render", "run_helm"]
