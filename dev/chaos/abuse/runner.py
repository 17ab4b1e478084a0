"""Run one attack against a service of its own, and check the limits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import trustme

from dev.chaos.abuse.attacks import KEY, Attack, Attacker, Target
from dev.chaos.abuse.limits import (
    GIVE_BACK_SECONDS,
    GOOD_P99_SECONDS,
    KEPT_MIB,
    LATER_SECONDS,
    MAX_FAILED_SHARE,
    MAX_LOG_MIB,
    MAX_WORKER_MIB,
)
from dev.chaos.abuse.probes import ProbeTally, probing
from dev.chaos.abuse.watch import MemoryWatch
from dev.chaos.load import Tally, load
from dev.chaos.report import Outcome
from dev.chaos.service import MIB, ROOT
from tests.kit.processes import Running, gunicorn, resident, workers

APP = "dev.chaos.abuse.models:echo()"
# Good clients for each protocol, and the requests that they send per second in total.
GOOD_CLIENTS = 2
GOOD_RATE = 20
# The good clients are served for this time before the memory is measured.
WARM_UP_SECONDS = 2
POLL_SECONDS = 0.05
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Measures:
    """The figures of an attack. Memory is that of the worker, in MiB.

    idle: before the attack
    peak, later: the peak, and 10 s after the attack, both above the idle memory
    limit: the limit for `peak`, or None
    give_back_seconds: the time after the attack until the memory was given back
    cpu_seconds: that of the worker during the attack
    details: what the attacker did
    """

    attacker: str
    limit: float | None
    idle: float = 0
    peak: float = 0
    later: float = 0
    give_back_seconds: float = 0
    seconds: float = 0
    cpu_seconds: float = 0
    log_kib: float = 0
    probes: int = 0
    slowest_probe: float = 0
    details: dict[str, Any] = field(default_factory=dict)


def run(attack: Attack, seconds: float) -> Outcome:
    """Run an attack that lasts `seconds`, unless it has an end of its own."""
    outcome = Outcome()
    measures = Measures(attack.attacker.value, attack.limit_mib)
    is_tls = attack.attacker is Attacker.TLS
    with serving(is_tls=is_tls) as service, probing(service, is_tls=is_tls) as probes:
        (worker,) = workers(service)
        target = Target(service, seconds)
        with MemoryWatch(worker, MAX_WORKER_MIB * MIB, target.stop) as watch:
            with ExitStack() as stack:
                if not is_tls:
                    # Not over TLS, which these clients do not use.
                    clients = load([service], clients=GOOD_CLIENTS, rate=GOOD_RATE, key=KEY)
                    outcome.tallies = stack.enter_context(clients)
                time.sleep(WARM_UP_SECONDS)
                measure(attack, target, worker, measures)
            # A request whose client has gone can still occupy memory.
            is_given_back = wait_for_memory(worker, measures)
        measures.peak = watch.peak / MIB - measures.idle
        if watch.was_killed:
            outcome.check(False, f"the worker was killed at {MAX_WORKER_MIB} MiB")
        elif attack.limit_mib is not None:
            fault = f"{measures.later:.0f} MiB were not given back"
            outcome.check(is_given_back, fault)
        outcome.check(workers(service) == {worker}, "the worker was replaced")

    measures.probes = probes.probes
    measures.slowest_probe = probes.slowest
    outcome.figures = asdict(measures)
    check_limits(outcome, measures)
    check_others(outcome, probes, outcome.tallies)
    return outcome


@contextmanager
def serving(*, is_tls: bool) -> Iterator[Running]:
    """Start a service with API keys and one worker."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        keys = folder / "keys.txt"
        keys.write_text(KEY + "\n")
        settings: dict[str, Any] = {"API_KEYS_FILE": keys}
        if is_tls:
            settings |= certificate(folder)
        with gunicorn(ROOT, APP, is_ready=is_worker_ready, **settings) as service:
            yield service


def certificate(folder: Path) -> dict[str, Path]:
    """Write a certificate and its private key, and return the settings for them."""
    issued = trustme.CA().issue_cert("127.0.0.1")
    cert = folder / "tls.crt"
    key = folder / "tls.key"
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    return {"TLS_CERT_FILE": cert, "TLS_KEY_FILE": key}


def is_worker_ready(service: Running) -> bool:
    """Return whether the worker has logged that it is ready. Its port may need TLS."""
    return service.ready_count() >= 1


def measure(attack: Attack, target: Target, worker: int, measures: Measures) -> None:
    """Run the attack and fill in its measures, except for the memory after its start."""
    output = target.service.output
    idle_bytes = resident(worker)
    log_bytes = output.stat().st_size
    cpu_seconds = cpu_time(worker)
    target.start()
    attack.run(target)

    measures.seconds = time.monotonic() - target.started_at
    measures.idle = idle_bytes / MIB
    measures.log_kib = (output.stat().st_size - log_bytes) / 1024
    measures.details = target.figures
    if not target.is_stopped:
        measures.cpu_seconds = cpu_time(worker) - cpu_seconds


def cpu_time(pid: int) -> float:
    """Return the CPU time that the process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime and stime, fields 14 and 15 of proc(5). The name of the process is field 2.
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def wait_for_memory(worker: int, measures: Measures) -> bool:
    """Wait until the worker has given its memory back. Return False if it does not in time."""
    end = time.monotonic()
    is_given_back = False
    while True:
        seconds = time.monotonic() - end
        if not resident(worker):
            return False  # it was killed
        above_idle = resident(worker) / MIB - measures.idle
        if above_idle <= KEPT_MIB and not is_given_back:
            is_given_back = True
            measures.give_back_seconds = seconds
        if seconds <= LATER_SECONDS:
            measures.later = above_idle
        elif is_given_back or seconds > GIVE_BACK_SECONDS:
            return is_given_back
        time.sleep(POLL_SECONDS)


def check_limits(outcome: Outcome, measures: Measures) -> None:
    """Check the memory and the log of the service."""
    if measures.limit is not None:
        fault = f"the peak is {measures.peak:.0f} MiB, the limit {measures.limit:.0f}"
        outcome.check(measures.peak <= measures.limit, fault)
    log_mib = measures.log_kib / 1024
    outcome.check(log_mib <= MAX_LOG_MIB, f"{log_mib:.1f} MiB of log")


def check_others(outcome: Outcome, probes: ProbeTally, tallies: dict[str, Tally]) -> None:
    """Check that the attack has not disturbed the probes and the good clients."""
    outcome.check(probes.probes > 0, "no probe was sent")
    if probes.failures:
        outcome.check(False, f"{len(probes.failures)} probes failed, first {probes.failures[0]}")
    for protocol, tally in tallies.items():
        failed = tally.sent - tally.succeeded
        outcome.check(tally.succeeded > 0, f"{protocol}: no request succeeded")
        outcome.check(
            failed <= MAX_FAILED_SHARE * tally.sent,
            f"{protocol}: {tally.rejected} rejected, {tally.losses} lost {tally.lost}",
        )
        outcome.check(
            tally.p99 < GOOD_P99_SECONDS, f"{protocol}: p99 of good clients {tally.p99:.2f} s"
        )
