"""The scenarios by name, in the order of a full run."""

from __future__ import annotations

from chaos.scenarios.base import Options, Scenario
from chaos.scenarios.excess import deadlines, overload
from chaos.scenarios.failures import freeze, kill, restarts
from chaos.scenarios.replacement import broken_load, hasty, rolling, rolling_busy, stop_beside, stop_busy
from chaos.scenarios.strangers import bad_clients, slow_clients

__all__ = ["SCENARIOS", "Options", "Scenario"]

SCENARIOS = {
    each.name: each
    for each in [
        rolling,
        rolling_busy,
        hasty,
        stop_beside,
        stop_busy,
        broken_load,
        kill,
        freeze,
        restarts,
        overload,
        deadlines,
        slow_clients,
        bad_clients,
    ]
}
