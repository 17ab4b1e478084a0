"""Protocol rules of REST: routes, JSON, content encodings, size limits and errors."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from typing import Any

import numpy as np
import pytest

from app.protocol.errors import InvalidInput
from app.protocol.types import MetadataTensor
from app.rest.body import MEMBERS, PIECE, decompress
from tests.service import models
from tests.service.cases import (
    ACCEPTED,
    CONTENT_TYPES,
    ELEMENTS,
    INSTEAD,
    MISFITS,
    NESTINGS,
    NO_JSON,
    NO_NUMBERS,
    NOT_ACCEPTED,
    STRANGERS,
    UNKNOWN_CODINGS,
)
from tests.service.wires import refusal

INFER = "/v2/models/test/infer"
GOOD: dict[str, Any] = {"inputs": [{"name": "a", "datatype": "FP32", "shape": [1, 2], "data": [1.5, 2]}]}
GETS = [
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/test",
    "/v2/models/test/versions/1",
    "/v2/models/test/ready",
    "/v2/models/test/versions/1/ready",
]
POSTS = [INFER, "/v2/models/test/versions/1/infer"]
LIMIT = 100_000


@pytest.fixture(scope="module")
def service(serve):
    return serve(models.two_by_two(), max_request_bytes=LIMIT)


@pytest.fixture(scope="module")
def client(service):
    return service.client


@pytest.fixture(autouse=True)
def good_afterwards(client):
    """R20: check after each test that a valid request succeeds."""
    yield
    assert client.post(INFER, json=GOOD).json["outputs"][0]["data"] == [3.5]


def changed(**members: Any) -> dict[str, Any]:
    """Return the valid request with other members in its input. A member whose value is `...` is removed."""
    tensor = {**GOOD["inputs"][0], **members}
    return {"inputs": [{name: value for name, value in tensor.items() if value is not ...}]}


def send(echoes, datatype: str, shape: list[int], data: str) -> Any:
    """Return the response to a request with one input, whose `data` is this JSON text."""
    body = f'{{"inputs": [{{"name": "x", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}]}}'
    return echoes(datatype, *[-1] * len(shape)).client.post(INFER, data=body)


@pytest.mark.parametrize("path", GETS)
def test_get_and_head(client, path: str) -> None:
    """R2: every path supports GET, HEAD returns the same headers without a body, and a trailing slash is allowed."""
    got, head = client.get(path), client.head(path)
    assert (got.status_code, got.mimetype) == (200, "application/json")
    assert (head.status_code, head.data, head.mimetype) == (200, b"", "application/json")
    assert head.content_length == got.content_length == len(got.data)
    for slashed in (client.get(path + "/"), client.head(path + "/")):
        assert (slashed.status_code, slashed.content_length) == (200, len(got.data))
    assert client.get(path + "/").json == got.json


@pytest.mark.parametrize("path", [each + slash for each in POSTS for slash in ("", "/")])
def test_infer_paths(client, path: str) -> None:
    """R2: inference accepts POST, with and without a version or a trailing slash."""
    response = client.post(path, json=GOOD)
    assert response.status_code == 200
    assert response.json == {
        "model_name": "test",
        "model_version": "1",
        "outputs": [
            {"name": "sum", "datatype": "FP32", "shape": [1], "data": [3.5]},
            {"name": "double", "datatype": "INT64", "shape": [1], "data": [14]},
        ],
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [(method, path, {"GET", "HEAD"}) for path in GETS for method in ("POST", "PUT", "DELETE", "PATCH")]
    + [(method, path, {"POST"}) for path in POSTS for method in ("GET", "PUT", "DELETE", "PATCH")]
    + [("BREW", "/v2", {"GET", "HEAD"}), ("TRACE", INFER, {"POST"})],
)
def test_rejects_wrong_method(client, method: str, path: str, allowed: set[str]) -> None:
    """R19: a wrong method returns 405 with the supported methods in `Allow`."""
    response = client.open(path, method=method)
    assert method in refusal(response, 405)
    assert {each.strip() for each in response.headers["Allow"].split(",")} - {"OPTIONS"} == allowed


def test_rejects_head_of_infer(client) -> None:
    """R19: HEAD of a path without GET returns 405 with `Allow` and no body."""
    response = client.head(INFER)
    assert (response.status_code, response.data, response.mimetype) == (405, b"", "application/json")
    assert "POST" in response.headers["Allow"]


@pytest.mark.parametrize(("path", "verb"), [("/v2", "GET"), ("/v2/models/test", "HEAD"), (INFER, "POST")])
def test_options(client, path: str, verb: str) -> None:
    """R2: OPTIONS returns the methods of a path in `Allow`, and runs nothing."""
    response = client.options(path)
    assert (response.status_code, response.data) == (200, b"")
    assert verb in response.headers["Allow"]


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1",
        "/v2/health",
        "/v2/models",
        "/v2/models/",
        "/v2/models//infer",
        "/v2//health/live",
        "/V2",
        "/v2/Health/live",
        "/v2/models/test/versions/1/infer/more",
        "/v2/models/test/stats",
        "/v2/models/a/b/c",
        "/other/x",
        "/v2/%ff%fe",
        "/v2/%ED%A0%80",
        "/v2/🌷",
        "/../etc/passwd",
    ],
)
def test_unknown_path(client, method: str, path: str) -> None:
    """R19: an unknown path returns 404 in JSON, for every method."""
    assert f"{method} /" in refusal(client.open(path, method=method), 404)


@pytest.mark.parametrize("name", ["iris", "Test", "te st", "%ff", "%00", "🌷", "test%20", "x" * 200, "%2e%2e"])
@pytest.mark.parametrize("path", ["/v2/models/{}", "/v2/models/{}/ready", "/v2/models/{}/infer"])
def test_unknown_model(client, path: str, name: str) -> None:
    """R1, R3: any other model name returns 404."""
    method = "POST" if path.endswith("infer") else "GET"
    assert 'unknown model: expected "test", got "' in refusal(
        client.open(path.format(name), method=method, json=GOOD), 404
    )


@pytest.mark.parametrize("path", ["", "/ready", "/infer"])
def test_unknown_version(client, path: str) -> None:
    """R3: an unknown version returns 404 on every route of the model."""
    method = "POST" if path == "/infer" else "GET"
    response = client.open(f"/v2/models/test/versions/v1{path}", method=method, json=GOOD)
    assert refusal(response, 404) == 'model "test": unknown version: expected "1", got "v1"'


def test_server_metadata(client) -> None:
    """R4: the server metadata are the name, the version and the extensions, and nothing else."""
    body = client.get("/v2").json
    assert set(body) == {"name", "version", "extensions"}
    assert body["name"]
    assert body["version"]
    assert "binary_tensor_data" in body["extensions"]


def test_readiness(client) -> None:
    """R5: the health routes return `live` and `ready`, and the model's readiness includes its name."""
    assert client.get("/v2/health/live").json == {"live": True}
    assert client.get("/v2/health/ready").json == {"live": True, "ready": True}
    assert client.get("/v2/models/test/ready").json == {"name": "test", "ready": True}


def test_content_types_in_metadata(serve) -> None:
    """R6: the metadata of a tensor have its content type in `parameters`, and no `parameters` without one."""
    tensors = [MetadataTensor("x", "BYTES", [-1], content_type="str")], [MetadataTensor("y", "FP32", [-1, 3])]
    body = serve(models.model(*tensors, lambda _, x: [[0] * 3])).client.get("/v2/models/test").json
    assert body["inputs"] == [
        {"name": "x", "datatype": "BYTES", "shape": [-1], "parameters": {"content_type": "str"}},
    ]
    assert body["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}]


@pytest.mark.parametrize(
    "members",
    [
        {"model_name": "other", "model_version": 5, "extra": [None]},
        {"parameters": None, "outputs": None, "id": None},
        {"parameters": {}, "outputs": []},
        {"parameters": {"a": "text", "b": 1, "c": 1.5, "d": False, "e": 2**63, "f": -1e308}},
        {"inputs": [{**GOOD["inputs"][0], "parameters": None, "extra": {"a": []}}]},
        {"outputs": [{"name": "sum", "parameters": None, "extra": 1}, {"name": "double", "parameters": {"a": 1}}]},
    ],
)
def test_ignores_unknown_and_null_members(service, members: dict) -> None:
    """R7, R8, R16, R17: unknown members are ignored, and null parameters, outputs and id count as absent."""
    response = service.rest.post({**GOOD, **members})
    assert response.status_code == 200
    assert set(response.json) == {"model_name", "model_version", "outputs"}
    assert [each["name"] for each in response.json["outputs"]] == ["sum", "double"]


@pytest.mark.parametrize("request_id", ["", "42", "🌷", '"\\\n\x00'])
def test_id_is_echoed(service, request_id: str) -> None:
    """R8: the response has the id of the request, even an empty one."""
    assert service.rest.post({**GOOD, "id": request_id}).json["id"] == request_id


@pytest.mark.parametrize("request_id", [5, 1.5, True, [], {}, ["42"]])
def test_rejects_id_that_is_not_a_string(service, request_id: Any) -> None:
    """R8: an id that is not a string is rejected."""
    text = refusal(service.rest.post({**GOOD, "id": request_id}), 400)
    assert text.startswith("id: expected a string, got ")


@pytest.mark.parametrize(
    ("envelope", "text"),
    [
        ({}, "inputs: expected a value"),
        ({"instances": [[1, 2]]}, "inputs: expected a value"),
        ({"inputs": None}, "inputs: "),
        ({"inputs": {}}, "inputs: "),
        ({"inputs": "a"}, "inputs: "),
        ({"inputs": [5]}, "inputs[0]: expected an object"),
        ({"inputs": [None]}, "inputs[0]: "),
        ({"inputs": [*GOOD["inputs"], []]}, "inputs[1]: expected an object"),
        ({**GOOD, "outputs": {}}, "outputs: "),
        ({**GOOD, "outputs": ["sum"]}, "outputs[0]: expected an object"),
        ({**GOOD, "outputs": [{}]}, "outputs[0]: name: "),
        ({**GOOD, "outputs": [{"name": 5}]}, "outputs[0]: name: expected a string, got 5"),
        ({**GOOD, "outputs": [{"name": "sum", "parameters": []}]}, 'output "sum": parameters: expected an object'),
        ({**GOOD, "outputs": [{"name": "sum", "parameters": {"binary_data": 1}}]}, '"binary_data": expected true'),
        ({**GOOD, "parameters": []}, "parameters: expected an object, got []"),
        ({**GOOD, "parameters": "a"}, "parameters: expected an object, got a"),
        (
            {**GOOD, "parameters": {"a": None}},
            'parameter "a": expected a string, number or boolean, got None',
        ),
        (
            {**GOOD, "parameters": {"a": [1]}},
            'parameter "a": expected a string, number or boolean, got [1]',
        ),
        ({**GOOD, "parameters": {"a": {}}}, 'parameter "a": expected a string, number or boolean, got {}'),
        (
            {**GOOD, "parameters": {"binary_data_output": "true"}},
            'parameter "binary_data_output": expected true',
        ),
        (changed(name=...), "inputs[0]: name: "),
        (changed(name=None), "inputs[0]: name: "),
        (changed(name=5), "inputs[0]: name: expected a string, got 5"),
        (changed(shape=...), 'input "a": shape: '),
        (changed(shape=None), 'input "a": shape: '),
        (changed(shape=2), 'input "a": shape: expected a list of integers, got 2'),
        (changed(shape="12"), 'input "a": shape: expected a list of integers, got 12'),
        (changed(shape=[True, 2]), 'input "a": shape: expected integers of at least 0, got True'),
        (changed(shape=["1", 2]), 'input "a": shape: expected integers of at least 0, got 1'),
        (changed(shape=[1, 2.0]), 'input "a": shape: expected integers of at least 0, got 2.0'),
        (changed(shape=[-1, 2]), 'input "a": shape: expected integers of at least 0, got -1'),
        (changed(shape=[None, 2]), 'input "a": shape: expected integers of at least 0, got None'),
        (changed(shape=[[1], 2]), 'input "a": shape: expected integers of at least 0, got [1]'),
        (changed(shape=[10**30, 0]), 'input "a": shape: expected integers of at least 0'),
        (changed(shape=[2**64 - 1, 0], data=[]), 'input "a": shape: '),
        (changed(datatype=...), 'input "a": datatype: expected a value'),
        (changed(datatype=None), 'input "a": datatype: '),
        (changed(datatype="fp32"), 'input "a": datatype: expected one of BOOL, '),
        (changed(datatype="STRING"), 'input "a": datatype: expected one of BOOL, '),
        (changed(datatype=32), 'input "a": datatype: expected one of BOOL, '),
        (changed(datatype=["FP32"]), 'input "a": datatype: expected one of BOOL, '),
        (changed(datatype={}), 'input "a": datatype: expected one of BOOL, '),
        (changed(data=...), 'input "a": data: expected either data or binary_data_size, got neither'),
        (changed(data=None), 'input "a": data: expected either data or binary_data_size, got neither'),
        (changed(parameters=[]), 'input "a": parameters: expected an object, got []'),
        (changed(parameters={"a": None}), 'input "a": parameters: parameter "a": expected a string, number or boolean'),
    ],
)
def test_rejects_missing_or_invalid_members(service, envelope: Any, text: str) -> None:
    """R7, R9, R17, R19: the error for a missing member, or one of another type, names the member and its input."""
    assert text in refusal(service.rest.post(envelope), 400)


def test_reports_all_invalid_members(service) -> None:
    """R19: one error message reports all invalid members of a request."""
    envelope = {"id": 5, "inputs": [{"name": "a", "datatype": "x", "shape": [-1]}, {"shape": []}], "outputs": 1}
    text = refusal(service.rest.post(envelope), 400)
    for part in ["id: ", 'input "a": datatype: ', 'input "a": shape: ', "inputs[1]: name: ", "outputs: "]:
        assert part in text


@pytest.mark.parametrize(
    ("shape", "data", "count"),
    NESTINGS,
)
def test_nesting(echoes, shape: list[int], data: str, count: int) -> None:
    """R10: data may be flat, nested or a scalar, is read in row-major order, and is returned flat."""
    response = send(echoes, "INT32", shape, data)
    assert response.status_code == 200, response.json
    expected = {"name": "y", "datatype": "INT32", "shape": shape, "data": [1, 2, 3, 4][:count]}
    assert response.json["outputs"] == [expected]


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    MISFITS,
)
def test_rejects_nesting_that_does_not_fit(echoes, shape: list[int], data: str, text: str) -> None:
    """R9, R10: nested data must be rectangular and have as many elements as the shape."""
    refused = refusal(send(echoes, "INT32", shape, data), 400)
    assert refused.startswith('input "x": data: ')
    assert refused.endswith(text)


@pytest.mark.parametrize(
    ("datatype", "data", "expected"),
    ELEMENTS,
)
def test_elements_as_json(echoes, datatype: str, data: str, expected: str) -> None:
    """R11-R14: elements are returned as sent or rounded, FP32 in its shortest form, and NaN as null."""
    parsed = json.loads(data)
    response = send(echoes, datatype, [len(parsed)], data)
    assert response.status_code == 200, response.json
    got = response.json["outputs"][0]["data"]
    assert [repr(each) for each in got] == [repr(each) for each in json.loads(expected)]


@pytest.mark.parametrize(
    ("datatype", "element", "text"),
    STRANGERS,
)
def test_rejects_elements_out_of_range_or_of_another_type(echoes, datatype: str, element: str, text: str) -> None:
    """R11, R12: an element that the datatype cannot hold is rejected, and the error names its position."""
    good = '"a"' if datatype == "BYTES" else "0"
    for data, place in ((f"[{element}, {element}]", 0), (f"[{good}, {element}]", 1), (f"[[{element}], [{good}]]", 0)):
        refused = refusal(send(echoes, datatype, [2], data), 400)
        assert refused.startswith('input "x": data: ')
        assert text in refused
        assert f" element {place}: " in refused or " for " not in text


@pytest.mark.parametrize("element", NO_NUMBERS)
def test_rejects_numbers_that_are_not_json(echoes, element: str) -> None:
    """R12: NaN, Infinity, other numbers outside of JSON, and numbers that overflow are rejected."""
    refusal(send(echoes, "FP64", [1], f"[{element}]"), 400)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_infinite_output(serve, datatype: str) -> None:
    """R12: an output with ±Infinity is rejected in JSON, returned in binary, and null if JSON_NONFINITE is `null`."""
    module = models.model([], [MetadataTensor("y", datatype, [-1])], lambda _: [float("inf"), 1, float("-inf")])
    client = serve(module)
    text = refusal(client.rest.post({"inputs": []}), 400)
    assert text.startswith('output "y": ')
    assert "ask for binary output" in text
    assert client.forms["rest binary"].infer([]).outputs["y"][2] == [float("inf"), 1, float("-inf")]
    response = serve(module, json_nonfinite="null").rest.post({"inputs": []})
    assert response.json["outputs"][0]["data"] == [None, 1, None]


def test_output_that_is_not_utf8(serve) -> None:
    """R14: an output that is not UTF-8 is rejected in JSON, and returned in binary."""
    service = serve(models.model([], [MetadataTensor("y", "BYTES", [-1])], lambda _: [b"fine", b"\xff"]))
    text = refusal(service.rest.post({"inputs": []}), 400)
    assert text.startswith('output "y": ')
    assert "ask for binary output" in text
    assert service.forms["rest binary"].infer([]).outputs["y"][2] == [b"fine", b"\xff"]


def test_rejects_lone_surrogate(echoes) -> None:
    """R14: a string with half of a surrogate pair is rejected."""
    refusal(send(echoes, "BYTES", [1], '["\\ud83c"]'), 400)
    refusal(send(echoes, "BYTES", [1], '"\\udf37"'), 400)


@pytest.mark.parametrize(
    "content_type",
    CONTENT_TYPES,
)
def test_content_type_does_not_matter(client, content_type: str | None) -> None:
    """R18: the body is read with any Content-Type, and without one."""
    assert client.post(INFER, data=json.dumps(GOOD), content_type=content_type).status_code == 200


BODY = json.dumps(GOOD).encode()
CODED = [
    ("gzip", gzip.compress(BODY, mtime=0)),
    ("GZip", gzip.compress(BODY, mtime=0)),
    ("gzip", gzip.compress(BODY[:20], mtime=0) + gzip.compress(BODY[20:], mtime=0)),
    ("deflate", zlib.compress(BODY)),
    (" deflate ", zlib.compress(BODY, 9)),
    ("identity", BODY),
    ("", BODY),
]


@pytest.mark.parametrize(("coding", "body"), CODED)
def test_content_encodings(client, coding: str, body: bytes) -> None:
    """R18: gzip with one or more members, deflate in zlib format, and identity are accepted, in upper or lower case."""
    response = client.post(INFER, data=body, headers={"Content-Encoding": coding})
    assert response.status_code == 200, response.json
    assert response.json["outputs"][0]["data"] == [3.5]


def test_gzip_members_of_any_size() -> None:
    """R18: a gzip body with several members is decompressed, wherever a member ends in a chunk."""
    members = [random.randbytes(size) for size in (0, 1, *range(PIECE - 30, PIECE + 10), 3 * PIECE)]
    body = b"".join(gzip.compress(each) for each in members)
    assert decompress(body, "gzip", len(body)) == b"".join(members)


def test_limits_gzip_members() -> None:
    """R18: a gzip body with too many members is rejected, because empty members take long to read."""
    empty, last = gzip.compress(b""), gzip.compress(BODY)
    assert decompress(empty * (MEMBERS - 1) + last, "gzip", LIMIT) == BODY
    with pytest.raises(InvalidInput, match="more than"):
        decompress(empty * MEMBERS + last, "gzip", LIMIT)


@pytest.mark.parametrize("coding", UNKNOWN_CODINGS)
def test_rejects_unknown_encodings(client, coding: str) -> None:
    """R18: any other content encoding, or a list that contains one, returns 415."""
    assert "Content-Encoding: expected gzip" in refusal(
        client.post(INFER, data=BODY, headers={"Content-Encoding": coding}), 415
    )


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b""),
        ("gzip", BODY),
        ("gzip", zlib.compress(BODY)),
        ("gzip", gzip.compress(BODY, mtime=0)[:-1]),
        ("gzip", gzip.compress(BODY, mtime=0)[:-8]),
        ("gzip", gzip.compress(BODY, mtime=0)[:12]),
        ("gzip", gzip.compress(BODY, mtime=0)[:-8] + b"\0" * 8),
        ("gzip", gzip.compress(BODY, mtime=0) + b"trailing"),
        ("gzip", gzip.compress(b"", mtime=0)),
        ("deflate", b""),
        ("deflate", BODY),
        ("deflate", gzip.compress(BODY, mtime=0)),
        ("deflate", zlib.compress(BODY)[:-1]),
        ("deflate", zlib.compress(BODY)[:-4] + b"\0" * 4),
        ("deflate", zlib.compress(b"{")),
    ],
)
def test_rejects_corrupt_compressed_body(client, coding: str, body: bytes) -> None:
    """R18, R19: a body that does not match its Content-Encoding, is truncated, or contains no JSON returns 400."""
    refusal(client.post(INFER, data=body, headers={"Content-Encoding": coding}), 400)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("size", [LIMIT + 1, 10**8])
def test_size_limit_after_decompression(client, coding: str, size: int) -> None:
    """R19: the size limit applies to the decompressed body."""
    bomb = (gzip if coding == "gzip" else zlib).compress(b" " * size)
    assert str(LIMIT) in refusal(client.post(INFER, data=bomb, headers={"Content-Encoding": coding}), 413)


def padded(size: int) -> bytes:
    return BODY + b" " * (size - len(BODY))


@pytest.mark.parametrize("coding", ["identity", "gzip", "deflate"])
def test_size_limit(client, coding: str) -> None:
    """R19: a body of exactly the size limit is accepted, and one more byte returns 413."""
    code = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}[coding]
    for size, status in [(LIMIT, 200), (LIMIT + 1, 413)]:
        response = client.post(INFER, data=code(padded(size)), headers={"Content-Encoding": coding})
        assert response.status_code == status, response.json


@pytest.mark.parametrize(
    ("path", "status", "text"), [(INFER, 413, str(LIMIT)), ("/v2/models/other/infer", 404, "other")]
)
def test_rejects_content_length_over_limit(client, path: str, status: int, text: str) -> None:
    """R19: a Content-Length over the limit is rejected before the body is read, but after an unknown model name."""
    response = client.post(path, data=b"", environ_overrides={"CONTENT_LENGTH": str(LIMIT + 1)})
    assert text in refusal(response, status)


def test_size_limit_of_chunked_body(client) -> None:
    """R19: the size limit applies to a chunked body too."""
    chunked = {"CONTENT_LENGTH": "", "wsgi.input_terminated": True}
    for size, status in [(LIMIT, 200), (LIMIT + 1, 413)]:
        response = client.post(INFER, input_stream=io.BytesIO(padded(size)), environ_overrides=chunked)
        assert response.status_code == status, response.json
    assert str(LIMIT) in refusal(response, 413)


@pytest.mark.parametrize("accepted", ACCEPTED)
def test_compresses_large_response(echoes, accepted: str) -> None:
    """R18: a JSON response of 1 KiB or more is compressed if the client accepts it."""
    service = echoes("BYTES")
    envelope = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["x" * 2000]}]}
    response = service.rest.post(envelope, Accept_Encoding=accepted)
    plain = {"gzip": gzip.decompress, "deflate": zlib.decompress}[response.headers["Content-Encoding"]](response.data)
    assert response.headers["Content-Encoding"] in accepted.lower()
    assert json.loads(plain)["outputs"][0]["data"] == ["x" * 2000]
    assert response.content_length == len(response.data) < 1000
    assert "accept-encoding" in response.headers["Vary"].lower()


@pytest.mark.parametrize("accepted", NOT_ACCEPTED)
def test_does_not_compress_unless_accepted(echoes, accepted: str | None) -> None:
    """R18: a response is not compressed if the client does not accept it."""
    headers = {} if accepted is None else {"Accept_Encoding": accepted}
    envelope = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": ["x" * 2000]}]}
    response = echoes("BYTES").rest.post(envelope, **headers)
    assert "Content-Encoding" not in response.headers
    assert response.json["outputs"][0]["data"] == ["x" * 2000]


@pytest.mark.parametrize("body", NO_JSON)
def test_rejects_body_that_is_not_json(client, body: bytes) -> None:
    """R20: an empty body, or one that is not JSON, is rejected."""
    assert "the body is" in refusal(client.post(INFER, data=body), 400)


def test_rejects_nan_with_advice(client) -> None:
    """R20: NaN, as written by Python's json module, is rejected, and the error recommends null."""
    body = json.dumps({"inputs": [{"name": "ü", "shape": [1], "datatype": "FP32", "data": [float("nan")]}]})
    assert refusal(client.post(INFER, data=body), 400).endswith("; use null for NaN")


def test_rejects_body_that_is_not_utf8(client) -> None:
    """R20: the error for a body in another character encoding names UTF-8."""
    body = json.dumps({"id": "é", "inputs": []}, ensure_ascii=False).encode("latin-1")
    assert refusal(client.post(INFER, data=body), 400) == "the body is not JSON: it is not UTF-8"


@pytest.mark.parametrize("length", [1, 5, len(BODY) // 2, len(BODY) - 1])
def test_rejects_truncated_json(client, length: int) -> None:
    """R20: truncated JSON is rejected."""
    assert "the body is not JSON" in refusal(client.post(INFER, data=BODY[:length]), 400)


def test_rejects_body_shorter_than_content_length(client) -> None:
    """R19, R20: a body that is shorter than its Content-Length returns 400."""
    refusal(client.post(INFER, data=BODY, environ_overrides={"CONTENT_LENGTH": str(len(BODY) + 1)}), 400)


@pytest.mark.parametrize("body", INSTEAD)
def test_rejects_json_that_is_not_an_object(client, body: str) -> None:
    """R20: JSON that is not an object is rejected."""
    assert "expected an object" in refusal(client.post(INFER, data=body), 400)


def nested(levels: int, opening: str = "[", closing: str = "]") -> bytes:
    """Return the valid request with an extra member that is nested `levels` deep."""
    return b'{"extra": %s, %s' % ((opening * levels + "1" + closing * levels).encode(), BODY[1:])


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a": ', "}"), ('[{"]": ', "}]")])
def test_depth_limit(client, opening: str, closing: str) -> None:
    """R20: JSON may be nested 64 levels deep, counted from the root of the body."""
    each = opening.count("[") + opening.count("{")
    assert client.post(INFER, data=nested(63 // each, opening, closing)).status_code == 200
    assert "at most 64 levels" in refusal(client.post(INFER, data=nested(64 // each, opening, closing)), 400)


@pytest.mark.parametrize("levels", [900, 1100, 49_000])
def test_rejects_very_deep_json(client, levels: int) -> None:
    """R20: JSON that is nested hundreds or thousands of levels deep returns 400 too."""
    refusal(client.post(INFER, data=nested(levels)), 400)
    refusal(client.post(INFER, data=b"[" * levels), 400)


@pytest.mark.parametrize(("levels", "status"), [(62, 200), (63, 400)])
def test_depth_limit_after_large_flat_data(serve, levels: int, status: int) -> None:
    """R20: the depth limit also applies after a large flat array."""
    extra = b"[%s, %s]" % (b",".join([b"[]"] * 600_000), b"[" * levels + b"]" * levels)
    client = serve(models.two_by_two()).client
    assert client.post(INFER, data=b'{"extra": %s, %s' % (extra, BODY[1:])).status_code == status


@pytest.mark.parametrize("text", ["[" * 500, '"' + "[{" * 50, "\\" + "[" * 100, '\\"' + "]" * 100, "{[" * 100 + "\\"])
def test_brackets_in_strings_are_not_nesting(client, text: str) -> None:
    """R20: brackets in strings do not count as nesting."""
    body = {"extra": text, text: [[text]], **GOOD}
    assert client.post(INFER, data=json.dumps(body)).status_code == 200


def test_depth_limit_of_data(echoes) -> None:
    """R10, R20: data may be nested up to the depth limit of the body, whatever its shape."""
    assert send(echoes, "INT32", [1], "[" * 61 + "1" + "]" * 61).status_code == 200
    assert "at most 64 levels" in refusal(send(echoes, "INT32", [1], "[" * 62 + "1" + "]" * 62), 400)


def test_does_not_compress_metadata_and_errors(serve) -> None:
    """R18: metadata and errors are not compressed, even if they are large and the client accepts it."""
    tensors = [MetadataTensor(f"{index}" * 40, "FP32", [-1]) for index in range(1, 30)]
    client = serve(models.model([], tensors, lambda _: 1 / 0)).client
    for response in (
        client.get("/v2/models/test", headers={"Accept-Encoding": "gzip, deflate"}),
        client.post(INFER, json={"inputs": [], "outputs": [{"name": "🌷" * 500}]}, headers={"Accept-Encoding": "gzip"}),
    ):
        assert "Content-Encoding" not in response.headers
        assert len(response.data) > 1024
        assert response.json


def test_exception_in_predict(serve, caplog: pytest.LogCaptureFixture) -> None:
    """R19: an exception in predict() returns 500 in JSON with its class, and only the log has the traceback."""

    def predict(_: Any, x: np.ndarray) -> Any:
        raise [RecursionError, MemoryError, KeyError, StopIteration, SystemError][int(x[0])]("\ud800 odd\n" * 9)

    module = models.model([MetadataTensor("x", "INT8", [-1])], [MetadataTensor("y", "INT8", [-1])], predict)
    service = serve(module)
    for index, name in enumerate(["RecursionError", "MemoryError", "KeyError", "StopIteration", "SystemError"]):
        tensor = {"name": "x", "datatype": "INT8", "shape": [1], "data": [index]}
        assert name in refusal(service.rest.post({"inputs": [tensor]}), 500)
    assert caplog.text.count("Traceback") == 5
