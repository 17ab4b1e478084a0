"""The scenarios by name, in the order of a full run."""

from __future__ import annotations

from dev.chaos.scenarios.base import Options, Scenario
from dev.chaos.scenarios.failures import freeze, kill, restarts
from dev.chaos.scenarios.load_limits import deadlines, overload
from dev.chaos.scenarios.replacement import (
    rolling,
    rolling_busy,
    stop_busy_instance,
    stop_one_instance,
)

__all__ = ["SCENARIOS", "Options", "Scenario"]

SCENARIOS = {
    each.name: each
    for each in [
        rolling,
        rolling_busy,
        stop_one_instance,
        stop_busy_instance,
        kill,
        freeze,
        restarts,
        overload,
        deadlines,
    ]
}
