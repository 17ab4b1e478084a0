"""MLServer's codecs and ours are compatible: values that one encodes, the other decodes to equal values."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app import api, codecs
from app.protocol.errors import InvalidInput
from app.rest.request_reader import read_request
from grpc_service import converters
from tests.kit.environments import ROOT, make_mlserver, run
from tests.template.mlserver_codecs.cases import CASES, FORMS, Case, describe, frame, make_request

FOLDER = Path(__file__).parent / "mlserver_codecs"
EXCHANGES = [(name, form) for name, case in CASES.items() for form in case.forms]

# The outcomes by file name: the described value `found`, and the `message` of an error.
Outcomes = dict[str, dict[str, Any]]


@dataclass
class Difference:
    """A case whose decoded value differs from its payload: the reason, and by form the error or value instead."""

    reason: str
    from_mlserver: dict[str, Any] = field(default_factory=dict)
    to_mlserver: dict[str, Any] = field(default_factory=dict)


def in_all_forms(value: Any) -> dict[str, Any]:
    return dict.fromkeys(FORMS, value)


def binary(value: Any) -> dict[str, Any]:
    return dict.fromkeys(("raw", "typed"), value)


def inputs(array: Any) -> dict[str, Any]:
    return {"x": np.array(array)}


def column(elements: list, dtype: Any = None) -> pd.DataFrame:
    return frame(elements, dtype=dtype).payload


NO_HALVES = "MLServer cannot send FP16 in typed contents, because the protocol has no field for it."
NO_NAN = "MLServer converts NaN to null. For gRPC, which cannot represent null, its encoding fails."
NO_INFINITY = (
    "MLServer writes an infinity in JSON as null, and a reader decodes this null as NaN. Our codecs reject an infinity "
    "in JSON."
)
TEXT_ARRAY = (
    "MLServer reads a BYTES array from JSON as str. From gRPC, it accepts an element only if its length in bytes "
    "equals the last dimension of the shape. Our codecs always return bytes."
)
NO_SUCH_COLUMN = (
    "MLServer cannot encode columns with these dtypes of pandas: strings, datetimes, nullable numbers, nullable "
    "booleans, categories. It can decode ours."
)
NO_GAP = (
    "MLServer cannot encode a column of dtype `object` if a value is missing. It can decode ours."
)

DIFFERENCES = {
    "np-float16": Difference(NO_HALVES, {"typed": TypeError}),
    "np-nan": Difference(NO_NAN, {"raw": struct.error, "typed": TypeError}),
    "np-infinity": Difference(
        NO_INFINITY, {"json": inputs([[np.nan, np.nan, 1.5]])}, {"json": InvalidInput}
    ),
    "np-objects": Difference(TEXT_ARRAY, {}, {"json": inputs([["ab", "c"]]), **binary(ValueError)}),
    "np-text": Difference(TEXT_ARRAY, {}, {"json": inputs([["ab", "cé"]]), **binary(ValueError)}),
    "np-fixed-bytes": Difference(
        "MLServer packs an array of fixed-size bytes into one element, which contradicts the shape. Our codecs reject "
        "such a tensor. MLServer reads our array from JSON as str.",
        in_all_forms(InvalidInput),
        {"json": inputs([["ab", "cd"]])},
    ),
    "pd-float16": Difference(NO_HALVES, {"typed": TypeError}),
    "pd-nan": Difference(NO_NAN, {"raw": struct.error, "typed": TypeError}),
    "pd-infinity": Difference(NO_INFINITY, {"json": column([1.5, np.nan])}, {"json": InvalidInput}),
    "pd-text-gap": Difference(NO_GAP, in_all_forms(TypeError)),
    "pd-lists-gap": Difference(NO_GAP, in_all_forms(ValueError)),
    "pd-string": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-bytes": Difference(
        "MLServer declares a column of bytes as text. Our codecs set no content type. MLServer therefore decodes our "
        "column as bytes over gRPC, and as str from JSON.",
        in_all_forms(column(["ab", "c"])),
        {"json": column(["ab", "c"])},
    ),
    "pd-datetime": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-datetime-zone": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-datetime-gap": Difference(
        "MLServer can neither encode nor decode a missing datetime. Our codecs send the text `NaT`.",
        in_all_forms(KeyError),
        in_all_forms(ValueError),
    ),
    "pd-datetime-objects": Difference(
        "MLServer cannot encode datetimes in a column of dtype `object`. It can decode ours.",
        in_all_forms(TypeError),
    ),
    "pd-nullable": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-nullable-gap": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-nullable-gap-large": Difference(
        "MLServer decodes our nullable integers as floats if a value is missing, which changes integers beyond 2**53. "
        "It cannot encode such a column.",
        in_all_forms(KeyError),
        in_all_forms(column([2.0**53, None])),
    ),
    "pd-nullable-float": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-nullable-bool": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-nullable-bool-gap": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
    "pd-category": Difference(NO_SUCH_COLUMN, in_all_forms(KeyError)),
}


@pytest.fixture(scope="session")
def mlserver_python() -> Path:
    """Return the Python of .venv-mlserver, with the packages of mlserver_codecs/requirements.txt."""
    return make_mlserver()


@pytest.fixture(scope="session")
def from_mlserver(mlserver_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Return the results of our codecs for requests that MLServer's codecs encoded."""
    folder = tmp_path_factory.mktemp("from-mlserver")
    run(mlserver_python, FOLDER / "exchange.py", "encode", folder)
    outcomes: Outcomes = json.loads((folder / "errors.json").read_text())
    for name, form in EXCHANGES:
        path = folder / (name + FORMS[form])
        if path.name in outcomes:
            continue
        try:
            outcomes[path.name] = {"found": describe(decode(CASES[name], read(path)))}
        except InvalidInput as error:
            outcomes[path.name] = {"found": describe(type(error)), "message": str(error)}
    return outcomes


@pytest.fixture(scope="session")
def to_mlserver(mlserver_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Return the results of MLServer's codecs for requests that our codecs encoded."""
    folder = tmp_path_factory.mktemp("to-mlserver")
    outcomes: Outcomes = {}
    for name, form in EXCHANGES:
        path = folder / (name + FORMS[form])
        try:
            path.write_bytes(write(make_request(CASES[name], codecs, api), form))
        except InvalidInput as error:
            outcomes[path.name] = {"found": describe(type(error)), "message": str(error)}
    run(mlserver_python, FOLDER / "exchange.py", "decode", folder)
    return {**outcomes, **json.loads((folder / "decoded.json").read_text())}


def write(request: api.InferenceRequest, form: str) -> bytes:
    if form == "json":
        return request.to_json()
    return converters.write_request(request, raw=form == "raw")


def read(path: Path) -> api.InferenceRequest:
    body = path.read_bytes()
    return (
        read_request(body)
        if path.suffix == ".json"
        else converters.read_request(*converters.parse_request(body))
    )


def decode(case: Case, request: api.InferenceRequest) -> Any:
    if case.content_type:
        return codecs.find_request_codec(case.content_type).decode_request(request)
    return {
        tensor.name: codecs.find_input_codec(tensor.parameters["content_type"]).decode_input(tensor)
        for tensor in request.inputs
    }


def check(outcome: dict[str, Any], case: Case, differences: dict[str, Any], form: str) -> None:
    """Check that the outcome is the payload, or the value in `differences` if it has the form."""
    actual, expected = outcome["found"], describe(case.expected)
    if form in differences:
        assert actual != expected, "they agree now. Remove the form from DIFFERENCES"
        expected = describe(differences[form])
    assert actual == expected, outcome.get("message")


def difference(name: str) -> Difference:
    return DIFFERENCES.get(name, Difference("none"))


@pytest.mark.timeout(900)  # the first test installs MLServer
@pytest.mark.parametrize(("name", "form"), EXCHANGES)
def test_from_mlserver(name: str, form: str, from_mlserver: Outcomes) -> None:
    """C3: our codecs decode MLServer's requests to equal values, except for the listed differences."""
    check(from_mlserver[name + FORMS[form]], CASES[name], difference(name).from_mlserver, form)


@pytest.mark.timeout(900)  # the first test installs MLServer
@pytest.mark.parametrize(("name", "form"), EXCHANGES)
def test_to_mlserver(name: str, form: str, to_mlserver: Outcomes) -> None:
    """C3: MLServer's codecs decode our requests to equal values, except for the listed differences."""
    check(to_mlserver[name + FORMS[form]], CASES[name], difference(name).to_mlserver, form)


def test_differences_are_listed() -> None:
    """The page lists each difference with its reason and cases."""
    page = (ROOT / "dev/conformance/README.md").read_text()
    chapter = page.split("\n## Codecs\n")[1].split("\n## ")[0]
    by_reason: dict[str, list[str]] = {}
    for name, difference in DIFFERENCES.items():
        by_reason.setdefault(difference.reason, []).append(f"`{name}`")
    listed = [" ".join(item.split()) for item in re.split("^- ", chapter, flags=re.MULTILINE)[1:]]
    assert listed == [f"{reason} ({', '.join(names)})" for reason, names in by_reason.items()]
    assert set(DIFFERENCES) <= set(CASES)
