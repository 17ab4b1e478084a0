"""Returned values of all types, encoded as outputs by content type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing
import pandas as pd
import pytest

from app.protocol.messages import InferenceResponse
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import ResponseOutput
from tests.service.codecs.content_type_models import MOMENTS, returning

SEVERAL = [
    MetadataTensor("a", "FP32", [-1]),
    MetadataTensor("b", "BYTES", [-1], content_type="str"),
]


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1.5], "b": ["é"]},
        {"b": np.array(["é"]), "a": np.array([1.5])},
        {"a": pd.Series([1.5]), "b": pd.Series(["é"])},
        {"a": pd.Series([1.5], dtype="Float32"), "b": pd.Series(["é"], dtype="category")},
        {"a": pd.Index([1.5]), "b": pd.Index(["é"])},
        ([1.5], ["é"]),
        (np.float32([1.5]), [b"\xc3\xa9"]),
        pd.DataFrame({"a": [1.5], "b": ["é"]}),
        pd.DataFrame({"b": ["é"], "a": [1.5]}, index=[7]),
        InferenceResponse(
            [ResponseOutput("b", "BYTES", data=["é"]), ResponseOutput("a", "FP64", data=[1.5])]
        ),
    ],
)
def test_equivalent_return_types_give_the_same_outputs(serve, form: str, value: Any) -> None:
    """C2: a dict, DataFrame, Series, tuple and InferenceResponse give the same outputs, in METADATA's order."""
    response = serve(returning(value, *SEVERAL)).forms[form].infer([])
    if form == "grpc typed":
        assert response.is_success
    assert list(response.outputs.items()) == [
        ("a", ("FP32", [1], [1.5])),
        ("b", ("BYTES", [1], ["é".encode()])),
    ]
    assert response.content_types == {"b": "str"}
    assert response.parameters == (
        {"content_type": "pd"} if isinstance(value, pd.DataFrame) else {}
    )


def test_returned_response_keeps_its_parameters(serve, form: str) -> None:
    """R8, C2: parameters of a returned InferenceResponse and its outputs are sent, with METADATA's name and version."""
    output = ResponseOutput("y", "BYTES", data=["a"], parameters={"content_type": "str"})
    value = InferenceResponse(
        [output],
        "other",
        "9",
        "mine",
        {"seconds": 0.5, "cached": True, "k": 3, "content_type": "str"},
    )
    response = (
        serve(returning(value, MetadataTensor("y", "BYTES", [-1])))
        .forms[form]
        .infer([], request_id="7")
    )
    kept = {
        name: value for name, value in response.parameters.items() if name != "binary_data_output"
    }
    assert kept == {"seconds": 0.5, "cached": True, "k": 3, "content_type": "str"}
    assert response.content_types == {"y": "str"}
    assert (response.model_name, response.model_version, response.id) == ("test", "1", "7")


DAYS = [b"2024-01-02T00:00:00", b"2024-01-03T00:00:00"]
# Content type, returned value, declared shape, and the elements of the output. Its shape is that of the value.
ENCODED: list[tuple[str, Any, list[int], list[bytes]]] = [
    ("base64", [b"ab", b"\xff"], [-1], [b"YWI=", b"/w=="]),
    ("base64", np.array([[b"ab"], [b"\xff"]], object), [-1, 1], [b"YWI=", b"/w=="]),
    ("base64", b"a", [], [b"YQ=="]),
    ("base64", [[b"a", b""]], [-1, 2], [b"YQ==", b""]),
    ("base64", np.empty((0, 2), object), [-1, 2], []),
    ("datetime", MOMENTS, [2], [b"2024-01-02T00:00:00", b"2024-01-03T04:05:06+00:00"]),
    ("datetime", pd.Series(pd.to_datetime(["2024-01-02", "2024-01-03"])), [-1], DAYS),
    ("datetime", np.array([["2024-01-02"], ["2024-01-03"]], "M8[s]"), [-1, 1], DAYS),
    ("datetime", [["2024-01-02"], ["2024-01-03"]], [2, 1], [b"2024-01-02", b"2024-01-03"]),
    ("datetime", "2024-01-02", [], [b"2024-01-02"]),
    ("datetime", pd.Series(["2024-01-02", None]), [-1], [b"2024-01-02", b"NaT"]),
    ("datetime", pd.Series([None, None], dtype=object), [-1], [b"NaT", b"NaT"]),
    ("pd_json", [{"a": 1.5}, None], [-1], [b'{"a":1.5}', b"null"]),
    ("pd_json", pd.Series(["a", pd.NA], dtype="string"), [-1], [b'"a"', b"null"]),
    ("pd_json", {"a": 1}, [], [b'{"a":1}']),
    ("pd_json", [], [-1], []),
]


@pytest.mark.parametrize(("content_type", "value", "declared", "elements"), ENCODED)
def test_outputs_are_encoded_by_content_type(
    serve, form: str, content_type: str, value: Any, declared: list[int], elements: list[bytes]
) -> None:
    """C2, C7: an output is encoded with METADATA's content type, in the declared rank, and names the content type."""
    service = serve(returning({"y": value}, MetadataTensor("y", "BYTES", declared, content_type)))
    response = service.forms[form].infer([])
    assert response.is_success, response.text
    shape = list(np.shape(value))
    assert response.outputs == {"y": ("BYTES", shape, elements)}
    assert response.content_types == {"y": content_type}


@pytest.mark.parametrize(
    ("content_type", "value", "declared", "expected"),
    [
        ("base64", [], [-1, 2], ([0, 2], [])),
        ("pd_json", [[1, 2]], [1], ([1], [b"[1,2]"])),
    ],
)
def test_lists_take_the_declared_shape(
    serve, form: str, content_type: str, value: list, declared: list[int], expected: Any
) -> None:
    """C7: an empty list takes the declared rank, and a nested list can be a single element with pd_json."""
    service = serve(returning({"y": value}, MetadataTensor("y", "BYTES", declared, content_type)))
    assert service.forms[form].infer([]).outputs == {"y": ("BYTES", *expected)}


@pytest.mark.parametrize(
    ("datatype", "content_type", "value", "expected"),
    [
        ("FP64", None, pd.Series([], dtype=object), []),
        ("INT32", None, pd.Series([1, 2], dtype=object), [1, 2]),
        (
            "INT64",
            None,
            pd.Series(pd.arrays.SparseArray([2**31, 2**40 + 1, 0])),
            [2**31, 2**40 + 1, 0],
        ),
        ("FP64", None, pd.Series(pd.arrays.SparseArray([0.1, 1e300])), [0.1, 1e300]),
        ("BOOL", None, pd.get_dummies(pd.Series(["a", "b"]), sparse=True)["a"], [True, False]),
        ("BYTES", "str", pd.Series([], dtype=object), []),
        ("BYTES", "datetime", pd.Series([], dtype=object), []),
        ("BYTES", None, pd.Series([], dtype=object), []),
        ("BYTES", "str", pd.Series([None], dtype=object), [None]),
        ("BYTES", "str", pd.Series([None], dtype="category"), [None]),
        ("BYTES", None, pd.Series([None, None], dtype=object), [None, None]),
        ("BYTES", None, pd.Series([b"a", None], dtype=object), [b"a", None]),
    ],
)
def test_empty_and_missing_columns_follow_metadata(
    serve, datatype: str, content_type: str | None, value: pd.Series, expected: list
) -> None:
    """C6, R12: an output has METADATA's datatype, even if its column is empty or has only missing values."""
    service = serve(returning({"y": value}, MetadataTensor("y", datatype, [-1], content_type)))
    response = service.rest.infer([])
    assert response.is_success, response.text
    assert response.outputs == {"y": (datatype, [len(expected)], expected)}
    assert response.content_types.get("y") in (
        {content_type, "str"} if datatype == "BYTES" else {content_type}
    )


@pytest.mark.parametrize(
    ("content_type", "value"),
    [
        ("base64", [5]),
        ("base64", pd.DataFrame({"a": [b"b"]})),
        ("base64", np.array([[b"a", b"b"]], object)),
        ("pd_json", {1, 2}),
        ("pd_json", [object()]),
        ("pd_json", np.array([[1, 2]], object)),
        ("datetime", ["soon"]),
        ("datetime", pd.Series(np.array(["10000-01-01"], "M8[s]"))),
        ("datetime", np.array([["2024-01-01"] * 2], "M8[s]")),
        ("str", [5]),
        ("str", [["a"], ["b"]]),
        ("str", [b"\xff", 1.5]),
    ],
)
def test_outputs_that_cannot_be_encoded_are_model_errors(
    serve, form: str, content_type: str, value: Any
) -> None:
    """C2: an output that its content type cannot encode is an error of the model, and the message names the output."""
    response = (
        serve(returning({"y": value}, MetadataTensor("y", "BYTES", [-1], content_type)))
        .forms[form]
        .infer([])
    )
    assert response.kind == "INTERNAL"
    assert response.text.startswith('Output "y": ')


@pytest.mark.parametrize(
    "value",
    [["a", None], pd.Series(["a", None]), pd.Series(["a", None], dtype="string"), np.array(["a", None], object)],
    ids=["list", "series", "string", "array"],
)  # fmt: skip
def test_missing_text_is_null_only_in_json(serve, form: str, value: Any) -> None:
    """R12: None in a str output is null in JSON, and is rejected in binary data and on gRPC."""
    service = serve(returning({"y": value}, MetadataTensor("y", "BYTES", [-1], "str")))
    if form == "rest json":
        assert service.forms[form].infer([]).outputs == {"y": ("BYTES", [2], [b"a", None])}
        return
    response = service.forms[form].infer([])
    assert response.kind == "INVALID_ARGUMENT"
    assert response.text.startswith('Output "y": null')


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (pd.Series(pd.to_datetime(["2024-01-02T03:04:05Z"])), [b"2024-01-02T03:04:05+00:00"]),
        (pd.Series([pd.Timestamp(2024, 1, 2), pd.NaT]), [b"2024-01-02T00:00:00", b"NaT"]),
    ],
)
@pytest.mark.parametrize("content_type", [None, "datetime"])
def test_datetime_series_are_encoded_without_a_content_type(
    serve, form: str, series: pd.Series, expected: list, content_type: str | None
) -> None:
    """C6: a returned Series of datetimes has the same encoding with content type datetime and with none."""
    tensor = MetadataTensor("y", "BYTES", [-1], content_type)
    response = serve(returning(pd.DataFrame({"y": series}), tensor)).forms[form].infer([])
    assert response.is_success, response.text
    assert response.outputs["y"][2] == expected
    assert response.content_types == {"y": "datetime"}


def test_missing_values_of_nullable_series(serve, form: str) -> None:
    """C6: missing values of a nullable column are NaN in a float output, and a model error in other outputs."""
    series = pd.Series([1, None], dtype="Int64")
    response = serve(returning(series, MetadataTensor("y", "FP64", [-1]))).forms[form].infer([])
    values = response.outputs["y"][2]
    assert values[0] == 1
    assert values[1] is None or values[1] != values[1]
    assert (
        serve(returning(series, MetadataTensor("y", "INT64", [-1]))).forms[form].infer([]).kind
        == "INTERNAL"
    )
    flags = pd.Series([True, None], dtype="boolean")
    response = serve(returning(flags, MetadataTensor("y", "BOOL", [-1]))).forms[form].infer([])
    assert response.text.endswith("BOOL cannot represent the missing values of boolean.")
