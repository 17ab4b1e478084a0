"""Simple clients of both protocols in four forms.

REST JSON and gRPC typed send lists. REST binary and gRPC raw send bytes. All four return the same `Response`.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from oip_conformance import messages

FORMS = ["rest json", "rest binary", "grpc typed", "grpc raw"]
NUMPY = {
    "BOOL": "?", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "FP16": "<f2", "BF16": "<f4", "FP32": "<f4", "FP64": "<f8",
}  # fmt: skip
# Datatypes without a field are sent as raw bytes only (G3).
CONTENTS = {
    "BOOL": "bool_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
PARAMETERS = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}

# A tensor to send: name, datatype, shape, and a flat list of Python values.
Sent = tuple[str, str, list[int], list]


@dataclass
class Response:
    """A response of either protocol. `kind` is "ok" or the gRPC name of the error.

    `outputs` maps a name to (datatype, shape, flat list). `parameters` are those of the response. `content_types` maps
    the name of an output to its content type, if it has one.
    """

    kind: str
    text: str = ""
    outputs: dict[str, tuple[str, list[int], list]] = field(default_factory=dict)
    id: str | None = None
    model_name: str = ""
    model_version: str = ""
    raw: Any = field(default=None, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict)
    content_types: dict[str, str] = field(default_factory=dict)


# gRPC names of HTTP statuses (R19, G1).
KINDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def pack(datatype: str, values: list | bytes) -> bytes:
    """Return `values`, which the datatype represents exactly, as bytes of the binary extension. Keep bytes."""
    if isinstance(values, bytes) or not values:
        return bytes(values)
    if datatype == "BYTES":
        octets = [value.encode() if isinstance(value, str) else value for value in values]
        return b"".join(struct.pack("<I", len(each)) + each for each in octets)
    array = np.array(values, NUMPY[datatype])
    return (array.view("<u2")[1::2] if datatype == "BF16" else array).tobytes()


def json_element(value: Any) -> Any:
    """Return `value` for JSON: bytes as text, NaN as null."""
    if isinstance(value, bytes):
        return value.decode()
    return None if value != value else value


def unpack(datatype: str, data: bytes) -> list:
    if datatype == "BF16":  # the upper half of an FP32 (R23)
        data = b"".join(bytes(2) + data[place : place + 2] for place in range(0, len(data), 2))
    if datatype != "BYTES":
        return np.frombuffer(data, NUMPY[datatype]).tolist()
    values, position = [], 0
    while position < len(data):
        (length,) = struct.unpack_from("<I", data, position)
        values.append(data[position + 4 : position + 4 + length])
        position += 4 + length
    return values


def exact(datatype: str, values: list) -> bytes:
    """Return bytes that are equal if two flat lists have equal elements in any form. NaN and null are equal."""
    if datatype == "BYTES":
        return pack(datatype, values)
    array = np.array(values, NUMPY[datatype])
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.tobytes()


def describe_response(response: Any) -> str:
    """Return the status and the first 300 bytes of the body of a REST response, in one line."""
    text = " ".join(
        [str(response.status_code), *response.data[:300].decode(errors="replace").split()]
    )
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def error_message(response: Any, status: int) -> str:
    """Check that a response is an error with this status (R19), and return its message."""
    assert response.status_code == status, f"expected {status}, got {describe_response(response)}"
    assert response.mimetype == "application/json", (
        f"expected application/json, got {response.mimetype}"
    )
    length = response.content_length
    assert length == len(response.data), (
        f"expected a Content-Length of {len(response.data)}, got {length}"
    )
    return error_of(response)


def error_of(response: Any) -> str:
    """Return the message in the protocol's error body."""
    body = json.loads(response.data)
    members = list(body) if isinstance(body, dict) else None
    assert members == ["error"], f'expected {{"error": "..."}}, got {describe_response(response)}'
    assert "Traceback" not in body["error"], (
        f"expected no traceback, got {describe_response(response)}"
    )
    return body["error"]


class Rest:
    """A client of REST: JSON, or the binary extension in both directions. `client` has post() like FlaskClient."""

    def __init__(self, client: Any, binary: bool = False, model: str = "test"):
        self.client, self.binary, self.model = client, binary, model

    def post(self, envelope: Any, *blobs: bytes, **headers: str) -> Any:
        """Return the response to an envelope and `blobs`. Other arguments are headers, as Content_Encoding="gzip"."""
        head = json.dumps(envelope).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if blobs:
            named = {"Inference-Header-Content-Length": str(len(head)), **named}
        return self.client.post(
            f"/v2/models/{self.model}/infer", data=b"".join([head, *blobs]), headers=named
        )

    def infer(
        self,
        inputs: list[Sent],
        outputs: list[str] | None = None,
        request_id: str | None = None,
        model: str | None = None,
        version: str = "",
        parameters: dict[str, Any] | None = None,
        content_types: dict[str, str] | None = None,
    ) -> Response:
        envelope: dict[str, Any] = {"inputs": []}
        blobs = []
        for name, datatype, shape, values in inputs:
            tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
            if self.binary:
                blobs.append(pack(datatype, values))
                tensor["parameters"] = {"binary_data_size": len(blobs[-1])}
            else:
                tensor["data"] = [json_element(value) for value in values]
            if content_types and name in content_types:
                tensor.setdefault("parameters", {})["content_type"] = content_types[name]
            envelope["inputs"].append(tensor)
        if self.binary:
            parameters = {"binary_data_output": True, **(parameters or {})}
        if parameters is not None:
            envelope["parameters"] = parameters
        if outputs is not None:
            wish = {"parameters": {"binary_data": True}} if self.binary else {}
            envelope["outputs"] = [{"name": name, **wish} for name in outputs]
            for each in envelope["outputs"]:
                if content_types and each["name"] in content_types:
                    kind = {"content_type": content_types[each["name"]]}
                    each["parameters"] = {**each.get("parameters", {}), **kind}
        if request_id is not None:
            envelope["id"] = request_id
        head = json.dumps(envelope).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))} if self.binary else {}
        path = (
            f"/v2/models/{model or self.model}"
            + (f"/versions/{version}" if version else "")
            + "/infer"
        )
        return self.read(self.client.post(path, data=b"".join([head, *blobs]), headers=headers))

    def read(self, response: Any) -> Response:
        if response.status_code != 200:
            return self.failure(response)
        length = int(response.headers.get("Inference-Header-Content-Length", len(response.data)))
        body, position = json.loads(response.data[:length]), length
        result = Response(
            "ok",
            id=body.get("id"),
            model_name=body.get("model_name", ""),
            model_version=body.get("model_version", ""),
            raw=response,
            parameters=body.get("parameters") or {},
        )
        for tensor in body["outputs"]:
            size = (tensor.get("parameters") or {}).get("binary_data_size")
            if size is None:
                values = [
                    value.encode() if isinstance(value, str) else value for value in tensor["data"]
                ]
            else:
                values = unpack(tensor["datatype"], response.data[position : position + size])
                position += size
            if "content_type" in (tensor.get("parameters") or {}):
                result.content_types[tensor["name"]] = tensor["parameters"]["content_type"]
            result.outputs[tensor["name"]] = tensor["datatype"], tensor["shape"], values
        assert position == len(response.data), (
            f"{len(response.data)} bytes, and outputs up to {position}"
        )
        return result

    def failure(self, response: Any) -> Response:
        status = response.status_code
        return Response(KINDS.get(status, str(status)), error_of(response), raw=response)


class Grpc:
    """A client of gRPC: typed contents, or raw bytes. A call may take `timeout` seconds."""

    def __init__(
        self,
        channel: grpc.Channel,
        raw: bool = False,
        model: str = "test",
        timeout: float | None = 30,
    ):
        self.channel, self.raw, self.model, self.timeout = channel, raw, model, timeout

    def call(self, name: str, request: Any = None, /, **fields: Any) -> Any:
        """Call a method with a request message, with the fields of one, or with bytes, which are sent unchanged."""
        method = messages.SERVICE.methods_by_name[name]
        if request is None:
            request = messages.message(method.input_type.name)(**fields)
        body = request if isinstance(request, bytes) else request.SerializeToString()
        invoke = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/{name}")
        return messages.message(method.output_type.name).FromString(
            invoke(body, timeout=self.timeout)
        )

    def infer(
        self,
        inputs: list[Sent],
        outputs: list[str] | None = None,
        request_id: str | None = None,
        model: str | None = None,
        version: str = "",
        parameters: dict[str, Any] | None = None,
        content_types: dict[str, str] | None = None,
    ) -> Response:
        request = messages.ModelInferRequest(
            model_name=model or self.model, model_version=version, id=request_id or ""
        )
        for name, datatype, shape, values in inputs:
            tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
            if content_types and name in content_types:
                tensor.parameters["content_type"].string_param = content_types[name]
            if self.raw:
                request.raw_input_contents.append(pack(datatype, values))
            else:
                octets = [value.encode() if isinstance(value, str) else value for value in values]
                if octets:
                    getattr(tensor.contents, CONTENTS[datatype]).extend(octets)
        for name in outputs or ():
            output = request.outputs.add(name=name)
            if content_types and name in content_types:
                output.parameters["content_type"].string_param = content_types[name]
        for name, value in (parameters or {}).items():
            setattr(request.parameters[name], PARAMETERS[type(value)], value)
        return self.send(request)

    def send(self, request: Any) -> Response:
        try:
            response = self.call("ModelInfer", request)
        except grpc.RpcError as error:
            return Response(error.code().name, error.details(), raw=error)
        result = Response(
            "ok",
            id=response.id or None,
            model_name=response.model_name,
            model_version=response.model_version,
            raw=response,
            parameters=plain(response.parameters),
        )
        for index, tensor in enumerate(response.outputs):
            if response.raw_output_contents:
                values = unpack(tensor.datatype, response.raw_output_contents[index])
            else:
                values = list(getattr(tensor.contents, CONTENTS[tensor.datatype]))
            if "content_type" in tensor.parameters:
                result.content_types[tensor.name] = tensor.parameters["content_type"].string_param
            result.outputs[tensor.name] = tensor.datatype, list(tensor.shape), values
        return result


def plain(parameters: Any) -> dict[str, Any]:
    """Return the values of InferParameters by name."""
    return {
        name: getattr(each, each.WhichOneof("parameter_choice"))
        for name, each in parameters.items()
    }


def sized(message: Any, size: int) -> bytes:
    """Return the serialized message, with an unknown field at the end that makes it `size` bytes long."""
    body = message.SerializeToString()
    length = size - len(body) - 7
    assert 0 <= length < 2**31, f"no message of {size} bytes can be made of one of {len(body)}"
    varint = bytes([*(length >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)), length >> 28])
    return b"".join([body, b"\xfa\x7f", varint, bytes(length)])
