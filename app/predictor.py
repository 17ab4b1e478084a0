"""The adapter around the user's file: calls predict() with what a request holds, and takes what it returns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from app.binding import bind, check_others
from app.codecs import SHIPPED, find_request_codec
from app.codecs.frames import is_frame
from app.contract import check_metadata, listed, match_inputs, match_outputs, sayable
from app.datatypes import datatype_of
from app.errors import InferenceError, InvalidInput, ModelError, SetupError
from app.example import filled
from app.failure import NO_MODEL, has_no_return, told
from app.types import (
    InferenceRequest,
    InferenceResponse,
    MetadataTensor,
    ModelMetadata,
    Parameters,
    RequestInput,
    ResponseOutput,
)

logger = logging.getLogger(__name__)


class Predictor:
    """METADATA, load() and predict() of one module, checked against each other.

    Raises SetupError, at the start, where the three cannot work together.
    """

    def __init__(self, module: Any):
        for name in ("METADATA", "load", "predict"):
            if not hasattr(module, name):
                raise SetupError(f"{module.__name__}: {name} is missing")
        check_metadata(module.METADATA)
        check_others(module)
        self.metadata: ModelMetadata = module.METADATA
        self.load: Callable[[], Any] = module.load
        self._predict: Callable[..., Any] = module.predict
        self._warm_up: Callable[[Any], Any] | None = getattr(module, "warm_up", None)
        self._arguments, self.optional = bind(module.predict, self.metadata)
        self.inputs, self.outputs = by_name(self.metadata.inputs), by_name(self.metadata.outputs)
        self.example: dict[str, Any] | None = getattr(module, "EXAMPLE", None)
        self._example = self._checked(self.example) if self.example is not None else None
        custom = self.metadata.content_type
        self._codec = find_request_codec(custom) if custom is not None and custom not in SHIPPED else None

    def __call__(self, model: Any, request: InferenceRequest) -> tuple[dict[str, ResponseOutput], Parameters]:
        """The outputs of predict() by name, and the parameters of the response.

        Raises InvalidInput where the request does not fit METADATA, and ModelError where predict() raised or
        returned something else than METADATA declares.
        """
        arguments = self._arguments(request, self.match(request))
        try:
            values, parameters = self._outputs(self._predict(model, **arguments))
            return match_outputs(values, self.outputs, [output.name for output in request.outputs]), parameters
        except ModelError as error:
            logger.error("%s", error.log_text())
            raise
        except InferenceError:
            raise
        except BaseException as error:  # a panic of Rust's, or SystemExit, is the model's error too
            self._blame(model, error)
            logger.exception("predict() raised")
            raise ModelError(told(error)) from error

    def match(self, request: InferenceRequest) -> dict[str, RequestInput]:
        """The inputs by name; InvalidInput where the request does not fit METADATA."""
        return match_inputs(request, self.inputs, self.optional)

    def warm_up(self, model: Any) -> None:
        """Calls the user's warm_up(), or predict() with EXAMPLE, whose errors pass through; else predict() with zeros.

        Zeros are for inputs that are all numbers, and may be no input for the model: what it raises is only logged.
        What it returns must be what METADATA declares.
        """
        if self._warm_up is not None:
            with self._blaming(model):
                self._warm_up(model)
            return
        tensors = self.inputs.values()
        if self._example is None and not all(map(is_of_numbers, tensors)):
            return
        request = self._example or InferenceRequest([zeros(tensor) for tensor in tensors])
        try:
            arguments = self._arguments(request, self.match(request))
            with self._blaming(model):
                result = self._predict(model, **arguments)
        except BaseException as error:
            if self._example is not None:
                raise
            text = "the warm-up, a call with zeros, failed: %s; write an EXAMPLE, or warm_up(model)"
            logger.warning(text, told(error))
        else:
            match_outputs(self._outputs(result)[0], self.outputs)

    @contextmanager
    def _blaming(self, model: Any) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if not isinstance(error, InferenceError):
                self._blame(model, error)
            raise

    def _blame(self, model: Any, error: BaseException) -> None:
        """Notes on an error that the model is None, unless load() returned that on purpose, and it can do without."""
        if model is None and ("'NoneType' object" in str(error) or has_no_return(self.load)):
            notes = vars(error).setdefault("__notes__", [])
            if NO_MODEL not in notes:  # an error that is raised again has it
                notes.append(NO_MODEL)

    def _checked(self, example: Any) -> InferenceRequest:
        """The request that EXAMPLE stands for: values by input, as lists; SetupError where it is none for METADATA."""
        try:
            if not isinstance(example, dict):
                raise InvalidInput(f"expected a dict of values by input, got {type(example).__name__}")
            if strangers := example.keys() - self.inputs.keys():
                raise InvalidInput(f"METADATA has no input {listed(strangers)}")
            request = InferenceRequest([filled(self.inputs[name], values) for name, values in example.items()])
            self.match(request)
        except InferenceError as error:
            raise SetupError(f"EXAMPLE: {error}") from None
        return request

    def _outputs(self, result: Any) -> tuple[dict[str, Any], Parameters]:
        """What predict() returned by output, and the parameters of the response."""
        if result is None:
            raise ModelError(f"predict() returned None; return a dict with {listed(self.outputs)}")
        if isinstance(result, dict):
            return result, {}
        if self._codec is not None and self._codec.can_encode(result):
            result = self._codec.encode_response(self.metadata.name, result, self.metadata.version)
        if isinstance(result, (np.ndarray, tuple)):
            return self._in_order(result), {}
        if isinstance(result, InferenceResponse):
            outputs = {output.name: output for output in result.outputs}
            if len(outputs) < len(result.outputs):
                raise ModelError(f"predict() returned an output twice: {listed(each.name for each in result.outputs)}")
            return outputs, sayable(result.parameters)
        if is_frame(result):
            if result.columns.has_duplicates:
                raise ModelError(f"predict() returned two columns of one name: {listed(result.columns)}")
            columns = dict(result.items())
            if hidden := [name for name in result.index.names if name in self.outputs and name not in columns]:
                raise ModelError(f"predict() returned {listed(hidden)} as the frame's index; reset_index() sends it")
            return columns, {"content_type": "pd"}
        return self._in_order(result), {}

    def _in_order(self, result: Any) -> dict[str, Any]:
        """A value, or a tuple of one for each output, by output."""
        if isinstance(result, list) and result and isinstance(result[0], dict) and not self._takes_dicts():
            columns = ", ".join(f'"{name}": [...]' for name in self.outputs)
            raise ModelError(f"predict() returned a list of dicts; return one dict of columns: {{{columns}}}")
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(self.outputs):
            what = "a list, which is one value," if isinstance(result, list) else f"{len(values)} value(s)"
            raise ModelError(
                f"predict() returned {what} for {len(self.outputs)} outputs; "
                f"return a tuple, or a dict with {listed(self.outputs)}"
            )
        return dict(zip(self.outputs, values))  # noqa: B905 - as long as each other

    def _takes_dicts(self) -> bool:
        """Whether the only output's content type may encode them."""
        return [each.content_type in (None, "np", "str") for each in self.outputs.values()] == [False]


def is_of_numbers(tensor: MetadataTensor) -> bool:
    return tensor.datatype != "BYTES" and tensor.content_type in (None, "np")


def zeros(tensor: MetadataTensor) -> RequestInput:
    """The smallest input that fits, of zeros."""
    shape = [abs(dimension) for dimension in tensor.shape]
    return RequestInput(tensor.name, tensor.datatype, data=np.zeros(shape, datatype_of(tensor.datatype).dtype))


def by_name(tensors: Iterable[MetadataTensor]) -> dict[str, MetadataTensor]:
    return {tensor.name: tensor for tensor in tensors}
