"""Join requests whose shapes differ only in the first dimension into one, and split its result.

The first dimension counts the rows. The rows of each request keep their order in the batch.
"""

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from app.protocol.errors import ConfigurationError, ModelError
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import ModelMetadata
from app.protocol.tensors import RequestInput, ResponseOutput

# The outputs of predict() by name, and the parameters of the response.
Result = tuple[dict[str, ResponseOutput], dict[str, Any]]

# Parameters for the transport, which predict() does not use.
TRANSPORT_PARAMETERS = {"binary_data", "binary_data_output", "timeout"}


def check_batchable(metadata: ModelMetadata, max_rows: int) -> None:
    """Raise ConfigurationError if the first dimension of a tensor in METADATA is not variable."""
    for tensor in (*metadata.inputs, *metadata.outputs):
        if tensor.shape[:1] != [-1]:
            problem = f'tensor "{tensor.name}" of METADATA has the shape {tensor.shape}'
            expected = "Expected -1 as the first dimension of every tensor"
            raise ConfigurationError(f"MAX_BATCH_SIZE={max_rows}: {problem}. {expected}.")


def row_count(request: InferenceRequest) -> int:
    """Return the number of rows of a request that can be part of a batch."""
    return len(request.inputs[0].data)


def batch_key(request: InferenceRequest) -> Hashable | None:
    """Return a key that is equal for requests of one kind, or None if the request has no rows.

    Requests of one kind have the same inputs, datatypes and shapes apart from the first dimension,
    ask for the same outputs, and have the same parameters, except those for the transport.
    """
    row_counts = set()
    inputs = []
    for tensor in request.inputs:
        if tensor.data.ndim == 0:  # a scalar has no rows
            return None
        row_counts.add(len(tensor.data))
        parameters = _parameter_key(tensor.parameters)
        inputs.append((tensor.name, tensor.datatype, tensor.data.shape[1:], parameters))
    if len(row_counts) != 1 or 0 in row_counts:
        return None

    outputs = []
    for output in request.outputs:
        outputs.append((output.name, _parameter_key(output.parameters)))
    return (_parameter_key(request.parameters), tuple(inputs), tuple(outputs))


def _parameter_key(parameters: Mapping[str, object]) -> str:
    """Return the parameters for predict() as text, because their values may not be hashable."""
    relevant = []
    for name, value in parameters.items():
        if name not in TRANSPORT_PARAMETERS:
            relevant.append((name, value))
    return repr(sorted(relevant))


def join_requests(requests: list[InferenceRequest]) -> InferenceRequest:
    """Join requests with the same batch_key() into one, with the parameters of the first."""
    first = requests[0]
    if len(requests) == 1:
        return first
    inputs = []
    for tensors in zip(*(request.inputs for request in requests), strict=True):
        data = np.concatenate([tensor.data for tensor in tensors])
        head = tensors[0]
        inputs.append(RequestInput.of(head.name, head.datatype, data, head.parameters))
    return InferenceRequest(
        inputs,
        first.model_name,
        first.model_version,
        parameters=first.parameters,
        outputs=first.outputs,
    )


def split_result(result: Result, rows: list[int]) -> list[Result]:
    """Split the result of joined requests into parts of `rows` rows each.

    The parts share the memory of the result. Raise ModelError if an output has another total.
    """
    outputs, parameters = result
    total = sum(rows)
    for output in outputs.values():
        if len(output.data) != total:
            expectation = f"Expected {total}, got {len(output.data)}"
            problem = f"predict() returned the wrong number of rows. {expectation}"
            remedy = "batching needs one output row per input row"
            raise ModelError(problem, remedy=remedy).about("output", output.name, is_declared=True)
    if len(rows) == 1:
        return [result]

    parts = []
    begin = 0
    for count in rows:
        part = {}
        for name, output in outputs.items():
            data = output.data[begin : begin + count]
            part[name] = ResponseOutput.of(
                name, output.datatype, data, output.parameters, output.missing
            )
        parts.append((part, parameters))
        begin += count
    return parts
