"""pd: columns with an extension dtype of another package, which has no `numpy_dtype`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.api.extensions import ExtensionArray, ExtensionDtype

from tests.service.codecs.values import encoded


class MeasureDtype(ExtensionDtype):
    """The dtype of numbers with a unit, as other packages have it. `kind` is NumPy's."""

    type = object
    name = "measure"
    na_value = pd.NA

    def __init__(self, kind: str):
        self._kind = kind

    @property
    def kind(self) -> str:
        return self._kind


class MeasureArray(ExtensionArray):
    """The smallest array of this dtype: NumPy's values, and which of them are missing."""

    def __init__(self, values: np.ndarray, is_missing: np.ndarray):
        self._values = values
        self._is_missing = is_missing

    @property
    def dtype(self) -> MeasureDtype:
        return MeasureDtype(self._values.dtype.kind)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, int | np.integer):
            return MeasureArray(self._values[key], self._is_missing[key])
        return pd.NA if self._is_missing[key] else self._values[key]

    def isna(self) -> np.ndarray:
        return self._is_missing

    def copy(self) -> MeasureArray:
        return MeasureArray(self._values.copy(), self._is_missing.copy())


def measures(values: list[Any], dtype: str) -> pd.DataFrame:
    """Return a column of measures with NumPy's `dtype`. None is a missing value."""
    is_missing = np.array([value is None for value in values])
    numbers = np.array([value or 0 for value in values], dtype)
    return pd.DataFrame({"a": MeasureArray(numbers, is_missing)})


@pytest.mark.parametrize(
    ("values", "dtype", "datatype"),
    [
        ([1, 2**40 + 1], "int64", "INT64"),
        ([1, 2], "int8", "INT8"),
        ([1, 2**64 - 1], "uint64", "UINT64"),
        ([0.1, 1e300], "float64", "FP64"),
        ([0.5, 1.5], "float16", "FP16"),
        ([True, False], "bool", "BOOL"),
    ],
)
def test_pd_encodes_numbers_of_other_packages(values: list[Any], dtype: str, datatype: str) -> None:
    """C6: numbers with a dtype of another package are encoded like their NumPy array, without a loss."""
    tensor = encoded(measures(values, dtype))

    assert (tensor.datatype, tensor.parameters) == (datatype, {})
    assert tensor.data.ravel().tolist() == values


@pytest.mark.parametrize(
    ("values", "dtype", "datatype", "elements"),
    [
        ([2**40, None], "int64", "FP64", [2.0**40, np.nan]),
        ([2**53 + 1, None], "int64", "BYTES", [b"9007199254740993", b"null"]),
        ([2**64 - 1, None], "uint64", "BYTES", [b"18446744073709551615", b"null"]),
        ([0.1, None], "float64", "FP64", [0.1, np.nan]),
        ([0.5, None], "float32", "FP32", [0.5, np.nan]),
        ([True, None], "bool", "BYTES", [b"true", b"null"]),
        ([None, None], "int64", "FP64", [np.nan, np.nan]),
    ],
)
def test_pd_encodes_missing_numbers_of_other_packages(
    values: list[Any], dtype: str, datatype: str, elements: list[Any]
) -> None:
    """C6: missing numbers with a dtype of another package are encoded like those of pandas."""
    tensor = encoded(measures(values, dtype))

    content_type = "pd_json" if datatype == "BYTES" else None
    assert (tensor.datatype, tensor.parameters.get("content_type")) == (datatype, content_type)
    np.testing.assert_array_equal(tensor.data.ravel(), elements)
