"""The adapter around the user's file: calls predict() with what a request holds, and takes what it returns."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from app.binding import bind
from app.codecs import SHIPPED, find_request_codec
from app.codecs.frames import is_frame
from app.contract import check_metadata, listed, match_inputs, match_outputs
from app.errors import InferenceError, ModelError, SetupError
from app.types import InferenceRequest, InferenceResponse, ModelMetadata, Parameters, ResponseOutput

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
        self.metadata: ModelMetadata = module.METADATA
        self.load: Callable[[], Any] = module.load
        self._predict: Callable[..., Any] = module.predict
        self._arguments, self.optional = bind(module.predict, self.metadata)

    def __call__(self, model: Any, request: InferenceRequest) -> tuple[dict[str, ResponseOutput], Parameters]:
        """The outputs of predict() by name, and the parameters of the response.

        Raises InvalidInput where the request does not fit METADATA, and ModelError where predict() raised or
        returned something else than METADATA declares.
        """
        inputs = match_inputs(request, self.metadata.inputs, self.optional)
        arguments = self._arguments(request, inputs)
        try:
            values, parameters = self._by_name(self._predict(model, **arguments))
            return match_outputs(values, self.metadata.outputs), parameters
        except ModelError as error:
            logger.error("%s", error)
            raise
        except InferenceError:
            raise
        except (Exception, SystemExit) as error:
            logger.exception("predict() raised")
            raise ModelError(f"{type(error).__name__}: {error}") from error

    def _by_name(self, result: Any) -> tuple[dict[str, Any], Parameters]:
        """What predict() returned by output, and the parameters of the response."""
        if isinstance(result, dict):
            return result, {}
        custom = self.metadata.content_type
        if custom is not None and custom not in SHIPPED and find_request_codec(custom).can_encode(result):
            result = find_request_codec(custom).encode_response(self.metadata.name, result, self.metadata.version)
        if isinstance(result, InferenceResponse):
            return {output.name: output for output in result.outputs}, result.parameters
        if is_frame(result):
            if result.columns.has_duplicates:
                raise ModelError(f"predict() returned two columns of one name: {listed(result.columns)}")
            return dict(result.items()), {"content_type": "pd"}
        declared = self.metadata.outputs
        if not isinstance(result, tuple):
            result = (result,)
        if len(result) != len(declared):
            raise ModelError(
                f"predict() returned {len(result)} value(s) for {len(declared)} outputs; "
                f"return a tuple, or a dict with {listed(tensor.name for tensor in declared)}"
            )
        return {tensor.name: value for tensor, value in zip(declared, result, strict=True)}, {}
