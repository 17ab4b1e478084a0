"""The attacks: a short run, their attackers, their limits, and the results on the pages."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from dev.chaos.abuse.attacks import ATTACKS
from dev.chaos.abuse.attacks.grpc_without_key import INFER, LIVE
from dev.chaos.abuse.attacks.rest_without_key import head
from dev.chaos.abuse.http2 import Budget, Caller, CallPlan, HeaderBlocks, message
from dev.chaos.abuse.limits import FACTORS
from dev.chaos.abuse.probes import ProbeTally
from dev.chaos.abuse.report import PAGE, RELIABILITY, RESULTS, short_table, table
from dev.chaos.abuse.runner import Measures, check_limits, check_others
from dev.chaos.abuse.swarm import Peer, Repeater, Swarm
from dev.chaos.abuse.watch import MemoryWatch
from dev.chaos.load import Tally
from dev.chaos.report import Outcome, quoted, row
from tests.kit.environments import ROOT, run
from tests.kit.processes import Running, gunicorn, wait_for

PATIENCE = 30
GROWING = ROOT / "docs" / "growing.md"
EATER = "import sys\ndata = bytearray(2**28)\nprint(flush=True)\nsys.stdin.read()"
GOOD = Tally(succeeded=100, p99=0.1)


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    with gunicorn(ROOT, "dev.chaos.abuse.models:echo()") as running:
        yield running


@pytest.mark.slow
def test_short_run_passes() -> None:
    """A short run of two attacks passes."""
    output = run(
        sys.executable,
        "-m",
        "dev.chaos.abuse",
        "announced_bodies",
        "one_digit_numbers",
        "--seconds",
        "2",
        PYTHONPATH=str(ROOT),
    )
    assert output.count("\n  held\n") == 2
    assert "NOT" not in output


def test_every_attack_is_described() -> None:
    """Each attack has a title of its own, and a docstring of one sentence."""
    titles = {attack.title for attack in ATTACKS.values()}
    assert len(titles) == len(ATTACKS)
    for attack in ATTACKS.values():
        description = attack.run.__doc__ or ""
        assert description.endswith(".")
        assert description.count(". ") == 0, description


def test_rest_attackers_count_connections(service: Running) -> None:
    """A swarm opens all connections, receives responses, and counts those that were closed."""
    request = head(line=b"GET /v2/health/live HTTP/1.1")
    invalid_request = b"invalid\r\n\r\n"
    with Swarm(service.http_port, 20, lambda: Repeater(request)) as swarm:
        deadline = time.monotonic() + PATIENCE
        swarm.run(deadline, lambda: swarm.counts.bytes_sent >= 100 * len(request))
        assert swarm.counts.opened == 20
        assert swarm.counts.closed_by_service == 0
        assert swarm.counts.bytes_received > 0

    with Swarm(service.http_port, 20, lambda: Peer(invalid_request)) as swarm:
        swarm.run(deadline, lambda: swarm.is_closed_by_service)
        assert swarm.counts.closed_by_service == 20


@contextmanager
def silent_server() -> Iterator[int]:
    """Yield the port of a server that accepts connections, and does nothing else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted = []

        def accept() -> None:
            for _ in range(5):
                accepted.append(listener.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()
        for connection in accepted:
            connection.close()


def test_swarm_closes_and_opens_connections() -> None:
    """A swarm keeps the newest connections, and opens others instead of the closed ones."""
    deadline = time.monotonic() + PATIENCE
    with silent_server() as port, Swarm(port, 3, lambda: Peer(b"a")) as swarm:
        swarm.run(deadline, lambda: swarm.has_sent_everything)
        swarm.close_all_but(1)
        swarm.open_again(2)
        swarm.run(deadline, lambda: swarm.has_sent_everything)
        assert swarm.counts.opened == 5
        assert swarm.counts.bytes_sent == 5


@pytest.mark.parametrize("path", [LIVE, INFER])
def test_grpc_attackers_complete_calls(service: Running, path: str) -> None:
    """The service responds to more complete calls than a connection can have at the same time."""
    budget = Budget(2500)
    plan = CallPlan(HeaderBlocks(path, (b"x", b"y" * 300)), message(b""), ends=True)
    with Swarm(service.grpc_port, 1, lambda: Caller(plan, budget)) as swarm:
        swarm.run(time.monotonic() + PATIENCE, lambda: budget.ended == 2500)
        assert budget.ended == 2500
        assert swarm.counts.opened == 1
        assert swarm.counts.closed_by_service == 0


def test_grpc_attackers_obey_flow_control(service: Running) -> None:
    """A message that is larger than the window arrives, and the connection stays open."""
    budget = Budget(2)
    plan = CallPlan(HeaderBlocks(INFER), message(bytes(2**22)), ends=True)
    with Swarm(service.grpc_port, 1, lambda: Caller(plan, budget)) as swarm:
        swarm.run(time.monotonic() + PATIENCE, lambda: budget.ended == 2)
        assert budget.ended == 2
        assert swarm.counts.bytes_sent > 2 * 2**22
        assert swarm.counts.closed_by_service == 0


def test_watch_kills_large_processes() -> None:
    """A process that exceeds the limit is killed. The peak contains its memory."""
    with subprocess.Popen(
        [sys.executable, "-c", EATER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with MemoryWatch(process.pid, 2**30) as watch:
            assert watch.peak > 2**28
            assert not watch.was_killed
        with MemoryWatch(process.pid, 2**27) as watch:
            wait_for(lambda: process.poll() is not None)
        assert watch.was_killed


@pytest.mark.parametrize(
    ("measures", "tally", "probes", "fault"),
    [
        (Measures("no key", 128, peak=100), GOOD, ProbeTally(9), ""),
        (Measures("no key", None, peak=1000), GOOD, ProbeTally(9), ""),
        (Measures("no key", 128, peak=200), GOOD, ProbeTally(9), "peak"),
        (Measures("no key", 128, log_kib=40_000), GOOD, ProbeTally(9), "log"),
        (Measures("no key", 128), Tally(succeeded=9, p99=2), ProbeTally(9), "p99"),
        (Measures("no key", 128), Tally(succeeded=9, rejected=1), ProbeTally(9), "rejected"),
        (Measures("no key", 128), Tally(), ProbeTally(9), "no request"),
        (Measures("no key", 128), GOOD, ProbeTally(9, 3, ["readiness"]), "readiness"),
        (Measures("no key", 128), GOOD, ProbeTally(0), "no probe"),
    ],
)
def test_exceeded_limit_fails(
    measures: Measures, tally: Tally, probes: ProbeTally, fault: str
) -> None:
    """An attack fails if it exceeds a limit, and the tables show it."""
    outcome = Outcome({"rest": tally}, asdict(measures))
    check_limits(outcome, measures)
    check_others(outcome, probes, outcome.tallies)
    assert bool(outcome.faults) == bool(fault)
    assert fault in " ".join(outcome.faults)
    passed = "no" if fault else "yes"
    assert f"| x | no key | {passed} |" in table([row("x", "x", 1, outcome)])


def test_attack_that_raises_is_in_the_tables() -> None:
    """An attack that ended with an exception has no figures, and has failed."""
    rows = [row("x", "x", 1, Outcome(faults=["OSError"]))]
    assert "| x |  | no |" in table(rows)
    assert "| x |" in short_table(rows)


def test_factors_are_those_of_the_page() -> None:
    """The factors for requests of clients with a key are on the page about scaling."""
    section = GROWING.read_text().partition("\n### Memory\n")[2].partition("\n## ")[0]
    numbers = {int(number) for number in re.findall(r"\d+", section)}
    assert set(FACTORS.values()) <= numbers


def test_pages_contain_results() -> None:
    """The tables of the README, of docs/reliability.md and of results.md match results.json."""
    rows = json.loads((RESULTS / "results.json").read_text())["rows"]
    assert [row["name"] for row in rows] == list(ATTACKS)
    assert quoted(PAGE.read_text()) == table(rows)
    assert quoted(RELIABILITY.read_text()) == short_table(rows)
    assert table(rows) in (RESULTS / "results.md").read_text()
