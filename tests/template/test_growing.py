"""docs/growing.md, and its simulation: what can be known of that holds, and the page tells what it prints."""

from __future__ import annotations

import re
import subprocess
import sys

import grpc
import numpy as np
import pytest
import yaml

from app.config import Settings
from benchmarks.scaling import (
    SIGNALS,
    SYNC_SECONDS,
    Autoscaler,
    Model,
    Outcome,
    Setup,
    Simulation,
    by_sum,
    by_utilisation,
)
from tests.service.processes import gunicorn
from tests.service.wires import Grpc

from .helm import ROOT
from .manifests import CHART

PAGE = (ROOT / "docs" / "growing.md").read_text()
CHART_VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
COMPUTES, WAITS = Model(0.1, 0), Model(0.005, 0.395)
QUIET = Setup(base=5, burst=40)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("model", [COMPUTES, WAITS], ids=["computes", "waits"])
def test_every_request_is_somewhere(model: Model, signal: str) -> None:
    """What was offered was answered or refused, or is inside; no answer is too quick, or later than a full queue's."""
    outcome = Simulation(QUIET, model, signal).run()
    assert outcome.offered == len(QUIET.arrivals())
    assert outcome.offered == outcome.answered + outcome.refused + outcome.inside
    assert outcome.refused > 0
    assert min(outcome.latencies) >= model.seconds - 1e-9
    # in the worst case all that are inside, at the pace of a replica that is full
    rate = QUIET.concurrency * model.pace(QUIET.concurrency, QUIET.cores) / model.seconds
    assert max(outcome.latencies) <= (QUIET.concurrency + QUIET.queue) / rate + 1e-6


@pytest.mark.parametrize(("model", "rate"), [(COMPUTES, 10), (WAITS, 10), (Model(0.05, 0.15), 20)])
def test_replicas_that_are_full_answer_what_they_can(model: Model, rate: float) -> None:
    """Under an overload each replica answers what its processors, or its slots, allow; no more."""
    setup = Setup(base=30, burst=30, low=1)
    outcome = Simulation(setup, model, None).run()
    seconds = setup.profile()[-1][0]
    assert rate * setup.low * seconds * 0.99 < outcome.answered <= rate * setup.low * seconds + 1
    assert outcome.peak() == setup.low


def test_answers_are_as_late_as_theory_says() -> None:
    """A processor that is shared by all, and busy half of the time, takes twice as long as one alone (M/G/1-PS)."""
    outcome = Simulation(Setup(base=5, burst=5, low=1, concurrency=10_000), COMPUTES, None).run()
    assert np.mean(outcome.latencies) == pytest.approx(2 * COMPUTES.seconds, rel=0.05)


def test_requests_come_as_the_profile_says() -> None:
    """Rates are right at rest, in the sudden burst, and half way up the slow one."""
    arrivals, setup = Setup().arrivals(), Setup()
    for begin, end, rate in [
        (0, 300, setup.base),
        (300, 660, setup.burst),
        (1440, 1560, (setup.base + setup.burst) / 2),
    ]:
        expected = rate * (end - begin)
        assert np.sum((arrivals >= begin) & (arrivals < end)) == pytest.approx(expected, abs=4 * expected**0.5)


def test_chance_has_a_seed() -> None:
    """The same seed gives the same outcome, to the last request; another does not."""
    first, again, other = (Simulation(Setup(base=2, burst=20, seed=seed), WAITS, "both").run() for seed in (1, 1, 2))
    assert first == again
    assert isinstance(first, Outcome)
    assert first != other


@pytest.mark.parametrize(
    ("current", "measured", "replicas"),
    [
        (2, [1.0, 1.0], 4),  # twice the target
        (4, [0.25] * 4, 2),  # half of it
        (3, [0.54] * 3, 3),  # within 10 %
        (3, [0.56] * 3, 4),
        (10, [0.55] * 10, 10),  # just within
        (4, [1.0, 1.0, None, None], 4),  # with the two that start there are enough
        (3, [1.0, 1.0, None], 4),  # and here there are not
        (3, [0.25, 0.25, None], 1),  # those that are known would do with one
        (2, [None, None], 2),
    ],
)
def test_utilisation_asks_for_replicas_as_kubernetes_does(current: int, measured: list, replicas: int) -> None:
    """ceil(replicas * utilisation / target), with a tolerance; on the way up replicas that start count as idle."""
    assert by_utilisation(current, 0.5, measured) == replicas


@pytest.mark.parametrize(
    ("current", "total", "replicas"), [(2, 12, 4), (4, 6, 2), (2, 6.5, 2), (2, 6.7, 3), (2, 136, 46), (3, 0, 0)]
)
def test_a_sum_asks_for_replicas_as_kubernetes_does(current: int, total: float, replicas: int) -> None:
    """ceil(sum / target), with a tolerance of 10 %."""
    assert by_sum(current, 3, total) == replicas


def test_the_autoscaler_is_quick_up_and_slow_down() -> None:
    """Up by four or to twice as many in a sync; down when the most that was wanted is five minutes old."""
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
def test_the_charts_policy_goes_up_as_simulated(replicas: int) -> None:
    """autoscaling.behavior allows as many more in a sync as the simulation does."""
    scale_up = CHART_VALUES["autoscaling"]["behavior"]["scaleUp"]
    assert scale_up["stabilizationWindowSeconds"] == 0
    assert {each["periodSeconds"] for each in scale_up["policies"]} == {SYNC_SECONDS}
    allowed = {each["type"]: each["value"] for each in scale_up["policies"]}
    more = max(allowed["Pods"], replicas * allowed["Percent"] // 100)
    assert Autoscaler(1, 1000).decide(0, replicas, 1000) == replicas + more


def test_the_charts_targets_are_the_simulated() -> None:
    """What the chart aims at, and how the page calls it, is what was simulated."""
    assert CHART_VALUES["autoscaling"]["targetCPUUtilizationPercentage"] == 100 * Setup().cpu_target
    assert CHART_VALUES["keda"]["prometheus"]["targetRequestsInFlight"] == Setup().in_flight_target
    intervals = {CHART_VALUES["monitoring"][each]["interval"] for each in ("serviceMonitor", "podMonitor")}
    assert (intervals, Setup().scrape) == ({"15s"}, 30)
    scrapes = f"simulation scrapes metrics every {Setup().scrape} s. The chart's monitors scrape every 15 s"
    assert scrapes in " ".join(PAGE.split())
    for name in re.findall(r"`((?:autoscaling|keda)[\w.]*)`", PAGE):
        value = CHART_VALUES
        for part in name.split("."):
            value = value[part]


def test_fewer_at_most_than_at_least_is_refused() -> None:
    """In one line, before anything is simulated."""
    command = [sys.executable, ROOT / "benchmarks" / "scaling.py", "--low", "8", "--high", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert (done.stdout, done.stderr) == ("", "Error: --low 8 is more than --high 4\n")


def test_the_defaults_are_the_services() -> None:
    """The simulation lets in as many as the service does, and starts from the same targets for both signals."""
    setup = Setup()
    assert (setup.concurrency, setup.queue) == (Settings().max_concurrency, Settings().max_queue_size)
    assert setup.in_flight_target == setup.cpu_target * setup.concurrency


def printed(*options: str) -> str:
    command = [sys.executable, ROOT / "benchmarks" / "scaling.py", *options]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_page_has_what_the_script_prints() -> None:
    """The table of the page is the script's, with nothing said."""
    assert printed() in PAGE


def refused(table: str, signal: str) -> str:
    return re.search(rf"^\| computes \| {signal} \|[^|]*\|[^|]*\| (\S+ %) \|", table, re.MULTILINE).group(1)  # type: ignore[union-attr]


@pytest.mark.parametrize(("options", "cpu", "both"), re.findall(r"\(`(--\S+ \d+)`\) \| (\S+ %) \| (\S+ %) \|", PAGE))
def test_the_page_has_what_other_options_give(options: str, cpu: str, both: str) -> None:
    """What the page says of a longer start, and of more replicas, is what the script prints with those."""
    table = printed(*options.split())
    assert (refused(table, "CPU"), refused(table, "both")) == (cpu, both)


def test_the_page_is_right_about_when() -> None:
    """By CPU nothing is refused on the second burst, by both signals nothing after the first minute or so."""
    by_cpu, by_both = (Simulation(Setup(), COMPUTES, signal).run() for signal in ("CPU", "both"))
    assert by_cpu.seconds[20 * 60][3] == by_cpu.refused
    assert by_both.seconds[5 * 60 + 75][3] == by_both.refused


def test_the_page_quotes_the_benchmarks() -> None:
    """Each figure of the page's benchmarks is in the file that it names."""
    rows = re.findall(r"^\|[^|]*\| ([\d,. ]+) \| `(benchmarks/\S+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for figures, file in rows:
        for figure in figures.split(", "):
            assert f" {figure} " in (ROOT / file).read_text().replace("|", " "), (figure, file)


def test_the_channel_of_the_page_works() -> None:
    """The lines for a channel that knows all addresses make one that is answered."""
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with gunicorn(ROOT, WORKERS=1) as service:
        namespace: dict[str, grpc.Channel] = {}
        assert "dns:///my-service-headless:8081" in block
        exec(block.replace("my-service-headless:8081", service.grpc), namespace)
        with namespace["channel"] as channel:
            assert Grpc(channel).call("ServerReady").ready
