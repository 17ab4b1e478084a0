"""Types for attacks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from dev.chaos.abuse.limits import MAX_ATTACK_SECONDS, WITHOUT_KEY_MIB
from dev.chaos.abuse.swarm import Swarm
from tests.kit.processes import Running

KEY = "key-of-the-good-clients"


class Attacker(Enum):
    """The credentials of an attacker, as in the tables."""

    NO_KEY = "no key"
    KEY = "a key"
    TLS = "no key, TLS"


@dataclass
class Target:
    """The service, and the figures of an attack.

    seconds: how long an attack lasts that has no end of its own
    figures: for the table, filled in by the attack
    """

    service: Running
    seconds: float
    figures: dict[str, Any] = field(default_factory=dict)
    started_at: float = 0
    is_stopped: bool = False

    def start(self) -> None:
        """Start the time of the attack."""
        self.started_at = time.monotonic()

    def stop(self) -> None:
        """End the attack, because the worker was killed. Any thread can call this method."""
        self.is_stopped = True

    def run(self, swarm: Swarm) -> None:
        """Let the swarm attack until the attack is over, and report what it has done."""
        swarm.run(self.end, lambda: self.is_stopped)
        self.figures["connections"] = f"{swarm.counts.opened:,}"
        self.figures["closed by the service"] = f"{swarm.counts.closed_by_service:,}"
        self.figures["sent, KiB"] = f"{swarm.counts.bytes_sent / 1024:,.0f}"

    @property
    def end(self) -> float:
        """The time at which the attack ends, of the monotonic clock."""
        return self.started_at + min(self.seconds, MAX_ATTACK_SECONDS)

    @property
    def last_end(self) -> float:
        """The time at which an attack ends that still waits for the service."""
        return self.started_at + MAX_ATTACK_SECONDS

    @property
    def must_end(self) -> bool:
        return self.is_stopped or time.monotonic() >= self.last_end


@dataclass(frozen=True)
class Attack:
    """An attack with the memory that it may occupy, in MiB, or None for no limit."""

    name: str
    title: str
    run: Callable[[Target], None]
    attacker: Attacker
    limit_mib: float | None


ATTACKS: dict[str, Attack] = {}


def add_attack(
    title: str, *, attacker: Attacker, limit_mib: float | None
) -> Callable[[Callable[[Target], None]], Callable[[Target], None]]:
    """Return a decorator that adds a function to ATTACKS under the function's name."""

    def add(run: Callable[[Target], None]) -> Callable[[Target], None]:
        ATTACKS[run.__name__] = Attack(run.__name__, title, run, attacker, limit_mib)
        return run

    return add


without_key = partial(add_attack, attacker=Attacker.NO_KEY, limit_mib=WITHOUT_KEY_MIB)
over_tls = partial(add_attack, attacker=Attacker.TLS, limit_mib=None)
with_key = partial(add_attack, attacker=Attacker.KEY)
