"""A short run of the HTTP server's fuzzer. `python -m tests.fuzz.http_fuzz` runs any number of streams."""

from __future__ import annotations

from tests.fuzz.http_fuzz import Campaign, find_crashes
from tests.kit.standalone import start

STREAMS, SEED, CONNECTIONS, SECONDS = 2000, 1, 4, 60


def test_fuzzed_streams() -> None:
    """RFC 9112: the server sends only HTTP responses and closes every connection, whatever the client sends."""
    with start() as running:
        campaign = Campaign(running.http_port, SEED, SECONDS)
        campaign.run(STREAMS, CONNECTIONS)
        assert campaign.faults == []
        assert find_crashes(running.log()) == []
    assert campaign.sent["make_mutated"] > STREAMS / 2
    assert campaign.statuses[200] > STREAMS / 4
    assert campaign.statuses[400] > STREAMS / 4
