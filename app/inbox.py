"""What a client has sent and gunicorn has not read, and whether a request of it can be read without waiting.

gunicorn decides what a request is, and what is none; here it is only found when its bytes are there, so that no thread
waits for a slow client.
"""

from __future__ import annotations

from collections.abc import Callable

from gunicorn.http.errors import LimitRequestHeaders, NoMoreData, UnsupportedTransferCoding
from gunicorn.http.unreader import Unreader

from app.errors import TooLarge

HEAD_END = b"\r\n\r\n"
LENGTH, CODING, EXPECTATION = b"\r\ncontent-length:", b"\r\ntransfer-encoding:", b"\r\nexpect:"
CONNECTION = b"\r\nconnection:"
# By gunicorn's own limits, a hundred lines of 8 KiB, a head may have 800 KB.
HEAD_AT_MOST = 2**16
# Shorter pieces are joined: each for itself costs 40 bytes.
SMALL = 2**12
# Of a longer one gunicorn would copy all that it has not read, for each block that an application reads.
PIECE = 2**16
# Each chunk takes microseconds, in which a longer one could be read; beyond these, one for so many bytes.
CHUNKS_AT_MOST, LONG = 2**16, 2**8
# Beyond this, gunicorn refuses the line that tells a chunk's size.
LINE_AT_MOST = 2**13


class Inbox(Unreader):
    """A client's bytes in order; gunicorn reads the head of a request in one piece, and then its body.

    A body of more than `limit` bytes is not waited for. `wait` brings more where gunicorn asks for what was not
    foreseen.
    """

    def __init__(self, limit: int, wait: Callable[[], bytes]):
        super().__init__()
        self.limit, self.wait = limit, wait
        self.parts: list[bytes] = []
        self.ended = False
        self.is_trusted: bool | None = None  # as a proxy, once gunicorn has found out
        self.begin()

    def begin(self) -> bool:
        """Looks for the next request in what gunicorn left of the last; says whether it can be handed over."""
        rest = b""
        if self.parts or self.buf.tell():
            rest = self.take_buffered() + b"".join(self.parts)
            self.parts = [rest] if rest else []
        self.size, self.seen = len(rest), 0
        self.needed: int | None = None  # in bytes, once it is known
        self.chunks: Chunks | None = None
        self.expects = False  # that the client waits for a 100 before it sends the body
        self.is_last = False  # by what the client says
        self.refusal: Exception | None = None  # of what would come yet
        return bool(rest) and self.is_whole()

    def add(self, data: bytes) -> bool:
        """Takes what has come, b"" being the end; says whether a request can be handed over."""
        if not data:
            self.ended = True
            return bool(self.parts)
        self.size += len(data)
        parts = self.parts
        if parts and (not self.seen_head or (len(parts) > 1 and len(parts[-1]) < SMALL)):
            parts[-1] += data
        else:
            parts.append(data)
        return self.follow(self.chunks, data) if self.chunks else self.is_whole()

    def clear(self) -> None:
        """Lets go of what nobody will read."""
        self.parts, self.size = [], 0

    @property
    def seen_head(self) -> bool:
        return self.needed is not None or self.chunks is not None

    @property
    def missing(self) -> int:
        """How many bytes of the request's body are yet to come, as far as it says."""
        return max(0, self.needed - self.size) if self.needed else 0

    def is_whole(self) -> bool:
        if self.needed is None:
            return self.find_head()
        return self.size >= self.needed

    def find_head(self) -> bool:
        start = self.parts[0]
        end = start.find(HEAD_END, max(0, self.seen - 3)) + len(HEAD_END)
        if end < len(HEAD_END) or end > HEAD_AT_MOST:
            self.seen = len(start)
            return self.is_hopeless(start)
        head, body = start[:end], start[end:]
        self.parts = [head, body] if body else [head]
        return self.plan(head.lower(), body)

    def is_hopeless(self, start: bytes) -> bool:
        """Whether gunicorn refuses such a start of a head, whatever follows."""
        if len(start) > HEAD_AT_MOST:
            self.parts = [start[:HEAD_AT_MOST]]  # of which gunicorn finds no end
            self.refusal = LimitRequestHeaders(f"the head is larger than {HEAD_AT_MOST} bytes")
        return self.refusal is not None or start.count(b"\n") != start.count(b"\r\n")

    def plan(self, head: bytes, body: bytes) -> bool:
        """Finds how much there must be, by the head in small letters; `body` is what came behind it."""
        self.is_last = CONNECTION in head and b"close" in options(head)
        if CODING in head:
            if (coding := value(head, CODING)) != b"chunked" or head.count(CODING) > 1:
                self.refusal = UnsupportedTransferCoding(coding.decode("latin-1"))
                return True
            self.chunks = Chunks()
            whole = self.follow(self.chunks, body)
        else:
            length = value(head, LENGTH)
            size = int(length[:20]) if length.isdigit() else 0
            if size > self.limit:
                self.refusal, size = too_large(self.limit), 0
            self.needed = len(head) + size
            whole = self.size >= self.needed
        return whole or self.is_refused(head)

    def is_refused(self, head: bytes) -> bool:
        """Whether gunicorn refuses the head, whatever body follows; else `expects` is set."""
        expected = value(head, EXPECTATION)
        self.expects = expected == b"100-continue" and b" http/1.1\r\n" in head
        if head.count(LENGTH) + head.count(CODING) > 1 or expected not in (b"", b"100-continue"):
            self.refusal = NoMoreData()
        return self.refusal is not None

    def follow(self, chunks: Chunks, data: bytes) -> bool:
        """Whether all chunks are there, or something is wrong with them."""
        whole, received = chunks.follow(data), chunks.received
        if received > self.limit:
            self.refusal = too_large(self.limit)
        elif chunks.count > CHUNKS_AT_MOST + received // LONG:
            problem = f"the body has more than {CHUNKS_AT_MOST} chunks of a few bytes"
            self.refusal = TooLarge(problem, remedy="send longer chunks")
        elif chunks.is_malformed or (not whole and self.size > 2 * received + HEAD_AT_MOST):
            self.refusal = NoMoreData()
        return whole or self.refusal is not None

    def take(self, length: int) -> bytes | None:
        """A body of `length` bytes, or what there is of it where the client has ended; None where it is not here."""
        if self.buf.tell():
            return None
        if self.parts and len(self.parts[0]) == length:
            return self.parts.pop(0)
        if not self.ended and sum(map(len, self.parts)) < length:
            return None
        joined = b"".join(self.parts)
        self.parts = [rest] if (rest := joined[length:]) else []
        return joined[:length] if rest else joined

    def chunk(self, size_hint: int | None = None) -> bytes:
        """What gunicorn reads by: the next piece."""
        if self.parts:
            part = self.parts[0]
            if len(part) > PIECE:
                self.parts[:1] = [part[place : place + PIECE] for place in range(0, len(part), PIECE)]
            return self.parts.pop(0)
        if self.refusal:
            raise self.refusal
        return b"" if self.ended else self.wait()


class Chunks:
    """A body's `count` chunks, followed as they come: `size` bytes by what they say, of which `skip` are to come."""

    def __init__(self) -> None:
        self.size = self.skip = self.count = 0
        self.line = b""
        self.is_last = self.is_malformed = False

    @property
    def received(self) -> int:
        return self.size - max(0, self.skip - 2)

    def follow(self, data: bytes) -> bool:
        """Whether `data`, which is what has come since the last call, has the end."""
        place = 0
        while place < len(data) and not self.is_malformed:
            step = min(self.skip, len(data) - place)
            self.skip -= step
            place += step
            end = data.find(b"\n", place)
            if end < 0:
                self.line += data[place:]
                self.is_malformed = len(self.line) > LINE_AT_MOST
                break
            line, self.line, place = self.line + data[place:end], b"", end + 1
            if self.is_last and line == b"\r":
                return True
            self.is_malformed = not line.endswith(b"\r")
            self.read_line(line)
        return False

    def read_line(self, line: bytes) -> None:
        """Takes a line that tells a size; those behind the last chunk are gunicorn's to read."""
        if self.is_last or self.is_malformed:
            return
        try:
            size = int(line.split(b";")[0], 16)
        except ValueError:
            size = -1
        self.is_malformed, self.is_last = size < 0, size == 0
        self.size += size
        self.count += 1
        self.skip = size + 2 if size else 0


def too_large(limit: int) -> TooLarge:
    return TooLarge("the body is too large", expected=f"at most {limit} bytes (MAX_REQUEST_BYTES)")


def options(head: bytes) -> list[bytes]:
    """What the lines of Connection list, together."""
    lines = b",".join(rest.partition(b"\r\n")[0] for rest in head.split(CONNECTION)[1:])
    return [each.strip(b" \t") for each in lines.split(b",")]


def value(head: bytes, name: bytes) -> bytes:
    """What follows the first `name` in the head, up to the line's end; empty where there is none."""
    place = head.find(name)
    if place < 0:
        return b""
    place += len(name)
    return head[place : head.find(b"\r\n", place)].strip(b" \t")
