"""The model in app/predict.py. Edit this file along with it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from app import create_app
from app.errors import InvalidInput
from app.predict import METADATA
from app.testing import Infer, serve
from app.types import InferenceRequest, RequestInput

EXAMPLE = Path(__file__).parents[1] / "examples" / "transformers"


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Asks the model as clients do: over REST, by JSON and by binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


@pytest.fixture(scope="module")
def messages() -> list[dict[str, str]]:
    """A part ("train" or "test"), a label and a text each."""
    with (EXAMPLE / "messages.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("part", "right"), [("train", 100), ("test", 17)])
def test_accuracy(infer: Infer, messages: list[dict[str, str]], part: str, right: int) -> None:
    """Of the 100 messages that it was trained on the model sorts all, and 17 of 20 others."""
    rows = [row for row in messages if row["part"] == part]
    answer = infer(text=[row["text"] for row in rows])
    assert sum(label == row["label"] for label, row in zip(answer["label"], rows, strict=True)) == right
    assert ((answer["score"] > 0.25) & (answer["score"] <= 1)).all()


def test_the_request_of_the_example() -> None:
    """Two messages, and what each is about."""
    body = (EXAMPLE / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    assert answer.json["outputs"][0]["data"] == ["payment", "returns"]


def test_different_lengths(infer: Infer, messages: list[dict[str, str]]) -> None:
    """A message has the same answer in a batch with longer ones as by itself."""
    texts = [*(row["text"] for row in messages[:3]), "refund " * 50]
    batch = infer(text=texts)
    for text, label, score in zip(texts, batch["label"], batch["score"], strict=True):
        alone = infer(text=[text])
        assert alone["label"] == [label]
        np.testing.assert_allclose(alone["score"], [score], rtol=1e-4)


def test_a_long_text(infer: Infer) -> None:
    """The model reads 64 tokens, of which two are its own marks; the rest is cut off."""
    within, beyond = infer(text=["refund " * 62]), infer(text=["refund " * 62 + "password " * 1000])
    np.testing.assert_equal(beyond, within)
    assert infer(text=["refund " * 61 + "password"])["score"] != within["score"]


@pytest.mark.parametrize("text", ["", " ", "\u4f60\u597d \U0001f600", "x" * 1000])
def test_unknown_words(infer: Infer, text: str) -> None:
    """Any text has an answer, an empty one too."""
    answer = infer(text=[text])
    assert answer["label"][0] in {"account", "delivery", "payment", "returns"}
    assert answer["score"].shape == (1,)


def test_an_empty_batch(infer: Infer) -> None:
    """No texts in, no rows out."""
    answer = infer(text=[])
    assert answer["label"] == []
    assert answer["score"].shape == (0,)


def test_many_at_once(infer: Infer, messages: list[dict[str, str]]) -> None:
    """Threads that ask for texts of other lengths do not disturb each other."""
    texts = [row["text"] for row in messages if row["part"] == "train"]
    labels = [row["label"] for row in messages if row["part"] == "train"]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda text: infer(text=[text])["label"][0], texts)) == labels


def test_null() -> None:
    """JSON's null is no text."""
    with serve(forms=["json"]) as infer, pytest.raises(InvalidInput, match="text: expected text, got null"):
        infer(text=["Where is my parcel?", None])


def test_no_text(infer: Infer) -> None:
    """Numbers are refused, and so are bytes that are no UTF-8."""
    with pytest.raises(InvalidInput, match='input "text": datatype: expected BYTES, got FP32'):
        infer(InferenceRequest([RequestInput("text", "FP32", [1], [1.0])]))
    with serve(forms=["binary", "grpc"]) as infer_bytes, pytest.raises(InvalidInput, match="not UTF-8 text"):
        infer_bytes(InferenceRequest([RequestInput("text", "BYTES", [1], [b"\xff"])]))
