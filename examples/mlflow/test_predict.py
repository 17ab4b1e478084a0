"""The model in app/predict.py. Edit this file along with it."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow.types import ColSpec, Schema, TensorSpec
from mlflow.types.schema import Array

from app import create_app
from app.api import InvalidInput, MetadataTensor
from app.predict import EXAMPLE, METADATA, SIGNATURE
from app.protocol.errors import join_names
from app.signature import by_input, declared
from app.testing import Infer, serve

FOLDER = Path(__file__).parents[1] / "examples" / "mlflow"
GENTOO = {"species": ["Gentoo"], "flipper_length_mm": [220.0], "sex": ["female"]}


@pytest.fixture(scope="module")
def infer() -> Iterator[Infer]:
    """Call the model like clients do: over REST, with JSON and binary tensors, and over gRPC."""
    with serve() as infer:
        yield infer


def test_metadata_follows_the_signature() -> None:
    assert METADATA.inputs == [
        MetadataTensor("species", "BYTES", [-1], content_type="str"),
        MetadataTensor("flipper_length_mm", "FP64", [-1]),
        MetadataTensor("sex", "BYTES", [-1], content_type="str"),
    ]
    assert METADATA.outputs == [MetadataTensor("body_mass_g", "FP64", [-1])]


def test_all_kinds_of_signatures() -> None:
    """Columns of dates and lists and tensors of text get a content type, and unnamed columns get a name."""
    columns = Schema(
        [
            ColSpec("long", "a"),
            ColSpec("datetime", "b"),
            ColSpec("binary", "c"),
            ColSpec(Array("long"), "d"),
        ]
    )
    assert declared(columns, "input") == [
        MetadataTensor("a", "INT64", [-1]),
        MetadataTensor("b", "BYTES", [-1], content_type="datetime"),
        MetadataTensor("c", "BYTES", [-1], content_type="np"),
        MetadataTensor("d", "BYTES", [-1], content_type="pd_json"),
    ]
    tensors = Schema(
        [TensorSpec(np.dtype("float32"), (-1, 28, 28), "x"), TensorSpec(np.dtype("O"), (-1,), "y")]
    )
    assert declared(tensors, "input") == [
        MetadataTensor("x", "FP32", [-1, 28, 28]),
        MetadataTensor("y", "BYTES", [-1], content_type="str"),
    ]
    assert declared(Schema([ColSpec("double")]), "output") == [
        MetadataTensor("output-1", "FP64", [-1])
    ]


def test_example_is_saved_input_example(caplog: pytest.LogCaptureFixture) -> None:
    """EXAMPLE is the model's saved input example. One that does not match the signature is left out with a warning."""
    assert EXAMPLE is not None
    assert {name: values.tolist() for name, values in EXAMPLE.items()} == {
        "species": [b"Gentoo"],
        "flipper_length_mm": [220.0],
        "sex": [b"female"],
    }
    for given, told in (({"species": ["Gentoo"]}, '"species"'), ("a text", "str"), (None, None)):
        assert by_input(given, SIGNATURE.inputs) is None
        expected = (
            f"the model's input_example has {told}, its signature {join_names(GENTOO)}: left out"
        )
        assert caplog.messages == [expected] * bool(told)
        caplog.clear()


def test_mean_error(infer: Infer) -> None:
    """On the training data, with a mean mass of 4.2 kg, the mean error is 0.23 kg."""
    penguins = pd.read_csv(FOLDER / "penguins.csv").dropna(subset="body_mass_g")
    answer = infer(penguins.drop(columns="body_mass_g"))
    assert np.abs(answer["body_mass_g"] - penguins["body_mass_g"]).mean() == pytest.approx(
        230, abs=5
    )


def test_example_request() -> None:
    """The example request has a known penguin, one of unknown sex, and one of unknown species, whose mass is null."""
    body = (FOLDER / "request.json").read_bytes()
    answer = create_app().test_client().post(f"/v2/models/{METADATA.name}/infer", data=body)
    assert answer.status_code == 200, answer.text
    adelie, gentoo, emperor = answer.json["outputs"][0]["data"]
    assert 3000 < adelie < 4500 < gentoo < 6000
    assert emperor is None


def test_missing_text(infer: Infer) -> None:
    """Missing text ("", a missing value in a data frame, or null in JSON) equals an unknown sex."""
    unknown, empty = infer(**GENTOO | {"sex": ["unknown"]}), infer(**GENTOO | {"sex": [""]})
    assert unknown == empty != infer(**GENTOO)
    assert infer(pd.DataFrame(GENTOO | {"sex": [None]})) == empty
    with serve(forms=["json"]) as infer_json:
        assert infer_json(**GENTOO | {"sex": [None]}) == empty


def test_unknown_mass_is_nan(infer: Infer) -> None:
    """For an unknown species or a missing flipper length, the result is NaN, which is null in JSON."""
    assert np.isnan(infer(**GENTOO | {"species": ["Emperor"]})["body_mass_g"]).all()
    assert np.isnan(infer(**GENTOO | {"flipper_length_mm": [np.nan]})["body_mass_g"]).all()


def test_empty_batch(infer: Infer) -> None:
    """A request without rows returns outputs without rows."""
    assert infer(**{name: [] for name in GENTOO})["body_mass_g"].shape == (0,)


def test_rejects_columns_of_different_lengths(infer: Infer) -> None:
    with pytest.raises(InvalidInput, match="Columns have different numbers of rows"):
        infer(**GENTOO | {"flipper_length_mm": [220.0, 210.0]})


def test_rejects_columns_outside_signature(infer: Infer) -> None:
    """A column of another type or a missing column is rejected."""
    with pytest.raises(
        InvalidInput, match='Input "flipper_length_mm": invalid datatype. Expected FP64, got BYTES'
    ):
        infer(pd.DataFrame(GENTOO | {"flipper_length_mm": ["220"]}))
    with pytest.raises(InvalidInput, match='Input "sex": missing'):
        infer(pd.DataFrame(GENTOO).drop(columns="sex"))
