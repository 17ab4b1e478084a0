"""Content types of inputs, as in MLServer (C2, C5, C7)."""

from __future__ import annotations

import pytest

from oip_conformance.inputs import outputs_of, vector
from oip_conformance.model import input_of
from oip_conformance.outcomes import expect_error
from oip_conformance.target import Target

pytestmark = pytest.mark.needs("content types")
TEXT_VALUES = [b"a", "naïve 🌷".encode()]
TEXT_INPUT = vector("BYTES", TEXT_VALUES)


def test_text(target: Target, form: str) -> None:
    """C7: the elements of content type str are text, in every form."""
    response = target.infer_successfully(form, [TEXT_INPUT], content_types={"bytes_in": "str"})
    assert response.outputs["bytes_out"].values == TEXT_VALUES


def test_base64(target: Target, form: str) -> None:
    """C7: the elements of content type base64 are decoded before the model receives them, in every
    form.
    """
    encoded = vector("BYTES", [b"aGVsbG8=", b""])
    response = target.infer_successfully(form, [encoded], content_types={"bytes_in": "base64"})
    assert response.outputs["bytes_out"].values == [b"hello", b""]


@pytest.mark.parametrize("text", ["aGV*", "aGVsbG8"])
def test_invalid_base64(target: Target, form: str, text: str) -> None:
    """C7: an element of content type base64 that is not base64 is rejected."""
    tensor = vector("BYTES", [text.encode()])
    response = target.infer(form, [tensor], content_types={"bytes_in": "base64"})
    expect_error(response, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    ("datatype", "values"), [("INT32", [1, -2]), ("FP64", [0.1, -2.0]), ("BOOL", [True, False])]
)
def test_array(target: Target, form: str, datatype: str, values: list) -> None:
    """C5: an input of content type np has the dtype of its datatype, in every form."""
    tensor = vector(datatype, values)
    content_types = {input_of(datatype): "np"}
    response = target.infer_successfully(form, [tensor], content_types=content_types)
    assert response.outputs == outputs_of(tensor)


def test_unknown_content_type(target: Target, form: str) -> None:
    """C2: an unknown content type is rejected."""
    response = target.infer(form, [TEXT_INPUT], content_types={"bytes_in": "no-such-type"})
    expect_error(response, "INVALID_ARGUMENT")
