"""Content types in requests on every transport: precedence, arguments of predict(), and encoding of outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing
import pandas as pd
import pytest

from app.codecs import InputCodec, register_input_codec
from app.inference.example import make_example
from app.protocol.errors import ConfigurationError
from app.protocol.metadata import MetadataTensor, ModelMetadata
from tests.kit import models
from tests.service.codecs.content_type_models import (
    NUMBER,
    TEXT,
    declared,
    describe,
    describing_model,
    got,
)


@pytest.mark.parametrize(
    ("annotation", "metadata", "level", "sent", "expected"),
    [
        (None, None, None, None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (np.ndarray, None, "str", None, "ndarray [2] ['YWI=', 'Y2Q=']"),
        (np.ndarray, None, "np", None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (np.ndarray, None, "pd", None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (np.ndarray, "str", None, "base64", "ndarray [2] [b'ab', b'cd']"),
        (np.ndarray, "str", "np", None, "ndarray [2] ['YWI=', 'Y2Q=']"),
        (np.ndarray, "base64", "str", None, "ndarray [2] [b'ab', b'cd']"),
        (np.ndarray, "base64", "str", "np", "ndarray [2] [b'YWI=', b'Y2Q=']"),
        (list[str], None, "np", None, "list ['YWI=', 'Y2Q=']"),
        (list[str], "base64", None, None, "list ['ab', 'cd']"),
        (list[str], "base64", "np", None, "list ['ab', 'cd']"),
        (list[str], "base64", "np", "str", "list ['YWI=', 'Y2Q=']"),
        (list[bytes], None, "str", None, "list [b'YWI=', b'Y2Q=']"),
        (list[bytes], "base64", None, None, "list [b'ab', b'cd']"),
        (list[bytes], None, "str", "base64", "list [b'ab', b'cd']"),
    ],
)
def test_content_type_precedence(
    serve,
    form: str,
    annotation: Any,
    metadata: str | None,
    level: str | None,
    sent: str | None,
    expected: str,
) -> None:
    """C2: the precedence is: content type of the input, METADATA, request-level np or str, annotation."""
    service = serve(describing_model(annotation, declared(metadata)))
    parameters = {"content_type": level} if level else None
    content_types = {"x": sent} if sent else None
    response = service.forms[form].infer([TEXT], parameters=parameters, content_types=content_types)
    assert got(response) == expected


@pytest.mark.parametrize(
    ("metadata", "level", "expected"),
    [
        ("str", None, "ndarray [2] ['YWI=', 'Y2Q=']"),
        ("str", "np", "ndarray [2] [b'YWI=', b'Y2Q=']"),
        ("np", "str", "ndarray [2] ['YWI=', 'Y2Q=']"),
        ("pd", "str", "ndarray [2] ['YWI=', 'Y2Q=']"),
        ("str", "pd", "ndarray [2] [b'YWI=', b'Y2Q=']"),
        ("pd", None, "ndarray [2] [b'YWI=', b'Y2Q=']"),
    ],
)
def test_request_content_type_precedence(
    serve, form: str, metadata: str, level: str | None, expected: str
) -> None:
    """C2: a request-level content type overrides METADATA's, and np and str apply to inputs that name none."""
    service = serve(describing_model(np.ndarray, content_type=metadata))
    parameters = {"content_type": level} if level else None
    assert got(service.forms[form].infer([TEXT], parameters=parameters)) == expected


def test_each_input_is_decoded_by_its_own_content_type(serve, form: str) -> None:
    """C1, C2: each input is decoded by its own content type, regardless of the request's."""

    def predict(_, a: np.ndarray, b: np.ndarray, c: np.ndarray):
        return [describe(a), describe(b), describe(c)]

    tensors = [
        MetadataTensor(name, "BYTES", [-1], kind)
        for name, kind in [("a", "str"), ("b", None), ("c", None)]
    ]
    service = serve(models.model(tensors, [MetadataTensor("y", "BYTES", [3])], predict))
    sent = [(name, "BYTES", [1], ["YQ=="]) for name in "abc"]
    response = service.forms[form].infer(
        sent, parameters={"content_type": "str"}, content_types={"c": "base64"}
    )
    assert response.outputs["y"][2] == [
        b"ndarray [1] ['YQ==']",
        b"ndarray [1] ['YQ==']",
        b"ndarray [1] [b'a']",
    ]


def test_rejects_str_for_numeric_inputs(serve, form: str) -> None:
    """C2: a request-level str is rejected if it does not fit the datatype of an input."""
    response = (
        serve(describing_model(np.ndarray, NUMBER))
        .forms[form]
        .infer([("x", "FP32", [1], [1.5])], parameters={"content_type": "str"})
    )
    assert response.kind == "INVALID_ARGUMENT"
    assert (
        response.text
        == 'Input "x": invalid datatype. Expected BYTES for content type str, got FP32.'
    )


@pytest.mark.parametrize("annotation", [np.ndarray, list[str], pd.DataFrame, dict[str, np.ndarray]])
@pytest.mark.parametrize("named", ["nonsense", "pd", "STR", ""])
def test_rejects_unknown_content_types_on_inputs(
    serve, form: str, annotation: Any, named: str
) -> None:
    """C2: an unknown content type on an input is rejected. The error names the input and the known content types."""
    response = (
        serve(describing_model(annotation, declared("np")))
        .forms[form]
        .infer([TEXT], content_types={"x": named})
    )
    assert response.kind == "INVALID_ARGUMENT"
    known = "base64, bytes, datetime, np, pd_json, str for an input or output"
    assert response.text.startswith(f'Input "x": invalid content_type. Expected one of {known}')
    assert response.text.endswith("got {}.".format(named or '""'))


@pytest.mark.parametrize("annotation", [np.ndarray, list[str], pd.DataFrame, dict[str, np.ndarray]])
@pytest.mark.parametrize("named", ["nonsense", "base64", "datetime", "pd_json", "NP", ""])
def test_rejects_unknown_content_types_on_requests(
    serve, form: str, annotation: Any, named: str
) -> None:
    """C2, C3: an unknown content type on a request is rejected, and the error lists the known ones of that level."""
    response = (
        serve(describing_model(annotation, declared("np")))
        .forms[form]
        .infer([TEXT], parameters={"content_type": named})
    )
    assert response.kind == "INVALID_ARGUMENT"
    assert (
        response.text
        == "Invalid content_type. Expected one of np, pd, str for a request, got {}.".format(
            named or '""'
        )
    )


@pytest.mark.parametrize("value", [5, True, 1.5])
def test_rejects_content_types_that_are_not_strings(serve, form: str, value: Any) -> None:
    """C2: a content type that is not a string is rejected."""
    response = (
        serve(describing_model(np.ndarray))
        .forms[form]
        .infer([TEXT], parameters={"content_type": value})
    )
    assert response.kind == "INVALID_ARGUMENT"
    assert "np, pd, str for a request" in response.text


def test_rejects_codecs_without_a_content_type() -> None:
    """C10: registering a codec without a ContentType fails."""
    with pytest.raises(ConfigurationError, match="missing ContentType"):
        register_input_codec(InputCodec)


@pytest.mark.parametrize("content_type", [None, "str", "base64", "bytes", "datetime", "pd_json"])
def test_startup_example_is_a_valid_request(serve, content_type: str | None) -> None:
    """The service accepts the example request that it prints at startup."""
    service = serve(describing_model(np.ndarray, declared(content_type)))
    body = service.core.info.example()
    assert service.client.post("/v2/models/test/infer", json=body).status_code == 200


@pytest.mark.parametrize(("optional", "names"), [("", "abc"), ("a", "bc"), ("abc", "a")])
def test_startup_example_omits_optional_inputs(optional: str, names: str) -> None:
    """The example request omits optional inputs, but contains the first input if all are optional."""
    metadata = ModelMetadata(
        "test",
        "1",
        "",
        [MetadataTensor(name, "FP32", [1], optional=name in optional) for name in "abc"],
        [],
    )
    assert [tensor["name"] for tensor in make_example(metadata)["inputs"]] == [*names]
