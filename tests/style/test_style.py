"""The texts of this repository follow the language rules: few findings per 1,000 words."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.style.rules import find, find_long_lines, report
from tests.style.texts import Text, read_texts

ROOT = Path(__file__).parents[2]
SERVICE = ("app/", "grpc_service/", "gunicorn.conf.py")
# Licenses have other authors, measurements write the results, and the rules and their test contain the words to avoid.
EXEMPT = (
    "{{cookiecutter.project_slug}}/licenses/",
    "dev/benchmarks/results/",
    "dev/chaos/results/",
    "tests/style/rules.py",
    "tests/style/test_style.py",
)
DEPLOYED = ("/Dockerfile", ".dockerignore")
CONFIGURED = ("Makefile", ".mk", ".cfg", ".toml", ".ini")
# Findings per 1,000 words.
LIMITS = {"documentation": 5, "service": 8, "tests and tools": 12}


def classify(name: str) -> str:
    """Return the group of a file. Users read the comments of deploy/ and protos/, so these are documentation."""
    if Path(name).suffix in {".md", ".yaml", ".yml", ".proto"} or name.endswith(DEPLOYED):
        return "documentation"
    return "service" if name.startswith(SERVICE) else "tests and tools"


def names_of(*suffixes: str) -> Iterator[str]:
    """Yield the names of the files with one of the suffixes, without exempt files and links."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.splitlines():
        is_file = (ROOT / name).is_file() and not (ROOT / name).is_symlink()
        if name.endswith(suffixes) and is_file and not name.startswith(EXEMPT):
            yield name


def texts_of(group: str) -> Iterator[tuple[str, Text]]:
    """Yield the texts of a group with the names of their files."""
    for name in names_of(".py", ".md", ".yaml", ".yml", ".proto", *DEPLOYED, *CONFIGURED):
        if classify(name) == group:
            yield from ((name, text) for text in read_texts(ROOT / name))


@pytest.mark.parametrize("group", LIMITS)
def test_findings_are_few(group: str) -> None:
    """Each group of files has at most its limit of findings per 1,000 words."""
    count, words, findings = 0, 0, ""
    for name, text in texts_of(group):
        found = list(find(text))
        count, words, findings = (
            count + len(found),
            words + text.words,
            findings + report(name, found),
        )
    assert words > 0
    assert count * 1000 <= LIMITS[group] * words, f"{count} findings in {words} words:\n{findings}"


def test_prose_is_wrapped() -> None:
    """No line of prose in a Markdown page has more than 100 characters."""
    findings = [
        report(name, find_long_lines((ROOT / name).read_text())) for name in names_of(".md")
    ]
    assert findings
    assert not any(findings), "".join(findings)


@pytest.mark.parametrize(
    ("content", "rules"),
    [
        ("The client is told of the error; it retries.", ["told", "semicolon"]),
        ("What waits is dropped where it has no deadline.", ["what", "where"]),
        ("A row a line, unless given.", ["unless-given"]),
        ("one output a row", ["one-per"]),
        ("one an input, and then no contents", ["one-per"]),
        ("Its answer has a colour.", ["answer", "spelling"]),
        ("The utilisation of the CPU", ["spelling"]),
        (" ".join(["word"] * 26), ["long"]),
        ("The client receives the error and retries. " + " ".join(["word"] * 25), []),
    ],
)
def test_rules_find_wording(content: str, rules: list[str]) -> None:
    """The rules find the wording that they describe, and nothing else."""
    assert [each.rule for each in find(Text(content, 1, 1))] == rules


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        ("A line.\n" + "word " * 21, [2]),
        ("- An item\n\n" + "- word" * 21, [3]),
        ("- An item\n  - Another\n    " + "word " * 20, [3]),
        ("word " * 20, []),
        ("# " + "word " * 21, []),
        ("| " + "word " * 21 + "|", []),
        ("- [" + "word " * 21 + "](page.md)", []),
        ("![" + "word " * 21 + "](chart.png)", []),
        ("Code:\n\n    " + "word " * 21 + "\n\n```\n" + "word " * 21 + "\n```\n", []),
    ],
)
def test_long_lines_are_found(content: str, lines: list[int]) -> None:
    """Lines of prose are findings if they are too long. Headings, tables, links and code are not prose."""
    assert [each.text.line for each in find_long_lines(content)] == lines


def test_texts_of_files(tmp_path: Path) -> None:
    """Texts are paragraphs, docstrings, comments and messages. Code is not a text."""
    names = ("a.md", "a.py", "Dockerfile", "a.proto")
    markdown, python, dockerfile, proto = (tmp_path / name for name in names)
    markdown.write_text(
        "# Title\n\nOne\nparagraph.\n- An item\n\n    code; code\n\n```\ncode\n```\n| a | b |\n"
    )
    python.write_text(
        '"""One\nparagraph.\n\nAnother."""\nx = "a text of four words"  # trailing\n# a\n# block\n'
    )
    assert [each.content for each in read_texts(markdown)] == [
        "# Title",
        "One paragraph.",
        "- An item",
        "| a | b |",
    ]
    texts = ["One paragraph.", "Another.", "a text of four words", "trailing", "a block"]
    assert [each.content for each in read_texts(python)] == texts
    dockerfile.write_text("# One\n# comment\nRUN a; b\n")
    assert [each.content for each in read_texts(dockerfile)] == ["One comment"]
    proto.write_text("// One\n// comment\nstring a = 1; // trailing\nstring b = 2;  // another\n")
    assert [each.content for each in read_texts(proto)] == ["One comment", "trailing", "another"]
