"""Checks of the outcome of a call: status, error and outputs."""

from __future__ import annotations

import json
from typing import Any

from oip_conformance.client import Reply
from oip_conformance.wires import KINDS, Response

STATUSES = {"ok": "200 / OK", **{kind: f"{status} / {kind}" for status, kind in KINDS.items()}}


def text_of(reply: Any) -> str:
    """Return the error message in any format: the text of "error", its JSON, or the whole body as text."""
    try:
        error = json.loads(reply.data)["error"]
    except (ValueError, TypeError, KeyError):
        return reply.data.decode(errors="replace")
    if isinstance(error, str):
        return error
    return json.dumps(error, ensure_ascii=False)


def error_message(reply: Reply, status: int) -> str:
    """Check that the reply is an error with `status`, or 422 instead of 400. Return its text. R19 checks the format."""
    good = reply.status_code == status or (status, reply.status_code) == (400, 422)
    assert good, f"expected {status}, got {reply}"
    return text_of(reply)


def success(reply: Reply) -> Reply:
    """Check that the reply has status 200, and return it."""
    assert reply.status_code == 200, f"expected 200, got {reply}"
    return reply


def expect(response: Response, kind: str = "ok", *named: str) -> Response:
    """Check the kind of a response. Its text must contain the words in `named`, and must not contain a traceback."""
    assert response.kind == kind, f"expected {STATUSES[kind]}, got {got(response)}"
    assert "Traceback" not in response.text, f"expected no traceback, got {got(response)}"
    missing = [word for word in named if word not in response.text]
    assert not missing, f"expected a text with {', '.join(missing)}, got {got(response)}"
    return response


def got(response: Response) -> str:
    """Describe the response in the terms of its transport."""
    if isinstance(response.raw, Reply):
        return repr(response.raw)
    return (
        f"OK {response.outputs}"[:300]
        if response.kind == "ok"
        else f"{response.kind}: {response.text}"
    )


def members(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a 200 response, or an empty dict."""
    try:
        value = reply.json if reply.status_code == 200 else {}
    except ValueError:
        value = {}
    return value if isinstance(value, dict) else {}


def check_type(value: Any, kind: type) -> None:
    """Check that a value from JSON has exactly this type: true is not an int."""
    assert type(value) is kind, f"expected {kind.__name__}, got {value!r}"
