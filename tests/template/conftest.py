"""Fixtures for charts, for new projects, and for the tests of the page in a browser."""

from tests.kit.environments import fast_tools, linked_project

from .baking import bake, out
from .browser import chromium
from .charts import values_file
from .helm import run_helm
from .manifests import render
from .page import all_kinds, columns, serve, visit

__all__ = [
    "all_kinds",
    "bake",
    "chromium",
    "columns",
    "fast_tools",
    "linked_project",
    "out",
    "render",
    "run_helm",
    "serve",
    "values_file",
    "visit",
]
