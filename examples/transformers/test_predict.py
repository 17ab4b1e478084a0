"""The model in app/predict.py. Edit this file along with it."""

import csv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from app import create_app
from app.api import InferenceRequest, InvalidInput, RequestInput
from app.predict import METADATA
from app.testing import Infer, serve

EXAMPLE = Path(__file__).parents[1] / "examples" / "transformers"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def messages() -> list[dict[str, str]]:
    """Return the messages, each with a part ("train" or "test"), a label and a text."""
    with (EXAMPLE / "messages.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("part", "right"), [("train", 100), ("test", 17)])
def test_accuracy(infer: Infer, messages: list[dict[str, str]], part: str, right: int) -> None:
    """The model is correct for all 100 messages that it was trained on, and for 17 of 20 others."""
    rows = [row for row in messages if row["part"] == part]
    answer = infer(text=[row["text"] for row in rows])
    assert (
        sum(label == row["label"] for label, row in zip(answer["label"], rows, strict=True))
        == right
    )
    assert ((answer["score"] > 0.25) & (answer["score"] <= 1)).all()


def test_example_request() -> None:
    """The example request contains two messages and returns their subjects."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    assert answer.json["outputs"][0]["data"] == ["payment", "returns"]


def test_different_lengths(infer: Infer, messages: list[dict[str, str]]) -> None:
    """A message gets the same result in a batch with longer messages as alone."""
    texts = [*(row["text"] for row in messages[:3]), "refund " * 50]
    batch = infer(text=texts)
    for text, label, score in zip(texts, batch["label"], batch["score"], strict=True):
        alone = infer(text=[text])
        assert alone["label"] == [label]
        np.testing.assert_allclose(alone["score"], [score], rtol=1e-4)


def test_long_text(infer: Infer) -> None:
    """The model uses the first 64 tokens, including two special ones. The rest is truncated."""
    within, beyond = infer(text=["refund " * 62]), infer(text=["refund " * 62 + "password " * 1000])
    np.testing.assert_equal(beyond, within)
    assert infer(text=["refund " * 61 + "password"])["score"] != within["score"]


@pytest.mark.parametrize("text", ["", " ", "\u4f60\u597d \U0001f600", "x" * 1000])
def test_unknown_words(infer: Infer, text: str) -> None:
    """Any text gets a prediction, including an empty one."""
    answer = infer(text=[text])
    assert answer["label"][0] in {"account", "delivery", "payment", "returns"}
    assert answer["score"].shape == (1,)


def test_empty_batch(infer: Infer) -> None:
    """A request without texts returns outputs without rows."""
    answer = infer(text=[])
    assert answer["label"] == []
    assert answer["score"].shape == (0,)


def test_concurrent_requests(infer: Infer, messages: list[dict[str, str]]) -> None:
    """Concurrent requests with texts of different lengths do not affect each other."""
    texts = [row["text"] for row in messages if row["part"] == "train"]
    labels = [row["label"] for row in messages if row["part"] == "train"]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: infer(text=[text])["label"][0], texts)) == labels


def test_rejects_null() -> None:
    """A null in JSON is rejected."""
    with (
        serve(forms=["json"]) as infer,
        pytest.raises(InvalidInput, match="Text: missing value. Expected text"),
    ):
        infer(text=["Where is my parcel?", None])


def test_rejects_other_types(infer: Infer) -> None:
    """Numbers, and bytes that are not UTF-8, are rejected."""
    with pytest.raises(
        InvalidInput, match='Input "text": invalid datatype. Expected BYTES, got FP32'
    ):
        infer(InferenceRequest([RequestInput("text", "FP32", [1], [1.0])]))
    with (
        serve(forms=["binary", "grpc"]) as infer_bytes,
        pytest.raises(InvalidInput, match="not UTF-8 text"),
    ):
        infer_bytes(InferenceRequest([RequestInput("text", "BYTES", [1], [b"\xff"])]))
