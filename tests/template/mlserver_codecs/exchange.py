"""MLServer's side of tests/template/test_mlserver_codecs.py, run by a Python that has MLServer installed.

`python exchange.py encode FOLDER` encodes the cases with MLServer's codecs, one file per form, and
writes `errors.json` for cases that fail. `python exchange.py decode FOLDER` decodes the files of
our codecs and writes `decoded.json`, the values as cases.py describes them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cases
import orjson
from mlserver import types
from mlserver.codecs import base as codecs
from mlserver.codecs.json import encode_to_json_bytes
from mlserver.codecs.utils import decode_inference_request, decode_request_input
from mlserver.grpc.converters import ModelInferRequestConverter
from mlserver.grpc.dataplane_pb2 import ModelInferRequest


def write(request: Any, form: str) -> bytes:
    """Return the request as MLServer's client sends it."""
    if form == "json":
        return encode_to_json_bytes(request.model_dump())
    message = ModelInferRequestConverter.from_types(
        request, model_name="model", use_raw=form == "raw"
    )
    return message.SerializeToString()


def read(body: bytes, form: str) -> Any:
    """Return the request as MLServer's server parses it."""
    if form == "json":
        return types.InferenceRequest.model_validate(orjson.loads(body))
    return ModelInferRequestConverter.to_types(ModelInferRequest.FromString(body))


def decode(case: cases.Case, request: Any) -> Any:
    """Return the values that the server passes to its model."""
    if case.content_type:
        return decode_inference_request(request)
    return {tensor.name: decode_request_input(tensor) for tensor in request.inputs}


def encode_all(folder: Path) -> None:
    errors = {}
    for name, case in cases.CASES.items():
        for form in case.forms:
            path = folder / (name + cases.FORMS[form])
            try:
                path.write_bytes(write(cases.make_request(case, codecs, types), form))
            except Exception as error:
                errors[path.name] = {"found": cases.describe(type(error)), "message": str(error)}
    (folder / "errors.json").write_text(json.dumps(errors, indent=1))


def decode_all(folder: Path) -> None:
    decoded = {}
    for name, case in cases.CASES.items():
        for form in case.forms:
            path = folder / (name + cases.FORMS[form])
            if not path.exists():
                continue
            try:
                decoded[path.name] = {
                    "found": cases.describe(decode(case, read(path.read_bytes(), form)))
                }
            except Exception as error:
                decoded[path.name] = {"found": cases.describe(type(error)), "message": str(error)}
    (folder / "decoded.json").write_text(json.dumps(decoded, indent=1))


if __name__ == "__main__":
    {"encode": encode_all, "decode": decode_all}[sys.argv[1]](Path(sys.argv[2]))
