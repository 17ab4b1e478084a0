"""The models as a BentoML service. Each method is a route with its name."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import logging
from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import ContentType, DType

from benchmarks.servers import models

FP32 = Annotated[np.ndarray, DType("float32")]
Octets = Annotated[bytes, ContentType("application/octet-stream")]
logging.getLogger("bentoml").setLevel(logging.WARNING)  # like the other servers. It has no setting for this


class Output(bentoml.IODescriptor):
    """A response with one output. BentoML is slower for a method that returns the array itself."""

    y: FP32


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Models:
    """The methods are asynchronous, because BentoML passes others to a thread, which is slower."""

    @bentoml.api
    async def linear(self, x: FP32) -> Output:
        return Output(y=models.linear(x))

    @bentoml.api
    async def echo(self, x: FP32) -> Output:
        return Output(y=x)

    @bentoml.api
    async def echo_bytes(self, x: Octets, /) -> Octets:
        """Return the FP32 array of a binary body. BentoML has no binary form for arrays from its clients."""
        return np.frombuffer(x, "<f4").tobytes()
