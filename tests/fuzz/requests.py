"""Generators of requests by kind, for the model of oip_conformance/model.py."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from oip_conformance.model import ECHOED_TENSORS, NAME, VERSION
from oip_conformance.values import VALUES
from oip_conformance.wires import InputTuple
from tests.fuzz.judge import LENGTH
from tests.fuzz.wire import SERVICE, Call, HttpRequest, Octets
from tests.kit.message_strategies import Messages
from tests.kit.strategies import (
    METHODS,
    Subject,
    changed_envelopes,
    coded_bodies,
    codings,
    edited,
    envelopes,
    header_texts,
    large,
    mostly,
    mutated,
    paths,
    seldom,
)

ACCEPTED = ["gzip", "deflate", "deflate;q=0.5, gzip;q=0", "*"]
PATHS = [
    f"/v2/models/{NAME}/infer",
    f"/v2/models/{NAME}/versions/{VERSION}/infer",
    f"/v2/models/{NAME}/infer/?a=b",
]


def small(name: str, datatype: str, shape: list[int]) -> Iterator[InputTuple]:
    """Yield valid inputs: variable dimensions of size 2, empty tensors, and a column for a vector (R15)."""
    for size in (2, 0):
        sizes = [size if free < 0 else free for free in shape]
        values = VALUES[datatype] * math.prod(sizes)
        yield f"{name}_in", datatype, sizes, values[: math.prod(sizes)]
    if len(shape) == 1:
        yield f"{name}_in", datatype, [2, 1], VALUES[datatype]


FAILING: InputTuple = ("fail_in", "BYTES", [1], [b"as asked"])
# Without delay_in, because a mutated delay could block the model.
INPUTS = [*(input_tuple for tensor in ECHOED_TENSORS for input_tuple in small(*tensor)), FAILING]
SUBJECT = Subject(NAME, INPUTS, [f"{name}_out" for name, _, _ in ECHOED_TENSORS])
MESSAGES = Messages(SUBJECT)

chunks = st.sampled_from([0, 0, 0, 1, 7, 1000])
headers = st.lists(
    st.one_of(
        st.tuples(st.just(LENGTH), header_texts),
        st.tuples(st.just("Content-Encoding"), codings),
        st.tuples(st.just("Accept-Encoding"), mostly(st.sampled_from(ACCEPTED), header_texts)),
        st.tuples(st.sampled_from(["Content-Type", "Accept", "Connection", "X-Odd"]), header_texts),
        st.tuples(st.just("Connection"), st.sampled_from(["close", "keep-alive"])),
        st.tuples(st.just("Expect"), st.just("100-continue")),
    ),
    max_size=3,
    unique_by=lambda header: header[0],  # the server rejects a repeated Expect with 417
)
few_headers = mostly(st.just([]), headers)
places = st.sampled_from(PATHS)


def post(
    path: str, body: bytes, named: list[tuple[str, str]], chunk: int, length: int | None = None
) -> HttpRequest:
    return HttpRequest(
        "POST", path, named if length is None else [(LENGTH, str(length)), *named], body, chunk
    )


def with_coding(
    path: str, made: tuple[bytes, str], named: list[tuple[str, str]], chunk: int
) -> HttpRequest:
    return post(path, made[0], [("Content-Encoding", made[1]), *named], chunk)


def dumped(made: tuple[dict[str, Any], bytes]) -> tuple[bytes, bytes]:
    return json.dumps(made[0]).encode(), made[1]


envelope_bodies = changed_envelopes(SUBJECT, binary=False).map(lambda made: dumped(made)[0])
index_bodies = (
    st.fixed_dictionaries({"ready": st.booleans() | SUBJECT.values}).map(json.dumps).map(str.encode)
)
json_requests = st.one_of(
    st.builds(post, places, envelope_bodies, few_headers, chunks),
    st.builds(post, places, envelope_bodies, headers, chunks),
    st.builds(post, places, SUBJECT.bodies, few_headers, chunks),
    st.builds(
        post, st.just("/v2/repository/index"), SUBJECT.bodies | index_bodies, few_headers, chunks
    ),
    st.builds(with_coding, places, coded_bodies(envelope_bodies), few_headers, chunks),
    st.builds(with_coding, places, coded_bodies(SUBJECT.bodies), few_headers, chunks),
)


@st.composite
def binary_requests(draw: st.DrawFn) -> HttpRequest:
    """Generate binary requests with mutated JSON or tensors, and sometimes with an incorrect header length."""
    if draw(st.booleans()):
        head, blobs = dumped(draw(changed_envelopes(SUBJECT)))
    else:
        head, blobs = dumped(draw(envelopes(SUBJECT)))
        blobs = edited(draw, blobs)
    body = edited(draw, head + blobs) if seldom(draw) else head + blobs
    length = max(len(head) + draw(st.integers(-20, 20)), 0) if seldom(draw) else len(head)
    return post(draw(places), body, draw(few_headers), draw(chunks), length)


def path_of(segments: list[str], safe: str) -> str:
    return "/" + "/".join(quote(segment, safe) for segment in segments)


path_requests = st.builds(
    HttpRequest,
    st.sampled_from(METHODS),
    st.builds(path_of, paths(SUBJECT), st.sampled_from(["", "/%?#;=&+:@!$'()*,~[]|\\^`{}<>\""])),
    few_headers,
    st.just(b"") | SUBJECT.bodies,
    chunks,
)


# Without grpcio's health and reflection services, which log a traceback for malformed messages.
@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Generate ModelInfer calls, and sometimes calls of unknown methods."""
    name, body = draw(st.one_of(MESSAGES.infer, MESSAGES.infer, MESSAGES.any_call))
    if draw(st.integers(0, 19)) == 19:
        name = draw(st.sampled_from(["ModelInfe", "modelInfer", "No", "", "x/y"]))
    return Call(
        SERVICE + name, draw(large) if draw(st.integers(0, 29)) == 29 else body, draw(st.booleans())
    )


good_octets = st.builds(
    post, places, envelopes(SUBJECT).map(lambda made: dumped(made)[0]), few_headers, chunks
)
octets = st.builds(Octets, st.binary(max_size=200) | mutated(good_octets.map(HttpRequest.octets)))

# Share of each kind of request.
KINDS = {
    "JSON": (json_requests, 30),
    "binary": (binary_requests(), 25),
    "protobuf": (calls(), 30),
    "paths": (path_requests, 10),
    "octets": (octets, 5),
}
