"""The files of metrics, over a thousand processes that come and go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.errors import ConfigurationError
from app.metricfiles import VARIABLE, open_folder

ROOT = Path(__file__).parents[3]

# A master whose workers each count, most of them killed at it, while a process reads all the time.
RESTARTS = """
import json, os, signal, sys, time
from app.metricfiles import files_to_merge, free_slot, open_folder, take_slot, use_slots
place = open_folder(2)
use_slots()
from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
done, more, live = Counter("done", "x"), Counter("more", "x", ["n"]), Gauge("live", "x", multiprocess_mode="livesum")
sizes = Histogram("size", "x", buckets=[1, 2])

def read():
    metrics = MultiProcessCollector.merge(files_to_merge(place))
    return {s.name + str(s.labels): s.value for m in metrics for s in m.samples}

def work(number, ready, slot):
    take_slot(slot)
    live.set(1)
    sizes.observe(number % 3)
    done.inc()
    os.write(ready, b".")
    while number % 2:
        more.labels(str(number % 10)).inc()
    os._exit(0)

def watch(master):
    last = -1
    while os.getppid() == master:
        now = read().get("done_total{}", 0)
        if now < last or now > last + 100 > 99:
            os.write(2, b"%d after %d" % (now, last))
            os._exit(1)
        last = now
        time.sleep(0.01)
    os._exit(0)

master = os.getpid()
watcher = os.fork() or watch(master)
most_files, old = 0, ""
for number in range(int(sys.argv[1])):
    beginning, ready = os.pipe()
    slot = free_slot([old])
    worker = os.fork() or work(number, ready, slot)
    os.read(beginning, 1)
    if number % 2:
        os.kill(worker, signal.SIGKILL)
    os.close(beginning), os.close(ready)
    os.waitpid(worker, 0)
    mark_process_dead(slot)
    old = slot
    most_files = max(most_files, len(list(place.iterdir())))
watching = os.waitpid(watcher, os.WNOHANG)
os.kill(watcher, signal.SIGKILL)
print(json.dumps([str(place), watching == (0, 0), most_files, {k: v for k, v in read().items() if "more" not in k}]))
"""


def run(script: str, *arguments: str, **environment: str) -> str:
    command = [sys.executable, "-c", script, *arguments]
    clean = {name: value for name, value in os.environ.items() if name != VARIABLE}
    done = subprocess.run(
        command, cwd=ROOT, env={**clean, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def test_a_thousand_workers() -> None:
    """The counts of a thousand workers add up exactly, and always, in the files of a few. The directory is removed."""
    folder, watched, most_files, values = json.loads(run(RESTARTS, "1000"))
    assert watched
    assert most_files < 12
    assert values["done_total{}"] == values["size_count{}"] == 1000
    assert [values[f"size_bucket{{'le': '{le}'}}"] for le in ("1.0", "2.0", "+Inf")] == [667, 1000, 1000]
    assert "live{}" not in values or values["live{}"] == 0
    assert not Path(folder).exists()


CHILD = """
import os
from app.metricfiles import files_to_merge, open_folder, take_slot, use_slots
place = open_folder(1)
use_slots()
from prometheus_client import Counter
from prometheus_client.multiprocess import MultiProcessCollector
take_slot("w1")
done = Counter("done", "x")
done.inc(5)
if not os.fork():
    done.inc(10)
    os._exit(0)
os.wait()
done.inc(1)
samples = [sample for metric in MultiProcessCollector.merge(files_to_merge(place)) for sample in metric.samples]
print([sample.value for sample in samples if sample.name == "done_total"])
"""


def test_process_that_predict_forks() -> None:
    """A process that predict() forks counts in a file of its own."""
    assert run(CHILD) == "[16.0]\n"


DAEMON = """
import os
from app.metricfiles import close_folder, open_folder
place = open_folder(1)
if os.fork():
    os._exit(0)
print(place, place.is_dir(), flush=True)
close_folder(os.getpid())
"""


def test_a_daemon_takes_its_folder_along() -> None:
    """gunicorn's --daemon is a fork of the process that made the folder; gunicorn says when it ends."""
    folder, was_there = run(DAEMON).split()
    assert was_there == "True"
    assert not Path(folder).exists()


def test_a_folder_of_the_users_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROMETHEUS_MULTIPROC_DIR is used, made where it is not there, and stays; what cannot be one is told."""
    place = tmp_path / "metrics"
    monkeypatch.setenv(VARIABLE, str(place))
    assert open_folder(1) == place
    assert place.is_dir()
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match=VARIABLE):
        open_folder(1)
