"""predict()'s signature, and the checks of the functions in predict.py when the service starts."""

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.inference.request_context import RequestContext
from app.inference.startup_errors import project_path
from app.protocol.errors import ConfigurationError
from app.protocol.messages import InferenceRequest

# Annotations of parameters that receive the context of the request, or the contexts of all requests
# of a batch.
CONTEXTS = (RequestContext, list[RequestContext])
_OWNER_FUNCTIONS = ("load", "predict", "warm_up", "is_healthy", "unload")
_FUNCTIONS_WITH_MODEL = ("warm_up", "is_healthy", "unload")


@dataclass(frozen=True)
class Signature:
    """The parameters of predict() after the model.

    - inputs: the parameters for inputs: one per input, or one for the whole request.
    - contexts: the annotation of each parameter that receives contexts, by name. It is one of
      CONTEXTS.
    - annotations: the annotations of all parameters that have one, as simplify_annotation() returns
      them.
    """

    inputs: list[inspect.Parameter]
    contexts: dict[str, Any]
    annotations: dict[str, Any]

    @property
    def takes_one_context(self) -> bool:
        """Return True if predict() receives the context of one request, which a batch does not
        have.
        """
        return RequestContext in self.contexts.values()

    @property
    def reads_parameters(self) -> bool:
        """Return True if predict() can read the parameters of the request."""
        annotations = [self.annotations.get(parameter.name) for parameter in self.inputs]
        return bool(self.contexts) or InferenceRequest in annotations


def read_signature(predict: Callable[..., Any]) -> Signature:
    """Return the signature.

    Raise ConfigurationError if it has an invalid parameter or annotation.
    """
    parameters = _parameters_after_model(predict)
    annotations = read_annotations(predict)
    inputs = []
    contexts = {}
    for parameter in parameters:
        annotation = annotations.get(parameter.name)
        if annotation in CONTEXTS:
            contexts[parameter.name] = annotation
        else:
            inputs.append(parameter)
    return Signature(inputs, contexts, annotations)


def _parameters_after_model(predict: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return predict()'s parameters after the model.

    Raise ConfigurationError if one has *, ** or /.
    """
    if not hasattr(predict, "__name__"):  # a partial or a callable object
        raise ConfigurationError(
            f"Invalid predict. Expected a function (def), got {type(predict).__name__}."
        )
    parameters = list(inspect.signature(predict).parameters.values())
    if not parameters:
        raise ConfigurationError(
            "predict() has no parameters. Expected the result of load() as the first one."
        )

    # The service passes all arguments but the model by name.
    invalid_kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    )
    for parameter in parameters:
        if parameter.kind in invalid_kinds:
            raise ConfigurationError(
                f'predict(), parameter "{parameter.name}": invalid kind. Expected no *, ** or /.'
            )
    return parameters[1:]


def read_annotations(predict: Callable[..., Any]) -> dict[str, Any]:
    """Return the simplified annotations by parameter.

    Raise ConfigurationError if one cannot be resolved.
    """
    try:
        annotations = typing.get_type_hints(predict)
    except Exception as error:  # an unknown name or attribute, or invalid syntax
        raise ConfigurationError(f"predict(): cannot resolve an annotation: {error}") from None
    return {name: simplify_annotation(annotation) for name, annotation in annotations.items()}


def simplify_annotation(annotation: Any) -> Any:
    """Return the equivalent annotation that the service knows.

    - X for `X | None`
    - np.ndarray for Any and NDArray[...]
    - the dtype for NDArray[ml_dtypes.bfloat16]
    """
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)

    # Since Python 3.12, a `type` statement defines NDArray.
    alias = getattr(origin or annotation, "__value__", None)
    if alias is not None:
        return simplify_annotation(alias[arguments] if arguments else alias)

    if origin in (typing.Union, types.UnionType):
        members = [member for member in arguments if member is not type(None)]
        if len(members) == 1:
            return simplify_annotation(members[0])
        return annotation
    if origin is np.ndarray:
        # NDArray[bfloat16] is np.ndarray[Any, np.dtype[bfloat16]]. NumPy itself has no such scalar.
        for scalar in typing.get_args(arguments[-1]):
            if getattr(scalar, "__name__", "") == "bfloat16":
                return np.dtype(scalar)
        return np.ndarray
    if annotation is Any:
        return np.ndarray
    return annotation


def check_functions(module: Any) -> None:
    """Raise ConfigurationError if a function is async, a generator, or takes no model."""
    for name in _OWNER_FUNCTIONS:
        function = getattr(module, name, None)
        if function is None:
            continue
        with with_location(function):
            if _is_async_or_generator(function):
                raise ConfigurationError(
                    f"{name}() is async or a generator. Expected a plain function."
                )
            if name in _FUNCTIONS_WITH_MODEL and not inspect.signature(function).parameters:
                raise ConfigurationError(
                    f"{name}() has no parameters. Expected the result of load()."
                )


def _is_async_or_generator(function: Any) -> bool:
    return (
        inspect.iscoroutinefunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isasyncgenfunction(function)
    )


@contextmanager
def with_location(function: Any) -> Iterator[None]:
    """Prefix a ConfigurationError with the file and line of `function`, if it is part of the
    project.
    """
    try:
        yield
    except ConfigurationError as error:
        code: Any = getattr(inspect.unwrap(function), "__code__", None)
        file = project_path(code.co_filename) if code else None
        if not file:
            raise ConfigurationError(str(error)) from None
        raise ConfigurationError(f"{file}, line {code.co_firstlineno}: {error}") from None
