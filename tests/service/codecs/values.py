"""Values, tensors and tables for the tests of the codecs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from app.codecs import PandasCodec
from app.protocol.messages import InferenceRequest
from app.protocol.tensors import RequestInput


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type, misc]


def texts(*elements: Any, content_type: str | None = None) -> RequestInput:
    """Return a BYTES input with `elements` as its rows."""
    parameters = {"content_type": content_type} if content_type else {}
    array = np.empty(len(elements), object)
    array[:] = elements
    return RequestInput("a", "BYTES", data=array, parameters=parameters)


def column(*tensors: RequestInput) -> pd.Series:
    """Return the first column of the DataFrame that the pd codec decodes from `tensors`."""
    return PandasCodec.decode_request(InferenceRequest(list(tensors))).iloc[:, 0]


def frame(values: Any, dtype: Any = None) -> pd.DataFrame:
    return pd.DataFrame({"a": pd.Series(values, dtype=dtype)})


def listed(series: pd.Series) -> list:
    """Return the values of a column, with None for every missing value."""
    return [None if gap else value for value, gap in zip(series, series.isna(), strict=True)]


def encoded(payload: pd.DataFrame) -> RequestInput:
    (tensor,) = PandasCodec.encode_request(payload).inputs
    return tensor
