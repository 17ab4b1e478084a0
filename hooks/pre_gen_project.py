"""Validate the answers before cookiecutter writes a file."""

import json
import re
import sys

ANSWERS = json.loads(r"""{{ cookiecutter | tojson }}""")
# The pattern and the description of the valid answers to each question.
RULES = {
    "project_slug": (
        # Not a word that YAML reads as another type, and not a command of each virtual environment.
        r"(?!(y|n|yes|no|on|off|true|false|null|activate|deactivate|python3?|pip3?|uvx?)$)"
        r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?",
        "a letter, then lower-case letters, digits and hyphens, at most 50 characters, such as"
        " iris-service, and not a word like yes, no, on or off, or a command like pip or python",
    ),
    "model_name": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such"
        " as iris",
    ),
    "model_version": (
        r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?",
        "letters, digits, dots, hyphens and underscores, with a letter or digit at both ends, such"
        " as 1 or v1.2",
    ),
    # Docker's syntax: an optional registry host, then path components.
    "image_repository": (
        r"(?=.{1,255}$)([a-z0-9]+(-+[a-z0-9]+)*([.][a-z0-9]+(-+[a-z0-9]+)*)*(:[0-9]+)?/)?"
        r"[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|__?|-+)[a-z0-9]+)*)*",
        "a repository's lower-case name without a tag, such as ghcr.io/you/iris-service",
    ),
    "apt_packages": (
        r"([a-z0-9][a-z0-9+.-]*[a-z0-9+]( [a-z0-9][a-z0-9+.-]*[a-z0-9+])*)?",
        "names of Debian packages separated by one space, such as libgl1 libsndfile1, or an empty"
        " value",
    ),
    "project_name": (r"(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{1,200}", "one line of text"),
    # In setup.cfg, `file:` and `attr:` would read the value from elsewhere.
    "description": (
        r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,500}",
        "one line of text that does not start with `file:` or `attr:`",
    ),
    "author": (
        r"(?!\s*(file|attr):)[^\x00-\x1f\x7f-\x9f\u2028\u2029]{0,200}",
        "one line of text that does not start with `file:` or `attr:`",
    ),
    "docs_url": (
        r"(https?://[^\s()<>]+)?",
        "a URL, such as https://example.org/docs, or an empty value",
    ),
}

problems = []
for name, (pattern, expected) in RULES.items():
    answer = ANSWERS[name]
    if not re.fullmatch(pattern, answer):
        problems.append(f"Invalid {name}. Expected {expected}, got {answer!r}.")
for name in RULES:
    answer = ANSWERS[name]
    if re.search(r"\{[#%{]", answer):  # `cruft update` would render the tag
        problems.append(
            f"Invalid {name}. Expected no brace that opens a Jinja tag, got {answer!r}."
        )
if problems:
    sys.exit("\n".join(problems))
