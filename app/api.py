"""The names of the service for predict.py and custom.py.

A new version of the template keeps these names. It can change all other names of app/.
"""

from pathlib import Path

from app.codecs import (
    InputCodec,
    PandasCodec,
    RequestCodec,
    StringCodec,
    register_input_codec,
    register_request_codec,
)
from app.config.settings import Settings, active_settings
from app.inference.request_context import RequestContext
from app.protocol.envelope import Parameters
from app.protocol.errors import (
    ConfigurationError,
    InferenceError,
    InvalidInput,
    ModelError,
    NotFound,
    PayloadTooLarge,
    Unavailable,
)
from app.protocol.messages import InferenceRequest, InferenceResponse, RequestOutput
from app.protocol.metadata import MetadataTensor, ModelMetadata
from app.protocol.tensors import RequestInput, ResponseOutput

__all__ = [
    "ConfigurationError",
    "InferenceError",
    "InferenceRequest",
    "InferenceResponse",
    "InputCodec",
    "InvalidInput",
    "MetadataTensor",
    "ModelError",
    "ModelMetadata",
    "NotFound",
    "PandasCodec",
    "Parameters",
    "PayloadTooLarge",
    "RequestCodec",
    "RequestContext",
    "RequestInput",
    "RequestOutput",
    "ResponseOutput",
    "StringCodec",
    "Unavailable",
    "model_file",
    "read_settings",
    "register_input_codec",
    "register_request_codec",
]


def read_settings() -> Settings:
    """Return the settings of this service. Without an application, read the environment.

    Raise ConfigurationError if a variable is invalid.
    """
    return active_settings()


def model_file(name: str) -> Path:
    """Return the path of a file in MODEL_DIR (default: model/).

    Raise ConfigurationError if it is missing.
    """
    return active_settings().model_file(name)
