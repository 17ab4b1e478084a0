"""Metrics of workers that end, and the directory of their files."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import threading
from pathlib import Path

from tests.kit.processes import Running, gunicorn, wait_for, workers
from tests.kit.scrapes import Scrape, assert_grew, scrape
from tests.service.observability.metric_requests import (
    ROOT,
    assert_histogram,
    rest,
    rpc,
    settled,
    statistics,
)


class Scraper:
    """A thread that scrapes continuously."""

    def __init__(self, service: Running):
        self.service, self.scrapes, self.stopping = service, [scrape(service)], threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.scrapes.append(scrape(self.service))
            except (OSError, http.client.HTTPException):  # the worker was killed
                continue

    def stop(self) -> list[Scrape]:
        self.stopping.set()
        self.thread.join()
        return self.scrapes


def test_counts_survive_their_workers() -> None:
    """T3: the counts of killed or replaced workers are kept, no counter decreases, and no files are left over."""
    with gunicorn(ROOT, "tests.service.apps:counting()", WORKERS=2) as service:
        wait_for(lambda: scrape(service)("inference_workers_ready") == 2)
        (folder,) = folders(service)
        watch, total = Scraper(service), 0
        try:
            for number in (signal.SIGHUP, signal.SIGKILL):
                for _ in range(5):
                    assert rest(service)[0] == 200
                    assert rpc(service) == "ok"
                total += 10
                settled(service, "inference_requests_total", total, operation="infer")
                starts = scrape(service)("inference_worker_starts_total")
                before = workers(service)
                if number == signal.SIGHUP:
                    service.process.send_signal(number)
                else:
                    for worker in before:
                        os.kill(worker, number)
                wait_for(
                    lambda before=before: (
                        len(workers(service)) == 2 and not before & workers(service)
                    )
                )
                wait_for(service.ready)
                settled(service, "inference_worker_starts_total", starts + 2)
                settled(service, "inference_workers", 2)
                assert scrape(service)("inference_requests_total", operation="infer") == total
                assert statistics(service)["inference_stats"]["success"]["count"] == total
                assert len(list(folder.glob("statistics_*.bin"))) <= 4
                assert (
                    len(list(folder.glob("counter_*.db"))) <= 4
                )  # old and new workers of a reload
            wait_for(
                lambda: len(watch.scrapes) > 3 and watch.scrapes[-1]("own_calls_total") == total
            )
        finally:
            scrapes = watch.stop()
        assert_grew(scrapes)
        assert max(scrape("own_calls_total") for scrape in scrapes) == total
    assert not folder.exists()


def test_without_metric_compaction() -> None:
    """With metric_compaction disabled, prometheus_client keeps the counts of an exited worker in the worker's file."""
    settings = {"WORKERS": 1, "DISABLE_OPTIMIZATIONS": "metric_compaction"}
    with gunicorn(ROOT, "tests.service.apps:counting()", **settings) as service:
        wait_for(
            lambda: service.ready_count() == 1
        )  # otherwise the exit of the worker is a failed startup
        (folder,), (worker,) = folders(service), workers(service)
        for _ in range(3):
            assert rest(service)[0] == 200
        now = settled(service, "inference_requests_total", 3, operation="infer")
        assert_histogram(now, "inference_request_duration_seconds")
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: workers(service) - {worker} and service.ready())
        settled(service, "inference_workers", 1)
        settled(service, "inference_requests_total", 3, operation="infer")
        files = {path.name for path in folder.glob("*.db")}
        assert f"counter_{worker}.db" in files
        assert not [
            name for name in files if name.startswith("gauge") and name.endswith(f"_{worker}.db")
        ]


def test_removed_directory_disables_metrics() -> None:
    """If the directory is removed, /metrics is empty until new workers start."""
    with gunicorn(ROOT, "tests.service.apps:counting()", WORKERS=1) as service:
        shutil.rmtree(*folders(service))
        assert [scrape(service).names() for _ in range(3)] == [set()] * 3
        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: scrape(service).names() and scrape(service)("inference_workers") == 1)


def folders(service: Running) -> list[Path]:
    """Return the metric directory that the workers have open."""
    maps = Path(f"/proc/{min(workers(service))}/maps").read_text()
    return list({Path(path).parent for path in re.findall(r"(/\S+/histogram_\w+\.db)", maps)})
