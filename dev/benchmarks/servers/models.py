"""The computations of the models, shared by all servers."""

from __future__ import annotations

import numpy as np

WEIGHTS = np.arange(12, dtype="<f4").reshape(4, 3) / 8
BIAS = np.array([0.5, -0.5, 0.25], "<f4")


def linear(x: np.ndarray) -> np.ndarray:
    """Map [rows, 4] to [rows, 3]."""
    return x @ WEIGHTS + BIAS


def sums(x: np.ndarray) -> np.ndarray:
    """Map [rows, 10] to [rows]."""
    return x.sum(axis=1)
