"""The fixtures `helm` and `render`, for every test of deploy/, and `chromium`, for the page's."""

from .browser import chromium
from .helm import run_helm
from .manifests import render

__all__ = ["chromium", "render", "run_helm"]
