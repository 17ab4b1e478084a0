"""The file messages.txt: the error messages of the tests, by suite, so that a review shows changed wording."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

MESSAGES = Path(__file__).with_name("messages.txt")
# Texts of other libraries, which differ between their versions.
VOLATILE = re.compile(
    r"(?<=Invalid JSON: ).*(?=\.)|(?<=(?:gzip|late) body: )Error.*|(?<=Malformed request: ).*"
    r"|(?<=nvalid JSON\. Got ).*|(?<=nvalid base64\. Got )[^.]*|(?<=represent a value\. Got ).*"
    r"|(?<=message\. Got ).*|(?<=not an array\. Got ).*(?=\. Pad)"
)
# Values: a path, the client's data, names in quotes, lists and numbers.
VALUE = re.compile(
    r"""(?<=[A-Z] )/\S*(?=:)|(?<=[Gg]ot ).*?(?=\. [A-Z]|\.?$)|"[^"]*"|'[^']*'|\[[^]]*\]|[+-]?\d[\w.+-]*"""
)


def check_messages(suite: str, messages: Iterable[str]) -> None:
    """Compare the messages with those of the suite in messages.txt. UPDATE_MESSAGES=1 writes them.

    The name of the suite ends with the path of its test file.
    """
    found = sorted({VOLATILE.sub("…", escape(message)) for message in messages} - {""})
    reviewed = read_messages()
    if os.environ.get("UPDATE_MESSAGES"):
        reviewed[suite] = found
        parts = [
            "".join(f"{line}\n" for line in (f"# {name}", *lines))
            for name, lines in sorted(reviewed.items())
        ]
        MESSAGES.write_text("\n".join(parts), encoding="utf-8")
    before = reviewed.get(suite, [])
    changes = [
        *(f"- {each}" for each in before if each not in found),
        *(f"+ {each}" for each in found if each not in before),
    ]
    remedy = f"Review them. To renew messages.txt, run: UPDATE_MESSAGES=1 python -m pytest {path_of(suite)}"
    assert not changes, "\n".join(["Error messages have changed:", *changes, remedy])


def path_of(suite: str) -> str:
    """Return the path in the name of a suite."""
    return suite.split()[-1].strip("()")


def escape(message: str) -> str:
    """Return the message on one line."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in message)


def read_messages() -> dict[str, list[str]]:
    """Return the messages in messages.txt by suite."""
    reviewed: dict[str, list[str]] = {}
    for line in filter(None, MESSAGES.read_text(encoding="utf-8").split("\n")):
        if line.startswith("# "):
            lines = reviewed.setdefault(line[2:], [])
        else:
            lines.append(line)
    return reviewed


def one_of_each(messages: Iterable[str]) -> list[str]:
    """Return the shortest of the messages that differ only in their values."""
    shortest: dict[str, str] = {}
    for message in sorted(messages, key=lambda each: (len(each), each)):
        shortest.setdefault(VALUE.sub("…", message).rstrip("…."), message)
    return list(shortest.values())
