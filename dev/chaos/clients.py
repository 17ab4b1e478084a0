"""Clients for both protocols, which send a request, check the response, and return the outcome as text.

A request succeeds, times out, or is rejected so that a client can retry it (connection refused, 503
with Retry-After, UNAVAILABLE, RESOURCE_EXHAUSTED). Other outcomes are losses, which the text
describes.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass

import grpc
import grpc.aio

from grpc_service import messages

SUCCEEDED, REJECTED, TIMED_OUT = "succeeded", "rejected", "timed out"
GRPC_REJECTED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
CHANNEL = [
    ("grpc.use_local_subchannel_pool", 1),  # one connection per channel
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
]
FP64 = struct.Struct("<d")


@dataclass(frozen=True)
class Plan:
    """The settings of the clients for one protocol.

    Each of the `clients` has one request in flight. It uses one of the `addresses` until that address
    rejects a request. Clients send the next request immediately, or all clients send `rate` requests
    per second. `timeout` is the deadline of requests in seconds, `patience` the maximum wait. `key`
    is an API key.
    """

    protocol: str
    addresses: list[str]
    clients: int = 8
    rate: float = 0
    timeout: float = 0
    patience: float = 30
    key: str = ""


class Client:
    def __init__(self, plan: Plan):
        self.plan, self.rejections = plan, 0

    @property
    def address(self) -> str:
        return self.plan.addresses[self.rejections % len(self.plan.addresses)]

    async def send_request(self) -> str:
        """Send a request and return the outcome. After a rejection, use another address for the next request."""
        outcome = await self.send(time.monotonic() + self.plan.timeout)
        if outcome == REJECTED and len(self.plan.addresses) > 1:
            await self.close()
            self.rejections += 1
        return outcome

    async def send(self, x: float) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


class Rest(Client):
    """A REST client with a persistent connection."""

    sock: socket.socket | None = None
    is_timed_out = False

    async def send(self, x: float) -> str:
        try:
            await self.connect()
        except ConnectionRefusedError:
            return REJECTED
        except OSError as error:
            return f"REST, connecting: {error}"
        alarm = asyncio.get_running_loop().call_later(self.plan.patience, self.time_out)
        try:
            return self.judge(x, *await self.exchange(self.request(x)))
        except OSError as error:
            await self.close()
            return "REST, no response in time" if self.is_timed_out else f"REST, {error}"
        finally:
            alarm.cancel()

    async def connect(self) -> None:
        """Open a connection if the service has closed the previous one."""
        if self.sock is not None:
            try:
                self.sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return
            except OSError:
                pass
            await self.close()
        self.is_timed_out = False
        self.sock = socket.socket()
        self.sock.setblocking(False)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = self.address.split(":")
        try:
            await asyncio.get_running_loop().sock_connect(self.sock, (host, int(port)))
        except OSError:
            await self.close()
            raise

    def request(self, x: float) -> bytes:
        envelope = {
            "inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [x]}],
            "parameters": {"timeout": round(self.plan.timeout * 1e6)},
        }
        body = json.dumps(envelope).encode()
        lines = [
            "POST /v2/models/test/infer HTTP/1.1",
            "Host: x",
            f"Content-Length: {len(body)}",
        ]
        if self.plan.key:
            lines.append(f"Authorization: Bearer {self.plan.key}")
        return "\r\n".join([*lines, "", ""]).encode() + body

    async def exchange(self, request: bytes) -> tuple[bytes, bytes]:
        """Return the head and the body of the response. Raise ConnectionError if it is missing or incomplete."""
        assert self.sock is not None
        await asyncio.get_running_loop().sock_sendall(self.sock, request)
        data, end, length = b"", -1, 0
        while end < 0 or len(data) < end + 4 + length:
            more = await asyncio.get_running_loop().sock_recv(self.sock, 2**16)
            if not more:
                raise ConnectionError(
                    "closed within a response" if data else "closed without a response"
                )
            data += more
            if end < 0 and (end := data.find(b"\r\n\r\n")) >= 0:
                found = re.search(rb"\r\ncontent-length: *(\d+)", data[:end], re.IGNORECASE)
                length = int(found[1]) if found else 0
        if re.search(rb"\r\nconnection: *close", data[:end], re.IGNORECASE):
            await self.close()
        return data[:end], data[end + 4 :]

    def judge(self, x: float, head: bytes, body: bytes) -> str:
        status = head[9:12].decode()
        if status == "200":
            right = json.loads(body)["outputs"][0]["data"] == [x]
            return SUCCEEDED if right else "REST, a wrong response"
        if status == "503" and re.search(rb"\r\nretry-after:", head, re.IGNORECASE):
            return REJECTED
        return (
            TIMED_OUT if status == "504" and self.plan.timeout else f"REST, {status} {body[:80]!r}"
        )

    def time_out(self) -> None:
        self.is_timed_out = True
        with suppress(OSError):
            assert self.sock is not None
            self.sock.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        if self.sock is not None:
            self.sock.close()
            self.sock = None


class Grpc(Client):
    channel: grpc.aio.Channel | None = None

    async def send(self, x: float) -> str:
        if self.channel is None:
            self.channel = grpc.aio.insecure_channel(self.address, CHANNEL)
        call = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/ModelInfer")
        request = messages.ModelInferRequest(model_name="test", raw_input_contents=[FP64.pack(x)])
        request.inputs.add(name="x", datatype="FP64", shape=[1])
        metadata = []
        if self.plan.key:
            metadata.append(("authorization", f"Bearer {self.plan.key}"))
        try:
            body = await call(
                request.SerializeToString(),
                timeout=self.plan.timeout or self.plan.patience,
                metadata=metadata,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() in GRPC_REJECTED:
                return REJECTED
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self.plan.timeout:
                return TIMED_OUT
            return f"gRPC, {error.code().name}: {error.details()}"
        except asyncio.CancelledError:
            return "gRPC, CANCELLED"
        right = messages.ModelInferResponse.FromString(body).raw_output_contents == [FP64.pack(x)]
        return SUCCEEDED if right else "gRPC, a wrong response"

    async def close(self) -> None:
        if self.channel is not None:
            await self.channel.close()
            self.channel = None


CLIENTS: dict[str, type[Client]] = {"rest": Rest, "grpc": Grpc}
