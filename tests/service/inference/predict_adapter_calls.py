"""Calls of a model adapter without a service."""

from __future__ import annotations

from typing import Any

from app.inference.predict_adapter import ModelAdapter
from app.protocol.types import InferenceRequest, MetadataTensor, RequestInput


def request(*inputs: RequestInput) -> InferenceRequest:
    return InferenceRequest(list(inputs))


def call(module: Any, *inputs: RequestInput) -> dict[str, Any]:
    return {
        name: output.data
        for name, output in ModelAdapter(module)(None, request(*inputs))[0].items()
    }


X = MetadataTensor("x", "FP32", [-1])
