"""What pandas does not tell of a CSV, or not where: rows longer or shorter than the header, and what is no UTF-8."""

from __future__ import annotations

import codecs
import csv
import sys
from operator import methodcaller

from app.cli.common import Failure, counted


def check_text(name: str, data: bytes, line: int = 0) -> None:
    """Failure where the data, behind so many lines, are no UTF-8."""
    try:
        data.isascii() or data.decode()
    except UnicodeDecodeError as error:
        where = line + 1 + data.count(b"\n", 0, error.start)
        raise Failure(f"{name}: line {where} is not UTF-8; iconv -f latin1 -t utf-8, if it is Latin-1") from None


class Ragged:
    """Takes a file's bytes as they are read; raises Failure at the first row that has not `width` fields in UTF-8."""

    def __init__(self, name: str, separator: str, width: int):
        self.name, self.separator, self.width = name, separator, width
        self.rest, self.line = b"", 0
        self.row = separator.encode() * (width - 1) + b"\n"
        self.others = bytes(set(range(256)) - set(self.row) - set(b"\n" + separator.encode()))

    def take(self, piece: bytes) -> None:
        """The next bytes, none at the end."""
        if not self.line and not self.rest:
            piece = piece.removeprefix(codecs.BOM_UTF8)
        data = self.rest + piece
        end = len(data)
        if piece:  # not behind a \r that may have its \n in the next
            end = (data.rfind(b"\n") + 1) or (data.rfind(b"\r", 0, -1) + 1)
        whole, self.rest = data[:end], data[end:]
        if b"\r" in whole:
            whole = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        check_text(self.name, whole, self.line)
        if b'"' not in whole and self.is_even(whole):
            return
        lines = whole.split(b"\n")
        if not lines[-1]:
            lines.pop()
        if b'"' in whole:
            self.quoted(lines, is_end=not piece)
        else:
            self.plain(lines)

    def is_even(self, whole: bytes) -> bool:
        """Whether all lines of `whole` have as many fields as the header; the quick way, for most have."""
        marks = whole.translate(None, self.others)
        count = marks.count(b"\n")
        if marks != self.row * count:
            return False
        self.line += count
        return True

    def plain(self, lines: list[bytes]) -> None:
        count = methodcaller("count", self.separator.encode())
        if not set(map(count, lines)) <= {self.width - 1}:
            for number, line in enumerate(lines, 1):
                self.check(count(line) + 1, number, is_blank=not line.strip())
        self.line += len(lines)

    def quoted(self, lines: list[bytes], is_end: bool) -> None:
        """The same where separators and ends of lines may be quoted; the last row may not be whole, and waits."""
        csv.field_size_limit(sys.maxsize)
        reader = csv.reader((line.decode("latin-1") + "\n" for line in lines), delimiter=self.separator)
        start, end = 0, 0
        waiting: tuple[int, int, bool] | None = None
        for row in reader:
            if waiting:
                self.check(*waiting)
            start, waiting = end, (len(row), end + 1, len(row) < 2 and not "".join(row).strip())
            end = reader.line_num
        if not is_end:
            self.rest = b"\n".join([*lines[start:], self.rest])
        elif waiting:
            self.check(*waiting)
        self.line += start

    def check(self, fields: int, number: int, is_blank: bool) -> None:
        if fields != self.width and not is_blank:
            found = counted(fields, "field")
            raise Failure(f"{self.name}: line {self.line + number} has {found}, and the first line {self.width}")
