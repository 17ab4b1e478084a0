"""Mixed load: small and large, valid and invalid requests over all transports, on short-lived connections."""

from __future__ import annotations

import gzip
import http.client
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace

import grpc
import numpy as np

from dev.benchmarks.cases import ELEMENTS, Case
from dev.benchmarks.service import WAYS, echo_case, in_way
from tests.kit.processes import Running

LIMIT = 4 * 2**20  # the service's MAX_REQUEST_BYTES
# Share of valid responses to check. For large responses, the check takes the client longer than the
# request.
CHECKED = 0.1
CHANNEL = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # one connection per channel
]


@dataclass(frozen=True)
class Call:
    """A request of the load, and its expected status. An empty status means that the client disconnects."""

    case: Case
    status: str
    headers: dict[str, str] = field(default_factory=dict)

    def send(
        self, connection: http.client.HTTPConnection, channel: grpc.Channel
    ) -> tuple[str, bytes, dict[str, str]]:
        if self.case.transport == "grpc":
            try:
                return "OK", channel.unary_unary(self.case.path)(self.case.body, timeout=60), {}
            except grpc.RpcError as error:
                return error.code().name, b"", {}
        connection.request(
            "POST", self.case.path, self.case.body, {**self.case.headers, **self.headers}
        )
        if not self.status:
            connection.close()
            return "", b"", {}
        response = connection.getresponse()
        body, headers = (
            response.read(),
            {name.title(): value for name, value in response.getheaders()},
        )
        return (
            str(response.status),
            gzip.decompress(body) if "Content-Encoding" in headers else body,
            headers,
        )


def make_calls() -> dict[str, Call]:
    calls: dict[str, Call] = {}
    for way in WAYS:
        good = "OK" if way.startswith("gRPC") else "200"
        calls |= {f"{way} {size:,}": Call(echo_case(way, size), good) for size in (4, ELEMENTS)}
    json_small, json_large, raw = (
        calls[name].case for name in ("REST JSON 4", "REST JSON 100,000", "gRPC raw 4")
    )
    zipped = replace(json_large, body=gzip.compress(json_large.body))
    half = replace(json_large, body=json_large.body[: len(json_large.body) // 2])
    bomb = replace(json_small, body=gzip.compress(bytes(LIMIT + 1)))
    coding = {"Content-Encoding": "gzip"}
    return calls | {
        "gzip": Call(zipped, "200", {**coding, "Accept-Encoding": "gzip"}),
        "invalid gzip": Call(json_large, "400", coding),
        "gzip of too much": Call(bomb, "413", coding),
        "too much": Call(replace(json_small, body=bytes(LIMIT + 1)), "413"),
        "half of the JSON": Call(half, "400"),
        "half of the body, and gone": Call(half, "", {"Content-Length": str(len(json_large.body))}),
        "another shape": Call(
            replace(json_small, body=json_small.body.replace(b"[4]", b"[5]")), "400"
        ),
        "no such model": Call(replace(json_small, model="none"), "404"),
        "gRPC no such model": Call(
            in_way("gRPC raw", "none", np.zeros(4), np.zeros(4)), "NOT_FOUND"
        ),
        "gRPC no message": Call(replace(raw, body=b"\xff" * 100), "INVALID_ARGUMENT"),
        "gRPC too much": Call(replace(raw, body=bytes(LIMIT + 1)), "RESOURCE_EXHAUSTED"),
    }


def send_at_random(
    running: Running, calls: dict[str, Call], end: float, answered: Counter, wrong: list[str]
) -> None:
    """Send random calls until `end`. Open a new connection and channel after at most 50 calls."""
    while time.monotonic() < end:
        connection = http.client.HTTPConnection(running.http, timeout=60)
        with grpc.insecure_channel(running.grpc, CHANNEL) as channel:
            for name in random.choices(list(calls), k=random.randint(1, 50)):
                call = calls[name]
                try:
                    status, body, headers = call.send(connection, channel)
                    if status != call.status:
                        wrong.append(f"{name}: {status} {body[:200]!r}")
                    elif status in ("200", "OK") and random.random() < CHECKED:
                        call.case.check(body, headers)
                except Exception as error:
                    wrong.append(f"{name}: {error!r}")
                    connection.close()
                answered[name] += 1
        connection.close()
