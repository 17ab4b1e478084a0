"""Train this example's model, a forecaster of monthly figures: python examples/pytorch/train.py [model folder]

passengers.csv has the passengers of international airlines per month, in thousands: series G of G. E. P. Box and
G. M. Jenkins, "Time Series Analysis: Forecasting and Control", 1970. The ten years to 1958 are for training.
"""

import sys
from pathlib import Path

import numpy as np
import torch

try:
    from app.predict import Forecaster
except ImportError:  # the template's own app/predict.py contains another model
    from predict import Forecaster

HERE = Path(__file__).resolve().parent
TRAINING = 120


def read_passengers() -> torch.Tensor:
    """Return the series, [144]."""
    return torch.from_numpy(
        np.loadtxt(HERE / "passengers.csv", np.float32, delimiter=",", skiprows=1, usecols=1)
    )


def windows(series: torch.Tensor, months: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return every window of `months` and the twelve months after each."""
    stretches = series.unfold(0, months + 12, 1)
    return stretches[:, :months], stretches[:, months:]


def train(series: torch.Tensor, steps: int = 300) -> Forecaster:
    """Train on histories of two and three years, with one thread so that every run gives the same sums."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, batches = Forecaster(), [windows(series, months) for months in (24, 36)]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.stack(
            [(model(past) / future).log().square().mean() for past, future in batches]
        ).sum()
        loss.backward()
        optimizer.step()
    return model


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent.parent / "model"
    torch.save(train(read_passengers()[:TRAINING]).state_dict(), folder / "passengers.pt")
    print(f"wrote {folder / 'passengers.pt'}")
