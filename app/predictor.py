"""The adapter around the user's file: binds predict()'s signature once, then calls it with what a request holds."""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Callable
from typing import Any

import numpy as np

from app.contract import check_metadata, listed, match_inputs, match_outputs
from app.errors import InferenceError, ModelError, SetupError
from app.types import InferenceRequest, ModelMetadata, ResponseOutput

logger = logging.getLogger(__name__)

Arguments = Callable[[InferenceRequest, dict[str, np.ndarray]], dict[str, Any]]


class Predictor:
    """METADATA, load() and predict() of one module, checked against each other.

    Raises SetupError, at the start, where the three cannot work together.
    """

    def __init__(self, module: Any):
        for name in ("METADATA", "load", "predict"):
            if not hasattr(module, name):
                raise SetupError(f"{module.__name__}: {name} is missing")
        check_metadata(module.METADATA)
        self.metadata: ModelMetadata = module.METADATA
        self.load: Callable[[], Any] = module.load
        self._predict: Callable[..., Any] = module.predict
        self._arguments, self._optional = bind(module.predict, self.metadata)

    def __call__(self, model: Any, request: InferenceRequest) -> dict[str, ResponseOutput]:
        """The outputs of predict() by name.

        Raises InvalidInput where the request does not fit METADATA, and ModelError where predict() raised or
        returned something else than METADATA declares.
        """
        arrays = match_inputs(request, self.metadata.inputs, self._optional)
        try:
            result = self._predict(model, **self._arguments(request, arrays))
        except InferenceError:
            raise
        except Exception as error:
            logger.exception("predict() raised")
            raise ModelError(f"{type(error).__name__}: {error}") from error
        return match_outputs(self._by_name(result), self.metadata.outputs)

    def _by_name(self, result: Any) -> dict[str, Any]:
        declared = self.metadata.outputs
        if isinstance(result, dict):
            return result
        if not isinstance(result, tuple):
            result = (result,)
        if len(result) != len(declared):
            raise ModelError(
                f"predict() returned {len(result)} value(s) for {len(declared)} outputs; "
                f"return a dict with {listed(tensor.name for tensor in declared)}"
            )
        return {tensor.name: value for tensor, value in zip(declared, result, strict=True)}


def bind(predict: Callable[..., Any], metadata: ModelMetadata) -> tuple[Arguments, set[str]]:
    """What makes predict()'s arguments of a request, and the names of the inputs it can do without.

    Raises SetupError where the signature and METADATA's inputs disagree.
    """
    parameters = list(inspect.signature(predict).parameters.values())
    if not parameters:
        raise SetupError("predict() takes no parameter; its first is what load() returned")
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise SetupError(f'predict(), parameter "{parameter.name}": expected a plain parameter, no *, ** or /')
    del parameters[0]
    types = annotations_of(predict)
    if len(parameters) == 1 and (whole := WHOLE.get(types.get(parameters[0].name))):
        return whole(parameters[0].name), set()
    for parameter in parameters:
        if types.get(parameter.name, np.ndarray) is not np.ndarray:
            raise SetupError(
                f'predict(), parameter "{parameter.name}": cannot be given a {types[parameter.name]}; '
                "expected np.ndarray for one input, "
                "or a single parameter that is a dict[str, np.ndarray] or an InferenceRequest for all of them"
            )
    taken, declared = {each.name for each in parameters}, {tensor.name for tensor in metadata.inputs}
    if taken != declared:
        raise SetupError(
            f"predict() and METADATA disagree: predict() takes {listed(sorted(taken))} after the model, "
            f"METADATA declares {listed(sorted(declared))}"
        )
    return by_name, {each.name for each in parameters if each.default is not each.empty}


def annotations_of(predict: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(predict)
    except NameError as error:
        raise SetupError(f"predict(): an annotation cannot be resolved: {error}") from None


def own(array: np.ndarray) -> np.ndarray:
    """`array` aligned and writable, as predict() may expect; a view of a request's bytes is neither."""
    return array if array.flags.carray else array.copy()


def by_name(request: InferenceRequest, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: own(array) for name, array in arrays.items()}


def as_dict(parameter: str) -> Arguments:
    return lambda request, arrays: {parameter: by_name(request, arrays)}


def as_request(parameter: str) -> Arguments:
    return lambda request, arrays: {parameter: request}


# The annotations of a single parameter that takes the whole request.
WHOLE: dict[Any, Callable[[str], Arguments]] = {
    dict: as_dict,
    dict[str, np.ndarray]: as_dict,
    InferenceRequest: as_request,
}
