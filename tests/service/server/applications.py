"""WSGI applications that respond by path in the ways that PEP 3333 allows, and in some that it does not."""

from __future__ import annotations

import resource
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from wsgiref.validate import validator

from app.server import connection
from tests.kit.processes import wait_for
from tests.kit.standalone import Environ, StartResponse, describe, echo, respond, seen

TYPE = ("Content-Type", "text/plain")
LARGE = 2**25  # more than the buffers of two sockets, and more than the bodies of all threads

validated = validator(echo)


def clear_environ(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Respond with the request and the port of the client, after removing everything from the environ."""
    request = {**describe(environ), "port": environ["REMOTE_PORT"]}
    environ.clear()
    return respond(start_response, request)


class Closing:
    """A body that records its close() in the list of seen requests."""

    def __init__(self, pieces: Iterable[bytes]):
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces

    def close(self) -> None:
        seen.append({"closed": True})


def fail() -> Iterator[bytes]:
    raise LookupError("of the application")
    yield b""


def generate(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    yield from (b"a", b"", b"bc")


def write(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    send = start_response("200 OK", [TYPE])
    send(b"a")
    send(b"bc")
    return [b"d"]


def respond_list(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    return [b"abc"]


def respond_empty(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    return []


def respond_large(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    return [b"a" * LARGE]


def ignore_errors(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Ignore an error of write(), as if the client had received everything."""
    send = start_response("200 OK", [TYPE, ("Content-Length", str(2 * LARGE))])
    try:
        send(b"a" * LARGE)
        send(b"a" * LARGE)
    except OSError:
        seen.append({"failed": True})
    return []


def run_out_of_files(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Return the CPU time of one second in which a client connects, and the process cannot open more files."""
    start_response("200 OK", [TYPE])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4, hard))
        try:
            client.connect((environ["SERVER_NAME"], int(environ["SERVER_PORT"])))
            begun = time.process_time()
            time.sleep(1)
            return [str(time.process_time() - begun).encode()]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def respond_too_much(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE, ("Content-Length", "3")])
    return [b"ab", b"cd", b"ef"]


def respond_too_little(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE, ("Content-Length", "10")])
    return [b"abc"]


def respond_text(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    return iter(["text"])  # type: ignore[list-item]


def respond_status(status: str) -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    def respond(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response(status, [])
        return [b"not sent"]

    return respond


def respond_field(name: str, value: str) -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    def respond(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [TYPE, (name, value)])
        return [b"abc"]

    return respond


def respond_invalid_204(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("204 No Content", [("A", "\u20ac")])
    return []


def raise_before(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    raise LookupError("of the application")


def raise_in_body(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    return Closing(fail())


def raise_after(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    yield b"abc"
    raise LookupError("of the application")


def change_mind(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE, ("A", "b")])
    try:
        raise LookupError
    except LookupError:
        start_response("502 Bad Gateway", [TYPE], sys.exc_info())
    return Closing([b"sorry"])


def change_mind_late(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])(b"abc")
    try:
        raise LookupError
    except LookupError:
        start_response("502 Bad Gateway", [TYPE], sys.exc_info())
    return [b"not sent"]


def start_twice(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    start_response("200 OK", [TYPE])
    start_response("200 OK", [TYPE])
    return [b"not sent"]


def never_start(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    return [b"not sent"]


APPLICATIONS: dict[str, Callable[[Environ, StartResponse], Iterable[bytes]]] = {
    "/generate": generate,
    "/write": write,
    "/list": respond_list,
    "/empty": respond_empty,
    "/large": respond_large,
    "/ignore-errors": ignore_errors,
    "/run-out-of-files": run_out_of_files,
    "/too-much": respond_too_much,
    "/too-little": respond_too_little,
    "/204": respond_status("204 No Content"),
    "/304": respond_status("304 Not Modified"),
    "/status-with-lines": respond_status("200 OK\r\nA: b"),
    "/status-without-number": respond_status("OK"),
    "/status-of-two-digits": respond_status("20 OK"),
    "/status-informational": respond_status("100 Continue"),
    "/status-empty": respond_status(""),
    "/value-with-lines": respond_field("A", "b\r\nC: d"),
    "/value-with-lf": respond_field("A", "b\nC: d"),
    "/value-with-nul": respond_field("A", "b\0"),
    "/value-not-latin-1": respond_field("A", "\u20ac"),
    "/name-with-space": respond_field("A b", "c"),
    "/name-with-lines": respond_field("A: b\r\nC", "d"),
    "/name-empty": respond_field("", "a"),
    "/length-not-a-number": respond_field("Content-Length", "three"),
    "/length-negative": respond_field("Content-Length", "-3"),
    "/invalid-204": respond_invalid_204,
    "/latin-1": respond_field("A", "\xe9"),
    "/close": respond_field("Connection", "close"),
    "/hop-by-hop": respond_field("Transfer-Encoding", "gzip"),
    "/date": respond_field("date", "Thu, 01 Jan 1970 00:00:00 GMT"),
    "/server": respond_field("Server", "application"),
    "/raise-before": raise_before,
    "/raise-in-body": raise_in_body,
    "/raise-after": raise_after,
    "/change-mind": change_mind,
    "/change-mind-late": change_mind_late,
    "/start-twice": start_twice,
    "/never-start": never_start,
    "/text": respond_text,
}


def by_path(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
    """Run the application of the path, or echo."""
    return APPLICATIONS.get(environ["PATH_INFO"], echo)(environ, start_response)


def short_timeouts() -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    """Reduce the server's timeouts for slow and closing connections to half a second, and return by_path."""
    connection.TRANSFER_SECONDS = connection.LINGER_SECONDS = 0.5
    return by_path


def racing() -> Callable[[Environ, StartResponse], Iterable[bytes]]:
    """Return hasty(), and delay the decision that a request is overdue until a thread has served the request."""
    decide = connection.Connection.is_overdue

    def decide_late(client: connection.Connection, now: float, idle_seconds: float) -> bool:
        since = client.progress.wait_began
        is_late = client.state is connection.State.RECEIVING and decide(client, now, idle_seconds)
        if is_late:
            sys.stderr.write("overdue\n")
            wait_for(lambda: client.progress.wait_began != since)
        return is_late

    connection.Connection.is_overdue = decide_late  # type: ignore[method-assign]
    return short_timeouts()
