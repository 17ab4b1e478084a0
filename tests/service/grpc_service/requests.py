"""Requests as messages, and the errors of their calls."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from grpc_service import messages
from oip_conformance.wires import Response

CALLS = [
    "ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer", "ModelConfig",
    "RepositoryIndex", "ModelStatistics",
]  # fmt: skip

LIMIT = 10_000
# A field that none of the messages has.
UNKNOWN = b"\xfa\x7f\x03abc"


def request(*inputs: dict[str, Any], **fields: Any) -> Any:
    """Return a ModelInferRequest with these inputs. `contents` is a dict of fields."""
    return messages.ModelInferRequest(model_name="test", inputs=inputs, **fields)


def x(datatype: str, shape: list[int], **contents: Any) -> dict[str, Any]:
    """Return an input `x` with these fields of contents."""
    return {
        "name": "x",
        "datatype": datatype,
        "shape": shape,
        **({"contents": contents} if contents else {}),
    }


def check_invalid_argument(response: Response, text: str) -> None:
    assert response.kind == "INVALID_ARGUMENT", response
    assert text in response.text


def code_of(call: Any, *args: Any, **fields: Any) -> tuple[str, str]:
    """Return the status and the details of a call, which must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*args, **fields)
    return caught.value.code().name, caught.value.details()
