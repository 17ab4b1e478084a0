"""The simulation of autoscaling: known results hold. docs/growing.md and dev/benchmarks/README.md have its figures."""

from __future__ import annotations

import re
import subprocess
import sys

import grpc
import numpy as np
import pytest
import yaml

from app.config.settings import Settings
from dev.benchmarks.autoscaler import (
    SYNC_SECONDS,
    Autoscaler,
    Model,
    Outcome,
    Setup,
    Simulation,
    by_sum,
    by_utilization,
)
from dev.benchmarks.scaling import SIGNALS
from oip_conformance.wires import Grpc
from tests.kit.processes import gunicorn

from .helm import ROOT
from .manifests import CHART

PAGE = (ROOT / "docs" / "growing.md").read_text()
RESULTS = (ROOT / "dev/benchmarks" / "README.md").read_text()  # of the simulation
# Results with other options: the options, and the shares of rejected requests by CPU and by both signals.
VARIANTS = re.findall(r"\(`(--\S+ \d+)`\) \| (\S+ %) \| (\S+ %) \|", RESULTS)
CHART_VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
COMPUTES, WAITS = Model(0.1, 0), Model(0.005, 0.395)
QUIET = Setup(base=5, burst=40)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("model", [COMPUTES, WAITS], ids=["computes", "waits"])
def test_every_request_is_counted(model: Model, signal: str) -> None:
    """Each offered request is served, rejected or in flight, and latencies stay within the theoretical limits."""
    outcome = Simulation(QUIET, model, signal).run()
    assert outcome.offered == len(QUIET.arrivals())
    assert outcome.offered == outcome.succeeded + outcome.rejected + outcome.inside
    assert outcome.rejected > 0
    assert min(outcome.latencies) >= model.seconds - 1e-9
    # worst case: a full replica that processes all its requests at the slowest rate
    rate = QUIET.concurrency * model.pace(QUIET.concurrency, QUIET.cores) / model.seconds
    assert max(outcome.latencies) <= (QUIET.concurrency + QUIET.queue) / rate + 1e-6


@pytest.mark.parametrize(("model", "rate"), [(COMPUTES, 10), (WAITS, 10), (Model(0.05, 0.15), 20)])
def test_full_replicas_serve_at_capacity(model: Model, rate: float) -> None:
    """Under overload, each replica serves at the rate that its cores or slots allow."""
    setup = Setup(base=30, burst=30, low=1)
    outcome = Simulation(setup, model, None).run()
    seconds = setup.profile()[-1][0]
    assert rate * setup.low * seconds * 0.99 < outcome.succeeded <= rate * setup.low * seconds + 1
    assert outcome.peak() == setup.low


def test_latencies_match_queueing_theory() -> None:
    """At 50 % load, a processor-sharing server takes twice the service time on average (M/G/1-PS)."""
    outcome = Simulation(Setup(base=5, burst=5, low=1, concurrency=10_000), COMPUTES, None).run()
    assert np.mean(outcome.latencies) == pytest.approx(2 * COMPUTES.seconds, rel=0.05)


def test_arrivals_follow_profile() -> None:
    """The arrival rates match the profile at the base rate, in the sudden burst and halfway up the slow one."""
    arrivals, setup = Setup().arrivals(), Setup()
    for begin, end, rate in [
        (0, 300, setup.base),
        (300, 660, setup.burst),
        (1440, 1560, (setup.base + setup.burst) / 2),
    ]:
        expected = rate * (end - begin)
        assert np.sum((arrivals >= begin) & (arrivals < end)) == pytest.approx(
            expected, abs=4 * expected**0.5
        )


def test_seed_determines_outcome() -> None:
    """The same seed gives exactly the same outcome, and a different seed does not."""
    first, again, other = (
        Simulation(Setup(base=2, burst=20, seed=seed), WAITS, "both").run() for seed in (1, 1, 2)
    )
    assert first == again
    assert isinstance(first, Outcome)
    assert first != other


@pytest.mark.parametrize(
    ("current", "measured", "replicas"),
    [
        (2, [1.0, 1.0], 4),  # twice the target
        (4, [0.25] * 4, 2),  # half the target
        (3, [0.54] * 3, 3),  # within 10 %
        (3, [0.56] * 3, 4),
        (10, [0.55] * 10, 10),  # just within 10 %
        (4, [1.0, 1.0, None, None], 4),  # with the two starting replicas there are enough
        (3, [1.0, 1.0, None], 4),  # with the starting replica there are not enough
        (3, [0.25, 0.25, None], 1),  # one is enough for the known load
        (2, [None, None], 2),
    ],
)
def test_utilization_scales_like_kubernetes(current: int, measured: list, replicas: int) -> None:
    """Replicas are ceil(replicas * utilization / target), with a tolerance.

    When scaling up, starting replicas count as idle.
    """
    assert by_utilization(current, 0.5, measured) == replicas


@pytest.mark.parametrize(
    ("current", "total", "replicas"),
    [(2, 12, 4), (4, 6, 2), (2, 6.5, 2), (2, 6.7, 3), (2, 136, 46), (3, 0, 0)],
)
def test_sum_scales_like_kubernetes(current: int, total: float, replicas: int) -> None:
    """Replicas are ceil(sum / target), with a tolerance of 10 %."""
    assert by_sum(current, 3, total) == replicas


def test_autoscaler_scales_up_fast_and_down_slowly() -> None:
    """Each sync adds up to four replicas or doubles them. Scaling down uses the maximum of the last five minutes."""
    autoscaler, replicas, steps = Autoscaler(2, 20), 2, []
    for now, wanted in [
        (0, 46),
        (15, 46),
        (30, 46),
        (45, 5),
        (60, 7),
        (315, 3),
        (330, 3),
        (345, 3),
        (360, 3),
        (375, 0),
    ]:
        replicas = autoscaler.decide(now, replicas, wanted)
        steps.append(replicas)
    assert steps == [6, 12, 20, 20, 20, 20, 7, 7, 3, 3]
    assert Autoscaler(2, 20).decide(0, 3, 0) == 2


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 5, 20])
def test_chart_policy_matches_simulation(replicas: int) -> None:
    """The chart's autoscaling.behavior allows the same increase per sync as the simulation."""
    scale_up = CHART_VALUES["autoscaling"]["behavior"]["scaleUp"]
    assert scale_up["stabilizationWindowSeconds"] == 0
    assert {each["periodSeconds"] for each in scale_up["policies"]} == {SYNC_SECONDS}
    allowed = {each["type"]: each["value"] for each in scale_up["policies"]}
    more = max(allowed["Pods"], replicas * allowed["Percent"] // 100)
    assert Autoscaler(1, 1000).decide(0, replicas, 1000) == replicas + more


def test_chart_targets_match_simulation() -> None:
    """The chart's targets match the simulation, and the chart has the values that the page names."""
    assert CHART_VALUES["autoscaling"]["targetCPUUtilizationPercentage"] == 100 * Setup().cpu_target
    assert CHART_VALUES["keda"]["prometheus"]["targetRequestsInFlight"] == Setup().in_flight_target
    intervals = {
        CHART_VALUES["monitoring"][each]["interval"] for each in ("serviceMonitor", "podMonitor")
    }
    assert (intervals, Setup().scrape) == ({"15s"}, 30)
    scrapes = f"simulation scrapes metrics every {Setup().scrape} s. The chart's monitors scrape every 15 s"
    assert scrapes in " ".join(RESULTS.split())
    for name in re.findall(r"`((?:autoscaling|keda)[\w.]*)`", PAGE):
        value = CHART_VALUES
        for part in name.split("."):
            value = value[part]


def test_rejects_low_above_high() -> None:
    """If --low exceeds --high, the script fails with one line before it simulates anything."""
    command = [sys.executable, "-m", "dev.benchmarks.scaling", "--low", "8", "--high", "4"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", "Error: --low 8 is more than --high 4\n")


def test_defaults_match_service() -> None:
    """The simulation's concurrency, queue and targets equal the service's defaults."""
    setup = Setup()
    assert (setup.concurrency, setup.queue) == (
        Settings().max_concurrency,
        Settings().max_queue_size,
    )
    assert setup.in_flight_target == setup.cpu_target * setup.concurrency


def run_simulation(*options: str) -> str:
    command = [sys.executable, "-m", "dev.benchmarks.scaling", *options]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def test_results_contain_script_output() -> None:
    """The table in dev/benchmarks/README.md is the script's output without options."""
    assert run_simulation() in RESULTS


def rejected_share(table: str, signal: str) -> str:
    return re.search(
        rf"^\| computes \| {signal} \|[^|]*\|[^|]*\| (\S+ %) \|", table, re.MULTILINE
    ).group(1)  # type: ignore[union-attr]


def test_results_have_other_options() -> None:
    """dev/benchmarks/README.md has figures for a longer startup and for more replicas."""
    assert [options.split()[0] for options, _, _ in VARIANTS] == ["--startup", "--low"]


@pytest.mark.parametrize(("options", "cpu", "both"), VARIANTS)
def test_results_of_other_options_match_script(options: str, cpu: str, both: str) -> None:
    """The figures for other options in dev/benchmarks/README.md match the script's output with these options."""
    table = run_simulation(*options.split())
    assert (rejected_share(table, "CPU"), rejected_share(table, "both")) == (cpu, both)


def test_page_describes_when_requests_are_rejected() -> None:
    """By CPU, nothing is rejected in the second burst.

    By both signals, nothing is rejected after 75 seconds of the first.
    """
    by_cpu, by_both = (Simulation(Setup(), COMPUTES, signal).run() for signal in ("CPU", "both"))
    assert by_cpu.seconds[20 * 60][3] == by_cpu.rejected
    assert by_both.seconds[5 * 60 + 75][3] == by_both.rejected


def test_page_quotes_benchmarks() -> None:
    """Each benchmark figure on the page is in the file that the page names."""
    rows = re.findall(r"^\|[^|]*\| ([\d,.]+) \| `(dev/benchmarks/\S+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 9
    for figure, file in rows:
        assert f" {figure} " in (ROOT / file).read_text().replace("|", " "), (figure, file)


def test_channel_example_works() -> None:
    """The page's example of a channel to all addresses connects to the service."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with gunicorn(ROOT, WORKERS=1) as service:
        namespace: dict[str, grpc.Channel] = {}
        assert "dns:///my-service-headless:8081" in block
        exec(block.replace("my-service-headless:8081", service.grpc), namespace)
        with namespace["channel"] as channel:
            assert Grpc(channel).call("ServerReady").ready
