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
        pool.is_running = False
        for _ in range(len(starts)):  # wakes the threads
            theirs.send(b"x")
        for thread in starts[:1] + starts[3:]:
            thread.join(SECONDS)
            assert not thread.is_alive()


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
        pool.is_running = False
