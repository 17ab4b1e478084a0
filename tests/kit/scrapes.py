"""Responses of /metrics, parsed by prometheus_client."""

from __future__ import annotations

import http.client
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.kit.processes import Running


class SeriesKey(NamedTuple):
    """What identifies a time series: the name of its samples, and its labels in order."""

    name: str
    labels: tuple[tuple[str, str], ...]

    def is_growing(self) -> bool:
        """Return whether the values of the series must never decrease."""
        return self.name.endswith(("_total", "_bucket", "_count", "_sum"))


class Scrape:
    """One response of /metrics: its families by name, and its values by series."""

    def __init__(self, text: str):
        self.families: dict[str, Metric] = {}
        self.values: dict[SeriesKey, float] = {}
        for family in text_string_to_metric_families(text):
            self.families[family.name] = family
            for sample in family.samples:
                labels = sorted(sample.labels.items())
                key = SeriesKey(sample.name, tuple(labels))
                assert key not in self.values, f"{key} is there twice"
                self.values[key] = sample.value

    def __call__(self, name: str, /, **labels: str) -> float:
        """Return the sum of the samples that have at least these labels."""
        total = 0.0
        for sample_name, sample_labels, value in self.samples():
            if sample_name == name and labels.items() <= sample_labels.items():
                total += value
        return total

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """Yield the name, the labels and the value of each sample."""
        for key, value in self.values.items():
            yield key.name, dict(key.labels), value

    def names(self) -> set[str]:
        return {key.name for key in self.values}

    def growing(self) -> Iterator[tuple[SeriesKey, float]]:
        """Yield the series and values that must never decrease."""
        for key, value in self.values.items():
            if key.is_growing():
                yield key, value


def scrape(service: Running) -> Scrape:
    """Read /metrics over a new connection, so that any worker may respond."""
    text, _ = fetch(service)
    return Scrape(text)


def fetch(service: Running, accept: str = "") -> tuple[str, str]:
    """Return the text of /metrics and its content type."""
    headers = {}
    if accept:
        headers["Accept"] = accept
    with closing(http.client.HTTPConnection(service.http_address, timeout=180)) as connection:
        connection.request("GET", "/metrics", headers=headers)
        response = connection.getresponse()
        assert response.status == 200
        return response.read().decode(), response.headers["Content-Type"]


def assert_grew(scrapes: Iterable[Scrape]) -> None:
    """Check that no counter has decreased or disappeared from one scrape to the next."""
    previous: dict[SeriesKey, float] = {}
    for scrape in scrapes:
        current = dict(scrape.growing())
        for key, value in previous.items():
            assert key in current, f"{key} has disappeared. Its last value was {value}"
            assert current[key] >= value, f"{key} fell from {value} to {current[key]}"
        previous = current
