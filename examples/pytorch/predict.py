"""The model. This is the file to edit: METADATA says what goes in and out, load() and predict() do the work.

torch takes its number of threads from OMP_NUM_THREADS, which each worker has its share of the cores in.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from app.config import read_settings
from app.errors import InvalidInput
from app.types import MetadataTensor, ModelMetadata

METADATA = ModelMetadata(
    name="passengers",
    version="1",
    platform="pytorch_state_dict",
    inputs=[MetadataTensor("history", "FP32", [-1, -1])],
    outputs=[MetadataTensor("forecast", "FP32", [-1, 12])],
)
EXAMPLE = {"history": [[50 + month for month in range(24)]]}  # to warm up with, and to show at the start
FEWEST, MOST = 24, 120  # months that the network was trained on, and that it looks back


class Forecaster(nn.Module):
    """Monthly figures, [rows, months], to those of the next twelve months."""

    def __init__(self, hidden: int = 16):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 12)

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        last = history[:, -1:]  # the scale of a row; the network sees no other
        _, state = self.rnn((history / last).log().unsqueeze(-1))
        return last * self.head(state[-1]).exp()


def load():
    """Return the model, the first argument of predict(). Each worker calls this once, before it is ready."""
    model = Forecaster()
    model.load_state_dict(torch.load(read_settings().model_file("passengers.pt"), "cpu", weights_only=True))
    return model.eval()


@torch.inference_mode()
def predict(model, history: np.ndarray):
    """Return each output by name. Each input is a parameter. Several threads may call this at once.

    `history`: figures of successive months, the latest last, a row for each series; [rows, 24 or more].
    """
    if history.shape[1] < FEWEST:
        raise InvalidInput(f"history: expected {FEWEST} months or more, got {history.shape[1]}")
    if not (np.isfinite(history) & (history > 0)).all():
        raise InvalidInput("history: expected positive numbers, and none missing")
    return {"forecast": model(torch.from_numpy(history[:, -MOST:])).numpy()}
