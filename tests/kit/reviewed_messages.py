"""The file messages.txt: the error messages of the tests, so that a review shows changed wording.

It has a section for each suite, which starts with a line such as
`# Cases of tests/service/test_errors.py`.
"""

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
    r"""(?<=[A-Z] )/\S*(?=:)|(?<=[Gg]ot ).*?(?=\. [A-Z]|\.?$)"""
    r"""|"[^"]*"|'[^']*'|\[[^]]*\]|[+-]?\d[\w.+-]*"""
)


def check_messages(suite: str, messages: Iterable[str]) -> None:
    """Compare the messages with those of the suite in messages.txt. UPDATE_MESSAGES=1 writes them.

    The name of the suite ends with the path of its test file.
    """
    stable_messages = {VOLATILE.sub("…", escape(message)) for message in messages}
    current = sorted(stable_messages - {""})

    sections = read_messages()
    if os.environ.get("UPDATE_MESSAGES"):
        sections[suite] = current
        write_messages(sections)

    reviewed = sections.get(suite, [])
    removed = [f"- {message}" for message in reviewed if message not in current]
    added = [f"+ {message}" for message in current if message not in reviewed]
    if not removed and not added:
        return

    command = f"UPDATE_MESSAGES=1 python -m pytest {path_of(suite)}"
    remedy = f"Review them. To renew messages.txt, run: {command}"
    raise AssertionError("\n".join(["Error messages have changed:", *removed, *added, remedy]))


def path_of(suite: str) -> str:
    """Return the path in the name of a suite."""
    last_word = suite.split()[-1]
    return last_word.strip("()")


def escape(message: str) -> str:
    """Return the message on one line."""
    escaped = ""
    for character in message:
        if character.isprintable():
            escaped += character
        else:
            escaped += repr(character).strip("'")
    return escaped


def read_messages() -> dict[str, list[str]]:
    """Return the messages in messages.txt by suite."""
    sections: dict[str, list[str]] = {}
    for line in MESSAGES.read_text(encoding="utf-8").split("\n"):
        if line.startswith("# "):
            suite = line.removeprefix("# ")
            sections.setdefault(suite, [])
        elif line:
            sections[suite].append(line)
    return sections


def write_messages(sections: dict[str, list[str]]) -> None:
    """Write messages.txt with a section for each suite, in alphabetical order."""
    parts = []
    for suite, messages in sorted(sections.items()):
        lines = [f"# {suite}", *messages]
        parts.append("\n".join(lines) + "\n")
    MESSAGES.write_text("\n".join(parts), encoding="utf-8")


def one_of_each(messages: Iterable[str]) -> list[str]:
    """Return the shortest of the messages that differ only in their values."""

    def length_and_text(message: str) -> tuple[int, str]:
        return len(message), message

    shortest: dict[str, str] = {}
    for message in sorted(messages, key=length_and_text):
        pattern = VALUE.sub("…", message).rstrip("….")
        shortest.setdefault(pattern, message)
    return list(shortest.values())
