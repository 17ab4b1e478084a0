"""What the service can do, whichever transport asks."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from app import __version__
from app.config import Settings
from app.contract import wanted_outputs
from app.errors import NotFound, NotReady, SetupError
from app.predictor import Predictor
from app.repository import model_config, repository_index
from app.types import InferenceRequest, InferenceResponse, ModelMetadata

SERVER_NAME = "open-inference-service"
EXTENSIONS = ["binary_tensor_data", "model_configuration"]

logger = logging.getLogger(__name__)


class DataPlane:
    """One model, by the name and version it is served under."""

    def __init__(self, predictor: Predictor, settings: Settings):
        self.name = SERVER_NAME
        self.version = __version__
        self.extensions = EXTENSIONS
        self._predictor = predictor
        self._metadata = replace(
            predictor.metadata,
            name=settings.model_name or predictor.metadata.name,
            version=settings.model_version or predictor.metadata.version,
        )
        for label, value in (("name", self._metadata.name), ("version", self._metadata.version)):
            if "/" in value:
                raise SetupError(f'the model\'s {label} "{value}" cannot stand in an address: it has a slash')
        self._model: Any = None
        self.ready = False

    def load(self) -> None:
        """Calls the user's load(), whose errors pass through; the service is ready when it returns."""
        self._model = self._predictor.load()
        self.ready = True

    def metadata(self, name: str | None = None, version: str | None = None) -> ModelMetadata:
        """The metadata of the model; NotFound where it has another name or version (R3)."""
        served = self._metadata
        if name is not None and name != served.name:
            raise NotFound(f'no model "{name}" here; this service has "{served.name}"')
        if version and version != served.version:
            raise NotFound(f'model "{served.name}" has no version "{version}"; it has "{served.version}"')
        return served

    def model_ready(self, name: str, version: str | None = None) -> bool:
        """Whether the model can be called; NotFound as for `metadata`."""
        self.metadata(name, version)
        return self.ready

    def config(self, name: str, version: str | None = None) -> dict[str, Any]:
        """The configuration of the model, as Triton's tools read it (T1); NotFound as for `metadata`."""
        return model_config(self.metadata(name, version), self._predictor.optional)

    def index(self, ready_only: bool = False) -> list[dict[str, str]]:
        """The models that are here, each with its state (T2)."""
        return repository_index(self._metadata, self.ready, ready_only)

    def infer(self, request: InferenceRequest) -> InferenceResponse:
        """The model's answer to `request`; raises any kind of InferenceError."""
        served = self.metadata(request.model_name, request.model_version)
        if not self.ready:
            raise NotReady(f'model "{served.name}" is not ready')
        wanted = wanted_outputs(request, served.outputs)
        outputs, parameters = self._predictor(self._model, request)
        chosen = [outputs[name] for name in wanted]
        return InferenceResponse(chosen, served.name, served.version, request.id, parameters)


def create_data_plane(settings: Settings, module: Any = None) -> DataPlane:
    """The data plane of `module`, app/predict.py unless given, its model loaded.

    Raises SetupError where the module cannot work, and whatever load() raises.
    """
    if module is None:
        try:
            from app import predict as module
        except ModuleNotFoundError as error:
            advice = "a package is listed under install_requires in setup.cfg"
            raise SetupError(f"app/predict.py: {error}; {advice}") from error
    plane = DataPlane(Predictor(module), settings)
    try:
        plane.load()
    except Exception:
        logger.error("load() failed, and the service does not start")
        raise
    return plane
