"""Read a page as steps: files to write and commands to run, each with the output that the page shows.

A page follows these conventions:

- A line that ends with `PATH`: names the file in the block after it. The path is relative to a project.
- An indented block, or one of `bash`, has commands. The block of `text` or `json` directly after it is their output.
  It also is if the sentence between them introduces it, such as `The output ends with:` or `The response contains:`.
- A block below `The service logs:` has lines that the service has printed since its start.
- A block of `python` without a path is a script. It continues the scripts before it on the page.
- Other blocks are data or directives of the documentation site.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

BLOCK = re.compile(
    r"^(?P<fence> *)```(?P<language>[^\n]*)\n(?P<fenced>.*?)^ *```$|(?<=\n\n)(?P<indented>(?: {4}[^\n]*\n)+)",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"`([\w./-]+\.\w+)`:$")
COMMENT = re.compile(r" {2,}#.*")
OUTPUTS = {"text", "json"}
LOGGED = "The service logs:"
# The sentence in front of an output.
INTRODUCED = re.compile(r"\b(output|response|directory|prints|shows)\b.*:$")
# In front of a script: the names of the scripts before it, without their output.
CONTINUED = "import contextlib\n\nwith contextlib.redirect_stdout(None):\n    from {} import *\n\n"


@dataclass
class Block:
    """A block of a page: the text between it and the block before it, the language, and the content."""

    before: str
    language: str
    content: str

    @property
    def label(self) -> str:
        """Return the last line in front."""
        return self.before.rpartition("\n")[2]

    @property
    def sentence(self) -> str:
        """Return the last sentence in front."""
        paragraph = self.before.rpartition("\n\n")[2]
        return re.split(r"(?<=\.) ", " ".join(paragraph.split()))[-1]

    @property
    def is_output(self) -> bool:
        """Return true if the block is the output of the commands before it."""
        return self.language in OUTPUTS and (
            not self.before or INTRODUCED.search(self.sentence) is not None
        )


@dataclass
class File:
    """A file that the reader of a page writes."""

    name: str
    content: str


@dataclass
class Step:
    """The commands of a block, with their output and its language."""

    commands: list[str]
    language: str = "text"
    output: str = ""


@dataclass
class Log:
    """Lines that the service has printed since its start."""

    lines: str


@dataclass
class Guide:
    """The files, commands and lines of the log of a page, in the order of the page."""

    parts: list[File | Step | Log] = field(default_factory=list)

    @property
    def files(self) -> dict[str, str]:
        return {part.name: part.content for part in self.parts if isinstance(part, File)}

    @property
    def steps(self) -> list[Step]:
        return [part for part in self.parts if isinstance(part, Step)]


def find_blocks(text: str) -> Iterator[Block]:
    """Yield the fenced and the indented blocks of a page."""
    end = 0
    for match in BLOCK.finditer(f"{text}\n"):
        before = text[end : match.start()].strip()
        if match["indented"]:
            yield Block(before, "bash", textwrap.dedent(match["indented"]))
        else:
            content = re.sub(f"^{match['fence']}", "", match["fenced"], flags=re.MULTILINE)
            yield Block(before, match["language"], content)
        end = match.end()


def split_commands(block: str) -> list[str]:
    """Return the commands of a block, without their comments.

    A command with open quotes or a backslash at the end has several lines.
    """
    commands, current = [], ""
    for line in block.splitlines():
        current += f"{line}\n"
        if _is_complete(current):
            commands.append(COMMENT.sub("", current).strip())
            current = ""
    assert not current.strip(), f"a command does not end: {current}"
    return [command for command in commands if command]


def _is_complete(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return not text.rstrip().endswith("\\")


def _expected(block: Block) -> str:
    """Return the output of a block, with `…` for the parts that it omits according to the sentence in front."""
    excerpt = block.content.rstrip("\n")
    if block.language != "text" or " output " not in f"{block.sentence} ":
        return block.content
    if "contains" in block.sentence:
        return f"…{excerpt}…\n"
    return f"…{excerpt}\n" if "ends with" in block.sentence else block.content


def read_guide(text: str) -> Guide:
    """Return the files and commands of a page.

    Raise AssertionError if a block of shell or Python is neither a file, nor commands, nor a script.
    """
    guide, scripts = Guide(), 0
    for block in find_blocks(text):
        named = FILE.search(block.label)
        if block.language == "bash":
            guide.parts.append(Step(split_commands(block.content)))
        elif named:
            guide.parts.append(File(named[1], block.content))
        elif block.language == "python":
            scripts += 1
            before = CONTINUED.format(f"script{scripts - 1}") if scripts > 1 else ""
            guide.parts += [
                File(f"script{scripts}.py", before + block.content),
                Step([f".venv/bin/python script{scripts}.py"]),
            ]
        elif block.sentence == LOGGED:
            guide.parts.append(Log(block.content))
        elif (
            block.is_output
            and guide.parts
            and isinstance(guide.parts[-1], Step)
            and not guide.parts[-1].output
        ):
            commands = guide.parts.pop().commands
            if "last command" in block.sentence:
                guide.parts.append(Step(commands[:-1]))
                commands = commands[-1:]
            guide.parts.append(Step(commands, block.language, _expected(block)))
        else:
            assert block.language not in ("", "sh", "shell", "console", "py", "pycon"), (
                f"not tested:\n{block.content}"
            )
    return guide
