"""Types for scenarios and their options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dev.chaos.report import Outcome


@dataclass(frozen=True)
class Options:
    """Duration of the load in seconds, and number of workers to replace."""

    seconds: float = 10
    restarts: int = 100


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    run: Callable[[Options], Outcome]


def scenario(title: str) -> Callable[[Callable[[Options], Outcome]], Scenario]:
    """Return a decorator that converts a function to a scenario with the function's name."""
    return lambda run: Scenario(run.__name__, title, run)
