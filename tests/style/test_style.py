"""The texts of this repository follow the language rules: few findings per 1,000 words."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.style.rules import find, report
from tests.style.texts import Text, read_texts

ROOT = Path(__file__).parents[2]
SERVICE = ("app/", "grpc_service/", "gunicorn.conf.py")
# Licenses have other authors, measurements write the results, and the rules and their test contain the words to avoid.
EXEMPT = ("licenses/", "benchmarks/results/", "chaos/results/", "tests/style/rules.py", "tests/style/test_style.py")
# Findings per 1,000 words.
LIMITS = {"documentation": 5, "service": 8, "tests and tools": 12}


def classify(name: str) -> str:
    """Return the group of a file. Manifests and the chart are documentation: users read their comments."""
    if Path(name).suffix in {".md", ".yaml", ".yml"}:
        return "documentation"
    return "service" if name.startswith(SERVICE) else "tests and tools"


def texts_of(group: str) -> Iterator[tuple[str, Text]]:
    """Yield the texts of a group with the names of their files."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        has_texts = Path(name).suffix in {".py", ".md", ".yaml", ".yml"} and not name.startswith(EXEMPT)
        is_file = (ROOT / name).is_file() and not (ROOT / name).is_symlink()
        if has_texts and is_file and classify(name) == group:
            yield from ((name, text) for text in read_texts(ROOT / name))


@pytest.mark.parametrize("group", LIMITS)
def test_findings_are_few(group: str) -> None:
    """Each group of files has at most its limit of findings per 1,000 words."""
    count, words, findings = 0, 0, ""
    for name, text in texts_of(group):
        found = list(find(text))
        count, words, findings = count + len(found), words + text.words, findings + report(name, found)
    assert words > 0
    assert count * 1000 <= LIMITS[group] * words, f"{count} findings in {words} words:\n{findings}"


@pytest.mark.parametrize(
    ("content", "rules"),
    [
        ("The client is told of the error; it retries.", ["told", "semicolon"]),
        ("What waits is dropped where it has no deadline.", ["what", "where"]),
        ("A row a line, unless given.", ["unless-given"]),
        ("one output a row", ["one-per"]),
        ("Its answer has a colour.", ["answer", "spelling"]),
        (" ".join(["word"] * 26), ["long"]),
        ("The client receives the error and retries. " + " ".join(["word"] * 25), []),
    ],
)
def test_rules_find_wording(content: str, rules: list[str]) -> None:
    """The rules find the wording that they describe, and nothing else."""
    assert [each.rule for each in find(Text(content, 1, 1))] == rules


def test_texts_of_files(tmp_path: Path) -> None:
    """Texts are paragraphs, docstrings, comments and messages. Code is not a text."""
    markdown, python = tmp_path / "a.md", tmp_path / "a.py"
    markdown.write_text("# Title\n\nOne\nparagraph.\n- An item\n\n    code; code\n\n```\ncode\n```\n| a | b |\n")
    python.write_text('"""One\nparagraph.\n\nAnother."""\nx = "a text of four words"  # trailing\n# a\n# block\n')
    assert [each.content for each in read_texts(markdown)] == ["# Title", "One paragraph.", "- An item", "| a | b |"]
    texts = ["One paragraph.", "Another.", "a text of four words", "trailing", "a block"]
    assert [each.content for each in read_texts(python)] == texts
