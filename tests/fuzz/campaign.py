"""Rounds in several processes that generate and send requests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.fuzz.requests import KINDS
from tests.fuzz.rounds import Result, run_round

ROUND = 400


def play(
    requests: int, clients: int, seed: int, http_port: int, grpc_port: int
) -> Iterator[Result]:
    """Run rounds with a total of `requests`. Yield their results in order of completion."""
    # grpcio does not support forks
    pool = ProcessPoolExecutor(clients, get_context("spawn"))
    try:
        rounds = [
            pool.submit(run_round, *each, http_port, grpc_port) for each in plan(requests, seed)
        ]
        for done in as_completed(rounds):
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def plan(requests: int, seed: int) -> list[tuple[str, int, int]]:
    """Return the rounds in random order, with their kind, seed and number of requests."""
    chance, total = random.Random(seed), sum(share for _, share in KINDS.values())
    rounds = []
    for kind, (_, share) in KINDS.items():
        left = -(-requests * share // total)
        while left > 0:
            rounds.append((kind, chance.randrange(2**32), min(ROUND, left)))
            left -= ROUND
    chance.shuffle(rounds)
    return rounds
