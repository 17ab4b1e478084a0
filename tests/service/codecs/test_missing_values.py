"""Missing values of text and datetimes: null in JSON, and the declared text in other forms."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.codecs import DatetimeCodec, PandasCodec, StringCodec
from app.inference.predict_adapter import ModelAdapter
from app.protocol.errors import ConfigurationError, InvalidInput
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import MetadataTensor
from app.protocol.tensors import RequestInput, ResponseOutput
from grpc_service import converters
from tests.kit import models
from tests.service.codecs.batched import ALL_FORMS, infer_in_one_batch
from tests.service.codecs.content_type_models import describing_model, got, returning
from tests.service.codecs.values import listed

DAY = datetime(2024, 1, 2)


def gapped(
    content_type: str = "str", missing: str = "", name: str = "x", shape: tuple[int, ...] = (-1,)
) -> MetadataTensor:
    return MetadataTensor(name, "BYTES", list(shape), content_type, missing=missing)


def gaps_in(form: str, missing: str) -> list[Any]:
    """Return all forms of a missing value that a client can send in this form."""
    return [missing, None] if form == "rest json" else [missing]


DECODED = [
    (list[str], "str", "a", "list ['a', None]"),
    (np.ndarray, "str", "a", "ndarray [2] ['a', None]"),
    (list[bytes], "str", "a", "list [b'a', None]"),
    (list[datetime], "str", "2024-01-02", "list ['moment 2024-01-02T00:00:00', None]"),
    (list[datetime], "datetime", "2024-01-02", "list ['moment 2024-01-02T00:00:00', None]"),
    (np.ndarray, "datetime", "2024-01-02", "ndarray [2] ['moment 2024-01-02T00:00:00', None]"),
]


@pytest.mark.parametrize("missing", ["", "NA", "NaT", "ü"])
@pytest.mark.parametrize(("annotation", "content_type", "value", "expected"), DECODED)
def test_missing_values_are_none(
    serve, form: str, annotation: Any, content_type: str, value: str, expected: str, missing: str
) -> None:
    """C13: an element equal to the declared missing value, and null in JSON, is None in every form."""
    service = serve(describing_model(annotation, gapped(content_type, missing)))
    for gap in gaps_in(form, missing):
        assert got(service.forms[form].infer([("x", "BYTES", [2], [value, gap])])) == expected
        assert got(service.forms[form].infer([("x", "BYTES", [2, 1], [value, gap])])) == expected


@pytest.mark.parametrize("named", [None, "str", "datetime"])
@pytest.mark.parametrize("missing", ["", "NA", "NaT"])
def test_missing_values_in_data_frames(serve, form: str, missing: str, named: str | None) -> None:
    """C13: a missing value is NaN or None in a text column of a DataFrame, and NaT in a column of datetimes."""

    def predict(_: Any, frame: pd.DataFrame) -> list[str]:
        assert frame["when"].dtype.kind == "M"
        assert frame["town"].dtype == pd.Series(["a"]).dtype
        return [repr([listed(frame["town"]), listed(frame["when"])])]

    inputs = [gapped("str", missing, "town"), gapped("datetime", missing, "when")]
    service = serve(models.model(inputs, [MetadataTensor("y", "BYTES", [1])], predict))
    for gap in gaps_in(form, missing):
        sent = [("when", "BYTES", [2], ["2024-01-02", gap]), ("town", "BYTES", [2], ["a", gap])]
        response = service.forms[form].infer(sent, content_types={"when": named} if named else None)
        assert got(response) == repr([["a", None], [pd.Timestamp(DAY), None]])


def test_inference_request_knows_the_missing_value(serve, form: str) -> None:
    """C13: codecs decode the inputs of an InferenceRequest with the declared missing value."""

    def predict(_: Any, request: InferenceRequest) -> list[str]:
        return [repr(StringCodec.decode_input(request.inputs[0]))]

    service = serve(
        models.model([gapped(missing="NA")], [MetadataTensor("y", "BYTES", [1])], predict)
    )
    for gap in gaps_in(form, "NA"):
        assert (
            got(service.forms[form].infer([("x", "BYTES", [3], ["a", gap, ""])]))
            == "['a', None, '']"
        )


def test_other_content_types_of_clients(serve, form: str) -> None:
    """C13: null and the missing value also have the same value in other content types of the client."""
    service = serve(describing_model(np.ndarray, gapped(missing="NA")))
    for gap in gaps_in(form, "NA"):
        sent = [("x", "BYTES", [2], ["YQ==", gap])]
        assert (
            got(service.forms[form].infer(sent, content_types={"x": "np"}))
            == "ndarray [2] [b'YQ==', b'NA']"
        )
        rejected = service.forms[form].infer(sent, content_types={"x": "base64"})
        assert (rejected.kind, rejected.text[:27]) == (
            "INVALID_ARGUMENT",
            'Input "x": invalid base64. ',
        )


def test_batches_mix_all_forms(serve) -> None:
    """C13: requests of all forms can share a batch, and each response has the form of its request."""
    calls = []

    def predict(_: Any, x: list[str]) -> list[str | None]:
        calls.append(x)
        return x

    module = models.model([gapped()], [gapped(name="y")], predict)
    sent = [
        {"form": form, "inputs": [("x", "BYTES", [1], [gaps_in(form, "")[-1]])]}
        for form in ALL_FORMS
    ]
    responses = infer_in_one_batch(serve, module, sent)
    assert calls == [[None] * 4]
    assert [response.outputs["y"][2] for response in responses] == [[None], [b""], [b""], [b""]]


OUTPUTS = [
    ("str", ["a", None], "a"),
    ("str", ["a", "NA"], "a"),
    ("str", np.array(["a", None], object), "a"),
    ("str", np.array(["a", "NA"]), "a"),
    ("str", pd.Series(["a", None]), "a"),
    ("str", pd.Series(["a", None], dtype="string"), "a"),
    ("str", pd.Series(["a", None], dtype="category"), "a"),
    ("str", pd.DataFrame({"y": ["a", None]}), "a"),
    ("datetime", [DAY, None], "2024-01-02T00:00:00"),
    ("datetime", [DAY, pd.NaT], "2024-01-02T00:00:00"),
    ("datetime", ["2024-01-02", "NA"], "2024-01-02"),
    ("datetime", np.array(["2024-01-02", "NaT"], "M8[s]"), "2024-01-02T00:00:00"),
    ("datetime", pd.Series([pd.Timestamp(DAY), pd.NaT]), "2024-01-02T00:00:00"),
    ("datetime", pd.DataFrame({"y": [pd.Timestamp(DAY), pd.NaT]}), "2024-01-02T00:00:00"),
    ("str", InferenceResponse([ResponseOutput("y", "BYTES", data=["a", None])]), "a"),
    (
        "datetime",
        InferenceResponse([ResponseOutput("y", "BYTES", data=["2024-01-02", None])]),
        "2024-01-02",
    ),
]


@pytest.mark.parametrize(("content_type", "value", "text"), OUTPUTS)
def test_missing_values_of_outputs(
    serve, form: str, content_type: str, value: Any, text: str
) -> None:
    """C13: a missing value of an output is null in JSON, and the declared value in other forms."""
    response = serve(returning(value, gapped(content_type, "NA", "y"))).forms[form].infer([])
    assert response.is_success, response.text
    gap = None if form == "rest json" else b"NA"
    assert response.outputs == {"y": ("BYTES", [2], [text.encode(), gap])}
    assert response.content_types == {"y": content_type}
    if form.startswith("rest"):
        assert b"missing" not in response.raw.data


def test_datetimes_without_missing_value(serve) -> None:
    """R12: without a declared missing value, null is rejected for datetimes, and the error names the remedy."""
    response = serve(describing_model(list[datetime])).rest.infer(
        [("x", "BYTES", [2], ["2024-01-02", None])]
    )
    assert (response.kind, response.text) == (
        "INVALID_ARGUMENT",
        'Input "x": invalid data. Expected datetimes in ISO 8601, got null. Declare missing="" in METADATA, or send '
        '"NaT" for a column of a DataFrame.',
    )


def test_requested_content_type_keeps_missing_values(serve, form: str) -> None:
    """C11, C13: missing values of an output are the same in another content type."""
    service = serve(returning(["a", None], gapped(name="y", missing="NA")))
    response = service.forms[form].infer([], outputs=["y"], content_types={"y": "np"})
    assert response.outputs["y"][2] == [b"a", None if form == "rest json" else b"NA"]


@pytest.mark.parametrize(
    ("content_type", "missing"),
    [
        (None, ""),
        ("np", ""),
        ("base64", ""),
        ("bytes", ""),
        ("pd_json", ""),
        ("str", 5),
        ("datetime", b""),
    ],
)
@pytest.mark.parametrize("kind", ["input", "output"])
def test_rejects_missing_values_for_other_content_types(
    content_type: str | None, missing: Any, kind: str
) -> None:
    """C13: a missing value is a string, and the content type of its tensor is `str` or `datetime`."""
    tensor, plain = (
        MetadataTensor("x", "BYTES", [-1], content_type, missing),
        MetadataTensor("x", "BYTES", [-1]),
    )
    tensors = ([tensor], [plain]) if kind == "input" else ([plain], [tensor])
    with pytest.raises(
        ConfigurationError,
        match='"x": invalid missing. Expected a string, with content type "str" or "da',
    ):
        ModelAdapter(models.model(*tensors, lambda _, x: x))


def test_example_can_have_gaps(serve, form: str) -> None:
    """C13: EXAMPLE can contain None, which is null in the example request."""
    module = describing_model(list[str], gapped())
    module.EXAMPLE = {"x": ["a", None]}
    service = serve(module)
    (tensor,) = service.core.info.example()["inputs"]
    assert tensor["data"] == ["a", None]


def test_metadata_shows_missing_values(serve) -> None:
    """C13, R6: the model metadata shows the missing value in the parameters of the tensor."""
    module = models.model([gapped()], [gapped("datetime", "NA", "y")], lambda _, x: x)
    metadata = serve(module).client.get("/v2/models/test").json
    assert metadata["inputs"][0]["parameters"] == {"content_type": "str", "missing": ""}
    assert metadata["outputs"][0]["parameters"] == {"content_type": "datetime", "missing": "NA"}


def test_codecs_of_clients() -> None:
    """C4, C13: the codecs decode null in a response, and encode missing datetimes as the declared text."""
    texts = [ResponseOutput("y", "BYTES", data=["2024-01-02", None])]
    assert StringCodec.decode_output(texts[0]) == ["2024-01-02", None]
    assert DatetimeCodec.decode_output(texts[0]) == [DAY, None]
    texts[0].parameters["content_type"] = "datetime"
    assert listed(PandasCodec.decode_response(InferenceResponse(texts))["y"]) == [
        pd.Timestamp(DAY),
        None,
    ]
    moments = DatetimeCodec.encode_input("x", [DAY, None, pd.NaT], missing="")
    assert moments.data.ravel().tolist() == [b"2024-01-02T00:00:00", b"", b""]


def test_tensors_with_a_missing_value() -> None:
    """C13: a client can set the missing value of a tensor, which then is the same in every form."""
    tensor = RequestInput("x", "BYTES", data=["a", None, "NA", ""])
    with pytest.raises(
        InvalidInput, match='null has no binary form. Use JSON, or declare missing="" in METADATA'
    ):
        InferenceRequest([tensor]).to_http()
    tensor.missing = "NA"
    request = InferenceRequest([tensor])
    assert request.to_dict()["inputs"] == [
        {"name": "x", "shape": [4], "datatype": "BYTES", "data": ["a", None, None, ""]}
    ]
    for raw in (True, False):
        message, raws = converters.parse_request(converters.write_request(request, raw))
        (decoded,) = converters.read_request(message, raws).inputs
        assert decoded.data.tolist() == [b"a", b"NA", b"NA", b""]
        decoded.missing = "NA"
        assert StringCodec.decode_input(decoded) == ["a", None, None, ""]
