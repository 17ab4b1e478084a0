"""Train this example's model, a softmax classifier of iris.csv: python examples/numpy/train.py [model folder]

The 150 flowers are those of R. A. Fisher, "The use of multiple measurements in taxonomic problems",
1936: lengths and widths in cm. Gradient descent starts from zero, so every run gives the same
weights.
"""

import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent


def read_flowers(path: Path = HERE / "iris.csv") -> tuple[np.ndarray, np.ndarray]:
    """Return the measurements, [150, 4], and the species, [150]."""
    table = np.loadtxt(path, str, delimiter=",", skiprows=1)
    return table[:, :4].astype(np.float64), table[:, 4]


def train(
    features: np.ndarray, species: np.ndarray, steps: int = 5000, rate: float = 0.5
) -> dict[str, np.ndarray]:
    """Return the weights of the classifier in the format of predict()."""
    labels, codes = np.unique(species, return_inverse=True)
    mean, std = features.mean(axis=0), features.std(axis=0)
    scaled, targets = (features - mean) / std, np.eye(len(labels))[codes]
    weights, bias = np.zeros((features.shape[1], len(labels))), np.zeros(len(labels))
    for _ in range(steps):
        scores = scaled @ weights + bias
        exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
        error = (exponentials / exponentials.sum(axis=1, keepdims=True) - targets) / len(targets)
        weights -= rate * (scaled.T @ error)
        bias -= rate * error.sum(axis=0)
    return {"labels": labels, "mean": mean, "std": std, "weights": weights, "bias": bias}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    np.savez(folder / "iris.npz", **train(*read_flowers()))
    print(f"wrote {folder / 'iris.npz'}")
