"""Model configuration and repository index for Triton's tools (T1, T2), as the JSON form of its protobuf messages."""

from collections.abc import Container
from typing import Any

from app.protocol.types import MetadataTensor, ModelMetadata


def model_config(metadata: ModelMetadata, optional: Container[str]) -> dict[str, Any]:
    """Return the model configuration (T1). Shapes include the batch dimension, because max_batch_size is 0."""
    inputs = [{**config_tensor(tensor), "optional": tensor.name in optional} for tensor in metadata.inputs]
    outputs = [config_tensor(tensor) for tensor in metadata.outputs]
    head = {"name": metadata.name, "platform": metadata.platform, "max_batch_size": 0}
    return {**head, "input": inputs, "output": outputs}


def config_tensor(tensor: MetadataTensor) -> dict[str, Any]:
    triton_name = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    return {"name": tensor.name, "data_type": f"TYPE_{triton_name}", "dims": tensor.shape}


def repository_index(metadata: ModelMetadata, ready: bool, ready_only: bool) -> list[dict[str, str]]:
    """Return the model and its state (T2), or an empty list if `ready_only` is set and it is not ready."""
    if ready_only and not ready:
        return []
    state, reason = ("READY", "") if ready else ("UNAVAILABLE", "not ready")
    return [{"name": metadata.name, "version": metadata.version, "state": state, "reason": reason}]
