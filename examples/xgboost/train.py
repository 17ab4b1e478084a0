"""Train this example's model, boosted trees for wine.csv: python examples/xgboost/train.py [model folder]

The 178 wines are those of M. Forina and others, "PARVUS", 1988: one chemical analysis each, of
three cultivars. A tenth of the values is removed at random, with a fixed seed, so that the trees
learn to handle missing values.
"""

import sys
from pathlib import Path

import numpy as np
import xgboost as xgb

HERE = Path(__file__).resolve().parent


def read_wines(path: Path = HERE / "wine.csv") -> tuple[np.ndarray, np.ndarray]:
    """Return the analyses, [178, 13], with NaN for removed values, and the cultivars, [178]."""
    table = np.loadtxt(path, np.float32, delimiter=",", skiprows=1)
    analyses, cultivars = table[:, :-1], table[:, -1]
    analyses[np.random.default_rng(0).random(analyses.shape) < 0.1] = np.nan
    return analyses, cultivars


def train(analyses: np.ndarray, cultivars: np.ndarray) -> xgb.Booster:
    """Train with one thread, so that every run adds the same numbers in the same order."""
    parameters = {"objective": "multi:softprob", "num_class": 3, "max_depth": 3, "nthread": 1}
    return xgb.train(parameters, xgb.DMatrix(analyses, cultivars), num_boost_round=20)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    train(*read_wines()).save_model(folder / "wine.ubj")
    print(f"wrote {folder / 'wine.ubj'}")
