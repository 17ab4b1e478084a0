"""Data for the model `iris`: flowers of known species, and a check of their labels."""

import numpy as np

FLOWERS = np.array([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]], np.float32)
SPECIES = ["setosa", "virginica"]
CLASSES = [0, 2]  # the class with the highest probability for each flower

# 100 rows: as JSON this is more than 1 KiB, and responses are compressed above this size.
MANY = np.tile(FLOWERS, (50, 1))
INPUT = ("features", "FP32", [-1, 4])
OUTPUTS = [("label", "BYTES", [-1]), ("probabilities", "FP32", [-1, 3])]


def check_labels(labels, times: int = 1) -> None:
    """Check `labels`, the output for FLOWERS repeated `times` times, as an array of bytes or str."""
    labels = np.asarray(labels, object)
    assert labels.shape == (2 * times,), labels.shape
    texts = [label.decode() if isinstance(label, bytes) else label for label in labels]
    assert texts == SPECIES * times, texts
