"""The service, started with the settings of each manifest."""

from __future__ import annotations

import http.client
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from flask import Response

from oip_conformance.wires import Grpc, Rest
from tests.kit.processes import gunicorn

from .helm import ROOT
from .kserve import EVERY, KNATIVE, KSERVE, MODELS, documents, environment, only_container


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    """Return a read-only model directory as KServe's storage initializer leaves it. Its labels are upper case."""
    folder = tmp_path / "models"
    shutil.copytree(ROOT / "model", folder)
    with np.load(folder / "iris.npz") as file:
        model = dict(file)
    np.savez(folder / "iris.npz", **{**model, "labels": np.char.upper(model["labels"])})
    folder.chmod(0o555)
    return folder


class Client:
    """A client with the interface of FlaskClient that wires.Rest needs."""

    def __init__(self, address: str):
        self.address = address

    def post(self, path: str, data: bytes, headers: dict[str, str]) -> Response:
        connection = http.client.HTTPConnection(self.address, timeout=30)
        try:
            connection.request("POST", path, data, headers)
            response = connection.getresponse()
            return Response(response.read(), response.status, response.getheaders())
        finally:
            connection.close()


@pytest.fixture(params=[*EVERY, *(f"stored {name}" for name in EVERY if name != "servingruntime")])
def started(
    request: pytest.FixtureRequest, model_directory: Path
) -> Iterator[tuple[Any, str, bytes]]:
    """Start the service with a manifest's environment, and return it, its model name and the label of its model.

    With "stored", the variables in the manifest's comment for a model from a store are set, too.
    """
    name = request.param.removeprefix("stored ")
    resource = (
        documents(name)["InferenceService"]["metadata"]["name"] if name in KNATIVE else "demo"
    )
    values = environment(name, resource)
    if name != request.param:
        values |= variables_in_comment(name)
        assert values["STORAGE_URI"]
    if values.get("MODEL_DIR") == MODELS:
        values["MODEL_DIR"] = str(model_directory)
    if name in KNATIVE:  # Knative sets these
        values |= {
            "PORT": str(only_container(name)["ports"][0]["containerPort"]),
            "K_SERVICE": f"{resource}-predictor",
        }
    for variable in ("HTTP_PORT", "GRPC_PORT"):
        values.pop(variable, None)
    with gunicorn(ROOT, WORKERS=1, **{"SHUTDOWN_DELAY_SECONDS": 0, **values}) as service:
        yield service, resource, b"SETOSA" if "MODEL_DIR" in values else b"setosa"


def variables_in_comment(name: str) -> dict[str, str]:
    """Return the variables in the comment of a manifest."""
    text = (KSERVE / f"{name}.yaml").read_text()
    return dict(re.findall(r"# - name: (\w+)\n +#   value: (\S+)\n", text))


def test_service_runs_with_manifest(started: tuple[Any, str, bytes]) -> None:
    """The model that KServe mounted is served over REST and gRPC under the InferenceService's name."""
    service, resource, label = started
    flower = [("features", "FP32", [1, 4], [5.1, 3.5, 1.4, 0.2])]
    with grpc.insecure_channel(service.grpc_address) as channel:
        for client in (
            Rest(Client(service.http_address), model=resource),
            Grpc(channel, model=resource),
        ):
            response = client.infer(flower)
            assert response.is_success, response.text
            assert response.model_name == resource
            assert response.outputs["label"] == ("BYTES", [1], [label])
            assert client.infer(flower, model="iris").kind == "NOT_FOUND"
