"""The model of a DataFrame for Triton's Python backend.

It is a module of its own, so that the processes of the other models do not import pandas.
"""

from __future__ import annotations

import pandas as pd
import triton_python_backend_utils as triton

from dev.benchmarks.servers import models
from dev.benchmarks.servers.triton.models import Linear


class Frame(Linear):
    def respond(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        columns = {}
        for tensor in request.inputs():
            values = tensor.as_numpy().ravel()
            if tensor.name() in models.TEXTS:
                values = [text.decode() for text in values]
            columns[tensor.name()] = values
        y = models.frame_scores(pd.DataFrame(columns))
        return triton.InferenceResponse([triton.Tensor("y", y)])
