"""What Triton's tools ask of a server beside the protocol: the model's configuration and the index of models (T1, T2).

Both are dicts in the JSON form of Triton's own messages, which is also what the proto's messages are made from.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from app.types import MetadataTensor, ModelMetadata


def model_config(metadata: ModelMetadata, optional: Container[str]) -> dict[str, Any]:
    """The configuration of the model (T1): its shapes are whole, as no dimension is left to a batching server."""
    inputs = config_tensors(metadata.inputs)
    for tensor in inputs:
        tensor["optional"] = tensor["name"] in optional
    return {
        "name": metadata.name,
        "platform": metadata.platform,
        "max_batch_size": 0,
        "input": inputs,
        "output": config_tensors(metadata.outputs),
    }


def config_tensors(tensors: Sequence[MetadataTensor]) -> list[dict[str, Any]]:
    return [
        {"name": tensor.name, "data_type": data_type(tensor.datatype), "dims": list(tensor.shape)} for tensor in tensors
    ]


def data_type(datatype: str) -> str:
    """Triton's word for the datatype: TYPE_FP32, and TYPE_STRING for BYTES."""
    return "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"


def repository_index(metadata: ModelMetadata, ready: bool, ready_only: bool) -> list[dict[str, str]]:
    """The one model and its state (T2); nothing where only models that are ready are asked for, and it is not."""
    if ready_only and not ready:
        return []
    state, reason = ("READY", "") if ready else ("UNAVAILABLE", "not loaded")
    return [{"name": metadata.name, "version": metadata.version, "state": state, "reason": reason}]
