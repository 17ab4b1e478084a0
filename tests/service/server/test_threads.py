"""The threads of the REST worker, and the polling of its connections."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import ExitStack
from queue import Queue

import pytest

from app.server.connection import READABLE
from app.server.threads import LeaderFollowersPool

SECONDS = 10


def test_retries_failed_thread_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a follower cannot be started, the only thread keeps handling events, and retries the start later."""
    received: Queue[int] = Queue()
    ours, theirs = socket.socketpair()
    start, starts = threading.Thread.start, []

    def attend(descriptor: int) -> None:
        received.put(ours.recv(1)[0])
        pool.release_leadership()
        epoll.modify(ours, READABLE)

    def start_first_thread(thread: threading.Thread) -> None:
        starts.append(thread)
        if len(starts) in (2, 3):
            raise RuntimeError("can't start new thread")
        start(thread)

    with ours, theirs:
        epoll = select.epoll()
        epoll.register(ours, READABLE)
        pool = LeaderFollowersPool(epoll, 4, attend)
        monkeypatch.setattr(threading.Thread, "start", start_first_thread)
        pool.add_thread()
        for index in range(5):
            theirs.send(bytes([index]))
            assert received.get(timeout=SECONDS) == index
        assert len(starts) > 3
        pool.stop()
        for _ in range(len(starts)):  # wakes the threads
            theirs.send(b"x")
        for thread in starts[:1] + starts[3:]:
            thread.join(SECONDS)
            assert not thread.is_alive()


def test_pool_starts_at_most_size_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool with one thread starts no second one, even if the first one runs before its start has returned."""
    handled = {b"first": threading.Event(), b"last": threading.Event()}
    ours, theirs = socket.socketpair()
    start = threading.Thread.start

    class CountingPool(LeaderFollowersPool):
        starts = 0

        def add_thread(self) -> None:
            self.starts += 1
            super().add_thread()

    def handle(descriptor: int) -> None:
        event = ours.recv(100)
        epoll.modify(ours, READABLE)  # epoll reports a descriptor once
        if event == b"last":
            pool.stop()
        handled[event].set()

    def start_and_wait(thread: threading.Thread) -> None:
        start(thread)
        assert handled[b"first"].wait(SECONDS)

    with ours, theirs:
        epoll = select.epoll()
        epoll.register(ours, READABLE)
        theirs.send(b"first")
        pool = CountingPool(epoll, 1, handle)
        monkeypatch.setattr(threading.Thread, "start", start_and_wait)
        pool.add_thread()
        theirs.send(b"last")
        assert handled[b"last"].wait(SECONDS)
        assert pool.starts == 1


@pytest.mark.parametrize("releases", [True, False])
def test_blocked_request_does_not_delay_others(releases: bool) -> None:
    """Events that arrive together are handled concurrently, whether or not the handlers release the leadership."""
    handled: Queue[int] = Queue()
    pairs = [socket.socketpair() for _ in range(3)]
    others_are_handled = threading.Event()

    def handle(descriptor: int) -> None:
        handled.put(descriptor)
        if handled.qsize() == len(pairs):
            others_are_handled.set()
        if releases:
            pool.release_leadership()
        assert others_are_handled.wait(SECONDS)

    with ExitStack() as stack:
        epoll = select.epoll()
        for ours, theirs in pairs:
            stack.enter_context(ours)
            stack.enter_context(theirs)
            epoll.register(ours, READABLE)
            theirs.send(b"x")
        pool = LeaderFollowersPool(epoll, 4, handle)
        pool.add_thread()
        assert others_are_handled.wait(SECONDS)
        assert sorted(handled.get() for _ in pairs) == sorted(ours.fileno() for ours, _ in pairs)
        pool.stop()


def test_release_after_a_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader whose release is overtaken by a follower leaves the leadership to others, and does not fail."""
    get_ident = threading.get_ident
    releasing: list[int] = []  # the thread whose release waits
    failures: list[RuntimeError] = []
    is_overtaken, has_released = threading.Event(), threading.Event()

    def identify() -> int:
        if get_ident() in releasing:
            releasing.clear()
            assert is_overtaken.wait(SECONDS)
        return get_ident()

    def lead(descriptor: int) -> None:
        releasing.append(get_ident())
        try:
            pool.release_leadership()
        except RuntimeError as error:
            failures.append(error)
        has_released.set()

    def follow(descriptor: int) -> None:
        pool.release_leadership()
        is_overtaken.set()
        assert has_released.wait(SECONDS)

    steps = [lead, follow]
    with ExitStack() as stack:
        epoll = select.epoll()
        for _ in steps:
            ours, theirs = socket.socketpair()
            stack.enter_context(ours)
            stack.enter_context(theirs)
            epoll.register(ours, READABLE)
            theirs.send(b"x")
        monkeypatch.setattr(threading, "get_ident", identify)
        pool = LeaderFollowersPool(epoll, 2, lambda descriptor: steps.pop(0)(descriptor))
        pool.add_thread()
        assert has_released.wait(SECONDS)
        pool.stop()

    assert failures == []
    assert not steps
