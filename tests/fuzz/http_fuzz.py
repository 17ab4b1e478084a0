"""Fuzzer for the HTTP server: python -m tests.fuzz.http_fuzz --streams 200000

The server runs in a separate process with an echo application (tests/kit/standalone.py).
"""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException

import click

from tests.kit.h11_requests import parse_with_h11
from tests.kit.malformed_streams import STREAMS
from tests.kit.standalone import Reply, connect, read_all, read_replies, start

VALID = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /a%20b?c=d&e HTTP/1.1\r\nHost: x:80\r\nAccept: */*\r\nUser-Agent: fuzz/1.0\r\nA: \xe9\r\n\r\n",
    b"GET http://x/a?b HTTP/1.1\r\nHost: x\r\nCookie: a=b\r\nCookie: c=d\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"DELETE /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    b'POST /a HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{"inputs": [1]}',
    b"PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n2\r\nab\r\n0\r\nA: b\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 5\r\n\r\nhello",
    b"POST /a HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n" + b"0123456789" * 900,
]
MALFORMED = [stream.data for stream in STREAMS if len(stream.data) < 2**14]
TOKENS = [
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b" ",
    b"\t",
    b":",
    b",",
    b";",
    b"0",
    b"-1",
    b"ffffffffffffffff",
    b"\xff",
]
TOKENS += [
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"HTTP/1.1",
    b"Host: x\r\n",
    b"Expect: 100-continue\r\n",
]
FAULTS_AT_MOST = 10


def make_valid(rng: random.Random) -> bytes:
    return b"".join(rng.choices(VALID, k=rng.choice([1, 1, 2, 3, 5])))


def make_mutated(rng: random.Random) -> bytes:
    return mutate(rng, make_valid(rng))


def make_malformed(rng: random.Random) -> bytes:
    return mutate(rng, rng.choice(MALFORMED) + rng.choice(VALID))


def make_random(rng: random.Random) -> bytes:
    return b"".join(
        rng.choice([rng.randbytes(rng.randrange(20)), rng.choice(TOKENS)])
        for _ in range(rng.randrange(20))
    )


KINDS: dict[Callable[[random.Random], bytes], int] = {
    make_mutated: 70,
    make_malformed: 15,
    make_valid: 5,
    make_random: 10,
}


def mutate(rng: random.Random, data: bytes) -> bytes:
    """Mutate a stream in one to six places: bits, deletions, duplications, tokens and parts of invalid streams."""
    stream = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        begin = rng.randrange(len(stream) + 1)
        end = min(len(stream), begin + rng.choice([1, 1, 2, 8, 40]))
        kind = rng.randrange(6)
        if kind == 0 and begin < len(stream):
            stream[begin] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del stream[begin:end]
        elif kind == 2:
            stream[begin:begin] = stream[begin:end]
        elif kind == 3:
            stream[begin:end] = rng.choice(TOKENS)
        elif kind == 4:
            stream[begin:begin] = rng.choice(TOKENS)
        else:
            piece = rng.choice(MALFORMED)
            first = rng.randrange(len(piece))
            stream[begin:end] = piece[first : first + rng.randrange(60)]
    return bytes(stream)


@dataclass
class Campaign:
    """Fuzzed streams, sent to one server over several concurrent connections. The seed determines the streams."""

    port: int
    seed: int
    seconds: float
    statuses: Counter[int] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def run(self, streams: int, connections: int) -> None:
        shares = [range(first, streams, connections) for first in range(connections)]
        with ThreadPoolExecutor(connections) as pool:
            list(pool.map(self.send_all, shares))

    def send_all(self, indexes: range) -> None:
        for index in indexes:
            if len(self.faults) >= FAULTS_AT_MOST:
                return
            rng = random.Random(self.seed * 2**32 + index)
            make = rng.choices(list(KINDS), list(KINDS.values()))[0]
            self.sent[make.__name__] += 1
            data = make(rng)
            try:
                self.judge(data, read_replies(self.exchange(rng, data)))
            except (OSError, HTTPException, ValueError) as error:
                self.faults.append(f"stream {index} of seed {self.seed}: {error!r}\n{data!r}")

    def judge(self, data: bytes, replies: list[Reply]) -> None:
        """Raise ValueError if a response has status 500, or if the application received a request unknown to h11."""
        seen = []
        for reply in replies:
            self.statuses[HTTPStatus(reply.status)] += 1
            if reply.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                raise ValueError(reply.body)
            if reply.status == HTTPStatus.OK:
                request = json.loads(reply.body)
                seen.append((request["method"], request["uri"], request["body"]))
        if not parse_with_h11(data).agrees(seen):
            raise ValueError(f"h11 does not agree with {seen}")

    def exchange(self, rng: random.Random, data: bytes) -> bytes:
        """Send a stream in one or more parts, shut down the sending side, and return all data from the server."""
        ends = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 0, 1, 5])))
        with connect(self.port) as client:
            client.settimeout(self.seconds)
            for begin, end in zip([0, *ends], [*ends, len(data)], strict=True):
                client.sendall(data[begin:end])
            client.shutdown(socket.SHUT_WR)
            return read_all(client)


@click.command(context_settings={"show_default": True})
@click.option("--streams", type=click.IntRange(1), default=200_000, help="Number of byte streams.")
@click.option(
    "--connections", type=click.IntRange(1), default=8, help="Number of concurrent connections."
)
@click.option(
    "--seconds",
    type=float,
    default=20,
    help="Seconds without data until the server counts as hanging.",
)
@click.option("--seed", type=int, help="Seed of the streams. [default: a random one]")
def main(streams: int, connections: int, seconds: float, seed: int | None) -> None:
    """Send fuzzed byte streams to the HTTP server.

    Fail if it crashes, hangs, sends invalid HTTP, or serves other requests than h11 finds.
    """
    seed = random.randrange(2**32) if seed is None else seed
    click.echo(f"seed {seed}")
    begun = time.monotonic()
    with start() as running:
        campaign = Campaign(running.http_port, seed, seconds)
        campaign.run(streams, connections)
        faults = campaign.faults + find_crashes(running.log())
    for fault in faults:
        click.echo(f"\n{fault}")
    click.echo(
        f"{sum(campaign.sent.values())} streams in {time.monotonic() - begun:.0f} s: {dict(campaign.sent)}"
    )
    click.echo(
        f"Responses: { {int(status): count for status, count in sorted(campaign.statuses.items())} }"
    )
    sys.exit(bool(faults))


def find_crashes(log: str) -> list[str]:
    """Return the lines of the server's log that report an exception or a second worker."""
    lines = log.splitlines()
    starts = [line for line in lines if "Booting worker" in line]
    return [line for line in lines if "[ERROR]" in line or "[CRITICAL]" in line] + starts[1:]


if __name__ == "__main__":
    main()
