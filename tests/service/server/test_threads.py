"""The threads of the REST worker, and the polling of its connections."""

from __future__ import annotations

import select
import socket
import threading
from queue import Queue

import pytest

from app.crew import Crew
from app.epoll import READABLE, Poll, new_epoll
from tests.service.processes import wait_for

SECONDS = 10


def test_a_system_without_threads_for_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the next in line cannot be started, the thread that has the turn keeps it, and tries again."""
    asked: Queue[int] = Queue()
    ours, theirs = socket.socketpair()
    start, starts = threading.Thread.start, []

    def attend(descriptor: int) -> None:
        asked.put(ours.recv(1)[0])
        crew.step_aside()
        epoll.modify(ours, READABLE)

    def none_left_but_one(thread: threading.Thread) -> None:
        starts.append(thread)
        if len(starts) in (2, 3):
            raise RuntimeError("can't start new thread")
        start(thread)

    with ours, theirs:
        epoll = new_epoll()
        epoll.register(ours, READABLE)
        crew = Crew(epoll, 4, attend)
        monkeypatch.setattr(threading.Thread, "start", none_left_but_one)
        crew.add_thread()
        for index in range(5):
            theirs.send(bytes([index]))
            assert asked.get(timeout=SECONDS) == index
        assert len(starts) > 3
        crew.serving = False
        for _ in range(len(starts)):  # wakes them
            theirs.send(b"x")
        for thread in starts[:1] + starts[3:]:
            thread.join(SECONDS)
            assert not thread.is_alive()


def test_poll_reports_once() -> None:
    """One that is ready is reported, and then not until it is modified; of two each has its turn."""
    (ours, theirs), (other, others) = socket.socketpair(), socket.socketpair()
    poll = Poll()
    with ours, theirs, other, others:
        poll.register(ours, 0)
        theirs.send(b"x")
        others.send(b"x")
        assert poll.poll(0, 1) == []
        poll.modify(ours, select.POLLIN)
        poll.register(other, select.POLLIN)
        for each in (ours, other, ours):
            assert poll.poll(SECONDS, 1) == [(each.fileno(), select.POLLIN)]
            poll.modify(each, select.POLLIN)
        assert len(poll.poll(SECONDS, 2)) == 2
        assert poll.poll(0, 2) == []
        descriptor = ours.fileno()
        poll.modify(ours, select.POLLOUT)
    assert poll.poll(SECONDS, 1) == [(descriptor, select.POLLNVAL)]
    assert poll.poll(0, 1) == []
    with pytest.raises(ValueError, match="-1"):
        poll.modify(ours, select.POLLIN)


def test_poll_wakes_who_waits() -> None:
    """What another thread modifies is waited for at once, by a second that waits too."""
    found: Queue[list[tuple[int, int]]] = Queue()
    poll = Poll()

    def wait() -> None:
        while not (ready := poll.poll(2 * SECONDS, 1)):
            pass
        found.put(ready)

    for _ in range(2):
        threading.Thread(target=wait, daemon=True).start()
    for _ in range(2):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(b"x")
            wait_for(lambda: poll.is_waiting)
            poll.register(ours, select.POLLIN)
            assert found.get(timeout=SECONDS) == [(ours.fileno(), select.POLLIN)]
