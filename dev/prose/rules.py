"""Rules for the language of documentation, docstrings, comments and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dev.prose.texts import Text, read_markdown_lines

MAX_WORDS, MAX_COLUMNS = 25, 100
# Lines of Markdown that cannot wrap: headings, table rows, HTML comments, and a link or an image without other text.
UNBROKEN = re.compile(r"\s*(#|\||<!--|([-*] |\d+\. )?!?\[[^\]]*\]\([^)]*\)[.:]?$)")


@dataclass(frozen=True)
class Rule:
    """A pattern of wording, and the advice for it."""

    name: str
    pattern: re.Pattern[str]
    advice: str


@dataclass(frozen=True)
class Finding:
    rule: str
    text: Text
    excerpt: str
    advice: str


def rule(name: str, pattern: str, advice: str) -> Rule:
    return Rule(name, re.compile(pattern), advice)


RULES = [
    rule(
        "told",
        r"\b(is|are|was|were|be)? ?told\b|\btells? (of|the|a|who|how|what|Prometheus)\b",
        "name the channel",
    ),
    rule("says", r"\b[Ss]ays?\b", "shows, reports, sets, defines"),
    rule("what", r"(?:^|[.:;#|]\s*)What\b(?! if\b)(?![^.]*\?)", "a noun"),
    rule(
        "what", r"\b(?:of|to|than|from|by|with|in|for|is|are|as|and|or) what\b|, what\b", "a noun"
    ),
    rule("where", r"(?:^|[.:;#|]\s*)Where\b|; where\b", "if or when for conditions"),
    rule(
        "where",
        r"\bwhere (?:it (?:is|has|can|may|does|was)|they (?:are|have|do)|there (?:is|are)|none|nobody|nothing"
        r"|one (?:is|has)|no |any |neither|given|both|that is|this is|a |an |its )",
        "if or when for conditions",
    ),
    rule("is-no", r"\b(is|are|was|were) (no|none)\b", "is not, is missing, unknown"),
    rule("alone", r"\balone\b", "only"),
    rule("beside", r"\bbesides?\b", "next to, in addition to, compared with"),
    rule("behind", r"\bbehind\b(?! (a|the) (proxy|gateway|load balancer))", "after, following"),
    rule("else", r"\b(would|could|will|must|is|are) else\b", "otherwise"),
    rule("will-do", r"\bwill( not)? do\b", "is valid"),
    rule("given-up", r"\b(giv\w+|gave) up\b|\blets? go\b", "closed, times out, dropped, released"),
    rule("unless-given", r"\b(unless|if not) (given|told)\b", "Defaults to ..."),
    rule(
        "one-per",
        r"\b(an?|one) (\w+ )?an? (line|row|input|output|column|worker|request|second|client|process)\b",
        "one X per Y",
    ),
    rule("answer", r"\banswers?\b|\banswered\b", "response, respond, return"),
    rule("so-many", r"\b[Ss]o (many|long|much)\b", "N, up to N"),
    rule(
        "metaphor",
        r"\b(doors?|strangers?|heir|deaf|newcomers?|greediest|hopeless|mend(ed)?|heed\w*)\b",
        "a term",
    ),
    rule(
        "archaic",
        r"\b(meanwhile|alike|anew|afresh|for ever|thrice|dearer|yet to|bears?|and no more)\b",
        "the modern word",
    ),
    rule("semicolon", r"[\w`)\"'\]]; [a-z]", "two sentences"),
    rule("how", r"^(?:Whether|How)\b(?![^.]*\?)", "a noun phrase or an imperative"),
    rule(
        "spelling",
        r"\b(colours?|behaviours?|licences?|serialis\w+|initialis\w+|recognis\w+|utilis\w+)\b",
        "American spelling",
    ),
]
# The end of a sentence or of a cell in a table.
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[.!?][`*\"')])\s+|\s\|(?:\s|$)|^\|\s")


def find(text: Text) -> Iterator[Finding]:
    """Yield the findings in one text."""
    for each in RULES:
        for match in each.pattern.finditer(text.content):
            start = max(0, match.start() - 30)
            yield Finding(each.name, text, text.content[start : match.end() + 30], each.advice)
    for sentence in SENTENCE_END.split(text.content):
        if sum(any(map(str.isalpha, word)) for word in sentence.split()) > MAX_WORDS:
            yield Finding("long", text, sentence, f"at most {MAX_WORDS} words per sentence")


def find_long_lines(source: str) -> Iterator[Finding]:
    """Yield the lines of prose in a Markdown page that have more than MAX_COLUMNS characters."""
    for number, line in read_markdown_lines(source):
        if len(line) > MAX_COLUMNS and not UNBROKEN.match(line):
            text = Text(line, number, number)
            yield Finding(
                "wrap", text, line[MAX_COLUMNS - 30 :], f"at most {MAX_COLUMNS} characters per line"
            )


def report(name: str, findings: Iterable[Finding]) -> str:
    """Return one line per finding."""
    return "".join(
        f"{name}:{each.text.line}: {each.rule}: {each.excerpt} ({each.advice})\n"
        for each in findings
    )
