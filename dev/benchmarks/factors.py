"""Memory of valid and hostile requests: python -m dev.benchmarks.factors

Each request goes to a new worker, which has served only small requests before. The factor is the
growth of the worker's peak memory, divided by the size of the request's body. The largest factor of
each kind of request is in docs/growing.md.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from string import ascii_letters, digits
from typing import Any, NamedTuple

import click
import grpc
import numpy as np

from app.protocol.http_body import HEADER_LENGTH
from dev.benchmarks.report import RESULTS, markdown, measured_on, stamp
from dev.benchmarks.service import serving
from grpc_service.wire import encode_field
from tests.kit.processes import Running, peak, reset_peak, workers

MIB = 2**20
JSON = "JSON"
BINARY = "binary REST"
RAW = "gRPC raw"
TYPED = "gRPC typed"
# The factors in docs/growing.md that hold for any request.
MAX_FACTORS = {JSON: 50, BINARY: 55, RAW: 55, TYPED: 75}
# The end of the JSON in a body with binary data, which occurs only there.
END_OF_JSON = "}]}"

# Numbers of the fields in open_inference_grpc.proto.
MODEL_NAME = 1
INPUTS = 5
OUTPUTS = 6
RAW_CONTENTS = 7
STRING_PARAMETER = 3
TENSOR_NAME = 1
TENSOR_DATATYPE = 2
TENSOR_SHAPE = 3
TENSOR_PARAMETERS = 4
TENSOR_CONTENTS = 5
INT_CONTENTS = 2
FP32_CONTENTS = 6
BYTES_CONTENTS = 8
# The first and the last byte of an unknown group, without fields between them.
EMPTY_GROUP = b"\x7b\x7c"


class Request(NamedTuple):
    """A request to measure.

    - kind: JSON, BINARY, RAW or TYPED.
    - name: a description for the results.
    - datatype: that of the model, which echoes its input.
    - make_body: returns the body of about a number of bytes.
    """

    kind: str
    name: str
    datatype: str
    make_body: Callable[[int], bytes]


# JSON


def repeated(element: str, size: int) -> str:
    """Return `element` with commas between its repetitions, of about `size` characters."""
    count = size // (len(element) + 1)
    return ",".join([element] * count)


def tensor_json(
    data: str, datatype: str, count: int, more: str = "", outer_members: str = ""
) -> bytes:
    """Return the JSON of a request with one input."""
    head = f'"name":"x","datatype":"{datatype}","shape":[{count}]'
    return f'{{{outer_members}"inputs":[{{{head},{more}"data":{data}}}]}}'.encode()


def list_json(
    size: int,
    *,
    element: str,
    datatype: str,
    per_element: int = 1,
    more: str = "",
    outer_members: str = "",
) -> bytes:
    """Return a request whose data is a list of equal elements."""
    elements = repeated(element, size)
    count = (len(elements) + 1) // (len(element) + 1) * per_element
    return tensor_json(f"[{elements}]", datatype, count, more, outer_members)


def list_request(name: str, datatype: str, element: str, **options: Any) -> Request:
    """Return a request whose data is a list of equal elements."""
    make_body = partial(list_json, element=element, datatype=datatype, **options)
    return Request(JSON, name, datatype, make_body)


def json_request(name: str, datatype: str, make_body: Callable[[int], bytes]) -> Request:
    return Request(JSON, name, datatype, make_body)


def data_request(name: str, element: str) -> Request:
    """Return a request whose data is a list of equal elements, with a shape that does not match."""
    return json_request(
        name, "FP32", lambda size: tensor_json(f"[{repeated(element, size)}]", "FP32", 1)
    )


def names(length: int) -> Iterator[str]:
    """Yield different names of `length` characters."""
    for letters in product(ascii_letters + digits + "-_", repeat=length):
        yield "".join(letters)


def object_json(size: int, value: str) -> str:
    """Return an object with the same value in many members."""
    member_names = names(4)
    count = size // (len(value) + 8)
    members = [f'"{next(member_names)}":{value}' for _ in range(count)]
    return "{" + ",".join(members) + "}"


def inputs_json(size: int) -> bytes:
    inputs = []
    for index in range(min(2**16, size // 60)):
        inputs.append(f'{{"name":"{index}","datatype":"FP32","shape":[1],"data":[1]}}')
    return f'{{"inputs":[{",".join(inputs)}]}}'.encode()


def parameters_request(name: str, value: str, more: str = "") -> Request:
    def make_body(size: int) -> bytes:
        parameters = object_json(size, value).replace("{", "{" + more, 1)
        return f'{{"parameters":{parameters},"inputs":[]}}'.encode()

    return json_request(name, "FP32", make_body)


def shape_json(size: int) -> bytes:
    return tensor_json("[]", "FP32", 1).replace(b"[1]", f"[{repeated('1', size)}]".encode())


def members_json(size: int) -> bytes:
    return object_json(size, "0").encode()


def long_text_json(size: int, more: str = "") -> bytes:
    return tensor_json(f'["{"a" * size}{more}"]', "BYTES", 1)


def long_name_json(size: int) -> bytes:
    name = "😀" + "x" * size
    return tensor_json("[]", "FP32", 0).replace(b'"x"', f'"{name}"'.encode())


def pandas_cell_json(size: int) -> bytes:
    return tensor_json(f'["[{repeated("{}", size)}]"]', "BYTES", 1, more=PD_JSON)


def requested_as(content_type: str) -> str:
    """Return a member that requests the output with a content type."""
    return f'"outputs":[{{"name":"y","parameters":{{"content_type":"{content_type}"}}}}],'


# pysimdjson reads no body with a backslash outside of data.
BACKSLASH = r'"id":"\\",'
PD_JSON = '"parameters":{"content_type":"pd_json"},'
# As deep as data may be.
LIST_TOWER = "[" * 55 + "]" * 55
OBJECT_TOWER = '{"":' * 55 + "0" + "}" * 55

JSON_REQUESTS = [
    list_request("numbers with 8 digits", "FP32", "0.123456"),
    list_request("numbers with 1 digit", "FP32", "1"),
    list_request("numbers with 1 digit, by orjson", "FP32", "1", outer_members=BACKSLASH),
    list_request("numbers 0.5, by orjson", "FP32", "0.5", outer_members=BACKSLASH),
    list_request("small integers", "INT8", "1"),
    list_request("booleans", "BOOL", "1"),
    list_request("rows of 4 numbers", "FP32", "[1,2,3,4]", per_element=4),
    list_request(
        "rows of 4 numbers, by orjson",
        "FP32",
        "[1,2,3,4]",
        per_element=4,
        outer_members=BACKSLASH,
    ),
    list_request("rows of 1 number", "FP32", "[1]"),
    json_request("white space", "FP32", lambda size: tensor_json(f"[1{' ' * size}]", "FP32", 1)),
    list_request("texts of 30 characters", "BYTES", f'"{"a" * 30}"'),
    list_request("texts of 2 characters", "BYTES", '"ab"'),
    list_request("texts of 1 letter beyond Latin-1", "BYTES", '"ā"'),
    list_request("empty texts", "BYTES", '""'),
    list_request("rows of 8 texts", "BYTES", "[" + repeated('"ab"', 40) + "]", per_element=8),
    list_request(
        "texts of 1 letter, requested as pd_json",
        "BYTES",
        '"ā"',
        outer_members=requested_as("pd_json"),
    ),
    list_request(
        "texts of 1 letter, requested as base64",
        "BYTES",
        '"ā"',
        outer_members=requested_as("base64"),
    ),
    list_request(
        "texts of 1 letter, requested as bytes",
        "BYTES",
        '"ā"',
        outer_members=requested_as("bytes"),
    ),
    json_request("a long text", "BYTES", long_text_json),
    json_request("a long text with an emoji", "BYTES", partial(long_text_json, more="😀")),
    json_request("65,536 inputs", "FP32", inputs_json),
    list_request("lists in pd_json", "BYTES", f'"[{repeated("[]", 300)}]"', more=PD_JSON),
    list_request("objects in pd_json", "BYTES", r'"{\"\":0}"', more=PD_JSON),
    json_request("one list of objects in pd_json", "BYTES", pandas_cell_json),
    data_request("empty lists", "[]"),
    data_request("empty objects", "{}"),
    data_request("objects with one member", '{"":0}'),
    data_request("nested lists", LIST_TOWER),
    data_request("nested objects", OBJECT_TOWER),
    data_request("rows of different lengths", "[1,2,3,4],[1]"),
    data_request("texts instead of numbers", '""'),
    json_request("too many levels", "FP32", lambda size: b"[" * size),
    json_request("many members", "FP32", members_json),
    parameters_request("many parameters", "0"),
    parameters_request("many parameters that are null", "null"),
    parameters_request("many parameters, one of which is invalid", "0", more='"x":[],'),
    json_request("a long shape", "FP32", shape_json),
    json_request("a long datatype", "FP32", lambda size: tensor_json("[]", "x" * size, 0)),
    json_request("a long name with an emoji", "FP32", long_name_json),
    list_request("integers instead of booleans", "BOOL", "123"),
    list_request("integers out of range", "INT8", "999"),
    list_request("numbers out of range", "FP16", "1e9"),
    list_request("fractions instead of integers", "INT8", "0.5"),
    json_request("a list of numbers", "FP32", lambda size: f"[{repeated('1', size)}]".encode()),
    json_request(
        "malformed JSON", "FP32", lambda size: tensor_json(f"[{repeated('1', size)}", "FP32", 1)
    ),
]


# Binary REST


def binary_request(
    name: str, datatype: str, element: bytes, *, parameters: str = "", outer_members: str = ""
) -> Request:
    """Return a request with equal elements, for a model of the same datatype."""

    def make_body(size: int) -> bytes:
        count = size // len(element)
        data = element * count
        more = f'"binary_data_size":{len(data)}'
        if parameters:
            more = f"{more},{parameters}"
        head = (
            f'{{{outer_members}"parameters":{{"binary_data_output":true}},"inputs":[{{"name":"x",'
            f'"datatype":"{datatype}","shape":[{count}],"parameters":{{{more}}}{END_OF_JSON}'
        )
        return head.encode() + data

    return Request(BINARY, name, datatype, make_body)


def binary_text(text: bytes) -> bytes:
    return np.array(len(text), "<u4").tobytes() + text


BINARY_REQUESTS = [
    binary_request("numbers of 4 bytes", "FP32", bytes(4)),
    binary_request("numbers of 1 byte", "INT8", bytes(1)),
    binary_request("BF16", "BF16", bytes(2)),
    binary_request("booleans", "BOOL", bytes(1)),
    binary_request("invalid booleans", "BOOL", b"\x02"),
    binary_request("texts of 30 characters", "BYTES", binary_text(b"a" * 30)),
    binary_request("texts of 2 characters", "BYTES", binary_text(b"ab")),
    binary_request("texts of 1 letter beyond Latin-1", "BYTES", binary_text("ā".encode())),
    binary_request(
        "texts of 1 letter, requested as pd_json",
        "BYTES",
        binary_text("ā".encode()),
        outer_members=requested_as("pd_json"),
    ),
    binary_request("empty texts", "BYTES", binary_text(b"")),
    binary_request("texts that are not UTF-8", "BYTES", binary_text(b"\xff\xff")),
    binary_request(
        "cells of pd_json that are objects",
        "BYTES",
        binary_text(b'{"":0}'),
        parameters='"content_type":"pd_json"',
    ),
    binary_request(
        "cells of pd_json that are lists",
        "BYTES",
        binary_text(f"[{repeated('[]', 300)}]".encode()),
        parameters='"content_type":"pd_json"',
    ),
]


# gRPC


def field(number: int, *parts: bytes) -> bytes:
    return b"".join(bytes(part) for part in encode_field(number, *parts))


def varint_field(number: int, value: int) -> bytes:
    """Return an integer field."""
    octets = bytearray([number << 3])
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def tensor_field(datatype: str, count: int, *more: bytes) -> bytes:
    return field(
        INPUTS,
        field(TENSOR_NAME, b"x"),
        field(TENSOR_DATATYPE, datatype.encode()),
        varint_field(TENSOR_SHAPE, count),
        *more,
    )


def raw_request(name: str, datatype: str, element: bytes, outputs: bytes = b"") -> Request:
    def make_body(size: int) -> bytes:
        count = size // len(element)
        message = field(MODEL_NAME, b"echo") + tensor_field(datatype, count) + outputs
        return message + field(RAW_CONTENTS, element * count)

    return Request(RAW, name, datatype, make_body)


def typed_request(name: str, datatype: str, number: int, element: bytes) -> Request:
    """Return a request with equal elements of a packed field."""

    def make_body(size: int) -> bytes:
        count = size // len(element)
        contents = field(TENSOR_CONTENTS, field(number, element * count))
        return field(MODEL_NAME, b"echo") + tensor_field(datatype, count, contents)

    return Request(TYPED, name, datatype, make_body)


def typed_texts_request(name: str, text: bytes, outputs: bytes = b"") -> Request:
    def make_body(size: int) -> bytes:
        element = field(BYTES_CONTENTS, text)
        count = size // len(element)
        contents = field(TENSOR_CONTENTS, element * count)
        return field(MODEL_NAME, b"echo") + tensor_field("BYTES", count, contents) + outputs

    return Request(TYPED, name, "BYTES", make_body)


def field_request(name: str, prefix: bytes, element: bytes) -> Request:
    """Return a message with equal fields after `prefix`."""

    def make_body(size: int) -> bytes:
        return field(MODEL_NAME, b"echo") + prefix + element * (size // len(element))

    return Request(RAW, name, "FP32", make_body)


def tensor_fields_request(name: str, element: bytes) -> Request:
    """Return a message with one input that has many equal fields."""

    def make_body(size: int) -> bytes:
        fields = element * (size // len(element))
        return field(MODEL_NAME, b"echo") + tensor_field("FP32", 1, fields)

    return Request(RAW, name, "FP32", make_body)


def parameter_fields_request(name: str, number_of_field: int) -> Request:
    """Return a message with many different parameters."""

    def make_body(size: int) -> bytes:
        generator = names(3)
        value = field(2, varint_field(2, 1))
        entries = [
            field(number_of_field, field(1, next(generator).encode()), value)
            for _ in range(min(size // 11, 64**3))
        ]
        joined = b"".join(entries)
        if number_of_field == TENSOR_PARAMETERS:
            joined = field(INPUTS, joined)
        return field(MODEL_NAME, b"echo") + joined

    return Request(RAW, name, "FP32", make_body)


def output_field(content_type: bytes) -> bytes:
    """Return a field that requests the output with a content type."""
    parameter = field(1, b"content_type") + field(2, field(STRING_PARAMETER, content_type))
    return field(OUTPUTS, field(1, b"y"), field(2, parameter))


GRPC_REQUESTS = [
    raw_request("numbers of 4 bytes", "FP32", bytes(4)),
    raw_request("numbers of 1 byte", "INT8", bytes(1)),
    raw_request("texts of 30 characters", "BYTES", binary_text(b"a" * 30)),
    raw_request("texts of 2 characters", "BYTES", binary_text(b"ab")),
    raw_request("texts of 1 letter beyond Latin-1", "BYTES", binary_text("ā".encode())),
    raw_request(
        "texts of 1 letter, requested as pd_json",
        "BYTES",
        binary_text("ā".encode()),
        output_field(b"pd_json"),
    ),
    raw_request("empty texts", "BYTES", binary_text(b"")),
    field_request("empty raw contents", b"", field(RAW_CONTENTS, b"")),
    field_request("empty inputs", b"", field(INPUTS, b"")),
    field_request("empty inputs after an empty group", EMPTY_GROUP, field(INPUTS, b"")),
    field_request("empty groups", b"", EMPTY_GROUP),
    field_request("empty parameters", b"", field(4, b"")),
    tensor_fields_request("empty parameters of an input", field(TENSOR_PARAMETERS, b"")),
    tensor_fields_request("dimensions", varint_field(TENSOR_SHAPE, 1)),
    tensor_fields_request("groups in an input", EMPTY_GROUP),
    parameter_fields_request("parameters", 4),
    parameter_fields_request("parameters of an input", TENSOR_PARAMETERS),
    typed_request("numbers of 4 bytes", "FP32", FP32_CONTENTS, bytes(4)),
    typed_request("integers of 1 byte for INT32", "INT32", INT_CONTENTS, b"\x01"),
    typed_request("integers of 1 byte for INT8", "INT8", INT_CONTENTS, b"\x01"),
    typed_request("booleans", "BOOL", 1, b"\x01"),
    typed_request("integers of 1 byte for INT64", "INT64", 3, b"\x01"),
    typed_request("integers of 1 byte in a wrong field", "FP32", 3, b"\x01"),
    typed_texts_request("texts of 30 characters", b"a" * 30),
    typed_texts_request("texts of 2 characters", b"ab"),
    typed_texts_request("texts of 1 letter beyond Latin-1", "ā".encode()),
    typed_texts_request(
        "texts of 1 letter, requested as pd_json", "ā".encode(), output_field(b"pd_json")
    ),
    typed_texts_request(
        "texts of 1 letter, requested as base64", "ā".encode(), output_field(b"base64")
    ),
    typed_texts_request("empty texts", b""),
]
REQUESTS = [*JSON_REQUESTS, *BINARY_REQUESTS, *GRPC_REQUESTS]


def measure(request: Request, size: int) -> dict[str, Any]:
    """Return the factor and the status of a request to a new worker."""
    app = f"echo_of('{request.datatype}')"
    small_body = request.make_body(100)
    body = request.make_body(size)
    with serving(app, sorted(os.sched_getaffinity(0))) as running:
        for _ in range(3):  # starts threads and imports modules
            send(request.kind, small_body, running)
        pids = workers(running)
        idle = reset_peak(pids)
        status, response_size = send(request.kind, body, running)
        growth = peak(pids) - idle
        assert workers(running) == pids, "the worker crashed"
    return {
        "kind": request.kind,
        "request": request.name,
        "datatype": request.datatype,
        "body_mib": len(body) / MIB,
        "status": status,
        "response_mib": response_size / MIB,
        "growth_mib": growth / MIB,
        "factor": growth / max(len(body), response_size),
    }


def send(kind: str, body: bytes, running: Running) -> tuple[str, int]:
    """Return the status of the response and the size of its body."""
    if kind == JSON:
        return send_rest(body, {}, running)
    if kind == BINARY:
        json_length = body.index(END_OF_JSON.encode()) + len(END_OF_JSON)
        return send_rest(body, {HEADER_LENGTH: str(json_length)}, running)
    return send_grpc(body, running)


def send_rest(body: bytes, headers: dict[str, str], running: Running) -> tuple[str, int]:
    connection = http.client.HTTPConnection("127.0.0.1", running.http_port, timeout=300)
    connection.request("POST", "/v2/models/echo/infer", body, headers)
    response = connection.getresponse()
    response_size = len(response.read())
    connection.close()
    return str(response.status), response_size


def send_grpc(body: bytes, running: Running) -> tuple[str, int]:
    unlimited = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(running.grpc_address, unlimited) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        try:
            return "OK", len(call(body, timeout=300))
        except grpc.RpcError as error:
            return error.code().name, 0


@click.command(context_settings={"show_default": True})
@click.option("--size", "mebibytes", default=8.0, help="Size of a body in MiB.")
@click.option("--only", default="", help="Measure only requests whose kind and name contain this.")
@click.option("--output", type=Path, default=RESULTS, help="Directory for factors.json and .md.")
def main(mebibytes: float, only: str, output: Path) -> None:
    """Measure the peak memory of single requests, as a multiple of the body.

    The status is 1 if a factor exceeds that of its kind in docs/growing.md.
    """
    rows = []
    for request in REQUESTS:
        if only in f"{request.kind}: {request.name}":
            row = measure(request, int(mebibytes * MIB))
            click.echo("{factor:6.1f}  {kind}: {request} ({datatype}), {status}".format(**row))
            rows.append(row)
    if not only:
        results = stamp() | {"requests": rows}
        output.mkdir(parents=True, exist_ok=True)
        (output / "factors.json").write_text(json.dumps(results, indent=1) + "\n")
        (output / "factors.md").write_text(page(results))

    has_excess = any(row["factor"] > MAX_FACTORS[row["kind"]] for row in rows)
    sys.exit(has_excess)


def page(results: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [["kind", "request", "datatype", "size, MiB", "status", "factor"]]
    for row in results["requests"]:
        lines.append(
            [
                row["kind"],
                row["request"],
                row["datatype"],
                f"{row['body_mib']:.1f}",
                row["status"],
                f"{row['factor']:.1f}",
            ]
        )
    heading = "## Growth of a worker's peak memory by one request, divided by the size of its body"
    return "\n\n".join([measured_on(results), heading, markdown(lines)]) + "\n"


if __name__ == "__main__":
    main()
