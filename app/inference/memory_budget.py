"""The memory that the requests of a worker can use, if its container has a memory limit.

Without this, the container would be killed by a few large requests at the same time, with all
requests in it. Each worker has an equal share of the limit. What the model leaves of the share is
the budget for requests, and has three parts:

    half       requests that are decoded, wait, run or are encoded. Each of them reserves the memory
               that it needs (memory_costs.py) before it takes it, or is rejected.
    a quarter  incomplete requests and unread responses of REST (app/server/connections.py)
    a quarter  messages of gRPC that are arriving (grpc_service/memory_watch.py)

Requests of at most UNCOUNTED_BYTES reserve nothing, unless they are compressed, because that would
take longer than it is worth. The number of threads limits them.

    request of 100 KB    json_cost() = 2 MB  ->  reserved 2 MB of 430 MB
    decoded              inputs_cost() = 0.3 MB  ->  0.3 MB
    predict() returns    + outputs_cost() = 0.8 MB  ->  1.1 MB
    encoded              0
"""

import math
from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Self

from app.inference.memory_costs import (
    binary_cost,
    inputs_cost,
    json_cost,
    message_cost,
    outputs_cost,
)
from app.protocol.errors import Overloaded, PayloadTooLarge
from app.protocol.messages import Binary, InferenceRequest, InferenceResponse

UNCOUNTED_BYTES = 2**14
# In messages for clients and operators.
MIB = 2**20


class MemoryBudget:
    """The budget of a worker, and what requests have reserved of it. All threads share it.

    reserved_bytes: the sum of the reservations
    transfer_bytes: the part for each protocol's messages that are arriving or not sent
    """

    def __init__(self) -> None:
        self.reserved_bytes = 0
        self.transfer_bytes = math.inf
        self._limit = math.inf
        self._transferred_bytes: Callable[[], int] = lambda: 0
        self._dropped: deque[int] = deque()
        self._lock = Lock()

    @property
    def is_limited(self) -> bool:
        return self._limit < math.inf

    def is_counted(self, size: int) -> bool:
        """Return True if a request of `size` bytes must reserve memory."""
        return size > UNCOUNTED_BYTES and self._limit < math.inf

    def set_total(self, size: int) -> None:
        """Let all requests together use `size` bytes, in the parts that the module describes.

        Without this call, they are not limited.
        """
        self.transfer_bytes = size // 4
        self._limit = size // 2

    def observe_transfers(self, transferred_bytes: Callable[[], int]) -> None:
        """Let incomplete requests and unread responses of REST borrow from the half for requests.

        `transferred_bytes` returns their size. What exceeds their quarter cannot be reserved.
        """
        self._transferred_bytes = transferred_bytes

    @property
    def borrowed_bytes(self) -> float:
        """The size by which incomplete requests and unread responses of REST exceed their part."""
        return max(0, self._transferred_bytes() - self.transfer_bytes)

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes. Raise Overloaded if they are not available now."""
        if not self._try_to_reserve(size):
            raise not_enough_memory()

    def _try_to_reserve(self, size: int) -> bool:
        borrowed = self.borrowed_bytes
        with self._lock:
            while self._dropped:
                self.reserved_bytes -= self._dropped.popleft()
            if self.reserved_bytes + size > self._limit - borrowed:
                return False
            self.reserved_bytes += size
        return True

    def release(self, size: int) -> None:
        with self._lock:
            self.reserved_bytes -= size

    def drop(self, size: int) -> None:
        """Release a reservation later. Unlike release(), __del__() can call this at any time."""
        self._dropped.append(size)

    def check_possible(self, size: int) -> None:
        """Raise PayloadTooLarge if a request needs more memory than there will ever be."""
        if size > self._limit:
            raise PayloadTooLarge(
                "the request needs too much memory",
                expected=f"at most {self._limit / MIB:.0f} MiB with its response",
                got=f"about {size / MIB:.0f} MiB",
                remedy="send fewer rows per request, or numbers in binary form. The operator can "
                "raise the memory limit of the container",
            )


def not_enough_memory() -> Overloaded:
    return Overloaded("server overloaded: not enough memory", remedy="retry later")


class RequestMemory:
    """The memory of one request in its stages. A `with` statement releases it at the end.

    Each stage replaces what earlier ones have reserved. All methods raise PayloadTooLarge if the
    request can never fit into the budget, and Overloaded if it does not fit now.
    """

    __slots__ = ("_budget", "_reserved")

    def __init__(self, budget: MemoryBudget):
        self._budget = budget
        self._reserved = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reserved:
            self._change_to(0)

    def add_bytes(self, size: int) -> None:
        """Add `size` bytes to what is reserved, such as a part of a body that is decompressed."""
        if self._budget.is_limited:
            self._change_to(self._reserved + size)

    def count_body(self, body: bytes, json_size: int | None) -> None:
        """Count what decoding a REST body needs: JSON of `json_size` bytes (None is all of the
        body), and binary data.
        """
        if not self._budget.is_counted(len(body)):
            return
        json = body if json_size is None else body[:json_size]
        self._change_to(json_cost(json) + binary_cost(len(body) - len(json), json))

    def count_message(self, raw_bytes: int, other_bytes: int) -> None:
        """Count what decoding a gRPC message needs: see message_cost()."""
        if self._budget.is_counted(raw_bytes + other_bytes):
            self._change_to(message_cost(raw_bytes, other_bytes))

    def count_inputs(self, request: InferenceRequest) -> None:
        """Count a decoded request, whose body is not needed any more."""
        if self._reserved:
            self._change_to(inputs_cost(request.inputs))

    def count_outputs(
        self, request: InferenceRequest, response: InferenceResponse, binary: Binary
    ) -> None:
        """Count a response that will be encoded, and its request.

        The request may have been too small to be counted before. `binary` is True if all outputs
        will have the binary form, or the names of those.
        """
        if not self._budget.is_limited:
            return
        output_bytes = sum(output.data.nbytes for output in response.outputs)
        if self._budget.is_counted(output_bytes):
            inputs = inputs_cost(request.inputs)
            self._change_to(inputs + outputs_cost(response.outputs, binary))

    def _change_to(self, size: int) -> None:
        if size > self._reserved:
            self._budget.check_possible(size)
            self._budget.reserve(size - self._reserved)
        else:
            self._budget.release(self._reserved - size)
        self._reserved = size
