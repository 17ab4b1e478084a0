"""Hypothesis strategies for requests: valid, valid with a few changes, and arbitrary."""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from oip_conformance.wires import NUMPY_TYPES, InputTuple, json_element, pack

DATATYPES = [*NUMPY_TYPES, "BYTES"]
MEMBERS = ["id", "parameters", "inputs", "outputs", "name", "shape", "datatype", "data"]
PARAMETERS = ["content_type", "binary_data_size", "binary_data", "binary_data_output"]
CONTENT_TYPES = ["np", "str", "base64", "bytes", "datetime", "pd_json", "pd"]
# Segments of paths, and the paths of the service, to which one of ENDS may be added.
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
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE", "FIND"]
# Content codings, and zlib's parameter `wbits` for each.
CODINGS = {"gzip": 31, "deflate": 15}
# What changed_envelopes() does with a member. The first two are twice as likely.
CHANGES = ["replace", "replace", "fit", "fit", "remove", "add", "copy"]

# The JSON of a request, and the binary data of its tensors.
Envelope = tuple[dict[str, Any], bytes]


def repeat(value: Any, count: int) -> Any:
    return value * count


def optional_members(**members: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for dictionaries that have some of the members."""
    return st.fixed_dictionaries({}, optional=members)


# Header values that can reach the service: any bytes except control characters.
header_texts = st.one_of(
    st.integers(-5, 600).map(str),
    st.integers().map(str),
    st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30),
)
numbers = st.one_of(
    st.integers(),
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**400]),
    st.floats(),
)
long_texts = st.builds(repeat, st.sampled_from('x"\0é🌷'), st.sampled_from([50, 600, 10_000]))
# JSON can contain lone surrogates, although they are not valid text.
texts = st.one_of(
    st.text(max_size=5),
    st.text(st.characters(categories=["Cs"]), min_size=1, max_size=2),
    long_texts,
)
# JSON that opens many levels, and closes none.
nested = st.builds(
    repeat,
    st.sampled_from([b"[", b'{"inputs":', b'[{"data":']),
    st.integers(1, 100) | st.integers(100, 10_000),
)
large = st.builds(
    repeat,
    st.binary(min_size=1, max_size=1),
    st.sampled_from([10_000, 99_999, 100_001, 200_000]),
)


@st.composite
def mostly(draw: st.DrawFn, common: st.SearchStrategy[Any], rare: st.SearchStrategy[Any]) -> Any:
    """Draw from `common`, and one time in five from `rare`."""
    if seldom(draw):
        return draw(rare)
    return draw(common)


def seldom(draw: st.DrawFn) -> bool:
    """Return true one time in five."""
    number = draw(st.integers(0, 4))
    return number == 4  # not 0, which hypothesis prefers


codings = mostly(st.sampled_from(["gzip", "deflate", "GZip", "identity"]), header_texts)


class Subject:
    """Strategies for the parts of requests to the model `name`.

    The model accepts one or several of `inputs`, and has the outputs `outputs`.

    values: any JSON
    fitting: values of the right type for a member, by its name
    extras: members of a valid envelope, except its inputs
    bodies: bodies that are rarely a valid request
    """

    def __init__(self, name: str, inputs: Sequence[InputTuple], outputs: Sequence[str]):
        self.name = name
        self.datatypes = sorted({datatype for _, datatype, _, _ in inputs})
        names = sorted({input_name for input_name, _, _, _ in inputs})

        self.inputs = st.lists(
            st.sampled_from(inputs), min_size=1, max_size=3, unique_by=lambda tensor: tensor[0]
        )
        self.input_names = mostly(st.sampled_from([*names, ""]), long_texts)
        self.output_names = mostly(st.sampled_from([*outputs, ""]), long_texts)
        self.requested_outputs = st.lists(st.sampled_from(outputs), max_size=3, unique=True)

        self.words = st.sampled_from(
            [*names, *outputs, *MEMBERS, *PARAMETERS, *CONTENT_TYPES, *DATATYPES, name, "x"]
        )
        scalars = st.one_of(st.none(), st.booleans(), numbers, self.words, texts)
        self.values = st.recursive(scalars, self.containers, max_leaves=12)
        self.fitting = {
            "name": st.sampled_from([*names, *outputs]),
            "shape": st.lists(st.integers(0, 3), max_size=3),
            "datatype": st.sampled_from(DATATYPES),
            "data": st.lists(numbers | texts, max_size=4),
            "content_type": st.sampled_from(CONTENT_TYPES),
            "binary_data_size": st.integers(0, 20),
        }
        self.extras = self.members_beside_inputs(outputs)

        json_bodies = self.values.map(json.dumps).map(str.encode)
        self.bodies = st.one_of(st.binary(max_size=300), json_bodies, nested, large)
        self.segments = mostly(st.sampled_from([name, *SEGMENTS, ""]), st.text(max_size=6))

    def containers(self, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        """Return a strategy for lists and objects of some values."""
        lists = st.lists(values, max_size=4)
        objects = st.dictionaries(self.words | texts, values, max_size=4)
        return lists | objects

    def members_beside_inputs(self, outputs: Sequence[str]) -> st.SearchStrategy[dict[str, Any]]:
        """Return a strategy for members of a valid envelope, except its inputs."""
        flags = st.booleans()
        content_types = st.sampled_from(CONTENT_TYPES)

        output_parameters = optional_members(binary_data=flags, content_type=content_types)
        output = st.fixed_dictionaries(
            {"name": st.sampled_from(outputs)},
            optional={"parameters": output_parameters},
        )
        return optional_members(
            id=texts,
            parameters=optional_members(binary_data_output=flags, content_type=content_types),
            outputs=st.lists(output, max_size=3, unique_by=lambda output: output["name"]),
        )


@st.composite
def envelopes(draw: st.DrawFn, subject: Subject, binary: bool = True) -> Envelope:
    """Draw a valid envelope and its binary data. If `binary` is true, some tensors are binary."""
    inputs = []
    blobs = b""
    for name, datatype, shape, values in draw(subject.inputs):
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
        if not binary or draw(st.booleans()):
            tensor["data"] = [json_element(value) for value in values]
        else:
            blob = pack(datatype, values)
            tensor["parameters"] = {"binary_data_size": len(blob)}
            blobs += blob
        inputs.append(tensor)
    envelope = {"inputs": inputs, **draw(subject.extras)}
    return envelope, blobs


@st.composite
def changed_envelopes(draw: st.DrawFn, subject: Subject, binary: bool = True) -> Envelope:
    """Draw a valid envelope with some members replaced, removed, added or copied.

    Sometimes, its binary data is replaced, too.
    """
    envelope, blobs = draw(envelopes(subject, binary))
    for _ in range(draw(st.integers(0, 3))):
        # An envelope that has lost all members gets new inputs.
        members = members_of(envelope) or [(envelope, "inputs")]
        container, key = draw(st.sampled_from(members))
        change = draw(st.sampled_from(CHANGES))
        if change == "replace":
            container[key] = draw(subject.values)
        elif change == "fit":
            values = subject.fitting.get(key, subject.values)
            container[key] = draw(values)
        elif change == "remove" and key in container:
            del container[key]
        elif change == "add" and isinstance(container, dict):
            container[draw(subject.words)] = draw(subject.values)
        elif change == "copy" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))

    if seldom(draw):
        blobs = draw(st.binary(max_size=20))
    return envelope, blobs


def members_of(value: Any) -> list[tuple[Any, Any]]:
    """Return the place of each member of a JSON value, at all levels: its container and its key.

    The key of an element of a list is its index.
    """
    keys: Iterable[Any]
    if isinstance(value, dict):
        keys = value
    elif isinstance(value, list):
        keys = range(len(value))
    else:
        keys = ()

    members = []
    for key in keys:
        members.append((value, key))
        members += members_of(value[key])
    return members


@st.composite
def mutated(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes:
    """Draw from `good`, and replace some of the bytes."""
    body = draw(good)
    return edited(draw, body)


def edited(draw: st.DrawFn, body: bytes) -> bytes:
    """Return `body` with some of its bytes replaced."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = start + draw(st.integers(0, 3))
        body = body[:start] + draw(st.binary(max_size=3)) + body[end:]
    return body


@st.composite
def coded_bodies(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> tuple[bytes, str]:
    """Draw a body and a Content-Encoding.

    The body is compressed, compressed with a few bytes changed, or plain.
    """
    body = draw(bodies)
    coding = draw(codings)
    window_bits = CODINGS.get(coding.lower())
    if window_bits is None or seldom(draw):
        return body, coding

    encoder = zlib.compressobj(wbits=window_bits)
    body = encoder.compress(body) + encoder.flush()
    if draw(st.booleans()):
        body = edited(draw, body)
    return body, coding


@st.composite
def paths(draw: st.DrawFn, subject: Subject) -> list[str]:
    """Draw the segments of an existing path, with some of them replaced or added."""
    route = draw(st.sampled_from(["", *ROUTES]))
    segments: list[str] = []
    if route:
        segments = route.replace("NAME", subject.name).split("/")
        segments += draw(st.lists(st.sampled_from(ENDS), max_size=1))

    for _ in range(draw(st.integers(0, 2))):
        start = draw(st.integers(0, len(segments)))
        segment = draw(subject.segments)
        replaced_count = draw(st.integers(0, 1))
        segments[start : start + replaced_count] = [segment]
    return segments
