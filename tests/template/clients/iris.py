"""The model `iris`: flowers of known species, and checks of what it says of them."""

import numpy as np

FLOWERS = np.array([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]], np.float32)
SPECIES = ["setosa", "virginica"]
CLASSES = [0, 2]  # where each has its highest probability

# Fifty times the two: its JSON is over the kilobyte from which responses are compressed.
MANY = np.tile(FLOWERS, (50, 1))
# One feature short.
WRONG = np.ascontiguousarray(FLOWERS[:, :3])

INPUT = ("features", "FP32", [-1, 4])
OUTPUTS = [("label", "BYTES", [-1]), ("probabilities", "FP32", [-1, 3])]


def check_labels(labels, times: int = 1) -> None:
    """`labels`: the output of FLOWERS, or of as many `times` FLOWERS, as an array of bytes or of str."""
    labels = np.asarray(labels, object)
    assert labels.shape == (2 * times,), labels.shape
    texts = [label.decode() if isinstance(label, bytes) else label for label in labels]
    assert texts == SPECIES * times, texts


def check_probabilities(probabilities, times: int = 1) -> None:
    """`probabilities`: the output of FLOWERS, or of as many `times` FLOWERS, as an array."""
    assert probabilities.dtype == np.float32, probabilities.dtype
    assert probabilities.shape == (2 * times, 3), probabilities.shape
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert probabilities.argmax(axis=1).tolist() == CLASSES * times, probabilities


def check(labels, probabilities, times: int = 1) -> None:
    """Both outputs of FLOWERS, or of as many `times` FLOWERS."""
    check_labels(labels, times)
    check_probabilities(probabilities, times)
