"""Adapter for predict.py: calls predict() with the inputs of a request and validates the result."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.codecs import SHIPPED, find_request_codec
from app.codecs.base import encoding_error
from app.codecs.frames import is_frame
from app.inference.call import INFER, Call
from app.inference.example import make_input, sample
from app.inference.inputs import match_inputs
from app.inference.metadata_checks import check_metadata
from app.inference.outputs import match_outputs, to_builtin
from app.inference.predict_arguments import bind_signature
from app.inference.signature import check_functions, read_signature, with_location
from app.inference.startup_errors import format_error
from app.protocol.envelope import Parameters
from app.protocol.errors import (
    ConfigurationError,
    InferenceError,
    InvalidInput,
    ModelError,
    join_names,
)
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import ModelMetadata
from app.protocol.tensors import RequestInput, ResponseOutput

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OwnerModule:
    """The members of the owner's module, app/predict.py. Missing functions are None."""

    METADATA: ModelMetadata
    load: Callable[[], Any]
    predict: Callable[..., Any]
    warm_up: Callable[[Any], Any] | None
    is_healthy: Callable[[Any], Any] | None
    unload: Callable[[Any], Any] | None
    EXAMPLE: dict[str, Any] | None

    @classmethod
    def of(cls, module: Any) -> "OwnerModule":
        """Read a module. Raise ConfigurationError for a missing name or an invalid function."""
        for name in ("METADATA", "load", "predict"):
            if not hasattr(module, name):
                expected = "Expected METADATA, load() and predict()"
                raise ConfigurationError(f"{module.__name__}: missing {name}. {expected}.")
        check_metadata(module.METADATA)
        check_functions(module)
        return cls(
            METADATA=module.METADATA,
            load=module.load,
            predict=module.predict,
            warm_up=getattr(module, "warm_up", None),
            is_healthy=getattr(module, "is_healthy", None),
            unload=getattr(module, "unload", None),
            EXAMPLE=getattr(module, "EXAMPLE", None),
        )


class ModelAdapter:
    """Calls predict() with the inputs of a request, and reads its result.

    Raise ConfigurationError if METADATA, EXAMPLE and the signature of predict() do not match.

    - module: the functions of predict.py.
    - metadata: METADATA, with the inputs that are optional because of predict()'s default values.
    - inputs, outputs: the declared tensors by name.
    """

    def __init__(self, module: Any):
        self.module = OwnerModule.of(module)
        with with_location(self.module.predict):
            self._signature = read_signature(self.module.predict)
            self._binder, self.metadata = bind_signature(self._signature, self.module.METADATA)
        self.inputs = {tensor.name: tensor for tensor in self.metadata.inputs}
        self.outputs = {tensor.name: tensor for tensor in self.metadata.outputs}
        self._results = ResultReader(self.metadata)
        self._example_request: InferenceRequest | None = None
        if self.module.EXAMPLE is not None:
            self._example_request = self._read_example(self.module.EXAMPLE)

    @property
    def reads_parameters(self) -> bool:
        """True if predict() can read the parameters of the request."""
        return self._results.has_codec or self._signature.reads_parameters

    def predict(
        self, model: Any, request: InferenceRequest, calls: Sequence[Call]
    ) -> tuple[dict[str, ResponseOutput], dict[str, Any]]:
        """Call predict(). Return its outputs by name, and the parameters of the response.

        `calls` is the call of the request, or those of the requests that are joined into it.
        Raise InvalidInput if the request does not match METADATA, and ModelError if predict()
        raises an exception or returns a result that does not match METADATA.
        """
        arguments = self._binder.bind(request, self.match_inputs(request), calls)
        try:
            result = self.module.predict(model, **arguments)
            values, parameters = self._results.read(result)
            for call in calls:
                # predict() may have added parameters through the contexts. They are copied, because
                # predict() may keep the dict.
                if call.additions.parameters:
                    call.set_response_parameters(to_builtin(dict(call.additions.parameters)))

            requested: dict[str, Any] = {}  # the content types by output
            for output in request.outputs:
                requested[output.name] = output.parameters.get("content_type")
            return match_outputs(values, self.outputs, requested), parameters
        except ModelError as error:
            logger.error("%s", error.log_text())
            raise
        except InferenceError:
            raise
        except BaseException as error:  # includes SystemExit and panics of Rust extensions
            logger.exception("predict() raised an exception")
            raise ModelError(format_error(error)) from error

    def check_batching(self) -> None:
        """Raise ConfigurationError if predict() takes the context of one request, because a batch
        has several.
        """
        if self._signature.takes_one_context:
            expected = "Expected list[RequestContext] with MAX_BATCH_SIZE, got RequestContext"
            raise ConfigurationError(f"predict(): invalid annotation. {expected}.")

    def match_inputs(self, request: InferenceRequest) -> dict[str, RequestInput]:
        """Return the inputs by name. Raise InvalidInput if the request does not match METADATA."""
        return match_inputs(request, self.inputs)

    def warm_up(self, model: Any) -> None:
        """Call warm_up() if it is defined. Otherwise, call predict() with EXAMPLE, or with ones for
        numeric inputs.

        Without EXAMPLE, a model with a BYTES input is not called, and an exception is only logged:
        ones may be invalid.
        """
        if self.module.warm_up is not None:
            self.module.warm_up(model)
        elif self._example_request is not None:
            self._check_result(self._call(model, self._example_request))
        else:
            self._warm_up_with_ones(model)

    def _warm_up_with_ones(self, model: Any) -> None:
        if any(tensor.datatype == "BYTES" for tensor in self.metadata.inputs):
            logger.warning(
                "Warm-up skipped, because an input is text. Define EXAMPLE or warm_up(model)."
            )
            return
        inputs = []
        for tensor in self.metadata.inputs:
            inputs.append(make_input(tensor, sample(tensor)))
        request = InferenceRequest(inputs)
        try:
            result = self._call(model, request)
        except BaseException as error:
            logger.warning(
                "Warm-up call with ones failed: %s. Define EXAMPLE or warm_up(model).",
                format_error(error),
            )
            return
        self._check_result(result)

    def _call(self, model: Any, request: InferenceRequest) -> Any:
        """Call predict() outside a request of a client. Return its result. Exceptions propagate."""
        inputs = self.match_inputs(request)
        arguments = self._binder.bind(request, inputs, [Call(INFER)])
        return self.module.predict(model, **arguments)

    def _check_result(self, result: Any) -> None:
        """Raise ModelError if predict()'s result does not match METADATA."""
        values, _ = self._results.read(result)
        match_outputs(values, self.outputs, {})

    def _read_example(self, example: Any) -> InferenceRequest:
        """Return EXAMPLE as a request. Raise ConfigurationError if it does not match METADATA."""
        try:
            if not isinstance(example, dict):
                raise InvalidInput(
                    expected="a dict of values by input name", got=type(example).__name__
                )
            unknown = example.keys() - self.inputs.keys()
            if unknown:
                raise InvalidInput(
                    "unknown input", expected=join_names(self.inputs), got=join_names(unknown)
                )
            inputs = []
            for name, values in example.items():
                inputs.append(make_input(self.inputs[name], values))
            request = InferenceRequest(inputs)
            self.match_inputs(request)
        except InferenceError as error:
            raise ConfigurationError(str(error.about("EXAMPLE"))) from None
        return request


class ResultReader:
    """Reads the result of predict(): a dict, tuple, DataFrame, response, or value of a codec."""

    def __init__(self, metadata: ModelMetadata):
        self._metadata = metadata
        self._output_names = [tensor.name for tensor in metadata.outputs]
        # The request codec of the project, which encodes predict()'s result (C10).
        self._codec: Any = None
        if metadata.content_type is not None and metadata.content_type not in SHIPPED:
            self._codec = find_request_codec(metadata.content_type)

    @property
    def has_codec(self) -> bool:
        return self._codec is not None

    def read(self, result: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the values of predict()'s result by output name, and the parameters of the
        response.

        Raise ModelError if the outputs of the result have no names, or if a name occurs twice.
        """
        if result is None:
            raise ModelError(
                "predict() returned None",
                remedy=f"return a dict with {join_names(self._output_names)}",
            )
        if isinstance(result, dict):
            return result, Parameters()
        if self._codec is not None:
            result = self._encode_with_codec(result)
        if isinstance(result, InferenceResponse):
            outputs = [(output.name, output) for output in result.outputs]
            return _unique_names(outputs), to_builtin(result.parameters)
        if is_frame(result):
            return _unique_names(list(result.items())), {"content_type": "pd"}
        return self._outputs_by_position(result), Parameters()

    def _encode_with_codec(self, result: Any) -> Any:
        """Return the response that the project's request codec makes, or `result` if that is not of
        its type.
        """
        metadata = self._metadata
        codec = self._codec
        try:
            if not codec.can_encode(result):
                return result
            return codec.encode_response(metadata.name, result, metadata.version)
        except InferenceError:
            raise
        except Exception as error:  # a codec of the project can raise any exception
            raise encoding_error(result, metadata.content_type, error) from error

    def _outputs_by_position(self, result: Any) -> dict[str, Any]:
        """Return the elements of a tuple by output name.

        A value of another type is the only output.
        """
        values = result if isinstance(result, tuple) else (result,)
        if len(values) != len(self._output_names):
            got = "a list (one value)" if isinstance(result, list) else f"{len(values)} value(s)"
            raise ModelError(
                f"predict() returned {got} for {len(self._output_names)} outputs",
                remedy=f"return a tuple, or a dict with {join_names(self._output_names)}",
            )
        return dict(zip(self._output_names, values, strict=True))


def _unique_names(outputs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the outputs by name. Raise ModelError if a name occurs twice."""
    by_name = dict(outputs)
    if len(by_name) < len(outputs):
        names = join_names(name for name, _ in outputs)
        raise ModelError(f"predict() returned an output twice: {names}.")
    return by_name
