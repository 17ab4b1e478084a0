"""epoll; where the system has none, as macOS, by poll() what the service needs of it."""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from typing import Any

HAS_EPOLL = hasattr(select, "epoll")
# What is reported once; Poll knows no other way.
ONCE = select.EPOLLONESHOT if HAS_EPOLL else 0
READABLE, WRITABLE = select.POLLIN | ONCE, select.POLLOUT | ONCE


def new_epoll() -> select.epoll | Poll:
    return select.epoll() if HAS_EPOLL else Poll()


class Poll:
    """Reports each file that is ready once, and then not until it is modified; any thread may do that at any time.

    One that was closed is reported too.
    """

    def __init__(self) -> None:
        self.files = select.poll()
        self.changing, self.turn = threading.Lock(), threading.Lock()
        self.is_waiting = False
        self.wakes, self.waker = os.pipe()
        self.files.register(self.wakes, select.POLLIN)

    def modify(self, file: Any, events: int) -> None:
        """Waits for the events from now on, or for nothing; who waits already is woken to wait for them too."""
        with self.changing:
            if events:
                self.files.register(file, events)
            else:
                self.forget(file)
            if self.is_waiting:
                self.is_waiting = False
                os.write(self.waker, b".")

    register = modify

    def close(self) -> None:
        os.close(self.wakes)
        os.close(self.waker)

    def forget(self, file: Any) -> None:
        with suppress(KeyError):  # it is not waited for
            self.files.unregister(file)

    def poll(self, seconds: float, most: int) -> list[tuple[int, int]]:
        """Up to `most` files that are ready, with their events; none before its time where one was modified."""
        with self.turn:  # or Python would refuse the second
            with self.changing:
                self.is_waiting = True
            ready = dict(self.files.poll(seconds * 1000))
            with self.changing:
                self.is_waiting = False
                if ready.pop(self.wakes, 0):
                    os.read(self.wakes, 1)
                found = list(ready.items())[:most]
                for file, _ in found:  # those that are modified come last the next time, behind who waits longer
                    self.forget(file)
        return found
