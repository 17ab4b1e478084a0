"""What a scenario is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chaos.report import Outcome


@dataclass(frozen=True)
class Options:
    """How long a load lasts, in seconds, and how many workers are replaced."""

    seconds: float = 10
    restarts: int = 100


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    run: Callable[[Options], Outcome]


def scenario(title: str) -> Callable[[Callable[[Options], Outcome]], Scenario]:
    """Makes a scenario of the function, by its name."""
    return lambda run: Scenario(run.__name__, title, run)
