"""The computations of the models, shared by all servers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

WEIGHTS = np.arange(12, dtype="<f4").reshape(4, 3) / 8
BIAS = np.array([0.5, -0.5, 0.25], "<f4")

# The columns of the DataFrames.
FLOATS = [f"float{index}" for index in range(5)]
INTEGERS = [f"integer{index}" for index in range(2)]
TEXTS = [f"text{index}" for index in range(3)]
COLUMNS = {
    **dict.fromkeys(FLOATS, "FP64"),
    **dict.fromkeys(INTEGERS, "INT64"),
    **dict.fromkeys(TEXTS, "BYTES"),
}


def linear(x: np.ndarray) -> np.ndarray:
    """Map [rows, 4] to [rows, 3]."""
    return x @ WEIGHTS + BIAS


def sums(x: np.ndarray) -> np.ndarray:
    """Map [rows, 10] to [rows]."""
    return x.sum(axis=1)


def frame_scores(frame: Mapping[str, Any]) -> np.ndarray:
    """Return a score for each row, FP64 [rows], from one column of each datatype.

    `frame` is a DataFrame or a dict of lists. The model uses few columns, because pandas needs up
    to 20 µs to return one, and the benchmarks measure the servers. This module does not import
    pandas, because only some servers need it.
    """
    numbers = np.asarray(frame["float0"]) + np.asarray(frame["integer0"])
    texts = np.asarray(frame["text0"], object)
    return numbers + [len(text) for text in texts]
