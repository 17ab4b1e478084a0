"""Content types of inputs, as in MLServer (C2, C5, C7)."""

from __future__ import annotations

import pytest

from oip_conformance.outcomes import expect
from oip_conformance.target import Target
from oip_conformance.wires import Sent

pytestmark = pytest.mark.needs("content types")
TEXT: Sent = ("bytes_in", "BYTES", [2], [b"a", "naïve 🌷".encode()])


def test_text(target: Target, form: str) -> None:
    """C7: the elements of content type str are text, in every form."""
    response = expect(target.infer(form, [TEXT], content_types={"bytes_in": "str"}))
    assert response.outputs["bytes_out"][2] == TEXT[3]


def test_base64(target: Target, form: str) -> None:
    """C7: the elements of content type base64 are decoded before the model receives them, in every form."""
    sent: Sent = ("bytes_in", "BYTES", [2], [b"aGVsbG8=", b""])
    response = expect(target.infer(form, [sent], content_types={"bytes_in": "base64"}))
    assert response.outputs["bytes_out"][2] == [b"hello", b""]


@pytest.mark.parametrize("text", ["aGV*", "aGVsbG8"])
def test_invalid_base64(target: Target, form: str, text: str) -> None:
    """C7: an element of content type base64 that is not base64 is rejected."""
    sent: Sent = ("bytes_in", "BYTES", [1], [text.encode()])
    expect(target.infer(form, [sent], content_types={"bytes_in": "base64"}), "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("datatype", "values"), [("INT32", [1, -2]), ("FP64", [0.1, -2.0]), ("BOOL", [True, False])]
)
def test_array(target: Target, form: str, datatype: str, values: list) -> None:
    """C5: an input of content type np has the dtype of its datatype, in every form."""
    name = datatype.lower()
    sent: Sent = (f"{name}_in", datatype, [2], values)
    response = expect(target.infer(form, [sent], content_types={f"{name}_in": "np"}))
    assert response.outputs[f"{name}_out"] == sent[1:]


def test_unknown_content_type(target: Target, form: str) -> None:
    """C2: an unknown content type is rejected."""
    expect(
        target.infer(form, [TEXT], content_types={"bytes_in": "no-such-type"}), "INVALID_ARGUMENT"
    )
