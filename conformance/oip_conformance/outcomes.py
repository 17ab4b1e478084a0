"""Checks of the outcome of a call: status, error and outputs.

check_success() and check_error() are for the replies of the HTTP client, whose status is a number.
expect_success() and expect_error() are for responses of any form, whose kind is the name of a gRPC
status.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import grpc

from oip_conformance.client import Reply
from oip_conformance.wires import GRPC_NAMES, SUCCESS, Response

# HTTP statuses of gRPC names.
HTTP_STATUSES = {name: status for status, name in GRPC_NAMES.items()}


def error_text(reply: Any) -> str:
    """Return the error message in any format.

    It is the text of "error", its JSON if it is no text, or the whole body as text.
    """
    try:
        error = json.loads(reply.data)["error"]
    except (ValueError, TypeError, KeyError):
        return reply.data.decode(errors="replace")
    if isinstance(error, str):
        return error
    return json.dumps(error, ensure_ascii=False)


def check_error(reply: Reply, status: int) -> None:
    """Check that the reply is an error with `status`. R19 checks the format.

    422 is accepted instead of 400.
    """
    accepted = [status]
    if status == 400:
        accepted.append(422)
    assert reply.status_code in accepted, f"expected {status}, got {reply}"


def error_message(reply: Reply, status: int) -> str:
    """Check that the reply is an error with `status`, and return its text."""
    check_error(reply, status)
    return error_text(reply)


def check_success(reply: Reply) -> None:
    """Check that the reply has status 200."""
    assert reply.status_code == 200, f"expected 200, got {reply}"


def expect_success(response: Response) -> None:
    """Check that the response is a success."""
    check_kind(response, SUCCESS)


def expect_error(response: Response, kind: str, *words: str) -> None:
    """Check that the response is an error of this kind.

    Its text must contain the words, and must not contain a traceback.
    """
    check_kind(response, kind)
    check_error_text(response, words)


def check_kind(response: Response, kind: str) -> None:
    assert response.kind == kind, f"expected {describe_kind(kind)}, got {describe(response)}"


def check_error_text(response: Response, words: Iterable[str]) -> None:
    """Check that the error message contains the words, and no traceback.

    The words can be shapes such as "[1,2]". The message can contain them as "[1, 2]".
    """
    assert "Traceback" not in response.text, f"expected no traceback, got {describe(response)}"
    text = response.text.replace(", ", ",")
    missing = [word for word in words if word not in text]
    assert not missing, f"expected a text with {', '.join(missing)}, got {describe(response)}"


def describe_kind(kind: str) -> str:
    """Return the status of a kind on both transports, such as "404 / NOT_FOUND"."""
    if kind == SUCCESS:
        return "200 / OK"
    return f"{HTTP_STATUSES[kind]} / {kind}"


def describe(response: Response) -> str:
    """Describe the response in the terms of its transport."""
    if isinstance(response.raw, Reply):
        return repr(response.raw)
    if response.is_success:
        return f"OK {response.outputs}"[:300]
    return f"{response.kind}: {response.text}"


def json_object(reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a 200 response, or an empty dict."""
    if reply.status_code != 200:
        return {}
    try:
        value = reply.json
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def check_members(document: dict[str, Any], expected: dict[str, Any]) -> None:
    """Check that a JSON object has the expected members. It can have others."""
    actual = {name: document.get(name) for name in expected}
    assert actual == expected, f"expected {expected}, got {actual}"


def check_type(value: Any, expected: type) -> None:
    """Check that a value from JSON has exactly this type: true is not an int."""
    assert type(value) is expected, f"expected {expected.__name__}, got {value!r}"


def check_strings(values: Any) -> None:
    """Check that a list from JSON contains only strings."""
    for value in values:
        check_type(value, str)


def status_of(call: Callable[..., Any], *arguments: Any, **options: Any) -> grpc.StatusCode:
    """Make a gRPC call with these arguments, and return its status code."""
    try:
        call(*arguments, **options)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK
