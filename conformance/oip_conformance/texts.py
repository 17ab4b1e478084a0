"""Text for reports, which must be short and printable."""

from __future__ import annotations

MAX_EXCERPT_BYTES = 500


def shorten(text: str, length: int) -> str:
    """Return the text, or its first `length` characters and three dots."""
    if len(text) <= length:
        return text
    return f"{text[:length]}..."


def escape(character: str) -> str:
    r"""Return the Python escape of a character, such as \x00."""
    return repr(character)[1:-1]


def printable(text: str, allowed: str = "") -> str:
    """Return the text with Python escapes for unprintable characters that are not in `allowed`."""
    characters = []
    for character in text:
        if character.isprintable() or character in allowed:
            characters.append(character)
        else:
            characters.append(escape(character))
    return "".join(characters)


def show_bytes(octets: bytes, length: int = MAX_EXCERPT_BYTES) -> str:
    """Return the first `length` bytes as text. If there are more, their number follows."""
    head = octets[:length].decode(errors="backslashreplace")
    text = printable(head, allowed="\n")
    if len(octets) <= length:
        return text
    return f"{text}... ({len(octets)} bytes)"
