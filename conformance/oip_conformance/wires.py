"""Simple clients of both protocols in four forms, which differ in how they send elements:

| Form        | Client              | Elements of a tensor                              |
|-------------|---------------------|---------------------------------------------------|
| rest json   | `Rest()`            | a list in the JSON                                |
| rest binary | `Rest(binary=True)` | bytes after the JSON (binary tensor data)         |
| grpc typed  | `Grpc()`            | a field of `contents`, such as `int_contents`     |
| grpc raw    | `Grpc(raw=True)`    | bytes in `raw_input_contents` of the message      |

The method infer() of all four takes the same arguments and returns the same `Response`, so that a
case can be written once for all forms.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import grpc
import numpy as np

from oip_conformance import messages
from oip_conformance.texts import printable

FORMS = ["rest json", "rest binary", "grpc typed", "grpc raw"]
# The header with the length of the JSON, which the binary tensors follow (B4, B7).
HEADER_LENGTH = "Inference-Header-Content-Length"

# Types of elements in NumPy, which has no BF16. Its elements are FP32 in lists, and the upper
# halves of FP32 in bytes (R23).
NUMPY_TYPES = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "BF16": "<f4",
    "FP32": "<f4",
    "FP64": "<f8",
}
# The field of `contents` for a datatype. Datatypes without one are sent as raw bytes only (G3).
CONTENTS_FIELDS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
# Datatypes without typed contents on gRPC, which are optional in JSON.
RAW_ONLY_DATATYPES = ["FP16", "BF16"]
# The fields of InferParameter for values of these types.
PARAMETER_FIELDS = {
    bool: "bool_param",
    int: "int64_param",
    str: "string_param",
    float: "double_param",
}

# An input to send: its name, datatype, shape, and a flat list of Python values.
InputTuple = tuple[str, str, list[int], list]


class Output(NamedTuple):
    """A tensor of a response, with a flat list of Python values. It equals a tuple of the three."""

    datatype: str
    shape: list[int]
    values: list

    def __repr__(self) -> str:
        """Return the short form of a tuple, for the messages of failed cases."""
        return repr(tuple(self))


# The kind of a successful response.
SUCCESS = "ok"


@dataclass
class Response:
    """A response of either protocol. `kind` is SUCCESS or the gRPC name of the error.

    `text` is the error message. `outputs` and `content_types` have the names of outputs as keys.
    Only outputs with a content type are in `content_types`. `parameters` are those of the response.
    `raw` is the reply of the HTTP client, the gRPC message, or the exception of grpcio.
    """

    kind: str
    text: str = ""
    outputs: dict[str, Output] = field(default_factory=dict)
    id: str | None = None
    model_name: str = ""
    model_version: str = ""
    raw: Any = field(default=None, repr=False)
    parameters: dict[str, Any] = field(default_factory=dict)
    content_types: dict[str, str] = field(default_factory=dict)

    @property
    def is_success(self) -> bool:
        return self.kind == SUCCESS


# gRPC names of HTTP statuses (R19, G1).
GRPC_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    413: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def pack(datatype: str, values: list | bytes) -> bytes:
    """Return `values` as bytes of the binary extension. Return bytes unchanged.

    The datatype must represent each value exactly. It can be unknown if there are no values.
    """
    if isinstance(values, bytes):
        return values
    if not values:
        return b""
    if datatype == "BYTES":
        return pack_bytes_elements(values)

    array = np.array(values, NUMPY_TYPES[datatype])
    if datatype == "BF16":
        halves = array.view("<u2")
        return halves[1::2].tobytes()  # the upper half of each FP32 (R23)
    return array.tobytes()


def pack_bytes_elements(values: list[str | bytes]) -> bytes:
    """Return the elements of a BYTES tensor, each after its length in four bytes (B1)."""
    packed = bytearray()
    for element in encode_strings(values):
        packed += struct.pack("<I", len(element))
        packed += element
    return bytes(packed)


def unpack(datatype: str, data: bytes) -> list:
    """Return the elements in bytes of the binary extension."""
    if datatype == "BYTES":
        return unpack_bytes_elements(data)
    if datatype == "BF16":
        data = widen_bf16(data)
    return np.frombuffer(data, NUMPY_TYPES[datatype]).tolist()


def unpack_bytes_elements(data: bytes) -> list[bytes]:
    """Return the elements of a BYTES tensor."""
    elements = []
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<I", data, position)
        start = position + 4
        position = start + length
        elements.append(data[start:position])
    return elements


def widen_bf16(data: bytes) -> bytes:
    """Return elements of BF16 as FP32, whose upper halves they are (R23)."""
    widened = bytearray()
    for position in range(0, len(data), 2):
        widened += bytes(2)
        widened += data[position : position + 2]
    return bytes(widened)


def encode_strings(values: list) -> list:
    """Return the values, with strings as UTF-8."""
    return [value.encode() if isinstance(value, str) else value for value in values]


def json_element(value: Any) -> Any:
    """Return `value` for JSON: bytes as text, NaN as null."""
    if isinstance(value, bytes):
        return value.decode()
    is_nan = value != value
    return None if is_nan else value


def canonical_bytes(datatype: str, values: list) -> bytes:
    """Return bytes that are equal for two flat lists with equal elements. NaN equals null."""
    if datatype == "BYTES":
        return pack(datatype, values)
    array = np.array(values, NUMPY_TYPES[datatype])
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.tobytes()


def describe_response(response: Any) -> str:
    """Return the status and the first 300 bytes of the body of a REST response, in one line."""
    body = response.data[:300].decode(errors="replace")
    words = [str(response.status_code), *body.split()]
    return printable(" ".join(words))


def error_message(response: Any, status: int) -> str:
    """Check that a response is an error with this status (R19), and return its message."""
    assert response.status_code == status, f"expected {status}, got {describe_response(response)}"
    mimetype = response.mimetype
    assert mimetype == "application/json", f"expected application/json, got {mimetype}"
    length = response.content_length
    expected_length = len(response.data)
    assert length == expected_length, (
        f"expected a Content-Length of {expected_length}, got {length}"
    )
    return error_of(response)


def error_of(response: Any) -> str:
    """Return the message in the protocol's error body."""
    body = json.loads(response.data)
    description = describe_response(response)
    is_error_body = isinstance(body, dict) and list(body) == ["error"]
    assert is_error_body, f'expected {{"error": "..."}}, got {description}'
    message = body["error"]
    assert "Traceback" not in message, f"expected no traceback, got {description}"
    return message


class Rest:
    """A client of REST: JSON, or the binary extension in both directions.

    `client` has a method post() with the parameters of FlaskClient.post().
    """

    def __init__(self, client: Any, binary: bool = False, model: str = "test"):
        self.client = client
        self.binary = binary
        self.model = model

    def post(self, envelope: Any, *blobs: bytes, **headers: str) -> Any:
        """Send the envelope as JSON, and the blobs after it. Return the response.

        Other arguments are headers, such as Content_Encoding="gzip".
        """
        head = json.dumps(envelope).encode()
        fields = {}
        if blobs:
            fields[HEADER_LENGTH] = str(len(head))
        for name, value in headers.items():
            fields[name.replace("_", "-")] = value
        path = f"/v2/models/{self.model}/infer"
        return self.client.post(path, data=b"".join([head, *blobs]), headers=fields)

    def infer(
        self,
        inputs: list[InputTuple],
        outputs: list[str] | None = None,
        request_id: str | None = None,
        model: str | None = None,
        version: str = "",
        parameters: dict[str, Any] | None = None,
        content_types: dict[str, str] | None = None,
    ) -> Response:
        """Send the inputs, and return the response.

        `outputs` are the names of the requested outputs, and `parameters` those of the request.
        `content_types` maps the names of inputs and outputs to content types (C2).
        """
        content_types = content_types or {}
        tensors, blobs = self.encode_inputs(inputs, content_types)
        envelope: dict[str, Any] = {"inputs": tensors}
        if self.binary:
            envelope["parameters"] = {"binary_data_output": True, **(parameters or {})}
        elif parameters is not None:
            envelope["parameters"] = parameters
        if outputs is not None:
            envelope["outputs"] = self.encode_outputs(outputs, content_types)
        if request_id is not None:
            envelope["id"] = request_id

        head = json.dumps(envelope).encode()
        headers = {}
        if self.binary:
            headers[HEADER_LENGTH] = str(len(head))
        path = f"/v2/models/{model or self.model}"
        if version:
            path += f"/versions/{version}"
        body = b"".join([head, *blobs])
        return self.read(self.client.post(f"{path}/infer", data=body, headers=headers))

    def encode_inputs(
        self, inputs: list[InputTuple], content_types: dict[str, str]
    ) -> tuple[list[dict[str, Any]], list[bytes]]:
        """Return the `inputs` of an envelope, and the bytes that follow the JSON."""
        tensors = []
        blobs = []
        for name, datatype, shape, values in inputs:
            tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": shape}
            parameters: dict[str, Any] = {}
            if self.binary:
                blob = pack(datatype, values)
                blobs.append(blob)
                parameters["binary_data_size"] = len(blob)
            else:
                tensor["data"] = [json_element(value) for value in values]
            if name in content_types:
                parameters["content_type"] = content_types[name]
            if parameters:
                tensor["parameters"] = parameters
            tensors.append(tensor)
        return tensors, blobs

    def encode_outputs(
        self, names: list[str], content_types: dict[str, str]
    ) -> list[dict[str, Any]]:
        """Return the `outputs` of an envelope."""
        outputs = []
        for name in names:
            output: dict[str, Any] = {"name": name}
            parameters: dict[str, Any] = {}
            if self.binary:
                parameters["binary_data"] = True
            if name in content_types:
                parameters["content_type"] = content_types[name]
            if parameters:
                output["parameters"] = parameters
            outputs.append(output)
        return outputs

    def read(self, response: Any) -> Response:
        """Return the HTTP response to an inference request as a `Response`."""
        if response.status_code != 200:
            return self.failure(response)

        data = response.data
        json_length = int(response.headers.get(HEADER_LENGTH, len(data)))
        body = json.loads(data[:json_length])
        result = Response(
            SUCCESS,
            id=body.get("id"),
            model_name=body.get("model_name", ""),
            model_version=body.get("model_version", ""),
            raw=response,
            parameters=body.get("parameters") or {},
        )

        position = json_length
        for tensor in body["outputs"]:
            name = tensor["name"]
            datatype = tensor["datatype"]
            parameters = tensor.get("parameters") or {}
            size = parameters.get("binary_data_size")
            if size is None:
                values = encode_strings(tensor["data"])
            else:
                values = unpack(datatype, data[position : position + size])
                position += size
            if "content_type" in parameters:
                result.content_types[name] = parameters["content_type"]
            result.outputs[name] = Output(datatype, tensor["shape"], values)
        assert position == len(data), f"{len(data)} bytes, and outputs up to {position}"
        return result

    def failure(self, response: Any) -> Response:
        """Return an HTTP error as a `Response`."""
        status = response.status_code
        return Response(GRPC_NAMES.get(status, str(status)), error_of(response), raw=response)


class Grpc:
    """A client of gRPC: typed contents, or raw bytes. A call may take `timeout` seconds."""

    def __init__(
        self,
        channel: grpc.Channel,
        raw: bool = False,
        model: str = "test",
        timeout: float | None = 30,
    ):
        self.channel = channel
        self.raw = raw
        self.model = model
        self.timeout = timeout

    def call(self, name: str, request: Any = None, /, **fields: Any) -> Any:
        """Call a method of the inference service, and return the response message.

        `request` is a message, or bytes that are sent unchanged. Without it, the message has
        `fields`.
        """
        method = messages.SERVICE.methods_by_name[name]
        if request is None:
            request = messages.message(method.input_type.name)(**fields)
        body = request if isinstance(request, bytes) else request.SerializeToString()
        invoke = self.channel.unary_unary(f"/{messages.SERVICE_NAME}/{name}")
        response = invoke(body, timeout=self.timeout)
        return messages.message(method.output_type.name).FromString(response)

    def infer(
        self,
        inputs: list[InputTuple],
        outputs: list[str] | None = None,
        request_id: str | None = None,
        model: str | None = None,
        version: str = "",
        parameters: dict[str, Any] | None = None,
        content_types: dict[str, str] | None = None,
    ) -> Response:
        """Send the inputs, and return the response. The arguments are those of Rest.infer()."""
        content_types = content_types or {}
        request = messages.ModelInferRequest(
            model_name=model or self.model, model_version=version, id=request_id or ""
        )
        for name, datatype, shape, values in inputs:
            tensor = request.inputs.add(name=name, datatype=datatype, shape=shape)
            if name in content_types:
                tensor.parameters["content_type"].string_param = content_types[name]
            if self.raw:
                request.raw_input_contents.append(pack(datatype, values))
            elif values:  # a tensor without elements can have any datatype
                contents = getattr(tensor.contents, CONTENTS_FIELDS[datatype])
                contents.extend(encode_strings(values))
        for name in outputs or ():
            output = request.outputs.add(name=name)
            if name in content_types:
                output.parameters["content_type"].string_param = content_types[name]
        for name, value in (parameters or {}).items():
            setattr(request.parameters[name], PARAMETER_FIELDS[type(value)], value)
        return self.send(request)

    def send(self, request: Any) -> Response:
        """Call ModelInfer with a message or bytes."""
        try:
            message = self.call("ModelInfer", request)
        except grpc.RpcError as error:
            return Response(error.code().name, error.details(), raw=error)

        response = Response(
            SUCCESS,
            id=message.id or None,
            model_name=message.model_name,
            model_version=message.model_version,
            raw=message,
            parameters=parameter_values(message.parameters),
        )
        for index, tensor in enumerate(message.outputs):
            datatype = tensor.datatype
            if message.raw_output_contents:
                values = unpack(datatype, message.raw_output_contents[index])
            else:
                values = list(getattr(tensor.contents, CONTENTS_FIELDS[datatype]))
            if "content_type" in tensor.parameters:
                content_type = tensor.parameters["content_type"].string_param
                response.content_types[tensor.name] = content_type
            response.outputs[tensor.name] = Output(datatype, list(tensor.shape), values)
        return response


def parameter_values(parameters: Any) -> dict[str, Any]:
    """Return the values of a map of InferParameter by name."""
    values = {}
    for name, parameter in parameters.items():
        values[name] = getattr(parameter, parameter.WhichOneof("parameter_choice"))
    return values


def message_of_size(message: Any, size: int) -> bytes:
    """Return the serialized message, with an unknown field that makes it `size` bytes long."""
    tag = b"\xfa\x7f"  # field 2047, which contains bytes
    length_bytes = 5  # more than necessary, so that their number does not depend on the length
    body = message.SerializeToString()
    length = size - len(body) - len(tag) - length_bytes
    assert 0 <= length < 2**31, f"no message of {size} bytes can be made of one of {len(body)}"

    varint = bytearray()
    for shift in (0, 7, 14, 21):
        seven_bits = (length >> shift) & 0x7F
        varint.append(seven_bits | 0x80)  # another byte follows
    varint.append(length >> 28)
    return b"".join([body, tag, varint, bytes(length)])
