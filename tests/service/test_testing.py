"""app.testing: tests of a model over both protocols in two lines, with clear errors."""

from __future__ import annotations

from datetime import datetime
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from app.predict import METADATA
from app.protocol.errors import InferenceError, InvalidInput
from app.protocol.messages import InferenceRequest
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput
from app.testing import serve


def module(predict: Any, *tensors: MetadataTensor) -> Any:
    """Return a module like predict.py, whose outputs have the metadata of its inputs."""
    metadata = ModelMetadata("test", "1", "", list(tensors), list(tensors))
    return SimpleNamespace(METADATA=metadata, load=lambda: None, predict=predict)


def test_values_of_each_kind() -> None:
    """Numbers, bytes, text and dates are sent and returned as Python objects."""
    tensors = [
        MetadataTensor("number", "FP64", [-1]),
        MetadataTensor("octets", "BYTES", [-1]),
        MetadataTensor("text", "BYTES", [-1], content_type="str"),
        MetadataTensor("date", "BYTES", [-1], content_type="datetime"),
    ]

    def predict(
        model: None, number, octets, text: list[str], date: list[datetime]
    ) -> dict[str, Any]:  # type: ignore[no-untyped-def]
        return {
            "number": number * 2,
            "octets": octets,
            "text": [element.upper() for element in text],
            "date": date,
        }

    with serve(module(predict, *tensors)) as infer:
        response = infer(
            number=[1.5, np.nan],
            octets=[b"a", b""],
            text=["\u00e9", "b"],
            date=[datetime(2026, 1, 2)] * 2,
        )
    np.testing.assert_equal(response["number"], [3, np.nan])
    assert response["octets"].tolist() == [b"a", b""]
    assert response["text"] == ["\u00c9", "B"]
    assert response["date"] == [datetime(2026, 1, 2)] * 2


def test_single_text() -> None:
    """R15: a tensor of shape [1] with a content type is sent as [1,1] by its codec, and matches in every form."""

    def predict(model: None, text: list[str]) -> list[str]:
        return [text[0].upper()]

    with serve(module(predict, MetadataTensor("text", "BYTES", [1], content_type="str"))) as infer:
        assert infer(text=["a"])["text"] == ["A"]
        assert infer(text="b")["text"] == ["B"]


def test_missing_numbers() -> None:
    """None in a list of floats is NaN, as in EXAMPLE and in JSON, and None in a list of integers is rejected."""

    def predict(model: None, x: np.ndarray) -> np.ndarray:
        return x

    with serve(module(predict, MetadataTensor("x", "FP32", [-1]))) as infer:
        np.testing.assert_equal(infer(x=[None, 1.5])["x"], np.array([np.nan, 1.5], "f4"))
        with pytest.raises(InvalidInput, match="Expected FP32, got strings"):
            infer(x=["1.5"])
    served, message = (
        serve(module(predict, MetadataTensor("x", "INT64", [-1]))),
        "objects: NoneType, int .a missing number",
    )
    with served as infer, pytest.raises(InvalidInput, match=message):
        infer(x=[None, 1])


def test_missing_dates_and_texts() -> None:
    """Missing dates are NaT in a DataFrame, and missing text is rejected except in JSON, as the error explains."""

    def predict(_: Any, frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"gaps": frame.isna().sum(axis=1)})

    inputs = [
        MetadataTensor("when", "BYTES", [-1], content_type="datetime"),
        MetadataTensor("town", "BYTES", [-1], content_type="str"),
    ]
    metadata = ModelMetadata("m", "1", "p", inputs, [MetadataTensor("gaps", "INT64", [-1])])
    module = SimpleNamespace(__name__="m", METADATA=metadata, load=lambda: None, predict=predict)
    dates = [datetime(2024, 1, 2), None, pd.NaT, "2024-01-02"]
    with serve(module) as infer:
        assert infer(when=dates, town=["a"] * 4)["gaps"].tolist() == [0, 1, 1, 0]
        with pytest.raises(
            InvalidInput, match=r'no binary form.*. Use serve\(forms=\["json"\]\) if only JSON'
        ):
            infer(when=dates, town=["a", None, "b", "c"])
    with serve(module, forms=["json"]) as infer:
        assert infer(when=dates, town=["a", None, "b", "c"])["gaps"].tolist() == [0, 2, 1, 0]


def test_declared_missing_values_and_bytes() -> None:
    """C12, C13: missing text and dates that METADATA declares, and bytes, are sent and returned in every form."""
    tensors = [
        MetadataTensor("text", "BYTES", [-1], content_type="str", missing=""),
        MetadataTensor("date", "BYTES", [-1], content_type="datetime", missing=""),
        MetadataTensor("file", "BYTES", [-1], content_type="bytes"),
    ]

    def predict(_: Any, text: list[str], date: list[datetime], file: list[bytes]) -> dict[str, Any]:
        return {"text": text, "date": date, "file": file}

    with serve(module(predict, *tensors)) as infer:
        response = infer(text=["a", None], date=[pd.NaT, datetime(2026, 1, 2)], file=[b"\xff", b""])
        assert response == {
            "text": ["a", None],
            "date": [None, datetime(2026, 1, 2)],
            "file": [b"\xff", b""],
        }
        frame = pd.DataFrame(
            {"text": ["a", None], "date": ["", "2026-01-02"], "file": [b"\xff", b""]}
        )
        assert infer(frame) == response


def test_frames_and_requests() -> None:
    """A DataFrame has one column per input, and a request is sent unchanged."""

    def predict(model: None, frame: pd.DataFrame) -> pd.DataFrame:
        return frame

    tensors = [
        MetadataTensor("a", "INT64", [-1]),
        MetadataTensor("b", "BYTES", [-1], content_type="str"),
    ]
    with serve(module(predict, *tensors)) as infer:
        response = infer(pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}))
        assert (response["a"].tolist(), response["b"]) == ([1, 2], ["x", "y"])
        request = InferenceRequest(
            [RequestInput("a", "INT64", [1], [3]), RequestInput("b", "BYTES", [1], [b"z"])]
        )
        assert infer(request)["a"].tolist() == [3]


def test_whole_numbers_in_a_frame() -> None:
    """A column of integers, as read from a file, is accepted if METADATA declares floats."""

    def predict(model: None, frame: pd.DataFrame) -> pd.DataFrame:
        return frame / 2

    with serve(module(predict, MetadataTensor("a", "FP64", [-1]))) as infer:
        assert infer(pd.DataFrame({"a": [1, 2]}))["a"].tolist() == [0.5, 1]


def test_errors() -> None:
    """A rejected or failed request raises an exception with the error message of clients."""

    def predict(model: None, x: np.ndarray) -> dict[str, Any]:
        if x[0] < 0:
            raise InvalidInput("Invalid x. Expected at least 0.")
        return {"x": [["ragged"]] if x[0] > 1 else x}

    for form in ("json", "binary", "grpc"):
        with serve(module(predict, MetadataTensor("x", "FP64", [-1])), forms=[form]) as infer:
            with pytest.raises(InvalidInput, match="Invalid x. Expected at least 0"):
                infer(x=[-1])
            with pytest.raises(InferenceError, match=r"predict\(\)|output"):
                infer(x=[2])
            with pytest.raises(InvalidInput, match='^Input "x": invalid datatype. Expected FP64'):
                infer(x=["text"])
            with pytest.raises(InvalidInput, match='Unknown inputs. Expected "x", got "y"'):
                infer(y=[0])


def test_forms_that_differ() -> None:
    """A model that returns different outputs for the same request in two forms fails the test."""
    numbers = count()

    def predict(model: None, x: np.ndarray) -> dict[str, Any]:
        return {"x": x + next(numbers)}

    served, differ = (
        serve(module(predict, MetadataTensor("x", "INT64", [-1]))),
        "binary and json give different results",
    )
    with served as infer, pytest.raises(AssertionError, match=differ):
        infer(x=[1])


def test_printed_example_is_valid(serve) -> None:
    """The request that `make serve` prints succeeds."""
    service = serve()
    response = service.client.post(
        f"/v2/models/{METADATA.name}/infer", json=service.core.info.example()
    )
    assert response.status_code == 200, f"write an EXAMPLE into app/predict.py: {response.text}"
