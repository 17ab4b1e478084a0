"""Content types of requested outputs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.api import InputCodec, register_input_codec
from app.protocol.messages import InferenceResponse
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import ResponseOutput
from oip_conformance.wires import error_message
from tests.kit import models
from tests.service.codecs.batched import ALL_FORMS, infer_in_one_batch
from tests.service.codecs.content_type_models import MOMENTS, returning

TEXT = ["a", "é"]
OCTETS = [b"a", "é".encode()]


@pytest.mark.parametrize(
    ("metadata", "value", "requested", "expected"),
    [
        (None, TEXT, "str", OCTETS),
        (None, TEXT, "base64", [b"YQ==", b"w6k="]),
        (None, [b"\xff"], "base64", [b"/w=="]),
        (None, TEXT, "np", OCTETS),
        ("str", TEXT, "str", OCTETS),
        ("str", TEXT, "np", OCTETS),
        ("str", TEXT, "base64", [b"YQ==", b"w6k="]),
        ("str", TEXT, "pd_json", [b'"a"', '"é"'.encode()]),
        ("str", ["2024-01-02"], "datetime", [b"2024-01-02"]),
        ("str", pd.Series(TEXT), "base64", [b"YQ==", b"w6k="]),
        ("str", np.array(TEXT), "base64", [b"YQ==", b"w6k="]),
        (
            "str",
            InferenceResponse([ResponseOutput("y", "BYTES", data=TEXT)]),
            "base64",
            [b"YQ==", b"w6k="],
        ),
        ("base64", OCTETS, "str", OCTETS),
        ("base64", OCTETS, "np", OCTETS),
        ("datetime", [datetime(2024, 1, 2)], "datetime", [b"2024-01-02T00:00:00"]),
        ("pd_json", TEXT, "str", OCTETS),
    ],
)
def test_requested_content_type_selects_the_codec(
    serve, form: str, metadata: str | None, value: Any, requested: str, expected: list[bytes]
) -> None:
    """C11: the content type of a requested output selects the codec that encodes it, and the response names it."""
    service = serve(returning(value, MetadataTensor("y", "BYTES", [-1], metadata)))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": requested})
    assert response.is_success, response.text
    assert response.outputs == {"y": ("BYTES", [len(expected)], expected)}
    assert response.content_types == {"y": requested}
    if metadata is not None:
        assert service.forms[form].infer([], outputs=["y"]).content_types == {"y": metadata}


def test_raw_bytes_in_json(serve, form: str) -> None:
    """C11, C12: a client can request bytes in JSON, although METADATA declares no content type."""
    service = serve(returning([b"\xff", b""], MetadataTensor("y", "BYTES", [-1])))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": "bytes"})
    assert response.outputs["y"][2] == ([b"/w==", b""] if form == "rest json" else [b"\xff", b""])


@pytest.mark.parametrize("shape", [[], [-1, 2], [2, 1]])
def test_shape_is_kept(serve, form: str, shape: list[int]) -> None:
    """C11: an output keeps its shape in another content type."""
    value = np.full([2 if size < 0 else size for size in shape], "a", object)
    service = serve(returning({"y": value}, MetadataTensor("y", "BYTES", shape, "str")))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": "base64"})
    assert response.outputs == {"y": ("BYTES", list(value.shape), [b"YQ=="] * value.size)}


def test_numbers(serve, form: str) -> None:
    """C11: `np` fits every datatype, and the other outputs keep their content types."""
    outputs = [MetadataTensor("y", "FP32", [-1]), MetadataTensor("z", "BYTES", [-1], "str")]
    service = serve(returning({"y": [1.5], "z": ["a"]}, *outputs))
    response = service.forms[form].infer([], outputs=["z", "y"], content_types={"y": "np"})
    assert response.outputs == {"z": ("BYTES", [1], [b"a"]), "y": ("FP32", [1], [1.5])}
    assert response.content_types == {"y": "np", "z": "str"}


class Wide(InputCodec):
    """Always two values per row."""

    ContentType = "wide"

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> Any:
        return "BYTES", np.array([["a", "b"]], object)


class Broken(InputCodec):
    """A codec with an error."""

    ContentType = "broken"

    @classmethod
    def encode(cls, payload: Any, **options: Any) -> Any:
        raise KeyError(payload[0])


@pytest.mark.parametrize(
    ("metadata", "value", "requested", "reason"),
    [
        ("str", TEXT, "datetime", ': invalid data. Expected a datetime in ISO 8601, got "a".'),
        ("str", TEXT, "wide", ": invalid shape. Expected [-1], got [1,2]."),
        (
            "str",
            TEXT,
            "broken",
            ": cannot encode ndarray with content type broken. Got KeyError: 'a'.",
        ),
        (
            "datetime",
            MOMENTS,
            "str",
            ": invalid data. Expected strings or bytes for BYTES, got datetime.",
        ),
        (None, [b"\xff"], "str", ": invalid data. Expected UTF-8 text, got b'\\xff'."),
        (None, [b"\xff"], "datetime", ": invalid data. Expected UTF-8 text, got b'\\xff'."),
    ],
)
def test_rejects_content_types_that_do_not_fit_the_value(
    serve,
    form: str,
    registries: None,
    metadata: str | None,
    value: Any,
    requested: str,
    reason: str,
) -> None:
    """C11: a content type that cannot encode the output is an error of the client."""
    register_input_codec(Wide)
    register_input_codec(Broken)
    service = serve(returning({"y": value}, MetadataTensor("y", "BYTES", [-1], metadata)))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": requested})
    assert response.kind == "INVALID_ARGUMENT", response
    assert response.text.startswith(f'Output "y": requested content type does not fit{reason}')


@pytest.mark.parametrize("named", ["nonsense", "pd", ""])
def test_rejects_unknown_content_types(serve, form: str, named: str) -> None:
    """C11: an unknown content type is rejected before predict() runs. The error lists the known content types."""
    service = serve(models.model([], [MetadataTensor("y", "FP32", [-1])], lambda _: 1 / 0))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": named})
    assert (response.kind, response.text) == (
        "INVALID_ARGUMENT",
        'Output "y": invalid content_type. Expected one of base64, bytes, datetime, np, pd_json, str for an input or '
        f"""output, got {named or '""'}.""",
    )


@pytest.mark.parametrize("named", ["str", "base64", "bytes", "datetime", "pd_json"])
def test_rejects_content_types_for_another_datatype(serve, form: str, named: str) -> None:
    """C11: a content type for text is rejected if the output has another datatype."""
    service = serve(returning([1.5], MetadataTensor("y", "FP32", [-1])))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": named})
    assert (response.kind, response.text) == (
        "INVALID_ARGUMENT",
        f'Output "y": invalid datatype. Expected BYTES for content type {named}, got FP32.',
    )


@pytest.mark.parametrize("requested", [5, True, 1.5])
def test_rejects_content_types_that_are_not_strings(serve, requested: Any) -> None:
    """C11: a content type that is not a string is rejected."""
    service = serve(returning(["a"], MetadataTensor("y", "BYTES", [-1], "str")))
    outputs = [{"name": "y", "parameters": {"content_type": requested}}]
    text = error_message(service.rest.post({"inputs": [], "outputs": outputs}), 400)
    assert text.startswith('Output "y": invalid content_type. Expected one of base64, bytes, ')


def test_result_that_does_not_match_metadata_is_a_model_error(serve, form: str) -> None:
    """C11: a requested content type does not hide an error of the model."""
    service = serve(returning({"y": [1]}, MetadataTensor("y", "BYTES", [-1], "str")))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": "pd_json"})
    assert response.kind == "INTERNAL"


def dates(calls: list[int]) -> Any:
    def predict(_: Any, x: list[str]) -> list[str]:
        calls.append(len(x))
        return x

    tensors = (
        [MetadataTensor("x", "BYTES", [-1], "str")],
        [MetadataTensor("y", "BYTES", [-1], "str")],
    )
    return models.model(*tensors, predict)


def test_misfit_does_not_affect_other_requests_of_a_batch(serve) -> None:
    """C11: if the content type fits the output of one request of a batch but not of another, only the latter fails."""
    sent = [
        {
            "form": form,
            "inputs": [("x", "BYTES", [1], [text])],
            "outputs": ["y"],
            "content_types": {"y": "datetime"},
        }
        for form, text in zip(ALL_FORMS, ["2024-01-02", "soon", "2024-01-03", "later"], strict=True)
    ]
    calls: list[int] = []
    responses = infer_in_one_batch(serve, dates(calls), sent)
    assert calls[0] == 4
    assert [response.kind for response in responses] == [
        "ok",
        "INVALID_ARGUMENT",
        "ok",
        "INVALID_ARGUMENT",
    ]
    assert responses[1].text == (
        'Output "y": requested content type does not fit: invalid data. Expected a datetime in ISO 8601, got "soon".'
    )
