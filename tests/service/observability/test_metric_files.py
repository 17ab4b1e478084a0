"""The metric files of a thousand worker processes that start and exit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.observability.metric_files import VARIABLE, create_directory
from app.protocol.errors import ConfigurationError

ROOT = Path(__file__).parents[3]

# A master process starts workers that count, and kills half of them. Another process reads the metrics continuously.
RESTARTS = """
import json, os, signal, sys, time
from app.observability.metric_files import files_to_merge, find_free_slot, create_directory, take_slot, use_slots
place = create_directory(2)
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
    slot = find_free_slot([old])
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
        command,
        cwd=ROOT,
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def test_counts_of_a_thousand_workers() -> None:
    """The counts of a thousand workers always add up in a few files, which are removed with their directory."""
    folder, watched, most_files, values = json.loads(run(RESTARTS, "1000"))
    assert watched
    assert most_files < 12
    assert values["done_total{}"] == values["size_count{}"] == 1000
    assert [values[f"size_bucket{{'le': '{le}'}}"] for le in ("1.0", "2.0", "+Inf")] == [
        667,
        1000,
        1000,
    ]
    assert "live{}" not in values or values["live{}"] == 0
    assert not Path(folder).exists()


CHILD = """
import os
from app.observability.metric_files import files_to_merge, create_directory, take_slot, use_slots
place = create_directory(1)
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


def test_forked_process_has_its_own_file() -> None:
    """A process that predict() forks counts in its own file."""
    assert run(CHILD) == "[16.0]\n"


DAEMON = """
import os
from app.observability.metric_files import remove_directory, create_directory
place = create_directory(1)
if os.fork():
    os._exit(0)
print(place, place.is_dir(), flush=True)
remove_directory(os.getpid())
"""


def test_daemon_removes_its_directory() -> None:
    """With gunicorn's --daemon, the forked process removes the directory when it exits, and its parent does not."""
    folder, was_there = run(DAEMON).split()
    assert was_there == "True"
    assert not Path(folder).exists()


def test_uses_prometheus_multiproc_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROMETHEUS_MULTIPROC_DIR is created if it does not exist and is kept. An invalid path is an error."""
    place = tmp_path / "metrics"
    monkeypatch.setenv(VARIABLE, str(place))
    assert create_directory(1) == place
    assert place.is_dir()
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match=VARIABLE):
        create_directory(1)


def test_too_little_shared_memory() -> None:
    """If /dev/shm has no room for the files, they are elsewhere, and the log has a warning."""
    code = "from app.observability import metric_files; print(metric_files.create_directory(2**40))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert not done.stdout.startswith("/dev/shm/")
    assert done.stderr.startswith(
        "/dev/shm: too small for the metrics, which are on the disk instead. "
        f"Expected more than {2**40} MiB of free space, got "
    )
