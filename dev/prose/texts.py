"""The texts of a file that its readers see: paragraphs, docstrings, comments and messages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
# A line that starts a text: empty, a heading, a list item, a table row, HTML, `name: ` or a line of a tree.
START = re.compile(r"\s*($|#|[-*] |\d+\. |\||<!--|\w+: |[├│└])")
COMMENT = re.compile(r"\s*#")
PROTO_COMMENT = re.compile(r"(.*?)// *(.*)")
# Comments that only tools read.
DIRECTIVE = re.compile(r"# ?(noqa|type:|nosec|fmt:)")


@dataclass(frozen=True)
class Text:
    """A paragraph, docstring, comment or message, with its lines joined. `line` and `end` are its first and last."""

    content: str
    line: int
    end: int

    @property
    def words(self) -> int:
        return len(self.content.split())


def read_texts(path: Path) -> Iterator[Text]:
    """Yield the texts of a Markdown, Python or YAML file. Of other files, such as a Dockerfile, yield the comments."""
    source = path.read_text(errors="replace")
    readers = {
        ".py": read_python,
        ".md": read_markdown,
        ".yaml": read_yaml,
        ".yml": read_yaml,
        ".proto": read_proto,
    }
    return readers.get(path.suffix, read_comment_lines)(source)


def read_markdown(source: str) -> Iterator[Text]:
    """Yield the paragraphs, list items, table rows and headings, without blocks of code."""
    return join_lines(read_markdown_lines(source))


def read_markdown_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the content of each line of a Markdown page. Lines of code are empty."""
    source = FENCE.sub(lambda match: "\n" * match[0].count("\n"), source)
    previous = ""
    for number, line in enumerate(source.splitlines(), 1):
        # An indented line directly after a line of text belongs to the same list item.
        is_code = line.startswith("    ") and not previous.strip()
        previous = "" if is_code else line
        yield number, previous


def read_yaml(source: str) -> Iterator[Text]:
    """Yield each block of comments, and each other line."""
    yield from read_comment_lines(source)
    for number, line in enumerate(source.splitlines(), 1):
        if not COMMENT.match(line):
            yield Text(line, number, number)


def read_comment_lines(source: str) -> Iterator[Text]:
    """Yield each block of lines that are comments."""
    lines = enumerate(source.splitlines(), 1)
    return join_lines(
        (number, line.strip().lstrip("#- ")) for number, line in lines if COMMENT.match(line)
    )


def read_proto(source: str) -> Iterator[Text]:
    """Yield each block of lines that are comments, and each comment after a field."""
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(source.splitlines(), 1):
        if found := PROTO_COMMENT.match(line):
            separator = [(number, "")] if found[1].strip() else []
            lines += [*separator, (number, found[2]), *separator]
    return join_lines(lines)


def read_python(source: str) -> Iterator[Text]:
    """Yield the paragraphs of docstrings, the messages and the comments."""
    docstrings = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node):
                docstrings.add(node.body[0].value)  # type: ignore[attr-defined]
                yield from join_lines(enumerate(docstring.splitlines(), node.body[0].lineno))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node not in docstrings
        ):
            # A message has one line and several words. Others are names, code or data.
            is_message = node.value.count(" ") > 2 and "\n" not in node.value
            yield from (
                [Text(node.value, node.lineno, node.end_lineno or node.lineno)]
                if is_message
                else []
            )
    yield from join_lines(read_comments(source))


def read_comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment. Empty texts separate comments that follow code on a line."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not DIRECTIVE.match(token.string):
            text = token.start[0], token.string.removeprefix("#").strip()
            separator = [(token.start[0], "")] if token.line[: token.start[1]].strip() else []
            yield from [*separator, text, *separator]


def join_lines(lines: Iterable[tuple[int, str]]) -> Iterator[Text]:
    """Join the lines of each paragraph."""
    block: list[tuple[int, str]] = []
    for number, line in lines:
        if block and (
            START.match(line) or block[-1][1].startswith("#") or number != block[-1][0] + 1
        ):
            yield join_block(block)
            block = []
        if line.strip():
            block.append((number, line))
    if block:
        yield join_block(block)


def join_block(block: list[tuple[int, str]]) -> Text:
    return Text(" ".join(line.strip() for _, line in block), block[0][0], block[-1][0])
