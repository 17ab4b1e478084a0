"""Services whose load() computes with several OpenMP threads, such as 'tests.template.openmp:boosting()'."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from flask import Flask

from app import create_app
from app.protocol.types import MetadataTensor
from tests.kit import models

ROWS, COLUMNS = 4000, 8
POINTS = np.random.default_rng(0).normal(size=(ROWS, COLUMNS)).astype("f4")
LABELS = (POINTS[:, 0] + POINTS[:, 1] ** 2 > 1).astype("i8")


def boosting() -> Flask:
    """Return a service that trains scikit-learn's gradient boosting in load()."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=20)
    return served(lambda: model.fit(POINTS, LABELS), lambda model, x: model.predict_proba(x)[:, 1])


def xgboosting() -> Flask:
    """Return a service that trains xgboost in load()."""
    from xgboost import XGBClassifier

    model = XGBClassifier(n_estimators=20, nthread=4)
    return served(lambda: model.fit(POINTS, LABELS), lambda model, x: model.predict_proba(x)[:, 1])


def network() -> Flask:
    """Return a service that calls a torch network in load()."""
    import torch

    def load() -> Any:
        torch.manual_seed(0)
        torch.set_num_threads(4)
        return torch.nn.Sequential(
            torch.nn.Linear(COLUMNS, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)
        )

    return served(
        load,
        lambda model, x: model(torch.from_numpy(np.repeat(x, 20, 0)))[:ROWS, 0].detach().numpy(),
    )


def served(load: Callable[[], Any], score: Callable[[Any, np.ndarray], np.ndarray]) -> Flask:
    """Return a service that returns the mean scores of predict() and of load(), and the worker's PID."""

    def load_and_score() -> tuple[Any, np.ndarray]:
        model = load()
        return model, score(model, POINTS)

    def predict(loaded: tuple[Any, np.ndarray], x: np.ndarray) -> dict[str, Any]:
        model, before = loaded
        return {"now": score(model, POINTS).mean(), "before": before.mean(), "pid": os.getpid()}

    outputs = [
        MetadataTensor("now", "FP64", []),
        MetadataTensor("before", "FP64", []),
        MetadataTensor("pid", "INT64", []),
    ]
    return create_app(
        module=models.model([MetadataTensor("x", "FP32", [-1])], outputs, predict, load_and_score)
    )
