"""Operations of the service, independent of the transport."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from random import random
from time import monotonic
from typing import TYPE_CHECKING, Any

from app.config.resources import release_free_memory
from app.config.settings import Settings
from app.inference.admission import Admission
from app.inference.batching import Batcher, Result
from app.inference.example import make_example
from app.inference.predict_adapter import ModelAdapter
from app.inference.request_context import RequestContext
from app.inference.startup_errors import describe_error
from app.inference.triton_extensions import model_config, repository_index
from app.inference.validation import check_metadata, requested_outputs
from app.protocol.envelope import parameter_error
from app.protocol.errors import ConfigurationError, NotFound, Unavailable
from app.protocol.types import InferenceRequest, InferenceResponse, ModelMetadata, RequestInput
from app.version import __version__

if TYPE_CHECKING:
    from app.observability.observer_queue import ObserverQueue

MakeSpans = Callable[[ModelMetadata], Any]


class DataPlane:
    """The served model. `module` is app/predict.py or similar. `make_spans` returns Spans, or None without tracing.

    Raise ConfigurationError if the module is invalid.
    """

    name, version = "open-inference-service", __version__
    extensions = ("binary_tensor_data", "model_configuration", "statistics")

    def __init__(self, module: Any, settings: Settings, queue: ObserverQueue, make_spans: MakeSpans | None = None):
        self._adapter = adapter = ModelAdapter(module)
        self.optional = adapter.optional
        declared = adapter.metadata
        name, version = settings.model_name or declared.name, settings.model_version or declared.version
        self._metadata = replace(declared, name=name, version=version)
        check_metadata(self._metadata)
        self._spans = make_spans(self._metadata) if make_spans else None
        self.observer_queue = queue
        self.predict: Callable[[Any, InferenceRequest], Result] = adapter
        if self._spans:
            self.predict = partial(self._spans.predict, adapter)
            queue.observers.append(self._spans.observe)
        self.admission = Admission(settings.max_concurrency, settings.max_queue_size)
        self.batcher = None
        if settings.max_batch_size > 1:
            delay = settings.max_batch_delay_ms / 1000
            self.batcher = Batcher(self.admission, adapter.metadata, settings.max_batch_size, delay)
        self._capture_rate = settings.capture_sample_rate if settings.capture_dir else 0
        self._timeout = settings.request_timeout_seconds
        self._model: Any = None
        self.is_loaded = self.is_warm = self.is_stopping = False
        self.load_seconds = 0.0

    def load(self) -> None:
        """Call load(). Its exceptions propagate."""
        begun = monotonic()
        self._model = self._adapter.load()
        self.load_seconds = monotonic() - begun
        self.is_loaded = True

    def warm_up(self) -> None:
        """Warm up the model. After that, the service is ready. Exceptions propagate.

        Call this in the worker: libraries start threads in the first predict(), and a fork does not copy threads.
        """
        self._adapter.warm_up(self._model)
        release_free_memory()
        self.is_warm = True

    def close(self) -> None:
        """Flush the observer queue, and send the last spans."""
        self.observer_queue.flush()
        if self._spans:
            self._spans.close()

    @property
    def is_ready(self) -> bool:
        """Return True if clients should send requests. A stopping service still responds, but is not ready."""
        return self.is_warm and not self.is_stopping

    def metadata(self, name: str | None = None, version: str | None = None) -> ModelMetadata:
        """Return the metadata of the model. Raise NotFound if it has another name or version (R3)."""
        served = self._metadata
        if name is not None and name != served.name:
            raise NotFound("model not found", expected=f'"{served.name}"', got=f'"{name}"')
        if version and version != served.version:
            subject = f'model "{served.name}"'
            raise NotFound("version not found", subject=subject, expected=f'"{served.version}"', got=f'"{version}"')
        return served

    def is_model_ready(self, name: str, version: str | None) -> bool:
        """Return True if the model is ready. Raise NotFound as metadata() does."""
        self.metadata(name, version)
        return self.is_ready

    def model_metadata(self, name: str, version: str | None) -> dict[str, Any]:
        """Return the metadata of the model as a JSON object (R6). Raise NotFound as metadata() does."""
        return self.metadata(name, version).describe(self.optional)

    def model_config(self, name: str, version: str | None) -> dict[str, Any]:
        """Return the configuration of the model (T1). Raise NotFound as metadata() does."""
        return model_config(self.metadata(name, version), self.optional)

    def repository_index(self, ready_only: bool) -> list[dict[str, str]]:
        """Return the served models with their states (T2)."""
        return repository_index(self._metadata, self.is_ready, ready_only)

    def example(self) -> dict[str, Any]:
        """Return an example request in JSON form: EXAMPLE, or sample values that match METADATA."""
        return make_example(self._metadata, self.optional, self._adapter.example)

    def infer(self, request: InferenceRequest, context: RequestContext) -> InferenceResponse:
        """Run the model and return its response. Raise InferenceError or one of its subclasses."""
        context.decoded = monotonic()
        served = self.metadata(request.model_name, request.model_version)
        if is_captured := self._capture_rate and random() < self._capture_rate:  # noqa: S311 # nosec B311
            inputs = [RequestInput.of(x.name, x.datatype, x.data.copy(), x.parameters) for x in request.inputs]
            context.request = replace(request, inputs=inputs, model_version=served.version)  # predict() may change data
        if not self.is_warm:
            raise Unavailable("not ready", subject=f'model "{served.name}"', remedy="retry later")
        wanted = requested_outputs(request, self._adapter.outputs) if request.outputs else None
        timeout = self.timeout_of(request)
        predict = partial(self.predict, self._model)
        if self.batcher is None:
            outputs, parameters = self.admission.run(predict, request, context=context, timeout=timeout)
        else:
            self._adapter.match_inputs(request)  # its errors must not affect other requests of the batch
            outputs, parameters = self.batcher.run(predict, request, context, timeout)
        chosen = [outputs[name] for name in wanted] if wanted else list(outputs.values())
        response = InferenceResponse(chosen, served.name, served.version, request.id, parameters)
        if is_captured:
            context.response = response
        return response

    def timeout_of(self, request: InferenceRequest) -> float | None:
        """Return the time limit in seconds: the lower of REQUEST_TIMEOUT_SECONDS and the parameter `timeout`, or None.

        The parameter is in microseconds, as in tritonclient. Raise InvalidInput if it is not valid.
        """
        own = request.parameters.get("timeout", 0)
        if type(own) is not int or own < 0:
            raise parameter_error("timeout", own, "an integer of microseconds")
        limit = own / 1e6
        return min(limit, self._timeout) if limit and self._timeout else limit or self._timeout or None


def import_predict() -> Any:
    """Import and return app/predict.py. Raise ConfigurationError with the reason if the import fails."""
    try:
        return import_module("app.predict")  # by name, because predict.py imports this package
    except BaseException as error:  # includes SystemExit
        raise ConfigurationError(describe_error(error)) from (None if isinstance(error, ConfigurationError) else error)
