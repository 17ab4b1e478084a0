"""Create this example's model, a pyfunc that predicts a penguin's mass: python examples/mlflow/train.py [model folder]

The penguins are those of K. B. Gorman and others, "Ecological sexual dimorphism and environmental
variability within a community of Antarctic penguins", 2014, in the table of A. Horst's
"palmerpenguins", which is in the public domain (CC0). For each species, a line is fitted by least
squares to flipper length and sex.
"""

import json
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, Schema

HERE = Path(__file__).resolve().parent
SIGNATURE = ModelSignature(
    Schema(
        [
            ColSpec("string", "species"),
            ColSpec("double", "flipper_length_mm"),
            ColSpec("string", "sex"),
        ]
    ),
    Schema([ColSpec("double", "body_mass_g")]),
)


def fit(penguins: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the coefficients by name and species."""
    lines: dict[str, dict[str, float]] = {"base": {}, "flipper": {}, "male": {}}
    for species, rows in penguins.dropna().groupby("species"):
        features = np.column_stack(
            [np.ones(len(rows)), rows["flipper_length_mm"], rows["sex"] == "male"]
        )
        solved = np.linalg.lstsq(features, rows["body_mass_g"].to_numpy(), rcond=None)[0]
        for name, value in zip(lines, solved, strict=True):
            lines[name][species] = round(float(value), 3)
    return lines


def save(lines: dict[str, dict[str, float]], folder: Path) -> None:
    """Write the model into `folder`, without the time, id and paths that differ between runs."""
    with TemporaryDirectory() as scratch:
        artifact, saved = Path(scratch, "lines.json"), Path(scratch, "model")
        artifact.write_text(json.dumps(lines, indent=2) + "\n")
        mlflow.pyfunc.save_model(
            saved,
            python_model=HERE / "mass.py",
            artifacts={"lines": str(artifact)},
            signature=SIGNATURE,
            input_example=pd.DataFrame(
                {"species": ["Gentoo"], "flipper_length_mm": [220.0], "sex": ["female"]}
            ),
            pip_requirements=["mlflow-skinny", "pandas"],
            mlflow_model=Model(model_uuid=None, utc_time_created="2026-01-01 00:00:00"),
        )
        head = saved / "MLmodel"
        head.write_text(head.read_text().replace(f"{scratch}/", "").replace(f"{HERE}/", ""))
        shutil.copytree(saved, folder, dirs_exist_ok=True)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    save(fit(pd.read_csv(HERE / "penguins.csv")), folder)
    print(f"wrote {folder}")
