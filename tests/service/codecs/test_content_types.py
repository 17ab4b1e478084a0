"""Content types in requests on every transport: precedence, arguments of predict(), and encoding of outputs."""

from __future__ import annotations

import io
import json
import typing
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing
import pandas as pd
import pytest

from app.codecs import (
    DatetimeCodec,
    InputCodec,
    PandasCodec,
    RequestCodec,
    register_input_codec,
    register_request_codec,
)
from app.codecs.base import input_codecs, request_codecs
from app.inference.adapter import ModelAdapter
from app.inference.arguments import ANNOTATIONS
from app.inference.example import make_example
from app.protocol.errors import ConfigurationError
from app.protocol.types import InferenceRequest, InferenceResponse, MetadataTensor, ModelMetadata, ResponseOutput
from tests.service import models
from tests.service.conftest import FORMS
from tests.service.wires import refusal

UTC = UTC
TEXT = ("x", "BYTES", [2], ["YWI=", "Y2Q="])
DATES = ("x", "BYTES", [2], ["2024-01-02", "2024-01-03T04:05:06Z"])
CELLS = ("x", "BYTES", [2], ['"a"', '"b"'])
MIXED = ("x", "BYTES", [2], ["[1]", "null"])
NO_TEXT = [b"\xff", b"a"]
GAP = object()
MOMENTS = [datetime(2024, 1, 2), datetime(2024, 1, 3, 4, 5, 6, tzinfo=UTC)]
LISTS = list[str], list[bytes], list[datetime]


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    """Remove the codecs that a test's model registers."""
    kept = dict(input_codecs), dict(request_codecs)
    yield
    for registry, codecs in zip((input_codecs, request_codecs), kept, strict=True):
        registry.clear()
        registry.update(codecs)


def told(value: Any) -> str:
    """Return a text with the type of `value` and its elements."""
    if isinstance(value, np.ndarray):
        return f"ndarray {list(value.shape)} {plain(value.ravel().tolist())!r}"
    return f"{type(value).__name__} {plain(value)!r}"


def plain(value: Any) -> Any:
    """Return `value` with datetimes as text, because their repr differs between Python versions."""
    if not isinstance(value, list):
        return value
    return [f"moment {each.isoformat()}" if isinstance(each, datetime) else each for each in value]


def telling(
    annotation: Any, *inputs: MetadataTensor, content_type: str | None = None, name: str = "x", default: Any = ...
) -> Any:
    """Return a model whose predict() has one parameter with this annotation and describes the argument it received."""
    if default is ...:

        def predict(_, x):
            return [told(x)]
    else:

        def predict(_, x=default):
            return [told(x)]

    if annotation is not None:
        predict.__annotations__["x"] = annotation
    module = models.model(list(inputs or [BYTES]), [MetadataTensor("y", "BYTES", [1])], predict)
    module.METADATA.content_type = content_type
    return module


BYTES = MetadataTensor("x", "BYTES", [-1])
NUMBER = MetadataTensor("x", "FP32", [-1])


def declared(content_type: str | None) -> MetadataTensor:
    return MetadataTensor("x", "BYTES", [-1], content_type)


def got(answer: Any) -> str:
    assert answer.kind == "ok", answer.text
    return answer.outputs["y"][2][0].decode()


def returning(value: Any, *outputs: MetadataTensor, content_type: str | None = None) -> Any:
    """Return a model without inputs whose predict() returns `value`."""
    module = models.model([], list(outputs), lambda _: value)
    module.METADATA.content_type = content_type
    return module


@pytest.mark.parametrize(
    ("annotation", "metadata", "level", "sent", "expected"),
    [
        (None, None, None, None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (np.ndarray, None, None, None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (np.ndarray, None, "str", None, "ndarray [2] ['YWI=', 'Y2Q=']"),
        (np.ndarray, None, "np", None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (np.ndarray, None, "pd", None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (np.ndarray, None, None, "base64", "ndarray [2] [b'ab', b'cd']"),
        (np.ndarray, "str", None, "base64", "ndarray [2] [b'ab', b'cd']"),
        (np.ndarray, "str", "np", None, "ndarray [2] ['YWI=', 'Y2Q=']"),
        (np.ndarray, "base64", "str", None, "ndarray [2] [b'ab', b'cd']"),
        (np.ndarray, "base64", "str", "np", "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (list[str], None, None, None, "list ['YWI=', 'Y2Q=']"),
        (list[str], None, "np", None, "list ['YWI=', 'Y2Q=']"),
        (list[str], "base64", None, None, "list ['ab', 'cd']"),
        (list[str], "base64", "np", None, "list ['ab', 'cd']"),
        (list[str], "base64", "np", "str", "list ['YWI=', 'Y2Q=']"),
        (list[bytes], None, None, None, "list [b'YWI=', b'Y2Q=']"),
        (list[bytes], None, "str", None, "list [b'YWI=', b'Y2Q=']"),
        (list[bytes], "base64", None, None, "list [b'ab', b'cd']"),
        (list[bytes], None, "str", "base64", "list [b'ab', b'cd']"),
    ],
)
def test_content_type_precedence(
    serve, form: str, annotation: Any, metadata: str | None, level: str | None, sent: str | None, expected: str
) -> None:
    """C2: the precedence is: content type of the input, METADATA, request-level np or str, annotation."""
    service = serve(telling(annotation, declared(metadata)))
    parameters = {"content_type": level} if level else None
    content_types = {"x": sent} if sent else None
    answer = service.forms[form].infer([TEXT], parameters=parameters, content_types=content_types)
    assert got(answer) == expected


@pytest.mark.parametrize(
    ("metadata", "level", "expected"),
    [
        ("str", None, "ndarray [2] ['YWI=', 'Y2Q=']"),
        ("str", "np", "ndarray [2] [b'YWI=', b'Y2Q=']"),
        ("np", "str", "ndarray [2] ['YWI=', 'Y2Q=']"),
        ("pd", "str", "ndarray [2] ['YWI=', 'Y2Q=']"),
        ("str", "pd", "ndarray [2] [b'YWI=', b'Y2Q=']"),
        ("pd", None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
    ],
)
def test_request_content_type_precedence(serve, form: str, metadata: str, level: str | None, expected: str) -> None:
    """C2: a request-level content type overrides METADATA's, and np and str apply to inputs that name none."""
    service = serve(telling(np.ndarray, content_type=metadata))
    parameters = {"content_type": level} if level else None
    assert got(service.forms[form].infer([TEXT], parameters=parameters)) == expected


def test_each_input_is_decoded_by_its_own_content_type(serve, form: str) -> None:
    """C1, C2: each input is decoded by its own content type, regardless of the request's."""

    def predict(_, a: np.ndarray, b: np.ndarray, c: np.ndarray):
        return [told(a), told(b), told(c)]

    tensors = [MetadataTensor(name, "BYTES", [-1], kind) for name, kind in [("a", "str"), ("b", None), ("c", None)]]
    service = serve(models.model(tensors, [MetadataTensor("y", "BYTES", [3])], predict))
    sent = [(name, "BYTES", [1], ["YQ=="]) for name in "abc"]
    answer = service.forms[form].infer(sent, parameters={"content_type": "str"}, content_types={"c": "base64"})
    assert answer.outputs["y"][2] == [b"ndarray [1] ['YQ==']", b"ndarray [1] ['YQ==']", b"ndarray [1] [b'a']"]


def test_rejects_str_for_numeric_inputs(serve, form: str) -> None:
    """C2: a request-level str is rejected if it does not fit the datatype of an input."""
    answer = (
        serve(telling(np.ndarray, NUMBER))
        .forms[form]
        .infer([("x", "FP32", [1], [1.5])], parameters={"content_type": "str"})
    )
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text == 'input "x": datatype: expected BYTES for str, got FP32'


@pytest.mark.parametrize("annotation", [np.ndarray, list[str], pd.DataFrame, dict[str, np.ndarray]])
@pytest.mark.parametrize("named", ["nonsense", "pd", "STR", ""])
def test_rejects_unknown_content_types_on_inputs(serve, form: str, annotation: Any, named: str) -> None:
    """C2: an unknown content type on an input is rejected. The error names the input and the known content types."""
    answer = serve(telling(annotation, declared("np"))).forms[form].infer([TEXT], content_types={"x": named})
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text.startswith(
        'input "x": content_type: expected one of base64, datetime, np, pd_json, str on an input or output'
    )
    assert answer.text.endswith(f"got {named}")


@pytest.mark.parametrize("annotation", [np.ndarray, list[str], pd.DataFrame, dict[str, np.ndarray]])
@pytest.mark.parametrize("named", ["nonsense", "base64", "datetime", "pd_json", "NP", ""])
def test_rejects_unknown_content_types_on_requests(serve, form: str, annotation: Any, named: str) -> None:
    """C2, C3: an unknown content type on a request is rejected, and the error lists the known ones of that level."""
    answer = serve(telling(annotation, declared("np"))).forms[form].infer([TEXT], parameters={"content_type": named})
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text == f"content_type: expected one of np, pd, str on a request, got {named}"


@pytest.mark.parametrize("value", [5, True, 1.5])
def test_rejects_content_types_that_are_not_strings(serve, form: str, value: Any) -> None:
    """C2: a content type that is not a string is rejected."""
    answer = serve(telling(np.ndarray)).forms[form].infer([TEXT], parameters={"content_type": value})
    assert answer.kind == "INVALID_ARGUMENT"
    assert "np, pd, str on a request" in answer.text


ARRAY = "ndarray [2] "
HANDED = [
    (np.ndarray, TEXT, None, f"{ARRAY}[b'YWI=', b'Y2Q=']"),
    (np.ndarray, TEXT, "np", f"{ARRAY}[b'YWI=', b'Y2Q=']"),
    (np.ndarray, TEXT, "str", f"{ARRAY}['YWI=', 'Y2Q=']"),
    (np.ndarray, TEXT, "base64", f"{ARRAY}[b'ab', b'cd']"),
    (np.ndarray, DATES, "datetime", f"{ARRAY}{plain(MOMENTS)!r}"),
    (np.ndarray, MIXED, "pd_json", f"{ARRAY}[[1], None]"),
    (list[str], TEXT, None, "list ['YWI=', 'Y2Q=']"),
    (list[str], TEXT, "np", "list ['YWI=', 'Y2Q=']"),
    (list[str], TEXT, "str", "list ['YWI=', 'Y2Q=']"),
    (list[str], TEXT, "base64", "list ['ab', 'cd']"),
    (list[str], CELLS, "pd_json", "list ['a', 'b']"),
    (list[str], MIXED, "pd_json", None),
    (list[str], DATES, "datetime", None),
    (list[bytes], TEXT, None, "list [b'YWI=', b'Y2Q=']"),
    (list[bytes], TEXT, "np", "list [b'YWI=', b'Y2Q=']"),
    (list[bytes], TEXT, "str", "list [b'YWI=', b'Y2Q=']"),
    (list[bytes], TEXT, "base64", "list [b'ab', b'cd']"),
    (list[bytes], CELLS, "pd_json", "list [b'a', b'b']"),
    (list[bytes], MIXED, "pd_json", None),
    (list[bytes], DATES, "datetime", None),
    (list[datetime], DATES, None, f"list {plain(MOMENTS)!r}"),
    (list[datetime], DATES, "datetime", f"list {plain(MOMENTS)!r}"),
    (list[datetime], DATES, "np", f"list {plain(MOMENTS)!r}"),
    (list[datetime], DATES, "str", f"list {plain(MOMENTS)!r}"),
    (list[datetime], TEXT, None, None),
    (list[datetime], TEXT, "base64", None),
    (list[datetime], MIXED, "pd_json", None),
]


@pytest.mark.parametrize(("annotation", "sent", "named", "expected"), HANDED)
def test_values_are_converted_to_the_annotated_type(
    serve, form: str, annotation: Any, sent: Any, named: str | None, expected: str | None
) -> None:
    """C2: the decoded value is converted to the annotated type. If this is not possible, the error names the input."""
    answer = serve(telling(annotation)).forms[form].infer([sent], content_types={"x": named} if named else None)
    if expected is None:
        assert answer.kind == "INVALID_ARGUMENT", answer
        assert answer.text.startswith('input "x": ')
    else:
        assert got(answer) == expected


def test_every_annotation_is_tested() -> None:
    """C2: the table of the previous test covers every supported annotation."""
    assert {each[0] for each in HANDED} == set(ANNOTATIONS)


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
    assert got(serve(telling(annotation)).forms[form].infer([sent])) == got(
        serve(telling(like)).forms[form].infer([sent])
    )


@pytest.mark.parametrize("annotation", [np.ndarray | None, *(each | None for each in LISTS)])
def test_absent_optional_inputs_are_none(serve, form: str, annotation: Any) -> None:
    """R15, C2: an input annotated `X | None = None` is None if it is absent, and an X if it is present."""
    service = serve(telling(annotation, default=None))
    assert got(service.forms[form].infer([])) == "NoneType None"
    assert got(service.forms[form].infer([DATES])) != "NoneType None"


@pytest.mark.parametrize("values", [NO_TEXT])
@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_bytes_that_are_not_utf8(serve, bits: str, values: list[bytes]) -> None:
    """C7: list[bytes] accepts any bytes, and list[str] rejects bytes that are not UTF-8."""
    sent = [("x", "BYTES", [2], values)]
    assert got(serve(telling(list[bytes])).forms[bits].infer(sent)) == f"list {values!r}"
    answer = serve(telling(list[str])).forms[bits].infer(sent)
    assert (answer.kind, answer.text) == ("INVALID_ARGUMENT", "input \"x\": data: expected UTF-8 text, got b'\\xff'")


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
def test_null_is_valid_only_with_str(serve, annotation: Any, named: str | None, expected: str | None) -> None:
    """R12: null in BYTES is None with the content type str, and is rejected otherwise."""
    answer = serve(telling(annotation)).rest.infer(
        [("x", "BYTES", [2], ["a", None])], content_types={"x": named} if named else None
    )
    if expected is None:
        assert answer.kind == "INVALID_ARGUMENT", answer
        assert answer.text.startswith('input "x": ')
    else:
        assert got(answer) == expected


@pytest.mark.parametrize("annotation", ANNOTATIONS)
def test_column_shape_matches_declared_vector(serve, form: str, annotation: Any) -> None:
    """R15: the shape [N,1] matches a declared [-1] with every annotation."""
    service = serve(telling(annotation))
    column = ("x", "BYTES", [2, 1], DATES[3])
    assert got(service.forms[form].infer([column])) == got(service.forms[form].infer([DATES]))


FRAME_INPUTS = [
    MetadataTensor("sepal length", "FP32", [-1]),
    MetadataTensor("class", "BYTES", [-1], content_type="str"),
    MetadataTensor("when", "BYTES", [-1], content_type="datetime"),
    MetadataTensor("0", "INT64", [-1, 1]),
]
FRAME_SENT = [
    ("0", "INT64", [2], [5, 6]),
    ("when", "BYTES", [2, 1], ["2024-01-02", "2024-01-03"]),
    ("sepal length", "FP32", [2, 1], [1.5, 2.5]),
    ("class", "BYTES", [2], ["a", "é"]),
]


def frame_model(content_type: str | None = None) -> Any:
    """Return a model whose output describes the columns, dtypes and values of the DataFrame."""

    def predict(_, frame: pd.DataFrame):
        kinds = [str(dtype).split("[")[0] for dtype in frame.dtypes]
        return [
            json.dumps([list(frame), kinds, [[str(cell) for cell in row] for row in frame.itertuples(index=False)]])
        ]

    module = models.model(FRAME_INPUTS, [MetadataTensor("y", "BYTES", [1])], predict)
    module.METADATA.content_type = content_type
    return module


@pytest.mark.parametrize("level", [None, "pd"])
@pytest.mark.parametrize("metadata", [None, "pd"])
def test_dataframe_has_the_order_and_types_of_metadata(
    serve, form: str, level: str | None, metadata: str | None
) -> None:
    """C1, C6: a DataFrame has METADATA's column order and content types, and its names need not be identifiers."""
    parameters = {"content_type": level} if level else None
    answer = serve(frame_model(metadata)).forms[form].infer(FRAME_SENT, parameters=parameters)
    names, kinds, rows = json.loads(got(answer))
    assert names == ["sepal length", "class", "when", "0"]
    assert (kinds[0], kinds[2], kinds[3]) == ("float32", "datetime64", "int64")
    assert rows == [["1.5", "a", "2024-01-02 00:00:00", "5"], ["2.5", "é", "2024-01-03 00:00:00", "6"]]


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [("str", ["YWI=", "Y2Q="]), ("np", [b"YWI=", b"Y2Q="]), ("base64", [b"ab", b"cd"])],
)
def test_dataframe_text_columns_follow_metadata(serve, form: str, content_type: str, expected: list[Any]) -> None:
    """C6: METADATA's content type decides whether a column holds text, raw bytes or decoded base64."""
    seen: list[Any] = []

    def predict(_, frame: pd.DataFrame):
        seen.extend(frame["x"])
        return frame["x"]

    service = serve(models.model([declared(content_type)], [MetadataTensor("y", "BYTES", [-1])], predict))
    assert service.forms[form].infer([TEXT]).kind == "ok"
    assert seen == expected


def test_dataframe_column_is_decoded_by_the_requests_content_type(serve, form: str) -> None:
    """C1, C2: a column is decoded by the request's content type, then converted to the type that METADATA declares."""
    service = serve(frame_model())
    sent = [*FRAME_SENT[:3], ("class", "BYTES", [2], ["YQ==", "w6k="])]
    answer = service.forms[form].infer(sent, content_types={"when": "str", "class": "base64"})
    _, kinds, rows = json.loads(got(answer))
    assert kinds[2] == "datetime64"
    assert rows == [["1.5", "a", "2024-01-02 00:00:00", "5"], ["2.5", "é", "2024-01-03 00:00:00", "6"]]
    answer = service.forms[form].infer(FRAME_SENT, content_types={"when": "np", "class": "np"})
    assert json.loads(got(answer))[2] == rows
    refused = service.forms[form].infer(sent, content_types={"when": "base64"})
    assert (refused.kind, refused.text.split(":")[0]) == ("INVALID_ARGUMENT", 'input "when"')


def test_datetimes_do_not_depend_on_other_rows(serve, form: str) -> None:
    """C6: a datetime in a DataFrame has the same value regardless of the offsets in other rows."""
    service = serve(frame_model())
    for other in ("2024-01-03T00:00:00+01:00", "2024-01-03T00:00:00+05:00", "NaT"):
        moments = ("when", "BYTES", [2], ["2024-01-02T00:00:00+01:00", other])
        _, _, rows = json.loads(got(service.forms[form].infer([moments, *FRAME_SENT[::2], FRAME_SENT[3]])))
        assert rows[0][2] == "2024-01-01 23:00:00+00:00"


def test_returned_dataframe_with_duplicate_columns_is_a_model_error(serve, form: str) -> None:
    """C6: a returned DataFrame with duplicate column names is an error of the model."""
    returned = pd.DataFrame([["a", "b"]], columns=["y", "y"])
    answer = serve(returning(returned, MetadataTensor("y", "BYTES", [-1]))).forms[form].infer([])
    assert (answer.kind, answer.text) == ("INTERNAL", 'predict() returned an output twice: "y", "y"')


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
    usual = {"str": "a", "datetime": "2024-01-02", "pd_json": '"a"'}.get(str(tensor.content_type), "YQ==")
    for values, content_types in (([usual], None), (sent, {"x": named} if named else None)):
        answer = service.rest.infer([("x", "BYTES", [len(values)], values)], content_types=content_types)
        assert answer.kind == "ok", answer.text
    first, second = seen
    assert second.dtype == first.dtype
    assert [GAP if pd.isna(each) else each for each in second] == expected


@pytest.mark.parametrize(("named", "text"), [("np", "2024"), ("base64", "YQ=="), ("datetime", "2024-01-02")])
def test_pd_json_column_rejects_values_without_json_form(serve, form: str, named: str, text: str) -> None:
    """C6: if METADATA declares pd_json, a request-level content type whose values have no JSON form is rejected."""
    seen: list[pd.DataFrame] = []

    def predict(_, frame: pd.DataFrame):
        seen.append(frame)
        return np.zeros(len(frame))

    service = serve(models.model([declared("pd_json")], [MetadataTensor("y", "FP64", [-1])], predict))
    answer = service.forms[form].infer([("x", "BYTES", [1], [text])], content_types={"x": named})
    assert (answer.kind, seen) == ("INVALID_ARGUMENT", [])
    assert 'input "x": data: JSON cannot represent' in answer.text


@pytest.mark.parametrize(
    ("content_type", "values", "expected"),
    [
        ("str", ["a", "b", "c", "d"], "['a', 'b']"),
        ("np", ["a", "b", "c", "d"], "[b'a', b'b']"),
        ("base64", ["YQ==", "Yg==", "Yw==", "ZA=="], "[b'a', b'b']"),
        ("pd_json", ["1", "[2]", "3", "null"], "[1, [2]]"),
        ("datetime", ["2024-01-02"] * 4, "[Timestamp('2024-01-02 00:00:00'), Timestamp('2024-01-02 00:00:00')]"),
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
    assert got(service.forms[form].infer([("x", "BYTES", [2, 2], values)], content_types=named)) == f"2 {expected}"


@pytest.mark.parametrize("level", ["np", "str"])
def test_dataframe_of_one_input_accepts_request_level_np_and_str(serve, form: str, level: str) -> None:
    """C2, C8: a request-level np or str gives the same DataFrame as pd if the model has one input."""
    seen: list[pd.Series] = []

    def predict(_, frame: pd.DataFrame):
        seen.append(frame["x"])
        return np.zeros(len(frame))

    tensors = {"np": [MetadataTensor("x", "FP32", [-1, 1]), declared("datetime")], "str": [declared("str")]}
    for tensor in tensors[level]:
        service = serve(models.model([tensor], [MetadataTensor("y", "FP64", [-1])], predict))
        values: list = [1.5, 2.5] if tensor.datatype == "FP32" else ["2024-01-02", "2024-01-03T00:00:00"]
        sent = ("x", tensor.datatype, [2, 1][: len(tensor.shape)], values)
        for parameters in (None, {"content_type": level}):
            assert service.forms[form].infer([sent], parameters=parameters).kind == "ok"
        pd.testing.assert_series_equal(*seen[-2:])
    refused = serve(frame_model()).forms[form].infer(FRAME_SENT, parameters={"content_type": level})
    assert refused.kind == "INVALID_ARGUMENT"


@pytest.mark.parametrize("gap", [None, float("nan"), pd.NA])
def test_pd_json_encodes_missing_values_as_null(serve, form: str, gap: Any) -> None:
    """C3: missing values of a returned column are encoded as null if METADATA declares pd_json."""
    returned = pd.DataFrame({"y": pd.Series(["a", gap], dtype="string")})
    answer = serve(returning(returned, MetadataTensor("y", "BYTES", [-1], "pd_json"))).forms[form].infer([])
    assert answer.outputs == {"y": ("BYTES", [2], [b'"a"', b"null"])}


def test_returned_codec_response_matches_declared_vector(serve, form: str) -> None:
    """R15: a returned response that a codec encoded with [N,1] matches outputs declared [-1]."""
    returned = PandasCodec.encode_response("any", pd.DataFrame({"y": ["a", "b"]}))
    answer = serve(returning(returned, MetadataTensor("y", "BYTES", [-1]))).forms[form].infer([])
    assert answer.outputs == {"y": ("BYTES", [2], [b"a", b"b"])}
    assert answer.content_types == {"y": "str"}


def test_rejects_codecs_without_a_content_type() -> None:
    """C10: registering a codec without a ContentType fails."""
    with pytest.raises(ConfigurationError, match="a codec needs a ContentType"):
        register_input_codec(InputCodec)


@pytest.mark.parametrize("content_type", [None, "str", "base64", "datetime", "pd_json"])
def test_startup_example_is_a_valid_request(serve, content_type: str | None) -> None:
    """The service accepts the example request that it prints at startup."""
    service = serve(telling(np.ndarray, declared(content_type)))
    body = service.plane.example()
    assert service.client.post("/v2/models/test/infer", json=body).status_code == 200


@pytest.mark.parametrize(("optional", "names"), [("", "abc"), ("a", "bc"), ("abc", "a")])
def test_startup_example_omits_optional_inputs(optional: str, names: str) -> None:
    """The example request omits optional inputs, but contains the first input if all are optional."""
    metadata = ModelMetadata("test", "1", "", [MetadataTensor(name, "FP32", [1]) for name in "abc"], [])
    assert [tensor["name"] for tensor in make_example(metadata, optional)["inputs"]] == [*names]


@pytest.mark.parametrize("level", ["np", "str"])
def test_dataframe_of_several_inputs_rejects_request_level_np_and_str(serve, form: str, level: str) -> None:
    """C2, C8: request-level np and str use only the first input, so a DataFrame of several inputs is rejected."""
    answer = serve(frame_model()).forms[form].infer(FRAME_SENT, parameters={"content_type": level})
    assert answer.kind == "INVALID_ARGUMENT"


def test_rejects_columns_of_different_lengths(serve, form: str) -> None:
    """C6: inputs with different numbers of rows are rejected as invalid input."""
    sent = [("0", "INT64", [1], [5]), *FRAME_SENT[1:]]
    answer = serve(frame_model()).forms[form].infer(sent)
    assert answer.kind == "INVALID_ARGUMENT"
    assert "different numbers of rows" in answer.text


def test_rejects_invalid_column_values(serve, form: str) -> None:
    """C2: a column with a value that is invalid for its content type is rejected, and the error names the input."""
    sent = [FRAME_SENT[0], ("when", "BYTES", [2], ["2024-01-02", "soon"]), *FRAME_SENT[2:]]
    answer = serve(frame_model()).forms[form].infer(sent)
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text.startswith('input "when": ')


def test_dict_holds_all_inputs_by_name(serve, form: str) -> None:
    """C2: dict[str, np.ndarray] holds all inputs by name, decoded by content type and in the declared rank."""

    def predict(_, everything: dict[str, np.ndarray]):
        return [json.dumps({name: told(value) for name, value in sorted(everything.items())})]

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
    answer = serve(telling(annotation)).forms[form].infer([TEXT], parameters={"content_type": "str"})
    assert got(answer).startswith("dict {'x': array(['YWI=', 'Y2Q=']")


def test_inference_request_is_not_decoded(serve, form: str) -> None:
    """C2: an InferenceRequest keeps its shapes, parameters and content types, and its inputs are not decoded."""

    def predict(_, request: InferenceRequest):
        (tensor,) = request.inputs
        return [repr((tensor.shape, tensor.parameters["content_type"], request.parameters["content_type"], request.id))]

    service = serve(models.model([BYTES], [MetadataTensor("y", "BYTES", [1])], predict))
    answer = service.forms[form].infer(
        [("x", "BYTES", [2, 1], TEXT[3])],
        request_id="7",
        parameters={"content_type": "pd"},
        content_types={"x": "base64"},
    )
    assert got(answer) == "([2, 1], 'base64', 'pd', '7')"


SEVERAL = [MetadataTensor("a", "FP32", [-1]), MetadataTensor("b", "BYTES", [-1], content_type="str")]


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
        InferenceResponse([ResponseOutput("b", "BYTES", data=["é"]), ResponseOutput("a", "FP64", data=[1.5])]),
    ],
    ids=["dict", "arrays", "series", "extension", "index", "tuple", "array and list", "frame", "order", "response"],
)
def test_equivalent_return_types_give_the_same_outputs(serve, form: str, value: Any) -> None:
    """C2: a dict, DataFrame, Series, tuple and InferenceResponse give the same outputs, in METADATA's order."""
    answer = serve(returning(value, *SEVERAL)).forms[form].infer([])
    if form == "grpc typed":
        assert answer.kind == "ok"
    assert list(answer.outputs.items()) == [("a", ("FP32", [1], [1.5])), ("b", ("BYTES", [1], ["é".encode()]))]
    assert answer.content_types == {"b": "str"}
    assert answer.parameters == ({"content_type": "pd"} if isinstance(value, pd.DataFrame) else {})


@pytest.mark.parametrize(
    "value", [pd.Series([1.5]), np.array([1.5]), [1.5], (1.5,), np.float32(1.5)], ids=lambda each: type(each).__name__
)
def test_single_output_needs_no_name(serve, form: str, value: Any) -> None:
    """C2: predict() can return the value of a single output without a name."""
    shape = list(np.shape(value[0] if isinstance(value, tuple) else value))
    tensor = MetadataTensor("y", "FP32", [-1] * len(shape))
    assert serve(returning(value, tensor)).forms[form].infer([]).outputs == {"y": ("FP32", shape, [1.5])}


def test_returned_response_keeps_its_parameters(serve, form: str) -> None:
    """R8, C2: parameters of a returned InferenceResponse and its outputs are sent, with METADATA's name and version."""
    output = ResponseOutput("y", "BYTES", data=["a"], parameters={"content_type": "str"})
    value = InferenceResponse(
        [output], "other", "9", "mine", {"seconds": 0.5, "cached": True, "k": 3, "content_type": "str"}
    )
    answer = serve(returning(value, MetadataTensor("y", "BYTES", [-1]))).forms[form].infer([], request_id="7")
    kept = {name: each for name, each in answer.parameters.items() if name != "binary_data_output"}
    assert kept == {"seconds": 0.5, "cached": True, "k": 3, "content_type": "str"}
    assert answer.content_types == {"y": "str"}
    assert (answer.model_name, answer.model_version, answer.id) == ("test", "1", "7")


def test_returned_response_with_invalid_values_is_a_model_error(serve, form: str) -> None:
    """R11: an InferenceResponse with a value outside the declared datatype is an error of the model."""
    value = InferenceResponse([ResponseOutput("y", "INT64", data=[300])])
    answer = serve(returning(value, MetadataTensor("y", "UINT8", [-1]))).forms[form].infer([])
    assert answer.kind == "INTERNAL"
    assert "expected UINT8 from 0 to 255, got 300" in answer.text


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    ("content_type", "value", "expected"),
    [
        ("base64", [b"ab", b"\xff"], [b"YWI=", b"/w=="]),
        ("base64", np.array([b"ab", b"\xff"], object), [b"YWI=", b"/w=="]),
        ("datetime", MOMENTS, [b"2024-01-02T00:00:00", b"2024-01-03T04:05:06+00:00"]),
        ("datetime", pd.Series(pd.to_datetime(["2024-01-02", "2024-01-03"])),
         [b"2024-01-02T00:00:00", b"2024-01-03T00:00:00"]),
        ("datetime", np.array(["2024-01-02", "2024-01-03"], "M8[s]"), [b"2024-01-02T00:00:00", b"2024-01-03T00:00:00"]),
        ("datetime", ["2024-01-02", "2024-01-03"], [b"2024-01-02", b"2024-01-03"]),
        ("datetime", pd.Series(["2024-01-02", None]), [b"2024-01-02", b"NaT"]),
        ("datetime", pd.Series([None, None], dtype=object), [b"NaT", b"NaT"]),
        ("pd_json", [[1, "é"], None], ['[1,"é"]'.encode(), b"null"]),
        ("pd_json", [{"a": 1.5}, []], [b'{"a":1.5}', b"[]"]),
    ],
)  # fmt: skip
def test_outputs_are_encoded_by_content_type(
    serve, form: str, rank: int, content_type: str, value: Any, expected: list
) -> None:
    """C2, C7: an output is encoded with METADATA's content type, in the declared rank, and names the content type."""
    tensor = MetadataTensor("y", "BYTES", [-1, 1][:rank], content_type)
    answer = serve(returning({"y": value}, tensor)).forms[form].infer([])
    assert answer.kind == "ok", answer.text
    assert answer.outputs == {"y": ("BYTES", [2, 1][:rank], expected)}
    assert answer.content_types == {"y": content_type}


@pytest.mark.parametrize(
    ("content_type", "value", "shape", "expected"),
    [
        ("base64", [b"a"], [1], [b"YQ=="]),
        ("base64", b"a", [], [b"YQ=="]),
        ("base64", [[b"a", b""]], [-1, 2], [b"YQ==", b""]),
        ("base64", [], [-1, 2], []),
        ("datetime", [["2024-01-02"], ["2024-01-03"]], [2, 1], [b"2024-01-02", b"2024-01-03"]),
        ("datetime", "2024-01-02", [], [b"2024-01-02"]),
        ("pd_json", [[1, 2]], [1], [b"[1,2]"]),
        ("pd_json", {"a": 1}, [], [b'{"a":1}']),
        ("pd_json", [], [-1], []),
    ],
)  # fmt: skip
def test_outputs_with_content_types_accept_lists(
    serve, form: str, content_type: str, value: Any, shape: list[int], expected: list[bytes]
) -> None:
    """C7: an output with a content type accepts lists of any declared shape."""
    answer = serve(returning({"y": value}, MetadataTensor("y", "BYTES", shape, content_type))).forms[form].infer([])
    assert answer.kind == "ok", answer.text
    assert answer.outputs == {
        "y": (
            "BYTES",
            [0 if each < 0 else each for each in shape]
            if not value
            else [len(value) if each < 0 else each for each in shape],
            expected,
        )
    }


@pytest.mark.parametrize(
    ("datatype", "content_type", "value", "expected"),
    [
        ("FP64", None, pd.Series([], dtype=object), []),
        ("INT32", None, pd.Series([1, 2], dtype=object), [1, 2]),
        ("INT64", None, pd.Series(pd.arrays.SparseArray([2**31, 2**40 + 1, 0])), [2**31, 2**40 + 1, 0]),
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
    answer = service.rest.infer([])
    assert answer.kind == "ok", answer.text
    assert answer.outputs == {"y": (datatype, [len(expected)], expected)}
    assert answer.content_types.get("y") in ({content_type, "str"} if datatype == "BYTES" else {content_type})


@pytest.mark.parametrize(
    ("content_type", "value"),
    [
        ("base64", [5]),
        ("base64", {b"a", b"b"}),
        ("base64", pd.DataFrame({"a": [b"b"]})),
        ("pd_json", pd.DataFrame({"a": [1]})),
        ("pd_json", {1, 2}),
        ("datetime", pd.Series(np.array(["10000-01-01"], "M8[s]"))),
        ("datetime", pd.Series(np.array(["-0001-01-01"], "M8[s]"))),
        ("base64", [None]),
        ("datetime", [5]),
        ("datetime", [None]),
        ("datetime", ["soon"]),
        ("pd_json", [float("nan")]),
        ("pd_json", [object()]),
        ("pd_json", [np.timedelta64(5, "ns")]),
        ("str", [5]),
        ("str", [["a"], ["b"]]),
        ("str", [b"\xff", 1.5]),
    ],
)
def test_outputs_that_cannot_be_encoded_are_model_errors(serve, form: str, content_type: str, value: Any) -> None:
    """C2: an output that its content type cannot encode is an error of the model, and the message names the output."""
    answer = serve(returning({"y": value}, MetadataTensor("y", "BYTES", [-1], content_type))).forms[form].infer([])
    assert answer.kind == "INTERNAL"
    assert answer.text.startswith('output "y": ')


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
    answer = service.forms[form].infer([])
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text.startswith('output "y": data: null')


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
    answer = serve(returning(pd.DataFrame({"y": series}), tensor)).forms[form].infer([])
    assert answer.kind == "ok", answer.text
    assert answer.outputs["y"][2] == expected
    assert answer.content_types == {"y": "datetime"}


def test_missing_values_of_nullable_series(serve, form: str) -> None:
    """C6: missing values of a nullable column are NaN in a float output, and a model error in other outputs."""
    series = pd.Series([1, None], dtype="Int64")
    answer = serve(returning(series, MetadataTensor("y", "FP64", [-1]))).forms[form].infer([])
    values = answer.outputs["y"][2]
    assert values[0] == 1
    assert values[1] is None or values[1] != values[1]
    assert serve(returning(series, MetadataTensor("y", "INT64", [-1]))).forms[form].infer([]).kind == "INTERNAL"
    flags = pd.Series([True, None], dtype="boolean")
    answer = serve(returning(flags, MetadataTensor("y", "BOOL", [-1]))).forms[form].infer([])
    assert answer.text.endswith("BOOL cannot represent the missing values of boolean")


def png_model() -> Any:
    """Return a model that registers a codec for PNG images, or for .npy data if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError:
        Image = None  # noqa: N806

    @register_input_codec
    class Picture(InputCodec):
        ContentType = "png"
        TypeHint = np.ndarray

        @classmethod
        def encode(cls, payload: np.ndarray, **options: Any) -> tuple[str, np.ndarray]:
            file = io.BytesIO()
            if Image is None:
                np.save(file, payload)
            else:
                Image.fromarray(payload).save(file, "PNG")
            return "BYTES", np.array([file.getvalue()], object)

        @classmethod
        def decode(cls, tensor: Any) -> np.ndarray:
            file = io.BytesIO(tensor.data.item())
            return np.load(file) if Image is None else np.asarray(Image.open(file))

    def predict(_, picture: np.ndarray):
        picture[0, 0] = 9
        return {"shape": np.array(picture.shape), "upside down": picture[::-1].copy()}

    return models.model(
        [MetadataTensor("picture", "BYTES", [1], content_type="png")],
        [MetadataTensor("shape", "INT64", [3]), MetadataTensor("upside down", "BYTES", [1], content_type="png")],
        predict,
    )


@pytest.mark.parametrize("bits", ["rest binary", "grpc typed", "grpc raw"])
def test_custom_input_codec(serve, bits: str) -> None:
    """C10: a codec that the model registers decodes inputs to writable arrays and encodes outputs."""
    service = serve(png_model())
    picture = np.arange(24, dtype="u1").reshape(2, 4, 3)
    codec = input_codecs["png"]
    sent = codec.encode_input("picture", picture)
    answer = service.forms[bits].infer([("picture", "BYTES", [1], sent.data.tolist())])
    assert answer.kind == "ok", answer.text
    assert answer.outputs["shape"] == ("INT64", [3], [2, 4, 3])
    (octets,) = answer.outputs["upside down"][2]
    expected = picture.copy()
    expected[0, 0] = 9
    decoded = codec.decode(ResponseOutput("y", "BYTES", data=[octets]))
    np.testing.assert_array_equal(decoded, expected[::-1])
    assert answer.content_types == {"upside down": "png"}
    unknown = service.forms[bits].infer([("picture", "BYTES", [1], [b"a"])], content_types={"picture": "jpeg"})
    assert "base64, datetime, np, pd_json, png, str on an input or output" in unknown.text


def test_custom_input_codec_with_its_own_type(serve, form: str) -> None:
    """C10: a parameter can be annotated with the type that a custom codec returns."""

    class Point:
        def __init__(self, x: float, y: float):
            self.x, self.y = x, y

    @register_input_codec
    class PointCodec(InputCodec):
        ContentType = "point"
        TypeHint = Point

        @classmethod
        def decode(cls, tensor: Any) -> Point:
            return Point(*tensor.data.tolist())

    service = serve(telling(Point, MetadataTensor("x", "FP64", [2], content_type="point")))
    assert got(service.forms[form].infer([("x", "FP64", [2], [1.5, 2.5])])).startswith("Point ")
    answer = service.forms[form].infer([("x", "FP64", [2], [1.5, 2.5])], content_types={"x": "np"})
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text == 'input "x": content_type: expected Point for predict(), got ndarray'


def sums_model() -> Any:
    """Return a model with its own request codec, which sums all inputs and encodes a Total."""

    class Total:
        def __init__(self, value: float):
            self.value = value

    @register_request_codec
    class TotalCodec(RequestCodec):
        ContentType = "total"
        TypeHint = Total

        @classmethod
        def decode_request(cls, request: InferenceRequest) -> Total:
            return Total(sum(float(each.data.sum()) for each in request.inputs))

        @classmethod
        def encode_response(
            cls, model_name: str, payload: Total, model_version: str | None = None, **options: Any
        ) -> InferenceResponse:
            output = ResponseOutput("y", "FP64", data=[payload.value])
            return InferenceResponse([output], model_name, model_version, parameters={"content_type": "total"})

    def predict(_, total: Total):
        return Total(total.value * 2)

    predict.__annotations__["total"] = Total
    module = models.model(
        [MetadataTensor("a", "FP64", [-1]), MetadataTensor("b", "INT8", [-1])],
        [MetadataTensor("y", "FP64", [1])],
        predict,
    )
    module.METADATA.content_type = "total"
    return module


def test_custom_request_codec(serve, form: str) -> None:
    """C10: a request codec that METADATA names decodes predict()'s only argument and encodes its return value."""
    service = serve(sums_model())
    sent = [("a", "FP64", [2], [1.5, 2.0]), ("b", "INT8", [1], [3])]
    answer = service.forms[form].infer(sent)
    assert answer.kind == "ok", answer.text
    assert answer.outputs == {"y": ("FP64", [1], [13.0])}
    assert answer.parameters["content_type"] == "total"
    assert "np, pd, str, total on a request" in service.forms[form].infer(sent, parameters={"content_type": "x"}).text
    assert service.forms[form].infer(sent, parameters={"content_type": "np"}).kind == "INVALID_ARGUMENT"


def broken(predict: Any, inputs: list, outputs: list = (), content_type: str | None = None) -> Any:  # type: ignore[assignment]
    return SimpleNamespace(
        __name__="broken",
        METADATA=ModelMetadata("m", "1", "p", list(inputs), list(outputs), content_type),
        load=lambda: None,
        predict=predict,
    )


async def waits(_, x): ...
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
        (broken(waits, [BYTES]), "predict.. is async"),
        (broken(takes_text, [NUMBER]), 'parameter "x": list.str. takes BYTES, METADATA declares FP32'),
        (broken(takes_octets, [NUMBER]), 'parameter "x": list.bytes. takes BYTES, METADATA declares FP32'),
        (broken(takes_moments, [NUMBER]), "takes BYTES, METADATA declares FP32"),
        (broken(takes_numbers, [BYTES]), 'parameter "x": cannot be given a list.int.'),
        (broken(takes_either, [BYTES]), 'parameter "x": cannot be given a '),
        (broken(takes_x_and_a_frame, [BYTES]), '"frame"'),
        (broken(takes_a_frame, [NUMBER, MetadataTensor("town", "BYTES", [-1])]), 'tensor "town": .*content_type="str"'),
        (broken(takes_a_frame, [MetadataTensor("age", "FP32", [])]), r'"age": shape: .* has rows, .-1.; got \[\]'),
        (broken(takes_x, [declared("nonsense")]), "METADATA, .*base64, datetime, np, pd_json, str"),
        (broken(takes_x, [declared("pd")]), "METADATA, .*on an input or output, got pd"),
        (broken(takes_x, [BYTES], [declared("nonsense")]), "METADATA, .*on an input or output, got nonsense"),
        (broken(takes_x, [BYTES], content_type="nonsense"), "METADATA, .*np, pd, str on a request, got nonsense"),
        (broken(takes_x, [BYTES], content_type="base64"), "METADATA, .*on a request, got base64"),
        *(
            (
                broken(takes_x, [MetadataTensor("x", "FP32", [-1], kind)]),
                f"expected BYTES for content type {kind}",
            )
            for kind in ("str", "base64", "datetime", "pd_json")
        ),
        (
            broken(takes_x, [BYTES], [MetadataTensor("y", "INT8", [1], "str")]),
            'tensor "y": datatype: expected BYTES for content type str',
        ),
    ],
)
def test_rejects_models_whose_annotations_do_not_match_metadata(module: Any, text: str) -> None:
    """C2: annotations and content types that do not match METADATA fail at startup, and the error names them."""
    with pytest.raises(ConfigurationError, match=text):
        ModelAdapter(module)


def test_metadata_shows_content_types(serve) -> None:
    """R6: the model metadata shows the content type of a tensor."""
    answer = serve(frame_model()).client.get("/v2/models/test").json
    assert answer["inputs"][1]["parameters"] == {"content_type": "str"}
    assert "parameters" not in answer["inputs"][0]


@pytest.mark.parametrize(
    "cell",
    ["[" * 100_000, "NaN", "[Infinity]", "1" * 5000, r'"\ud83c"'],
    ids=["deep", "nan", "infinity", "long", "half"],
)
@pytest.mark.parametrize("annotation", [np.ndarray, pd.DataFrame])
def test_rejects_cells_that_are_not_json(serve, form: str, annotation: Any, cell: str) -> None:
    """R12, R19, R20: a pd_json cell that is not JSON is rejected, and the error names the input."""
    answer = serve(telling(annotation, declared("pd_json"))).forms[form].infer([("x", "BYTES", [1], [cell])])
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text.startswith('input "x": ')


@pytest.mark.parametrize("text", ["now", "", " 2024-01-01", "soon", "2024-13-01"])
@pytest.mark.parametrize("annotation", [np.ndarray, list[datetime], pd.DataFrame])
def test_rejects_datetimes_that_are_not_iso_8601(serve, form: str, annotation: Any, text: str) -> None:
    """C7: a datetime that is not ISO 8601 is rejected, in a list, an array and a column."""
    answer = serve(telling(annotation, declared("datetime"))).forms[form].infer([("x", "BYTES", [1], [text])])
    assert answer.kind == "INVALID_ARGUMENT"
    assert answer.text.startswith('input "x": ')


def test_rejects_null_in_datetime_columns(serve) -> None:
    """R12: null in BYTES is rejected with the content type datetime, even in a DataFrame."""
    assert DatetimeCodec.ContentType == "datetime"
    answer = serve(telling(pd.DataFrame, declared("datetime"))).rest.infer([("x", "BYTES", [2], ["2024-01-02", None])])
    assert answer.kind == "INVALID_ARGUMENT"


@pytest.mark.parametrize("named", ["nonsense", 5])
def test_unknown_content_type_in_json_returns_400(serve, named: Any) -> None:
    """C2, R19: an unknown content type in JSON returns 400, even if it is not a string."""
    envelope = {
        "inputs": [
            {"name": "x", "datatype": "BYTES", "shape": [1], "data": ["a"], "parameters": {"content_type": named}}
        ]
    }
    text = refusal(serve(telling(np.ndarray)).rest.post(envelope), 400)
    known = "base64, datetime, np, pd_json, str"
    assert text == f'input "x": content_type: expected one of {known} on an input or output, got {named}'


def test_error_messages_are_the_same_on_every_transport(serve) -> None:
    """C2, G1: all four transport forms return the same error message."""
    service = serve(telling(list[datetime]))
    texts: set[str] = {service.forms[form].infer([TEXT]).text for form in FORMS}
    assert len(texts) == 1
