"""Requests with binary data."""

from __future__ import annotations

from typing import Any

from oip_conformance.wires import pack

LENGTH = "Inference-Header-Content-Length"
# The datatype, shape and values of each input of models.several.
TENSORS: dict[str, tuple[str, list[int], list]] = {
    "a": ("INT16", [3], [1, -2, 300]),
    "b": ("BYTES", [2], ["", "two"]),
    "c": ("FP32", [2, 2], [0.5, -0.5, 25.12, 1e9]),
}


def tensor(name: str, binary: bool, **members: Any) -> tuple[dict[str, Any], bytes]:
    """Return the JSON of the input `name` and its binary data."""
    datatype, shape, values = TENSORS[name]
    head = {"name": name, "datatype": datatype, "shape": shape}
    if not binary:
        return {**head, "data": values, **members}, b""
    blob = pack(datatype, values)
    return {**head, "parameters": {"binary_data_size": len(blob)}, **members}, blob


def send(
    echoes, datatype: str, shape: list[int], blob: bytes, size: Any = None, **members: Any
) -> Any:
    """Send one binary input and request binary output. `size` defaults to the length of `blob`."""
    parameters = {"binary_data_size": len(blob) if size is None else size}
    head = {"name": "x", "datatype": datatype, "shape": shape, "parameters": parameters, **members}
    envelope = {"inputs": [head], "parameters": {"binary_data_output": True}}
    return echoes(datatype, *[-1] * len(shape)).rest.post(envelope, blob, b"")


def wrong_size(name: str, got: int, tensor: str, size: int) -> str:
    problem = "wrong number of bytes. Expected the size that the shape requires"
    return f'Input "{name}": {problem}, got {got} for {tensor} ({size} bytes).'
