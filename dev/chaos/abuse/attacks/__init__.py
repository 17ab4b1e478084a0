"""The attacks by name, in the order of a full run."""

from __future__ import annotations

# Each module adds its attacks to ATTACKS when it is imported.
from dev.chaos.abuse.attacks import rest_without_key  # isort: skip
from dev.chaos.abuse.attacks import grpc_without_key  # isort: skip
from dev.chaos.abuse.attacks import partial_tls  # isort: skip
from dev.chaos.abuse.attacks import requests_with_key  # isort: skip
from dev.chaos.abuse.attacks.base import ATTACKS, KEY, Attack, Attacker, Target

__all__ = [
    "ATTACKS",
    "KEY",
    "Attack",
    "Attacker",
    "Target",
    "grpc_without_key",
    "partial_tls",
    "requests_with_key",
    "rest_without_key",
]
