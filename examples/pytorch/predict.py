"""The served model. Edit this file: METADATA declares inputs and outputs, load() and predict() implement the model.

torch reads its number of threads from OMP_NUM_THREADS, which each worker sets to its share of the cores.
"""

import numpy as np
import torch
from torch import nn

# app/api.py lists all names that a model can import from the service.
# Other modules of app/ can change with each version.
from app.api import InvalidInput, MetadataTensor, ModelMetadata, model_file

METADATA = ModelMetadata(
    name="passengers",
    version="1",
    platform="pytorch_state_dict",
    inputs=[MetadataTensor("history", "FP32", [-1, -1])],
    outputs=[MetadataTensor("forecast", "FP32", [-1, 12])],
)
EXAMPLE = {
    "history": [[50 + month for month in range(24)]]
}  # for the warm-up and the startup message
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FEWEST, MOST = 24, 120  # minimum number of months, and maximum number of months that the model uses


class Forecaster(nn.Module):
    """Forecasts the next twelve months from monthly values, [rows, months]."""

    def __init__(self, hidden: int = 16):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 12)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        last = history[:, -1:]  # the network sees each row relative to its last value
        _, state = self.rnn((history / last).log().unsqueeze(-1))
        return last * self.head(state[-1]).exp()


def load():
    """Load and return the model, the first argument of predict(). Called once per worker at startup."""
    model = Forecaster()
    model.load_state_dict(torch.load(model_file("passengers.pt"), DEVICE, weights_only=True))
    return model.to(DEVICE).eval()


@torch.inference_mode()
def predict(model, history: np.ndarray):
    """Return the outputs by name. Each input is one parameter. Several threads can call this function concurrently.

    `history`: monthly values in chronological order, one row per series, [rows, 24 or more].
    """
    if history.shape[1] < FEWEST:
        raise InvalidInput(
            subject="history", expected=f"at least {FEWEST} months", got=history.shape[1]
        )
    if not (np.isfinite(history) & (history > 0)).all():
        raise InvalidInput(
            "History: invalid data. Expected positive numbers without missing values."
        )
    return {"forecast": model(torch.from_numpy(history[:, -MOST:]).to(DEVICE)).cpu().numpy()}
