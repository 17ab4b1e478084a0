"""Overload: rejections before the queue."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from app.protocol.metadata import MetadataTensor
from oip_conformance.wires import FORMS, Grpc, Rest
from tests.kit import models
from tests.kit.processes import wait_for
from tests.kit.service import Service

TENSORS = [("x", "FP32", [1], [1.0])]


@pytest.mark.parametrize("form", FORMS)
def test_unknown_model_is_reported_under_overload(serve: Callable[..., Service], form: str) -> None:
    """R3, R19, G1: a full queue rejects requests for the served model, and others are not found."""
    is_running = threading.Event()
    may_end = threading.Event()

    def predict(_: Any, x: np.ndarray) -> np.ndarray:
        is_running.set()
        assert may_end.wait(60)
        return x

    tensor = MetadataTensor("x", "FP32", [-1])
    output = MetadataTensor("y", "FP32", [-1])
    service = serve(models.model([tensor], [output], predict), max_concurrency=1, max_queue_size=0)
    client = service.forms[form]
    if isinstance(client, Rest):
        other = Rest(service.app.test_client(), binary=client.binary, model="other")
    else:
        other = Grpc(service.channel, raw=client.raw, model="other")

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(service.rest.infer, TENSORS)
        wait_for(is_running.is_set)
        overloaded = client.infer(TENSORS)
        unknown = other.infer(TENSORS)
        may_end.set()
        assert running.result().is_success
    assert "overloaded" in overloaded.text
    assert unknown.kind == "NOT_FOUND"
