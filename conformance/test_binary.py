"""The Binary Tensor Data Extension (B1-B7)."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from itertools import product
from typing import Any

import pytest

from conformance.client import Reply
from conformance.target import SMALL, Target, head, refusal, success
from conformance.test_tensors import INPUT_OF_RANK
from tests.service.cases import NO_LENGTHS, ON_THE_WIRE, TORN_BYTES
from tests.service.wires import Rest, exact, pack

pytestmark = pytest.mark.needs("binary")

LENGTH = "Inference-Header-Content-Length"
# Datatype, shape and elements of the tensors of mixed requests, by the name they are echoed under.
TENSORS: dict[str, tuple[str, list[int], list]] = {
    "int16": ("INT16", [3], [1, -2, 300]),
    "bytes": ("BYTES", [2], ["", "naïve"]),
    "pairs": ("FP32", [1, 2], [0.5, -1.5]),
}
SUBSETS = [{name for name, taken in zip(TENSORS, mask, strict=True) if taken} for mask in product([0, 1], repeat=3)]
ORDERS = [["int16", "bytes", "pairs"], ["pairs", "int16", "bytes"], ["bytes", "pairs", "int16"]]


def tensor(name: str, binary: bool = True, **members: Any) -> tuple[dict[str, Any], bytes]:
    """An input of TENSORS and its blob, empty where it is JSON; other members replace its own."""
    datatype, shape, values = TENSORS[name]
    if not binary:
        return {**head(f"{name}_in", datatype, shape, values), **members}, b""
    blob = pack(datatype, values)
    parameters = {"binary_data_size": len(blob)}
    return {"name": f"{name}_in", "datatype": datatype, "shape": shape, "parameters": parameters, **members}, blob


def asked(name: str, binary: bool | None = True) -> dict[str, Any]:
    """The output of `name`, in bytes, in JSON, or as the request says."""
    return {"name": f"{name}_out", **({} if binary is None else {"parameters": {"binary_data": binary}})}


def post(rest: Rest, name: str, blob: bytes, **members: Any) -> Reply:
    """The reply to one input of TENSORS with this blob behind the JSON."""
    made, _ = tensor(name, **members)
    return rest.post({"inputs": [made], "outputs": [asked(name)]}, blob)


def send(rest: Rest, name: str, datatype: str, shape: list[int], blob: bytes, size: Any = None) -> Reply:
    """The reply to one binary input, in bytes."""
    parameters = {"binary_data_size": len(blob) if size is None else size}
    made = {"name": f"{name}_in", "datatype": datatype, "shape": shape, "parameters": parameters}
    return rest.post({"inputs": [made], "outputs": [asked(name)]}, blob)


def read(reply: Reply) -> tuple[dict[str, Any], bytes]:
    """The JSON of an answer with binary outputs, and the blobs behind it (B7)."""
    success(reply)
    assert LENGTH in reply.headers
    length = int(reply.headers[LENGTH])
    return json.loads(reply.data[:length]), reply.data[length:]


def still_works(rest: Rest) -> None:
    """The connection takes the next request."""
    made, blob = tensor("int16")
    assert read(rest.post({"inputs": [made], "outputs": [asked("int16")]}, blob))[1] == blob


@pytest.mark.parametrize(("datatype", "shape", "blob", "data"), ON_THE_WIRE)
def test_bytes_on_the_wire(target: Target, rest: Rest, datatype: str, shape: list[int], blob: str, data: list) -> None:
    """B1: elements are little-endian and without padding, both ways."""
    octets, count, name = bytes.fromhex(blob), len(data), datatype.lower()
    body, blobs = read(send(rest, name, datatype, [count], octets))
    assert blobs == octets
    (output,) = body["outputs"]
    assert (output["datatype"], output["shape"]) == (datatype, [count])
    made = {
        "name": f"{name}_in",
        "datatype": datatype,
        "shape": [count],
        "parameters": {"binary_data_size": len(octets)},
    }
    if datatype == "FP16" and target.lacks("fp16 json"):
        return
    reply = rest.post({"inputs": [made], "outputs": [asked(name, False)]}, octets)
    assert exact(datatype, reply.json["outputs"][0]["data"]) == exact(datatype, data)


def test_row_major(rest: Rest) -> None:
    """B1: elements are row-major."""
    octets = struct.pack("<6i", *range(6))
    made = {"name": "grid_in", "datatype": "INT32", "shape": [3, 2], "data": [[0, 1], [2, 3], [4, 5]]}
    body, blobs = read(rest.post({"inputs": [made], "outputs": [asked("grid")]}))
    assert (body["outputs"][0]["shape"], blobs) == ([3, 2], octets)


@pytest.mark.parametrize("octet", [2, 127, 128, 255])
def test_a_bool_is_0_or_1(rest: Rest, octet: int) -> None:
    """B1: a byte other than 0 and 1 is no BOOL."""
    refusal(send(rest, "bool", "BOOL", [3], bytes([1, octet, 0])), 400)
    still_works(rest)


@pytest.mark.parametrize("bits", ["0000000000000080", "010000000000f07f", "010000000000f87f", "0100000000000000"])
def test_the_bits_of_floats(rest: Rest, bits: str) -> None:
    """B1: every bit of a float passes, those of NaN too."""
    assert read(send(rest, "fp64", "FP64", [1], bytes.fromhex(bits)))[1] == bytes.fromhex(bits)


@pytest.mark.parametrize("size", [True, "6", 6.0, -6, 10**20, [6], None, {}], ids=repr)
def test_a_size_that_is_no_size(rest: Rest, size: Any) -> None:
    """B2: binary_data_size is an integer of at least 0."""
    made, blob = tensor("int16", parameters={"binary_data_size": size})
    refusal(rest.post({"inputs": [made]}, blob), 400)
    still_works(rest)


@pytest.mark.parametrize(("size", "count"), [(True, 1), (False, 0), (1.0, 1), ("1", 1)], ids=repr)
def test_a_size_that_only_looks_right(rest: Rest, size: Any, count: int) -> None:
    """B2: binary_data_size is an integer, also where another type has the right value."""
    refusal(send(rest, "uint8", "UINT8", [count], bytes(count), size), 400)
    still_works(rest)


@pytest.mark.parametrize("members", [{"data": [1, -2, 300]}, {"data": []}])
def test_data_beside_bytes(rest: Rest, members: dict[str, Any]) -> None:
    """B2: an input with bytes has no data."""
    refusal(post(rest, "int16", pack("INT16", [1, -2, 300]), **members), 400)
    still_works(rest)


@pytest.mark.parametrize("shape", [[3], [0]])
def test_neither_data_nor_bytes(rest: Rest, shape: list[int]) -> None:
    """B2: an input has data or bytes, even where it has no elements."""
    refusal(post(rest, "int16", b"", parameters={}, shape=shape), 400)


@pytest.mark.parametrize("binary", SUBSETS, ids=lambda names: "+".join(sorted(names)) or "none")
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_mixed_inputs(rest: Rest, order: list[str], binary: set[str]) -> None:
    """B3: binary and JSON inputs mix in any order; the blobs follow in the order of their tensors."""
    made = [tensor(name, name in binary) for name in order]
    envelope = {"inputs": [each for each, _ in made], "outputs": [asked(name, False) for name in TENSORS]}
    reply = rest.post(envelope, *(blob for _, blob in made))
    success(reply)
    got = {each["name"]: (each["datatype"], each["shape"], each["data"]) for each in reply.json["outputs"]}
    assert got == {f"{name}_out": values for name, values in TENSORS.items()}


@pytest.mark.parametrize("binary", SUBSETS, ids=lambda names: "+".join(sorted(names)) or "none")
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_mixed_outputs(rest: Rest, order: list[str], binary: set[str]) -> None:
    """B3: binary and JSON outputs mix in any order."""
    inputs = [tensor(name, False)[0] for name in TENSORS]
    reply = rest.post({"inputs": inputs, "outputs": [asked(name, name in binary) for name in order]})
    body, blobs = read(reply) if binary else (reply.json, b"")
    assert [each["name"] for each in body["outputs"]] == [f"{name}_out" for name in order]
    for name, output in zip(order, body["outputs"], strict=True):
        datatype, _, values = TENSORS[name]
        if name in binary:
            assert "data" not in output
            size = output["parameters"]["binary_data_size"]
            assert blobs[:size] == pack(datatype, values)
            blobs = blobs[size:]
        else:
            assert output["data"] == values
    assert blobs == b""


@pytest.mark.parametrize("stated", NO_LENGTHS)
def test_a_header_length_that_is_none(rest: Rest, stated: str) -> None:
    """B4: a header length that is empty, no plain number, or beyond the body is a 400."""
    made, blob = tensor("int16")
    reply = rest.post({"inputs": [made]}, blob, **{LENGTH: stated.encode().decode("latin-1")})
    refusal(reply, 400)
    still_works(rest)


@pytest.mark.parametrize("off", [-1, 1, -10, 6, 7])
def test_a_header_length_that_is_off(rest: Rest, off: int) -> None:
    """B4: a header length of more or less than the JSON is a 400."""
    made, blob = tensor("int16")
    length = len(json.dumps({"inputs": [made]}))
    refusal(rest.post({"inputs": [made]}, blob, **{LENGTH: str(length + off)}), 400)
    still_works(rest)


def test_a_header_length_of_nothing(rest: Rest) -> None:
    """B4: a header length of 0 leaves no JSON."""
    made, blob = tensor("int16")
    refusal(rest.post({"inputs": [made]}, blob, **{LENGTH: "0"}), 400)


def test_a_header_length_of_all(rest: Rest) -> None:
    """B4: a header length equal to the body is fine; there are no blobs then."""
    for made in (tensor("int16", False)[0], tensor("int16", shape=[0], parameters={"binary_data_size": 0})[0]):
        reply = rest.post({"inputs": [made], "outputs": [asked("int16", False)]}, b"")
        success(reply)
        assert reply.json["outputs"][0]["data"] == made.get("data", [])


@pytest.mark.parametrize("spelling", [LENGTH.lower(), LENGTH.upper()])
def test_the_name_of_the_header(rest: Rest, spelling: str) -> None:
    """B4: the header's name may be spelt in any case, as any of HTTP's."""
    made, blob = tensor("int16")
    text = json.dumps({"inputs": [made], "outputs": [asked("int16")]}).encode()
    reply = rest.client.post(f"/v2/models/{rest.model}/infer", text + blob, {spelling: f"{len(text)}"})
    assert read(reply)[1] == blob


def test_no_header_length(rest: Rest) -> None:
    """B4: without a header length the whole body is JSON, and no blob can follow."""
    made, blob = tensor("int16")
    body = json.dumps({"inputs": [made]}).encode()
    for octets in (body, body + blob):
        refusal(rest.client.post(f"/v2/models/{rest.model}/infer", octets), 400)


@pytest.mark.parametrize(
    ("coding", "compress"),
    [
        pytest.param("gzip", gzip.compress, marks=pytest.mark.needs("gzip")),
        pytest.param("deflate", zlib.compress, marks=pytest.mark.needs("deflate")),
    ],
)
def test_a_header_length_of_a_compressed_body(rest: Rest, coding: str, compress: Any) -> None:
    """B4: the header length counts bytes of the decompressed body."""
    made, blob = tensor("int16")
    text = json.dumps({"inputs": [made], "outputs": [asked("int16")]}).encode() + b" " * 5000
    headers = {LENGTH: str(len(text)), "Content-Encoding": coding}
    infer = f"/v2/models/{rest.model}/infer"
    assert read(rest.client.post(infer, compress(text + blob), headers))[1] == blob
    refusal(rest.client.post(infer, compress(text), {**headers, LENGTH: str(len(text) + 1)}), 400)


@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT16", "FP16", "FP32", "INT64", "FP64"])
@pytest.mark.parametrize("off", [-1, 1])
def test_bytes_that_do_not_fill_the_shape(rest: Rest, datatype: str, off: int) -> None:
    """B5: the size is what shape and datatype need, neither more nor less."""
    refusal(send(rest, datatype.lower(), datatype, [3], bytes(len(pack(datatype, [0, 0, 0])) + off)), 400)
    still_works(rest)


@pytest.mark.parametrize(
    "shape", [[0], [2**62], [2**63 - 1], [2**61 + 1], [2**62, 4], [2**32, 2**32], [2**31, 2**33, 2]]
)
def test_shapes_that_overflow(rest: Rest, shape: list[int]) -> None:
    """B5: what a shape needs is computed without overflow, however small the body."""
    refusal(send(rest, INPUT_OF_RANK[len(shape)], "INT32", shape, bytes(4)), 400)
    still_works(rest)


@pytest.mark.parametrize("size", [7, 8, 10**6, 2**62, 2**63, 2**64 - 1])
def test_a_size_beyond_the_body(rest: Rest, size: int) -> None:
    """B5: a blob that the body is too short for is a 400."""
    refusal(send(rest, "int16", "INT16", [3], bytes(6), size), 400)
    still_works(rest)


@pytest.mark.parametrize("trailing", [b"\0", b" ", b"}", bytes(1000)])
@pytest.mark.parametrize("binary", [True, False])
def test_trailing_bytes(rest: Rest, binary: bool, trailing: bytes) -> None:
    """B5: the blobs end where the body ends."""
    made, blob = tensor("int16", binary)
    refusal(rest.post({"inputs": [made]}, blob, trailing), 400)
    still_works(rest)


@pytest.mark.parametrize("moved", [4, -4, 6, 8, -6])
def test_a_blob_of_the_neighbour(rest: Rest, moved: int) -> None:
    """B5: sizes that are right in sum and wrong in each are a 400, a negative one among them."""
    (first, first_blob), (second, second_blob) = tensor("int16"), tensor("pairs")
    first["parameters"]["binary_data_size"] += moved
    second["parameters"]["binary_data_size"] -= moved
    refusal(rest.post({"inputs": [first, second]}, first_blob, second_blob), 400)
    still_works(rest)


def test_sizes_that_add_up_by_a_negative(rest: Rest) -> None:
    """B5: a size that is negative does not make room for another."""
    (first, blob), (second, more) = tensor("int16"), tensor("pairs")
    first["parameters"]["binary_data_size"], second["parameters"]["binary_data_size"] = len(blob + more) + 5, -5
    refusal(rest.post({"inputs": [first, second]}, blob, more), 400)
    still_works(rest)


@pytest.mark.parametrize("blob", [case[0] for case in TORN_BYTES])
def test_elements_of_bytes(rest: Rest, blob: bytes) -> None:
    """B5: elements of BYTES fill the blob exactly, and are as many as the shape holds."""
    refusal(send(rest, "bytes", "BYTES", [2], blob), 400)
    still_works(rest)


@pytest.mark.parametrize("default", [None, False, True])
@pytest.mark.parametrize("wanted", [None, False, True])
def test_which_outputs_are_binary(rest: Rest, default: bool | None, wanted: bool | None) -> None:
    """B6: binary_data on an output beats binary_data_output on the request, both ways; JSON unless asked."""
    parameters = {} if default is None else {"parameters": {"binary_data_output": default}}
    inputs = [tensor(name, False)[0] for name in ("int16", "pairs")]
    reply = rest.post({"inputs": inputs, **parameters, "outputs": [asked("int16", wanted), asked("pairs", None)]})
    expected = [bool(default if wanted is None else wanted), bool(default)]
    body = read(reply)[0] if any(expected) else reply.json
    assert ["data" not in each for each in body["outputs"]] == expected


@pytest.mark.parametrize("outputs", [{}, {"outputs": None}, {"outputs": []}], ids=repr)
def test_all_outputs_are_binary(rest: Rest, outputs: dict[str, Any]) -> None:
    """B6: binary_data_output holds for all outputs where none is listed."""
    envelope = {"inputs": [head(*SMALL)], "parameters": {"binary_data_output": True}, **outputs}
    body, blobs = read(rest.post(envelope))
    assert all("data" not in each for each in body["outputs"])
    assert sum(each["parameters"]["binary_data_size"] for each in body["outputs"]) == len(blobs)
    assert blobs == struct.pack("<2f", *SMALL[3])


@pytest.mark.parametrize("binary", [1, "true", None, [], 0.0], ids=repr)
def test_a_wish_that_is_none(rest: Rest, binary: Any) -> None:
    """B6: binary_data and binary_data_output are true or false."""
    output = {"name": "fp32_out", "parameters": {"binary_data": binary}}
    refusal(rest.post({"inputs": [head(*SMALL)], "outputs": [output]}), 400)
    refusal(rest.post({"inputs": [head(*SMALL)], "parameters": {"binary_data_output": binary}}), 400)


def test_the_head_of_a_binary_answer(target: Target, rest: Rest) -> None:
    """B7: an answer with bytes has its type and lengths in headers, and the same envelope as another."""
    made, blob = tensor("int16")
    reply = rest.post({"id": "42", "inputs": [made], "outputs": [asked("int16")]}, blob)
    body, blobs = read(reply)
    assert (reply.mimetype, reply.content_length) == ("application/octet-stream", len(reply.data))
    assert blobs == blob
    (output,) = body.pop("outputs")
    assert (output["name"], output["datatype"], output["shape"]) == ("int16_out", "INT16", [3])
    assert output["parameters"]["binary_data_size"] == len(blob)
    assert (body.pop("model_name"), body.pop("id", None)) == (target.model, "42")
    assert set(body) <= {"model_version", "parameters"}


def test_an_answer_without_bytes(rest: Rest) -> None:
    """B7: an answer without binary outputs is plain JSON, and has no header length."""
    made, blob = tensor("int16")
    reply = rest.post({"inputs": [made], "outputs": [asked("int16", False)]}, blob)
    assert success(reply).mimetype == "application/json"
    assert LENGTH not in reply.headers


def test_an_empty_binary_output(rest: Rest) -> None:
    """B7: an output without elements has a size of 0."""
    body, blobs = read(send(rest, "fp32", "FP32", [0], b""))
    assert (body["outputs"][0]["parameters"]["binary_data_size"], blobs) == (0, b"")


def test_a_failure_beside_binary_output(rest: Rest) -> None:
    """B7, R19: a failure is JSON, whatever output was asked for."""
    made, blob = tensor("int16", datatype="INT32")
    reply = rest.post({"inputs": [made], "parameters": {"binary_data_output": True}}, blob)
    refusal(reply, 400)
    assert LENGTH not in reply.headers
