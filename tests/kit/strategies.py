"""Hypothesis strategies for requests: valid, valid with a few changes, and arbitrary."""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from oip_conformance.wires import NUMPY, Sent, json_element, pack

DATATYPES = [*NUMPY, "BYTES"]
MEMBERS = ["id", "parameters", "inputs", "outputs", "name", "shape", "datatype", "data"]
PARAMETERS = ["content_type", "binary_data_size", "binary_data", "binary_data_output"]
CONTENT_TYPES = ["np", "str", "base64", "bytes", "datetime", "pd_json", "pd"]
SEGMENTS = [
    "v2",
    "models",
    "versions",
    "1",
    "infer",
    "ready",
    "config",
    "health",
    "live",
    "repository",
    "index",
]
ROUTES = [
    "v2",
    "v2/health/ready",
    "v2/repository/index",
    "v2/models/NAME",
    "v2/models/NAME/versions/1",
]
ENDS = ["ready", "config", "infer", ""]
CODINGS = {"gzip": 31, "deflate": 15}  # zlib's window bits of each
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "FIND"]

# Header values that can reach the service: any bytes except control characters.
header_texts = st.one_of(
    st.integers(-5, 600).map(str),
    st.integers().map(str),
    st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30),
)
fifths = st.integers(0, 4)
numbers = st.one_of(
    st.integers(),
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400]),
    st.floats(),
)
long_texts = st.builds(str.__mul__, st.sampled_from('x"\0é🌷'), st.sampled_from([50, 600, 10_000]))
# JSON can contain lone surrogates, although they are not valid text.
texts = st.one_of(
    st.text(max_size=5),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2),
    long_texts,
)
nested = st.builds(
    lambda opened, levels: (opened * levels).encode(),
    st.sampled_from(["[", '{"inputs":', '[{"data":']),
    st.integers(1, 100) | st.integers(100, 10_000),
)
large = st.builds(
    bytes.__mul__,
    st.binary(min_size=1, max_size=1),
    st.sampled_from([10_000, 99_999, 100_001, 200_000]),
)


@st.composite
def mostly(draw: st.DrawFn, common: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> Any:
    """Draw from `common`, and one time in five from `rare`."""
    return draw(rare if seldom(draw) else common)


def seldom(draw: st.DrawFn) -> bool:
    """Return true one time in five."""
    return draw(fifths) == 4  # not 0, which hypothesis prefers


codings = mostly(st.sampled_from(["gzip", "deflate", "GZip", "identity"]), header_texts)


class Subject:
    """Strategies for the parts of requests to the model `name`.

    The model accepts one or several of `inputs`, and has the outputs `outputs`.
    """

    def __init__(self, name: str, inputs: Sequence[Sent], outputs: Sequence[str]):
        names, self.datatypes = (sorted({tensor[place] for tensor in inputs}) for place in (0, 1))
        self.name = name
        self.inputs = st.lists(
            st.sampled_from(inputs), min_size=1, max_size=3, unique_by=lambda tensor: tensor[0]
        )
        self.input_names = mostly(st.sampled_from([*names, ""]), long_texts)
        self.output_names = mostly(st.sampled_from([*outputs, ""]), long_texts)
        self.words = st.sampled_from(
            [*names, *outputs, *MEMBERS, *PARAMETERS, *CONTENT_TYPES, *DATATYPES, name, "x"]
        )
        self.values = st.recursive(
            st.one_of(st.none(), st.booleans(), numbers, self.words, texts),
            lambda inner: (
                st.lists(inner, max_size=4) | st.dictionaries(self.words | texts, inner, max_size=4)
            ),
            max_leaves=12,
        )
        # Values of the right type for the member of each name.
        self.fitting = {
            "name": st.sampled_from([*names, *outputs]),
            "shape": st.lists(st.integers(0, 3), max_size=3),
            "datatype": st.sampled_from(DATATYPES),
            "data": st.lists(numbers | texts, max_size=4),
            "content_type": st.sampled_from(CONTENT_TYPES),
            "binary_data_size": st.integers(0, 20),
        }
        self.requested_outputs = st.lists(st.sampled_from(outputs), max_size=3, unique=True)
        self.bodies = st.one_of(
            st.binary(max_size=300), self.values.map(json.dumps).map(str.encode), nested, large
        )
        self.segments = mostly(st.sampled_from([name, *SEGMENTS, ""]), st.text(max_size=6))
        self.extras = self.members_beside_inputs(outputs)

    def members_beside_inputs(self, outputs: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
        flag, kind = st.booleans(), st.sampled_from(CONTENT_TYPES)
        output = st.fixed_dictionaries(
            {"name": st.sampled_from(outputs)},
            optional={
                "parameters": st.fixed_dictionaries(
                    {}, optional={"binary_data": flag, "content_type": kind}
                )
            },
        )
        parameters = st.fixed_dictionaries(
            {}, optional={"binary_data_output": flag, "content_type": kind}
        )
        listed = st.lists(output, max_size=3, unique_by=lambda each: each["name"])
        return st.fixed_dictionaries(
            {}, optional={"id": texts, "parameters": parameters, "outputs": listed}
        )


@st.composite
def envelopes(
    draw: st.DrawFn, subject: Subject, binary: bool = True
) -> tuple[dict[str, Any], bytes]:
    """Draw a valid envelope and its binary data. If `binary` is true, some tensors are binary."""
    heads, blobs = [], b""
    for name, datatype, shape, values in draw(subject.inputs):
        head: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
        if not binary or draw(st.booleans()):
            head["data"] = [json_element(value) for value in values]
        else:
            blob = pack(datatype, values)
            head["parameters"] = {"binary_data_size": len(blob)}
            blobs += blob
        heads.append(head)
    return {"inputs": heads, **draw(subject.extras)}, blobs


@st.composite
def changed_envelopes(
    draw: st.DrawFn, subject: Subject, binary: bool = True
) -> tuple[dict[str, Any], bytes]:
    """Draw a valid envelope with some members replaced, removed, added or copied, and sometimes other binary data."""
    envelope, blobs = draw(envelopes(subject, binary))
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(places(envelope) or [(envelope, "inputs")]))
        change = draw(
            st.sampled_from(["replace", "replace", "fit", "fit", "remove", "add", "copy"])
        )
        if change == "replace":
            container[key] = draw(subject.values)
        elif change == "fit":
            container[key] = draw(subject.fitting.get(key, subject.values))
        elif change == "remove" and key in container:
            del container[key]
        elif change == "add" and isinstance(container, dict):
            container[draw(subject.words)] = draw(subject.values)
        elif change == "copy" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
    return envelope, draw(st.binary(max_size=20)) if seldom(draw) else blobs


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return all containers in `value`, each with each of its keys."""
    found = []
    for key in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        found += [(value, key), *places(value[key])]
    return found


@st.composite
def mutated(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes:
    """Draw from `good`, and replace some of the bytes."""
    return edited(draw, draw(good))


def edited(draw: st.DrawFn, body: bytes) -> bytes:
    """Return `body` with some of its bytes replaced."""
    for _ in range(draw(st.integers(1, 3))):
        position, length = draw(st.integers(0, len(body))), draw(st.integers(0, 3))
        body = body[:position] + draw(st.binary(max_size=3)) + body[position + length :]
    return body


@st.composite
def coded_bodies(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> tuple[bytes, str]:
    """Draw a body and a Content-Encoding. The body is compressed, compressed with a few bytes changed, or plain."""
    body, coding = draw(bodies), draw(codings)
    bits = CODINGS.get(coding.lower())
    if bits is None or seldom(draw):
        return body, coding
    encoder = zlib.compressobj(wbits=bits)
    body = encoder.compress(body) + encoder.flush()
    return edited(draw, body) if draw(st.booleans()) else body, coding


@st.composite
def paths(draw: st.DrawFn, subject: Subject) -> list[str]:
    """Draw the segments of an existing path, with some of them replaced or added."""
    route = draw(st.sampled_from(["", *ROUTES])).replace("NAME", subject.name)
    segments = (
        [*route.split("/"), *draw(st.lists(st.sampled_from(ENDS), max_size=1))] if route else []
    )
    for _ in range(draw(st.integers(0, 2))):
        position = draw(st.integers(0, len(segments)))
        segments[position : position + draw(st.integers(0, 1))] = [draw(subject.segments)]
    return segments
