"""Models that receive or return a pandas.DataFrame."""

from __future__ import annotations

import json
from datetime import datetime

import numpy as np
import numpy.typing
import pandas as pd
import pytest

from app.codecs import PandasCodec
from app.protocol.metadata import MetadataTensor
from tests.kit import models
from tests.service.codecs.content_type_models import (
    FRAME_SENT,
    declared,
    frame_model,
    got,
    returning,
)

GAP = object()


@pytest.mark.parametrize("level", [None, "pd"])
@pytest.mark.parametrize("metadata", [None, "pd"])
def test_dataframe_has_the_order_and_types_of_metadata(
    serve, form: str, level: str | None, metadata: str | None
) -> None:
    """C1, C6: a DataFrame has METADATA's column order and content types, and its names need not be identifiers."""
    parameters = {"content_type": level} if level else None
    response = serve(frame_model(metadata)).forms[form].infer(FRAME_SENT, parameters=parameters)
    names, kinds, rows = json.loads(got(response))
    assert names == ["sepal length", "class", "when", "0"]
    assert (kinds[0], kinds[2], kinds[3]) == ("float32", "datetime64", "int64")
    assert rows == [
        ["1.5", "a", "2024-01-02 00:00:00", "5"],
        ["2.5", "é", "2024-01-03 00:00:00", "6"],
    ]


def test_dataframe_column_is_decoded_by_the_requests_content_type(serve, form: str) -> None:
    """C1, C2: a column is decoded by the request's content type, then converted to the type that METADATA declares."""
    service = serve(frame_model())
    sent = [*FRAME_SENT[:3], ("class", "BYTES", [2], ["YQ==", "w6k="])]
    response = service.forms[form].infer(sent, content_types={"when": "str", "class": "base64"})
    _, kinds, rows = json.loads(got(response))
    assert kinds[2] == "datetime64"
    assert rows == [
        ["1.5", "a", "2024-01-02 00:00:00", "5"],
        ["2.5", "é", "2024-01-03 00:00:00", "6"],
    ]
    response = service.forms[form].infer(FRAME_SENT, content_types={"when": "np", "class": "np"})
    assert json.loads(got(response))[2] == rows
    rejected = service.forms[form].infer(sent, content_types={"when": "base64"})
    assert (rejected.kind, rejected.text.split(":")[0]) == ("INVALID_ARGUMENT", 'Input "when"')


def test_datetimes_do_not_depend_on_other_rows(serve, form: str) -> None:
    """C6: a datetime in a DataFrame has the same value regardless of the offsets in other rows."""
    service = serve(frame_model())
    for other in ("2024-01-03T00:00:00+01:00", "2024-01-03T00:00:00+05:00", "NaT"):
        moments = ("when", "BYTES", [2], ["2024-01-02T00:00:00+01:00", other])
        _, _, rows = json.loads(
            got(service.forms[form].infer([moments, *FRAME_SENT[::2], FRAME_SENT[3]]))
        )
        assert rows[0][2] == "2024-01-01 23:00:00+00:00"


def test_returned_dataframe_with_duplicate_columns_is_a_model_error(serve, form: str) -> None:
    """C6: a returned DataFrame with duplicate column names is an error of the model."""
    returned = pd.DataFrame([["a", "b"]], columns=["y", "y"])
    response = serve(returning(returned, MetadataTensor("y", "BYTES", [-1]))).forms[form].infer([])
    assert (response.kind, response.text) == (
        "INTERNAL",
        'predict() returned an output twice: "y", "y".',
    )


@pytest.mark.parametrize(
    ("tensor", "named", "sent", "expected"),
    [
        (declared("str"), None, ["a", None], ["a", GAP]),
        (declared("str"), None, [None], [GAP]),
        (declared("str"), None, [], []),
        (declared("datetime"), None, ["NaT"], [GAP]),
        (declared("datetime"), None, [], []),
        (declared("datetime"), "str", ["2024-01-02", "NaT"], [datetime(2024, 1, 2), GAP]),
        (declared("pd_json"), "str", ["2024", "[1]"], ["2024", "[1]"]),
        (declared("np"), "str", ["a", "b"], [b"a", b"b"]),
        (declared("base64"), "str", ["a", "b"], [b"a", b"b"]),
        (declared("base64"), "np", ["a", "b"], [b"a", b"b"]),
    ],
)
def test_column_dtype_does_not_depend_on_the_values(
    serve, tensor: MetadataTensor, named: str | None, sent: list, expected: list
) -> None:
    """C6: METADATA decides a column's dtype, not the values or the request. Missing values are those of pandas."""
    seen: list[pd.Series] = []

    def predict(_, frame: pd.DataFrame):
        seen.append(frame["x"])
        return np.zeros(len(frame))

    service = serve(models.model([tensor], [MetadataTensor("y", "FP64", [-1])], predict))
    usual = {"str": "a", "datetime": "2024-01-02", "pd_json": '"a"'}.get(
        str(tensor.content_type), "YQ=="
    )
    for values, content_types in (([usual], None), (sent, {"x": named} if named else None)):
        response = service.rest.infer(
            [("x", "BYTES", [len(values)], values)], content_types=content_types
        )
        assert response.is_success, response.text
    first, second = seen
    assert second.dtype == first.dtype
    assert [GAP if pd.isna(value) else value for value in second] == expected


@pytest.mark.parametrize(
    ("named", "text"), [("np", "2024"), ("base64", "YQ=="), ("datetime", "2024-01-02")]
)
def test_pd_json_column_rejects_values_without_json_form(
    serve, form: str, named: str, text: str
) -> None:
    """C6: if METADATA declares pd_json, a request-level content type whose values have no JSON form is rejected."""
    seen: list[pd.DataFrame] = []

    def predict(_, frame: pd.DataFrame):
        seen.append(frame)
        return np.zeros(len(frame))

    service = serve(
        models.model([declared("pd_json")], [MetadataTensor("y", "FP64", [-1])], predict)
    )
    response = service.forms[form].infer([("x", "BYTES", [1], [text])], content_types={"x": named})
    assert (response.kind, seen) == ("INVALID_ARGUMENT", [])
    assert 'Input "x": JSON cannot represent' in response.text


@pytest.mark.parametrize(
    ("content_type", "values", "expected"),
    [
        ("str", ["a", "b", "c", "d"], "['a', 'b']"),
        ("np", ["a", "b", "c", "d"], "[b'a', b'b']"),
        ("base64", ["YQ==", "Yg==", "Yw==", "ZA=="], "[b'a', b'b']"),
        ("pd_json", ["1", "[2]", "3", "null"], "[1, [2]]"),
        (
            "datetime",
            ["2024-01-02"] * 4,
            "[Timestamp('2024-01-02 00:00:00'), Timestamp('2024-01-02 00:00:00')]",
        ),
    ],
)
def test_dataframe_cells_hold_several_elements(
    serve, form: str, content_type: str, values: list[str], expected: str
) -> None:
    """C6: a column has shape[0] rows, and a cell is an array if a row has several elements."""

    def predict(_, frame: pd.DataFrame):
        return [f"{len(frame)} {list(frame['x'][0])}"]

    tensor = MetadataTensor("x", "BYTES", [-1, 2], content_type)
    service = serve(models.model([tensor], [MetadataTensor("y", "BYTES", [1])], predict))
    assert got(service.forms[form].infer([("x", "BYTES", [2, 2], values)])) == f"2 {expected}"
    named = {"x": "np"} if content_type == "str" else None
    assert (
        got(service.forms[form].infer([("x", "BYTES", [2, 2], values)], content_types=named))
        == f"2 {expected}"
    )


@pytest.mark.parametrize("level", ["np", "str"])
def test_dataframe_of_one_input_accepts_request_level_np_and_str(
    serve, form: str, level: str
) -> None:
    """C2, C8: a request-level np or str gives the same DataFrame as pd if the model has one input."""
    seen: list[pd.Series] = []

    def predict(_, frame: pd.DataFrame):
        seen.append(frame["x"])
        return np.zeros(len(frame))

    tensors = {
        "np": [MetadataTensor("x", "FP32", [-1, 1]), declared("datetime")],
        "str": [declared("str")],
    }
    for tensor in tensors[level]:
        service = serve(models.model([tensor], [MetadataTensor("y", "FP64", [-1])], predict))
        values: list = (
            [1.5, 2.5] if tensor.datatype == "FP32" else ["2024-01-02", "2024-01-03T00:00:00"]
        )
        sent = ("x", tensor.datatype, [2, 1][: len(tensor.shape)], values)
        for parameters in (None, {"content_type": level}):
            assert service.forms[form].infer([sent], parameters=parameters).is_success
        pd.testing.assert_series_equal(*seen[-2:])
    rejected = (
        serve(frame_model()).forms[form].infer(FRAME_SENT, parameters={"content_type": level})
    )
    assert rejected.kind == "INVALID_ARGUMENT"


def test_returned_codec_response_matches_declared_vector(serve, form: str) -> None:
    """R15: a returned response that a codec encoded with [N,1] matches outputs declared [-1]."""
    returned = PandasCodec.encode_response("any", pd.DataFrame({"y": ["a", "b"]}))
    response = serve(returning(returned, MetadataTensor("y", "BYTES", [-1]))).forms[form].infer([])
    assert response.outputs == {"y": ("BYTES", [2], [b"a", b"b"])}
    assert response.content_types == {"y": "str"}


def test_rejects_columns_of_different_lengths(serve, form: str) -> None:
    """C6: inputs with different numbers of rows are rejected as invalid input."""
    sent = [("0", "INT64", [1], [5]), *FRAME_SENT[1:]]
    response = serve(frame_model()).forms[form].infer(sent)
    assert response.kind == "INVALID_ARGUMENT"
    assert "different numbers of rows" in response.text


def test_rejects_invalid_column_values(serve, form: str) -> None:
    """C2: a column with a value that is invalid for its content type is rejected, and the error names the input."""
    sent = [FRAME_SENT[0], ("when", "BYTES", [2], ["2024-01-02", "soon"]), *FRAME_SENT[2:]]
    response = serve(frame_model()).forms[form].infer(sent)
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text.startswith('Input "when": ')
