"""The fixtures `helm` and `render`, for every test of deploy/."""

from .helm import run_helm
from .manifests import render

__all__ = ["render", "run_helm"]
