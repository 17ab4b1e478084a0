"""Responses of /metrics, parsed by prometheus_client."""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from contextlib import closing

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.processes import Running


class Scrape:
    """One response of /metrics: its families by name, and its samples."""

    def __init__(self, text: str):
        self.families: dict[str, Metric] = {
            each.name: each for each in text_string_to_metric_families(text)
        }
        self.values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                assert key not in self.values, f"{key} is there twice"
                self.values[key] = sample.value

    def __call__(self, name: str, /, **labels: str) -> float:
        """Return the sum of the samples that have at least these labels."""
        return sum(
            value
            for each, have, value in self.samples()
            if each == name and labels.items() <= have.items()
        )

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        for (name, labels), value in self.values.items():
            yield name, dict(labels), value

    def names(self) -> set[str]:
        return {name for name, _ in self.values}

    def growing(self) -> Iterator[tuple[tuple[str, tuple[tuple[str, str], ...]], float]]:
        """Yield the samples whose values must never decrease."""
        for key, value in self.values.items():
            if key[0].endswith(("_total", "_bucket", "_count", "_sum")):
                yield key, value


def scrape(service: Running) -> Scrape:
    """Read /metrics over a new connection, so that any worker may respond."""
    return Scrape(fetch(service)[0])


def fetch(service: Running, accept: str = "") -> tuple[str, str]:
    """Return the text of /metrics and its content type."""
    with closing(http.client.HTTPConnection(service.http_address, timeout=60)) as connection:
        connection.request("GET", "/metrics", headers={"Accept": accept} if accept else {})
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode(), response.headers["Content-Type"]


def assert_grew(scrapes: Iterable[Scrape]) -> None:
    """Check that no counter has decreased or disappeared from one scrape to the next."""
    before: dict = {}
    for each in scrapes:
        now = dict(each.growing())
        for key, value in before.items():
            assert now.get(key, -1) >= value, f"{key} fell from {value} to {now.get(key)}"
        before = now
