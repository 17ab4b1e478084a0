"""The threads that answer: gRPC's run what comes in its order, side by side, and all live through what fails."""

from __future__ import annotations

import gc
import logging
import select
import socket
import threading
import weakref
from queue import Queue

import pytest

from app.crew import Crew
from app.epoll import READABLE, Poll, new_epoll
from grpc_service.coming import Coming, Left
from grpc_service.threads import Threads
from tests.service.processes import wait_for

SECONDS = 10


def test_calls_run_in_their_order() -> None:
    """One thread runs the calls as they were submitted; grpcio's callback is called for each."""
    done: Queue[int] = Queue()
    accepted = []
    threads = Threads(1, "test")
    for index in range(100):
        threads.submit(done.put, index).add_done_callback(accepted.append)
    assert [done.get(timeout=SECONDS) for _ in range(100)] == list(range(100))
    assert len(accepted) == 100


class Call:
    """As much of grpcio's as says whose it is."""

    def __init__(self, client: str):
        self.client = client

    def peer(self) -> bytes:
        return self.client.encode()


def test_calls_that_are_left_take_turns() -> None:
    """Of each client the oldest, one client after another: who has many does not stand before who has one."""
    left = Left()
    for client in "aaabac":
        left.put(Call(client), (print, (client, left.count)))
    assert (left.count, left.peers) == (6, {"a", "b", "c"})
    taken = [work[1] for work in iter(left.take, None)]
    assert taken == [("a", 0), ("b", 3), ("c", 5), ("a", 1), ("a", 2), ("a", 4)]
    assert (left.count, left.peers) == (0, set())


def test_messages_that_keep_too_much() -> None:
    """By what has come of their clients the largest make room; who has sent little, or just begun, keeps its own."""
    calls = {name: Call(name) for name in ["slow", "large", "larger", "new"]}
    coming = Coming(count=2, largest=1000)
    coming.since = {calls["slow"]: 1.0, calls["large"]: 2.0, calls["larger"]: 3.0, calls["new"]: 9.5}
    coming.received = lambda: {"slow": (10, 0.0), "large": (900, 0.0), "larger": (10**6, 0.0), "new": (10**6, 0.0)}
    assert coming.stalled(10.0) == []
    more = Call("larger")
    coming.since = {calls["large"]: 1.0, calls["slow"]: 2.0, calls["larger"]: 3.0, more: 3.5}
    assert coming.stalled(10.0) == [calls["larger"]]


def test_calls_run_side_by_side() -> None:
    """As many calls run at once as there are threads."""
    meeting = threading.Barrier(4)
    threads = Threads(4, "test")
    passed: Queue[int] = Queue()
    for _ in range(4):
        threads.submit(lambda: passed.put(meeting.wait(SECONDS)))
    assert sorted(passed.get(timeout=SECONDS) for _ in range(4)) == [0, 1, 2, 3]


def test_a_call_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The thread lives on, and the log has the traceback."""
    done: Queue[int] = Queue()
    threads = Threads(1, "test")
    with caplog.at_level(logging.ERROR):
        threads.submit(lambda: 1 / 0)
        threads.submit(done.put, 1)
        assert done.get(timeout=SECONDS) == 1
    assert "ZeroDivisionError" in caplog.text


def test_a_system_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no more can be started, those that there are run the calls, and others once there are some again."""
    threads, start = Threads(4, "test"), threading.Thread.start
    done, meeting = Queue[int](), threading.Barrier(2)
    threads.submit(done.put, 0)
    assert done.get(timeout=SECONDS) == 0

    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none_left)
    gate = threading.Event()
    threads.submit(gate.wait, SECONDS)
    for index in range(1, 4):
        threads.submit(done.put, index)
    gate.set()
    assert [done.get(timeout=SECONDS) for _ in range(3)] == [1, 2, 3]
    monkeypatch.setattr(threading.Thread, "start", start)
    for _ in range(2):
        threads.submit(lambda: done.put(meeting.wait(SECONDS)))
    assert sorted(done.get(timeout=SECONDS) for _ in range(2)) == [0, 1]


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


def test_a_request_is_not_kept() -> None:
    """What a call was given is gone when it is done, not when the next one comes."""

    class Body:
        pass

    body, done = Body(), threading.Event()
    gone = threading.Event()
    weakref.finalize(body, gone.set)
    Threads(1, "test").submit(lambda body: done.set(), body)
    del body
    assert done.wait(SECONDS)
    gc.collect()
    assert gone.wait(SECONDS)
