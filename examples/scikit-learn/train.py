"""Train this example's model, a pipeline for penguins.csv: python examples/scikit-learn/train.py [model folder]

The 344 penguins are those of K. B. Gorman and others, "Ecological sexual dimorphism and
environmental variability within a community of Antarctic penguins", 2014, in the table of A.
Horst's "palmerpenguins", which is in the public domain (CC0). Two penguins have no measurements,
and the sex of 11 is unknown.
"""

import sys
from pathlib import Path

import joblib
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

HERE = Path(__file__).resolve().parent
NUMBERS = ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g"]
WORDS = ["island", "sex"]


def train(penguins: pd.DataFrame) -> Pipeline:
    """Return the fitted pipeline. Missing text is "", like in predict()."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    words = make_pipeline(
        SimpleImputer(missing_values="", strategy="constant", fill_value="unknown"),
        OneHotEncoder(handle_unknown="ignore"),
    )
    columns = make_column_transformer((numbers, NUMBERS), (words, WORDS))
    penguins[WORDS] = penguins[WORDS].fillna("")
    return make_pipeline(columns, LogisticRegression()).fit(penguins, penguins["species"])


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    joblib.dump(train(pd.read_csv(HERE / "penguins.csv")), folder / "penguins.joblib")
    print(f"wrote {folder / 'penguins.joblib'}")
