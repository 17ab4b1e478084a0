"""The model of a DataFrame as a BentoML service.

It is a service of its own, so that the process of the other models does not import pandas.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

import logging
from typing import Annotated

import bentoml
import numpy as np
import pandas as pd
from bentoml.validators import DataframeSchema, DType

from dev.benchmarks.servers import models

FP64 = Annotated[np.ndarray, DType("float64")]
Columns = Annotated[pd.DataFrame, DataframeSchema(orient="columns")]
logging.getLogger("bentoml").setLevel(logging.WARNING)


class Scores(bentoml.IODescriptor):
    y: FP64


@bentoml.service(workers=1, logging={"access": {"enabled": False}})
class Frames:
    @bentoml.api
    async def frame(self, x: Columns) -> Scores:
        return Scores(y=models.frame_scores(x))
