"""METADATA: what the model's owner declares about its inputs and outputs."""

from dataclasses import dataclass, field
from typing import Any

from app.protocol.datatypes import check_shape, datatype_of
from app.protocol.envelope import JsonObject
from app.protocol.errors import ConfigurationError, InvalidInput


def without_empty(members: dict[str, Any]) -> dict[str, Any]:
    """Return the members without None, False and empty collections.

    Keep an empty string, such as an id (R8).
    """
    return {name: value for name, value in members.items() if value or value == ""}


@dataclass(slots=True)
class MetadataTensor:
    """A declared input or output.

    - shape: -1 is a dimension of any size, also 0.
    - content_type: the content type of the values, or None.
    - missing: the text that stands for null (C13), or None.
    - optional: True if a request may omit this input. A parameter of predict() with a default value
      also makes its input optional. The metadata of the served model contains both.
    """

    name: str
    datatype: str
    shape: list[int]
    content_type: str | None = None
    missing: str | None = None
    optional: bool = False

    def __post_init__(self) -> None:
        try:
            datatype_of(self.datatype)
            _check_declared_shape(self.shape)
        except InvalidInput as error:
            raise ConfigurationError(str(error.about("METADATA, tensor", self.name))) from None
        self.shape = list(self.shape)

    @property
    def parameters(self) -> JsonObject:
        """Return the parameters of the tensor in a response. Model metadata can have more (R6)."""
        if self.content_type:
            return {"content_type": self.content_type}
        return {}

    def describe(self) -> dict[str, Any]:
        """Return the JSON object of the tensor in model metadata (R6)."""
        parameters = without_empty(
            {**self.parameters, "missing": self.missing, "optional": self.optional}
        )
        description: dict[str, Any] = {
            "name": self.name,
            "datatype": self.datatype,
            "shape": self.shape,
        }
        if parameters:
            description["parameters"] = parameters
        return description

    def config(self) -> dict[str, Any]:
        """Return the JSON object of the tensor in the model configuration (T1)."""
        triton_name = self.datatype
        if triton_name == "BYTES":
            triton_name = "STRING"
        return {"name": self.name, "data_type": f"TYPE_{triton_name}", "dims": self.shape}


def _check_declared_shape(shape: Any) -> None:
    """Raise InvalidInput unless `shape` is a list of integers of at least -1."""
    sizes = shape
    if isinstance(shape, list | tuple):
        sizes = [0 if size == -1 else size for size in shape]
    check_shape(sizes, repr, remedy="use -1 for a variable dimension")


@dataclass(slots=True)
class ModelMetadata:
    """Metadata of the model. `content_type` is that of requests.

    `properties` are strings for clients to read.
    """

    name: str
    version: str
    platform: str
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]
    content_type: str | None = None
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def required_inputs(self) -> list[MetadataTensor]:
        """Return the inputs that a request must contain."""
        return [tensor for tensor in self.inputs if not tensor.optional]

    def describe(self) -> dict[str, Any]:
        """Return the metadata as a JSON object (R6)."""
        description: dict[str, Any] = {
            "name": self.name,
            "versions": [self.version],
            "platform": self.platform,
            "inputs": [tensor.describe() for tensor in self.inputs],
            "outputs": [tensor.describe() for tensor in self.outputs],
        }
        if self.properties:
            description["properties"] = self.properties
        if self.content_type:
            description["parameters"] = {"content_type": self.content_type}
        return description

    def config(self) -> dict[str, Any]:
        """Return the model configuration (T1).

        Shapes include the batch dimension, because max_batch_size is 0.
        """
        inputs = []
        for tensor in self.inputs:
            inputs.append({**tensor.config(), "optional": tensor.optional})
        return {
            "name": self.name,
            "platform": self.platform,
            "max_batch_size": 0,
            "input": inputs,
            "output": [tensor.config() for tensor in self.outputs],
        }
