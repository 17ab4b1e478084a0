"""The models as a BentoML service. Each method is a route with its name."""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import logging
from typing import Annotated

import bentoml
import numpy as np
from bentoml.validators import ContentType, DType

from dev.benchmarks.servers import models

FP32 = Annotated[np.ndarray, DType("float32")]
Octets = Annotated[bytes, ContentType("application/octet-stream")]
logging.getLogger("bentoml").setLevel(
    logging.WARNING
)  # like the other servers. It has no setting for this


class Output(bentoml.IODescriptor):
    """A response with one output. BentoML is slower for methods that return an array."""

    y: FP32


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Models:
    """The models. The methods are asynchronous, because BentoML runs other methods in threads, which is slower."""

    @bentoml.api
    async def linear(self, x: FP32) -> Output:
        return Output(y=models.linear(x))

    @bentoml.api
    async def echo(self, x: FP32) -> Output:
        return Output(y=x)

    @bentoml.api
    async def echo_bytes(self, x: Octets, /) -> Octets:
        """Return the FP32 array in a binary body. BentoML's clients have no binary format for arrays."""
        return np.frombuffer(x, "<f4").tobytes()
