"""pd: columns of a DataFrame, encoded as tensors."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.codecs import Base64Codec, NumpyCodec, PandasCodec, StringCodec
from app.protocol.datatypes import object_array
from app.protocol.errors import InvalidInput
from tests.service.codecs.values import column, encoded, frame, listed


@pytest.mark.parametrize(
    ("values", "dtype", "datatype", "content_type", "back"),
    [
        ([1, 2], "int32", "INT32", None, "int32"),
        ([1, 2], ">i8", "INT64", None, "int64"),
        ([True, False], "bool", "BOOL", None, "bool"),
        ([1.5, np.nan], "float16", "FP16", None, "float16"),
        ([1, 2], "Int16", "INT16", None, "int16"),
        ([1, None], "Int16", "FP64", None, "float64"),
        ([1, None, 2**53], "Int64", "FP64", None, "float64"),
        ([1, None, 2**53 + 1], "Int64", "BYTES", "pd_json", "object"),
        ([2**64 - 1, None], "UInt64", "BYTES", "pd_json", "object"),
        ([True, None], "boolean", "BYTES", "pd_json", "object"),
        ([0.1, None], "Float32", "FP32", None, "float32"),
        ([b"a", b"\xff"], "object", "BYTES", None, "object"),
        ([[1], [2, 3]], "object", "BYTES", "pd_json", "object"),
        ([1, "a", None, [1]], "object", "BYTES", "pd_json", "object"),
        ([np.bytes_(b"a"), b"\xff"], "object", "BYTES", None, "object"),
    ],
)
def test_pd_column_datatype_follows_the_dtype(
    values: list, dtype: str, datatype: str, content_type: str | None, back: str
) -> None:
    """C6: a column's datatype and content type follow its dtype. Its values and missing values survive a round trip."""
    payload = frame(values, dtype)
    tensor = encoded(payload)
    assert (tensor.name, tensor.datatype, tensor.shape) == ("a", datatype, [len(values), 1])
    assert tensor.parameters == ({"content_type": content_type} if content_type else {})
    decoded = column(tensor)
    assert decoded.dtype == np.dtype(back)
    assert listed(decoded) == listed(payload["a"])


def test_pd_encodes_dates_with_none_as_datetime() -> None:
    """C6: an object column of dates or datetimes with None is encoded as datetime, and None becomes NaT."""
    for moment in (date(2024, 1, 2), datetime(2024, 1, 2)):
        tensor = encoded(frame([moment, None], "object"))
        assert tensor.parameters == {"content_type": "datetime"}
        assert listed(column(tensor)) == [pd.Timestamp(2024, 1, 2), None]


@pytest.mark.parametrize("codec", [StringCodec, NumpyCodec, Base64Codec, PandasCodec])
def test_encodes_numpy_strings_like_python_strings(codec: Any) -> None:
    """C7: NumPy strings are encoded like Python strings, in a list and in an object array."""
    for wrap in (list, object_array):
        if codec is PandasCodec:
            of_numpys, of_pythons = (
                encoded(frame(wrap([kind("aé"), kind("b")]), "object")) for kind in (np.str_, str)
            )
        else:
            of_numpys, of_pythons = (
                codec.encode_input("x", wrap([kind("aé"), kind("b")])) for kind in (np.str_, str)
            )
        assert of_numpys.data.tolist() == of_pythons.data.tolist()
        assert set(map(type, of_numpys.data.ravel().tolist())) <= {bytes, str}
        assert of_numpys.parameters == of_pythons.parameters


def test_pd_keeps_large_integers_of_arrow_categories() -> None:
    """C6: a missing value does not change categories that are integers beyond the precision of floats."""
    pytest.importorskip("pyarrow")
    series = pd.Series([2**53 + 1, None], dtype="int64[pyarrow]").astype("category")
    assert listed(column(encoded(pd.DataFrame({"a": series})))) == [2**53 + 1, None]


def test_pd_encodes_sparse_columns_as_dense() -> None:
    """C6: a sparse column is encoded as its dense values, with the same dtype."""
    for values in ([2**40 + 1, 0], [0.1, 0.0], [True, False], np.array([255, 0], "u1")):
        sent = encoded(pd.DataFrame({"a": pd.arrays.SparseArray(values)}))
        assert sent.data.dtype == np.asarray(values).dtype
        assert sent.data.ravel().tolist() == list(values)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (pd.DataFrame({0: [1]}), "Invalid column name. Expected a string, got 0"),
        (
            pd.DataFrame({("a", "b"): [1]}),
            r"Invalid column name. Expected a string, got \('a', 'b'\)",
        ),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "same name"),
        (frame([timedelta(1)]), 'Column "a"'),
        (frame([1j]), 'Column "a"'),
        (frame([object()]), 'Column "a"'),
        (frame([[float("nan")]]), 'Column "a"'),
        (frame([{"a": float("inf")}]), 'Column "a"'),
        (frame([{1}]), 'Column "a"'),
        (frame(["\ud800"], object), 'Column "a"'),
        (frame([b"a", None]), 'Column "a"'),
        (frame([np.timedelta64(1, "ns"), 1], object), 'Column "a"'),
        (frame(pd.period_range("2024", periods=1)), 'Column "a"'),
        *(
            (frame(pd.Series(cells, dtype=object)), 'Column "a"')
            for cells in (
                [np.datetime64("2024-01-01", "ns"), 1],
                [np.timedelta64(5, "ns"), "a"],
                [[np.datetime64(5, "ns")]],
                [{"a": timedelta(1)}],
                [{1: 2}],
                [b"a", "a"],
                [float("inf"), "a"],
                [["\udfff"]],
            )
        ),
    ],
)
def test_pd_rejects_frames_that_cannot_be_encoded(payload: pd.DataFrame, text: str) -> None:
    """C6: a DataFrame with an invalid column name or cell is rejected, and the error names the column."""
    with pytest.raises(InvalidInput, match=text):
        PandasCodec.encode_request(payload)
    with pytest.raises(InvalidInput, match=text):
        PandasCodec.encode_response("m", payload)


def test_pd_encodes_columns_in_order() -> None:
    """C4, C6, C9: pd encodes one tensor per column in order, sets content_type on the request and drops the index."""
    payload = pd.DataFrame({"b c": [1, 2], "a": ["x", "y"]}, index=[5, 6])
    sent = PandasCodec.encode_request(payload)
    response = PandasCodec.encode_response("m", payload, "2")
    assert (
        [tensor.name for tensor in sent.inputs]
        == [tensor.name for tensor in response.outputs]
        == ["b c", "a"]
    )
    assert sent.parameters == response.parameters == {"content_type": "pd"}
    assert (response.model_name, response.model_version) == ("m", "2")
    for decoded in (PandasCodec.decode_request(sent), PandasCodec.decode_response(response)):
        assert decoded.index.tolist() == [0, 1]
        assert decoded.to_dict("list") == {"b c": [1, 2], "a": ["x", "y"]}
