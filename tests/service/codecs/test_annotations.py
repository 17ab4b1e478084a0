"""The annotations of predict()'s parameters, and the types of the arguments that it receives."""

from __future__ import annotations

import json
import typing
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing
import pandas as pd
import pytest

from app.inference.annotations import ANNOTATIONS
from app.inference.predict_adapter import ModelAdapter
from app.protocol.errors import ConfigurationError
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor, ModelMetadata
from tests.kit import models
from tests.service.codecs.content_type_models import (
    BYTES,
    FRAME_INPUTS,
    FRAME_SENT,
    MOMENTS,
    NUMBER,
    TEXT,
    declared,
    describe,
    describing_model,
    got,
    plain,
)

DATES = ("x", "BYTES", [2], ["2024-01-02", "2024-01-03T04:05:06Z"])
CELLS = ("x", "BYTES", [2], ['"a"', '"b"'])
MIXED = ("x", "BYTES", [2], ["[1]", "null"])
NO_TEXT = [b"\xff", b"a"]
LISTS = list[str], list[bytes], list[datetime]


ARRAY = "ndarray [2] "
# The input, its content type in the request, and the argument of predict() by annotation. None: it is rejected.
HANDED: dict[Any, list[tuple[Any, str | None, str | None]]] = {
    np.ndarray: [
        (TEXT, None, f"{ARRAY}[b'YWI=', b'Y2Q=']"),
        (TEXT, "np", f"{ARRAY}[b'YWI=', b'Y2Q=']"),
        (TEXT, "str", f"{ARRAY}['YWI=', 'Y2Q=']"),
        (TEXT, "base64", f"{ARRAY}[b'ab', b'cd']"),
        (DATES, "datetime", f"{ARRAY}{plain(MOMENTS)!r}"),
        (MIXED, "pd_json", f"{ARRAY}[[1], None]"),
    ],
    list[str]: [
        (TEXT, None, "list ['YWI=', 'Y2Q=']"),
        (TEXT, "np", "list ['YWI=', 'Y2Q=']"),
        (TEXT, "str", "list ['YWI=', 'Y2Q=']"),
        (TEXT, "base64", "list ['ab', 'cd']"),
        (CELLS, "pd_json", "list ['a', 'b']"),
        (MIXED, "pd_json", None),
        (DATES, "datetime", None),
    ],
    list[bytes]: [
        (TEXT, None, "list [b'YWI=', b'Y2Q=']"),
        (TEXT, "np", "list [b'YWI=', b'Y2Q=']"),
        (TEXT, "str", "list [b'YWI=', b'Y2Q=']"),
        (TEXT, "base64", "list [b'ab', b'cd']"),
        (CELLS, "pd_json", "list [b'a', b'b']"),
        (MIXED, "pd_json", None),
        (DATES, "datetime", None),
    ],
    list[datetime]: [
        (DATES, None, f"list {plain(MOMENTS)!r}"),
        (DATES, "datetime", f"list {plain(MOMENTS)!r}"),
        (DATES, "np", f"list {plain(MOMENTS)!r}"),
        (DATES, "str", f"list {plain(MOMENTS)!r}"),
        (TEXT, None, None),
        (TEXT, "base64", None),
        (MIXED, "pd_json", None),
    ],
}


@pytest.mark.parametrize(
    ("annotation", "sent", "named", "expected"),
    [(annotation, *case) for annotation, cases in HANDED.items() for case in cases],
)
def test_values_are_converted_to_the_annotated_type(
    serve, form: str, annotation: Any, sent: Any, named: str | None, expected: str | None
) -> None:
    """C2: the decoded value is converted to the annotated type. If this is not possible, the error names the input."""
    response = (
        serve(describing_model(annotation))
        .forms[form]
        .infer([sent], content_types={"x": named} if named else None)
    )
    if expected is None:
        assert response.kind == "INVALID_ARGUMENT", response
        assert response.text.startswith('Input "x": ')
    else:
        assert got(response) == expected


def test_every_annotation_is_tested() -> None:
    """C2: the table of the previous test covers every supported annotation."""
    assert set(HANDED) == set(ANNOTATIONS)


@pytest.mark.parametrize(
    ("annotation", "like"),
    [
        (typing.Optional[list[bytes]], list[bytes]),  # noqa: UP045
        (list[str] | None, list[str]),
        (np.ndarray | None, np.ndarray),
        (numpy.typing.NDArray[np.object_], np.ndarray),
        (typing.Any, np.ndarray),
        ("list[str]", list[str]),
        ("np.ndarray | None", np.ndarray),
    ],
)
def test_equivalent_annotations_work_alike(serve, form: str, annotation: Any, like: Any) -> None:
    """C2: Any, X | None, NDArray and string annotations have the same effect as the plain type."""
    sent = DATES if like == list[datetime] else TEXT
    assert got(serve(describing_model(annotation)).forms[form].infer([sent])) == got(
        serve(describing_model(like)).forms[form].infer([sent])
    )


@pytest.mark.parametrize(
    "annotation", [np.ndarray | None, *(annotation | None for annotation in LISTS)]
)
def test_absent_optional_inputs_are_none(serve, form: str, annotation: Any) -> None:
    """R15, C2: an input annotated `X | None = None` is None if it is absent, and an X if it is present."""
    service = serve(describing_model(annotation, default=None))
    assert got(service.forms[form].infer([])) == "NoneType None"
    assert got(service.forms[form].infer([DATES])) != "NoneType None"


@pytest.mark.parametrize("values", [NO_TEXT])
@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_bytes_that_are_not_utf8(serve, bits: str, values: list[bytes]) -> None:
    """C7: list[bytes] accepts any bytes, and list[str] rejects bytes that are not UTF-8."""
    sent = [("x", "BYTES", [2], values)]
    assert got(serve(describing_model(list[bytes])).forms[bits].infer(sent)) == f"list {values!r}"
    response = serve(describing_model(list[str])).forms[bits].infer(sent)
    assert (response.kind, response.text) == (
        "INVALID_ARGUMENT",
        "Input \"x\": invalid data. Expected UTF-8 text, got b'\\xff'.",
    )


@pytest.mark.parametrize(
    ("annotation", "named", "expected"),
    [
        (list[str], None, "list ['a', None]"),
        (list[str], "str", "list ['a', None]"),
        (np.ndarray, "str", "ndarray [2] ['a', None]"),
        (np.ndarray, None, None),
        (np.ndarray, "np", None),
        (list[str], "np", None),
        (list[bytes], None, None),
        (list[bytes], "str", None),
        (list[datetime], None, None),
        (np.ndarray, "base64", None),
        (np.ndarray, "datetime", None),
        (np.ndarray, "pd_json", None),
    ],
)
def test_null_is_valid_only_with_str(
    serve, annotation: Any, named: str | None, expected: str | None
) -> None:
    """R12: null in BYTES is None with the content type str, and is rejected otherwise."""
    response = serve(describing_model(annotation)).rest.infer(
        [("x", "BYTES", [2], ["a", None])], content_types={"x": named} if named else None
    )
    if expected is None:
        assert response.kind == "INVALID_ARGUMENT", response
        assert response.text.startswith('Input "x": ')
    else:
        assert got(response) == expected


def test_dict_holds_all_inputs_by_name(serve, form: str) -> None:
    """C2: dict[str, np.ndarray] holds all inputs by name, decoded by content type and in the declared rank."""

    def predict(_, everything: dict[str, np.ndarray]):
        return [json.dumps({name: describe(value) for name, value in sorted(everything.items())})]

    service = serve(models.model(FRAME_INPUTS, [MetadataTensor("y", "BYTES", [1])], predict))
    assert json.loads(got(service.forms[form].infer(FRAME_SENT))) == {
        "0": "ndarray [2, 1] [5, 6]",
        "class": "ndarray [2] ['a', 'é']",
        "sepal length": "ndarray [2] [1.5, 2.5]",
        "when": f"ndarray [2] {plain([datetime(2024, 1, 2), datetime(2024, 1, 3)])!r}",
    }


@pytest.mark.parametrize("annotation", [dict, dict[str, np.ndarray], typing.Dict[str, np.ndarray]])  # noqa: UP006
def test_equivalent_dict_annotations_work_alike(serve, form: str, annotation: Any) -> None:
    """C2: `dict` and `typing.Dict` have the same effect as `dict[str, np.ndarray]`."""
    response = (
        serve(describing_model(annotation))
        .forms[form]
        .infer([TEXT], parameters={"content_type": "str"})
    )
    assert got(response).startswith("dict {'x': array(['YWI=', 'Y2Q=']")


def test_inference_request_is_not_decoded(serve, form: str) -> None:
    """C2: an InferenceRequest keeps its shapes, parameters and content types, and its inputs are not decoded."""

    def predict(_, request: InferenceRequest):
        (tensor,) = request.inputs
        return [
            repr(
                (
                    tensor.shape,
                    tensor.parameters["content_type"],
                    request.parameters["content_type"],
                    request.id,
                )
            )
        ]

    service = serve(models.model([BYTES], [MetadataTensor("y", "BYTES", [1])], predict))
    response = service.forms[form].infer(
        [("x", "BYTES", [2, 1], TEXT[3])],
        request_id="7",
        parameters={"content_type": "pd"},
        content_types={"x": "base64"},
    )
    assert got(response) == "([2, 1], 'base64', 'pd', '7')"


def broken(predict: Any, inputs: list, outputs: list = (), content_type: str | None = None) -> Any:  # type: ignore[assignment]
    return SimpleNamespace(
        __name__="broken",
        METADATA=ModelMetadata("m", "1", "p", list(inputs), list(outputs), content_type),
        load=lambda: None,
        predict=predict,
    )


def takes_text(_, x: list[str]): ...


def takes_octets(_, x: list[bytes]): ...


def takes_moments(_, x: list[datetime]): ...


def takes_numbers(_, x: list[int]): ...


def takes_either(_, x: list[str] | np.ndarray): ...


def takes_x(_, x): ...


def takes_x_and_a_frame(_, x, frame: pd.DataFrame): ...


def takes_a_frame(_, frame: pd.DataFrame): ...


@pytest.mark.parametrize(
    ("module", "text"),
    [
        (
            broken(takes_text, [NUMBER]),
            'parameter "x": invalid annotation list.str.. Expected BYTES in METADATA, got FP32',
        ),
        (
            broken(takes_octets, [NUMBER]),
            'parameter "x": invalid annotation list.bytes.. Expected BYTES in METADATA, got FP32',
        ),
        (broken(takes_moments, [NUMBER]), "Expected BYTES in METADATA, got FP32"),
        (broken(takes_numbers, [BYTES]), 'parameter "x": invalid annotation. .* got list.int.'),
        (broken(takes_either, [BYTES]), 'parameter "x": invalid annotation. '),
        (broken(takes_x_and_a_frame, [BYTES]), '"frame"'),
        (
            broken(takes_a_frame, [NUMBER, MetadataTensor("town", "BYTES", [-1])]),
            'tensor "town": .*content_type="str"',
        ),
        (
            broken(takes_a_frame, [MetadataTensor("age", "FP32", [])]),
            r'"age": invalid shape. Expected .-1. .*, got \[\]',
        ),
        (
            broken(takes_x, [declared("nonsense")]),
            "METADATA, .*base64, bytes, datetime, np, pd_json, str",
        ),
        (broken(takes_x, [declared("pd")]), "METADATA, .*for an input or output, got pd"),
        (
            broken(takes_x, [BYTES], [declared("nonsense")]),
            "METADATA, .*for an input or output, got nonsense",
        ),
        (
            broken(takes_x, [BYTES], content_type="nonsense"),
            "METADATA: .*np, pd, str for a request, got nonsense",
        ),
        (broken(takes_x, [BYTES], content_type="base64"), "METADATA: .*for a request, got base64"),
        *(
            (
                broken(takes_x, [MetadataTensor("x", "FP32", [-1], kind)]),
                f"Expected BYTES for content type {kind}",
            )
            for kind in ("str", "base64", "datetime", "pd_json")
        ),
        (
            broken(takes_x, [BYTES], [MetadataTensor("y", "INT8", [1], "str")]),
            'tensor "y": invalid datatype. Expected BYTES for content type str',
        ),
    ],
)
def test_rejects_models_whose_annotations_do_not_match_metadata(module: Any, text: str) -> None:
    """C2: annotations and content types that do not match METADATA fail at startup, and the error names them."""
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(module)
