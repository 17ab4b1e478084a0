"""pd: tensors, decoded to columns of a DataFrame."""

from __future__ import annotations

from datetime import datetime

import pandas as pd
import pytest

from app.codecs import DatetimeCodec
from app.protocol.errors import InvalidInput
from app.protocol.tensors import RequestInput
from tests.service.codecs.values import column, listed, texts


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (RequestInput("a", "INT32", data=[[1], [2]]), [1, 2]),
        (RequestInput("a", "INT32", data=[1, 2]), [1, 2]),
        (RequestInput("a", "FP32", data=[[[1]], [[2]]]), [1, 2]),
        (texts(b"a", "b"), [b"a", b"b"]),
        (texts("a", None, content_type="str"), ["a", None]),
        (texts("YQ==", content_type="base64"), [b"a"]),
        (texts("[1]", "null", content_type="pd_json"), [[1], None]),
        (texts("2024-01-02", content_type="datetime"), [pd.Timestamp(2024, 1, 2)]),
        (
            texts("2024-01-02T00:00:00Z", content_type="datetime"),
            [pd.Timestamp(2024, 1, 2, tz="UTC")],
        ),
        (texts("2024-01-02", "NaT", content_type="datetime"), [pd.Timestamp(2024, 1, 2), None]),
        (texts("a", "b", content_type="np"), [b"a", b"b"]),
    ],
)
def test_pd_decodes_columns_by_content_type(sent: RequestInput, expected: list) -> None:
    """C6: a direct call of decode_request decodes each column with its content type and squeezes [N,1]."""
    decoded = column(sent)
    assert listed(decoded) == expected


def test_pd_cells_hold_the_remaining_dimensions() -> None:
    """C6: a column has shape[0] rows, and each cell holds an array of the remaining dimensions."""
    decoded = column(RequestInput("a", "INT8", data=[[1, 2], [3, 4]]))
    assert [array.tolist() for array in decoded] == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "text", ["now", "today", "", "nan", " 2024-01-01", "2024-01-01T00:00:00.0000000001", "1/2/2024"]
)
def test_pd_rejects_datetimes_that_are_not_iso_8601(text: str) -> None:
    """C7: a datetime column accepts only ISO 8601, and rejects digits that it would lose."""
    with pytest.raises(InvalidInput, match='Input "a"'):
        column(texts(text, content_type="datetime"))


@pytest.mark.parametrize(
    "text", ["2024-01-01T00:00:00z", "2024-01-01T00:00:00.000001Z", "2024-01-01T01:00:00.5+01:00"]
)
def test_pd_and_datetime_codecs_decode_the_same_values(text: str) -> None:
    """C7: a datetime column accepts what the datetime codec accepts, and decodes it to the same value."""
    (moment,) = DatetimeCodec.decode_input(texts(text))
    assert column(texts(text, content_type="datetime"))[0] == moment


def test_pd_keeps_datetimes_outside_the_nanosecond_range() -> None:
    """C6: the years 1 and 9999 keep their values, even in a column with a missing value."""
    decoded = column(
        texts("9999-12-31T23:59:59.999999", "0001-01-01", "NaT", content_type="datetime")
    )
    assert decoded.isna().tolist() == [False, False, True]
    assert decoded.tolist()[:2] == [datetime.max, datetime.min]
