"""A client in the forms that MLServer documents. Only its imports of MLServer are replaced for our types.

`python client.py URL` prints the decoded responses by codec and form as JSON, as cases.py describes them.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import requests
from cases import describe
from mlserver.codecs import (
    Base64Codec,
    DatetimeCodec,
    NumpyCodec,
    NumpyRequestCodec,
    PandasCodec,
    StringCodec,
    StringRequestCodec,
)
from mlserver.types import (
    InferenceRequest,
    InferenceResponse,
    Parameters,
    RequestInput,
    RequestOutput,
)

NUMBERS = np.array([[1.5], [-2.0]])
TEXTS = ["setosa", "naïve ☃"]
FRAME = pd.DataFrame({"number": [1.5, np.nan], "text": pd.Series(TEXTS, dtype=object)})
INPUTS: dict[str, tuple[Any, Any]] = {
    "number": (NumpyCodec, NUMBERS),
    "text": (StringCodec, TEXTS),
    "octets": (Base64Codec, [b"\x00\xff\x80", b"plain"]),
    "moment": (
        DatetimeCodec,
        [datetime(2024, 2, 29, 12, 30, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)],
    ),
}


def send(**body: Any) -> requests.Response:
    response = requests.post(sys.argv[1], timeout=30, **body)
    assert response.status_code == 200, response.text
    return response


def copied(request: Any) -> Any:
    """Return the request after each way to make one from JSON."""
    request = InferenceRequest.parse_raw(request.json())
    request = InferenceRequest.parse_obj(request.dict())
    request = InferenceRequest.model_validate(request.model_dump())
    return InferenceRequest(
        **InferenceRequest.model_validate_json(request.model_dump_json()).dict()
    )


# Ways to send a request and to read the response.
FORMS = {
    "dict, parse_raw": lambda request: InferenceResponse.parse_raw(send(json=request.dict()).text),
    "model_dump, keywords": lambda request: InferenceResponse(
        **send(json=request.model_dump()).json()
    ),
    "json, parse_obj": lambda request: InferenceResponse.parse_obj(
        send(data=request.json()).json()
    ),
    "model_dump_json": lambda request: InferenceResponse.model_validate_json(
        send(data=request.model_dump_json()).text
    ),
    "copied": lambda request: InferenceResponse.model_validate(
        send(json=copied(request).dict()).json()
    ),
}


def messages() -> dict[str, tuple[Any, Any]]:
    """Return requests by name, each with the function that decodes its response."""
    requests: dict[str, tuple[Any, Any]] = {}
    for name, (codec, payload) in INPUTS.items():
        request = InferenceRequest(inputs=[codec.encode_input(name, payload, use_bytes=False)])
        requests[codec.__name__] = (
            request,
            lambda response, codec=codec: codec.decode_output(response.outputs[0]),
        )
    for codec, payload in (
        (NumpyRequestCodec, NUMBERS),
        (StringRequestCodec, TEXTS),
        (PandasCodec, FRAME),
    ):
        requests[codec.__name__] = (
            codec.encode_request(payload, use_bytes=False),
            codec.decode_response,
        )
    requests["NumpyRequestCodec"][0].inputs[0].name = "number"
    requests["StringRequestCodec"][0].inputs[0].name = "text"
    number = RequestInput(
        name="number",
        shape=[2, 1],
        datatype="FP64",
        data=NUMBERS.tolist(),
        parameters=Parameters(content_type="np"),
    )
    text = {
        "name": "text",
        "shape": [2],
        "datatype": "BYTES",
        "data": TEXTS,
        "parameters": {"content_type": "str"},
    }
    requests["keywords"] = (
        InferenceRequest(id="7", parameters=Parameters(a=1), inputs=[number]),
        members,
    )
    requests["objects"] = (
        InferenceRequest(parameters={"a": 1}, inputs=[text], outputs=None),
        members,
    )
    for request, _ in requests.values():
        request.outputs = [RequestOutput(name=tensor.name) for tensor in request.inputs]
    return requests


def members(response: Any) -> list[Any]:
    """Return the members of a response and of its first output."""
    output = response.outputs[0]
    content_type = output.parameters.content_type if output.parameters else None
    head = [
        response.model_name,
        response.model_version,
        response.id,
        output.name,
        output.datatype,
        output.shape,
    ]
    return [*map(str, head), content_type, *np.ravel(list(output.data)).tolist()]


if __name__ == "__main__":
    results = {
        f"{name}: {form}": describe(decode(exchange(request)))
        for name, (request, decode) in messages().items()
        for form, exchange in FORMS.items()
    }
    sys.stdout.write(json.dumps(results))
