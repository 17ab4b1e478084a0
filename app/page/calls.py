"""The calls that send a request, to copy. static/calls.js writes the same for what a form holds."""

from __future__ import annotations

import shlex
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

from app.datatypes import datatype_of
from app.envelope import write_json
from app.example import curl, curl_options

METHOD = "inference.GRPCInferenceService/ModelInfer"
NO_NULL = '# null is "" here: text is never missing outside JSON'
PYTHON_TOP = [
    "import numpy as np",
    "from tritonclient.http import InferenceServerClient, InferInput",
    "from tritonclient.utils import triton_to_np_dtype",
    "",
]
PYTHON_BEGIN = [
    "inputs = []",
    "for name, datatype, shape, data in [",
]
PYTHON_END = [
    "]:",
    "    inputs.append(InferInput(name, shape, datatype))",
    "    inputs[-1].set_data_from_numpy(np.array(data, triton_to_np_dtype(datatype)).reshape(shape))",
]
PYTHON_PRINT = [
    'for output in answer.get_response()["outputs"]:',
    '    print(output["name"], answer.as_numpy(output["name"]))',
]


@dataclass
class Place:
    """Where a model is called, and what it asks of its callers."""

    name: str
    url: str  # of the model, by REST
    rest: str  # host and port, and what a proxy has before the path
    grpc: str
    tls: bool = False  # of gRPC; that of REST is in its address
    keys: bool = False
    certificates: bool = False


def calls(request: dict[str, Any], place: Place) -> dict[str, str]:
    """The calls by their tool."""
    return {name: write(request, place) for name, write in WRITERS.items()}


def curl_call(request: dict[str, Any], place: Place) -> str:
    return curl(request, place.url, curl_options(place.certificates, place.keys))


def python_call(request: dict[str, Any], place: Place) -> str:
    """By tritonclient, with binary tensors."""
    members = [(each["name"], each["datatype"], each["shape"], present(each)) for each in request["inputs"]]
    tensors = [f"    ({', '.join(map(literal, each))})," for each in members]
    tls = ", ssl=True" if place.url.startswith("https:") else ""
    client = f"client = InferenceServerClient({literal(place.rest)}{tls})"
    headers = """, headers={"Authorization": f"Bearer {os.environ['API_KEY']}"}""" if place.keys else ""
    infer = f"answer = client.infer({literal(place.name)}, inputs{headers})"
    top = (["import os", ""] if place.keys else []) + PYTHON_TOP
    return "\n".join([*top, *gaps(request), *PYTHON_BEGIN, *tensors, *PYTHON_END, client, infer, *PYTHON_PRINT])


def grpcurl_call(request: dict[str, Any], place: Place) -> str:
    """With typed contents, by the service's reflection."""
    if any(each["datatype"] == "FP16" for each in request["inputs"]):
        return "# FP16 goes over gRPC as raw bytes only, which are not to be typed: see Python's tritonclient.grpc"
    options = "" if place.tls else "-plaintext "
    options += "-cert CLIENT.crt -key CLIENT.key " if place.certificates else ""
    options += '-H "Authorization: Bearer $API_KEY" ' if place.keys else ""
    body = write_json({"model_name": place.name, "inputs": [typed(each) for each in request["inputs"]]}).decode()
    call = f"grpcurl {options}-d {shlex.quote(body)} {shlex.quote(place.grpc)} {METHOD}"
    return "\n".join([*gaps(request), call])


def gaps(request: dict[str, Any]) -> list[str]:
    """A comment, where text is missing that the call cannot leave out."""
    return [NO_NULL] if any(present(each) != each["data"] for each in request["inputs"]) else []


def present(tensor: dict[str, Any]) -> list[Any]:
    """The elements of a tensor, a missing text as an empty one."""
    data = tensor["data"]
    return ["" if each is None else each for each in data] if tensor["datatype"] == "BYTES" else data


def literal(value: Any) -> str:
    """What JSON can hold, as Python has it."""
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if value is None or isinstance(value, bool):
        return str(value)
    return write_json(value).decode()


def typed(tensor: dict[str, Any]) -> dict[str, Any]:
    """A tensor as the JSON form of gRPC's message."""
    datatype = datatype_of(tensor["datatype"])
    data = [element(each, datatype.kind) for each in present(tensor)]
    return {
        "name": tensor["name"],
        "shape": tensor["shape"],
        "datatype": tensor["datatype"],
        "contents": {datatype.contents: data},
    }


def element(value: Any, kind: str) -> Any:
    if kind == "O":
        return b64encode(value.encode()).decode()
    return "NaN" if value is None else value


WRITERS = {"curl": curl_call, "python": python_call, "grpcurl": grpcurl_call}
