"""The metadata, the configuration, the index and the example that clients can read."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.config.settings import Settings
from app.inference.example import make_example
from app.inference.metadata_checks import check_metadata
from app.protocol.errors import NotFound
from app.protocol.metadata import ModelMetadata
from app.version import SERVICE_NAME, __version__

EXTENSIONS = ("binary_tensor_data", "model_configuration", "statistics")


class ModelInfo:
    """The metadata of the served model, with MODEL_NAME and MODEL_VERSION instead of METADATA's.

    `example` is EXAMPLE of predict.py, or None. Raise ConfigurationError for invalid metadata.
    """

    def __init__(
        self,
        metadata: ModelMetadata,
        settings: Settings,
        example: Mapping[str, Any] | None = None,
    ):
        self.metadata = replace(
            metadata,
            name=settings.model_name or metadata.name,
            version=settings.model_version or metadata.version,
        )
        check_metadata(self.metadata)
        self._example = example

    def find(self, name: str | None = None, version: str | None = None) -> ModelMetadata:
        """Return the metadata. Raise NotFound if the model has another name or version (R3).

        None stands for the name of the served model, and None or "" for its version.
        """
        metadata = self.metadata
        if name is not None and name != metadata.name:
            expected = f'"{metadata.name}"'
            raise NotFound("model not found", expected=expected, got=f'"{name}"')
        if version and version != metadata.version:
            raise NotFound(
                "version not found",
                subject=f'model "{metadata.name}"',
                expected=f'"{metadata.version}"',
                got=f'"{version}"',
            )
        return metadata

    def server_metadata(self) -> dict[str, Any]:
        """Return name, version and extensions of the server as a JSON object (R4)."""
        return {"name": SERVICE_NAME, "version": __version__, "extensions": EXTENSIONS}

    def model_metadata(self, name: str | None, version: str | None) -> dict[str, Any]:
        """Return the metadata as a JSON object (R6). Raise NotFound as find() does."""
        return self.find(name, version).describe()

    def model_config(self, name: str | None, version: str | None) -> dict[str, Any]:
        """Return the configuration of the model (T1). Raise NotFound as find() does."""
        return self.find(name, version).config()

    def repository_index(self, *, is_ready: bool, ready_only: bool) -> list[dict[str, str]]:
        """Return the model and its state (T2), or nothing if only ready models are requested."""
        if ready_only and not is_ready:
            return []
        return [
            {
                "name": self.metadata.name,
                "version": self.metadata.version,
                "state": "READY" if is_ready else "UNAVAILABLE",
                "reason": "" if is_ready else "not ready",
            }
        ]

    def example(self) -> dict[str, Any]:
        """Return an infer request in JSON form: EXAMPLE, or sample values that match METADATA."""
        return make_example(self.metadata, self._example)
