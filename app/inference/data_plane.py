"""Operations of the service, independent of the transport."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from random import random
from threading import Timer
from time import monotonic
from typing import TYPE_CHECKING, Any

from app.config.resources import release_free_memory
from app.config.settings import Settings
from app.inference.admission import Admission
from app.inference.batching import Batcher, Result
from app.inference.example import make_example
from app.inference.metadata_checks import check_metadata
from app.inference.outputs import requested_outputs
from app.inference.predict_adapter import ModelAdapter
from app.inference.request_context import RequestContext
from app.inference.startup_errors import describe_error
from app.inference.time_limit import TimeLimit
from app.protocol.envelope import JsonObject, parameter_error
from app.protocol.errors import ConfigurationError, NotFound, Unavailable
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import ModelMetadata
from app.protocol.tensors import RequestInput
from app.version import SERVICE_NAME, __version__

if TYPE_CHECKING:
    from app.observability.observer_queue import ObserverQueue

USED_PARAMETERS = {"binary_data_output", "content_type", "timeout"}  # of requests
TRITON_PARAMETERS = {"sequence_id", "sequence_start", "sequence_end", "priority"}
LOG_SECONDS = 10.0  # interval of log messages during load()
MakeSpans = Callable[[ModelMetadata], Any]

logger = logging.getLogger(__name__)


class Repeater(Timer):
    """Calls a function every `interval` seconds in a thread, until the end of a `with` block."""

    __enter__ = Timer.start  # a daemon thread if the calling thread is one

    def __exit__(self, *_: object) -> None:
        self.cancel()
        # A call of is_healthy() can hang, so the time to wait for its end is limited.
        self.join(2)

    def run(self) -> None:
        while not self.finished.wait(self.interval):
            self.function(*self.args)


class DataPlane:
    """The served model. `module` is app/predict.py or similar. `make_spans` returns Spans, or None without tracing.

    Raise ConfigurationError if the module is invalid.
    """

    name = SERVICE_NAME
    version = __version__
    extensions = ("binary_tensor_data", "model_configuration", "statistics")

    def __init__(
        self,
        module: Any,
        settings: Settings,
        queue: ObserverQueue,
        make_spans: MakeSpans | None = None,
    ):
        self._adapter = adapter = ModelAdapter(module)
        declared = adapter.metadata
        name, version = (
            settings.model_name or declared.name,
            settings.model_version or declared.version,
        )
        self._metadata = replace(declared, name=name, version=version)
        check_metadata(self._metadata)
        self._spans = make_spans(self._metadata) if make_spans else None
        self.observer_queue = queue
        self.predict: Callable[[Any, InferenceRequest], Result] = adapter
        if self._spans:
            self.predict = partial(self._spans.predict, adapter)
            queue.observers.append(self._spans.observe)
        if settings.predict_timeout_seconds:
            self.predict = TimeLimit(self.predict, settings.predict_timeout_seconds)
        self.admission = Admission(settings.max_concurrency, settings.max_queue_size)
        self.batcher = None
        if settings.max_batch_size > 1:
            adapter.check_batching()
            delay = settings.max_batch_delay_ms / 1000
            self.batcher = Batcher(self.admission, adapter.metadata, settings.max_batch_size, delay)
        self._timeout, self._check_seconds = (
            settings.request_timeout_seconds,
            settings.health_check_interval_seconds,
        )
        self._capture_rate = settings.capture_sample_rate if settings.capture_dir else 0
        self._model: Any = None
        self.is_loaded = self.is_warm = self.is_stopping = self._has_warned = False
        self.is_healthy, self.load_seconds, self._at_close = True, 0.0, ExitStack()

    def load(self) -> None:
        """Call load(), and log its progress. Its exceptions propagate."""
        logger.info("Loading the model")
        begun = monotonic()
        with Repeater(
            LOG_SECONDS,
            lambda: logger.info("Still loading the model after %.0f s", monotonic() - begun),
        ):
            self._model = self._adapter.load()
        self.load_seconds = monotonic() - begun
        self.is_loaded = True
        logger.info("Loaded the model in %.1f s", self.load_seconds)

    def warm_up(self) -> None:
        """Warm up the model. After that, the service is ready. Exceptions propagate."""
        self._adapter.warm_up(self._model)
        release_free_memory()
        self._at_close.callback(self._adapter.unload, self._model)
        self.is_warm = True

    def start_health_check(self, report: Callable[[bool], None]) -> None:
        """Call is_healthy() regularly, if it is defined. After each change, pass is_ready to `report`."""
        if self._adapter.check_health and self._check_seconds:
            self._at_close.enter_context(
                Repeater(self._check_seconds, self._check_health, [report])
            )

    def _check_health(self, report: Callable[[bool], None]) -> None:
        try:
            problem = (
                ""
                if (result := self._adapter.check_health(self._model))
                else f"is_healthy() returned {result}"
            )
        except BaseException as error:  # includes SystemExit and panics of Rust extensions
            problem = describe_error(error)
        if self.is_healthy != (not problem):
            self.is_healthy = not problem
            logger.warning(
                "The model is %s", f"unhealthy: {problem}" if problem else "healthy again"
            )
            report(self.is_ready)

    def close(self) -> None:
        """Call unload() if no request uses the model. Flush the observer queue, and send the last spans."""
        self.is_warm = False  # rejects further requests
        try:
            if self.admission.in_flight or getattr(self.predict, "has_stuck_call", False):
                logger.warning("Requests have not finished. Exiting without unload()")
            else:
                self._at_close.close()  # ends the health check first
        except BaseException:
            logger.exception("unload() raised an exception")
        self.observer_queue.flush()
        if self._spans:
            self._spans.close()

    @property
    def is_ready(self) -> bool:
        """Return True if clients should send requests. A stopping or unhealthy service responds, but is not ready."""
        return self.is_warm and self.is_healthy and not self.is_stopping

    def metadata(self, name: str | None = None, version: str | None = None) -> ModelMetadata:
        """Return the metadata of the model. Raise NotFound if it has another name or version (R3)."""
        served = self._metadata
        if name is not None and name != served.name:
            raise NotFound("model not found", expected=f'"{served.name}"', got=f'"{name}"')
        if version and version != served.version:
            subject = f'model "{served.name}"'
            raise NotFound(
                "version not found",
                subject=subject,
                expected=f'"{served.version}"',
                got=f'"{version}"',
            )
        return served

    def is_model_ready(self, name: str, version: str | None) -> bool:
        """Return True if the model is ready. Raise NotFound as metadata() does."""
        self.metadata(name, version)
        return self.is_ready

    def model_metadata(self, name: str, version: str | None) -> dict[str, Any]:
        """Return the metadata of the model as a JSON object (R6). Raise NotFound as metadata() does."""
        return self.metadata(name, version).describe()

    def model_config(self, name: str, version: str | None) -> dict[str, Any]:
        """Return the configuration of the model (T1). Raise NotFound as metadata() does."""
        return self.metadata(name, version).config()

    def repository_index(self, ready_only: bool) -> list[dict[str, str]]:
        """Return the served model and its state (T2), or an empty list if `ready_only` is set and it is not ready."""
        if ready_only and not self.is_ready:
            return []
        state, reason = ("READY", "") if self.is_ready else ("UNAVAILABLE", "not ready")
        return [
            {
                "name": self._metadata.name,
                "version": self._metadata.version,
                "state": state,
                "reason": reason,
            }
        ]

    def example(self) -> dict[str, Any]:
        """Return an example request in JSON form: EXAMPLE, or sample values that match METADATA."""
        return make_example(self._metadata, self._adapter.example)

    def infer(self, request: InferenceRequest, context: RequestContext) -> InferenceResponse:
        """Run the model and return its response. Raise InferenceError or one of its subclasses."""
        context.decoded = monotonic()
        served = self.metadata(request.model_name, request.model_version)
        if self._capture_rate and random() < self._capture_rate:  # noqa: S311 # nosec B311
            inputs = [
                RequestInput.of(x.name, x.datatype, x.data.copy(), x.parameters)
                for x in request.inputs
            ]
            context.request = replace(
                request, inputs=inputs, model_version=served.version
            )  # predict() may change data
        if not self.is_warm:
            raise Unavailable("not ready", subject=f'model "{served.name}"', remedy="retry later")
        wanted = requested_outputs(request, self._adapter.outputs) if request.outputs else None
        context.timeout, context.parameters = self.timeout_of(request), request.parameters
        if request.parameters and not self._adapter.reads_parameters:
            self.warn_of_ignored(request.parameters)
        predict = partial(self.predict, self._model)
        if self.batcher is None:
            outputs, parameters = self.admission.run(predict, request, context=context)
        else:
            self._adapter.match_inputs(
                request
            )  # its errors must not affect other requests of the batch
            outputs, parameters = self.batcher.run(predict, request, context)
        chosen = [outputs[name] for name in wanted] if wanted else list(outputs.values())
        parameters = {**parameters, **context.response_parameters}
        response = InferenceResponse(chosen, served.name, served.version, request.id, parameters)
        if context.request is not None:
            context.response = response
        return response

    def warn_of_ignored(self, parameters: JsonObject) -> None:
        """Log one warning if a request has parameters without effect. Omit names that Triton does not define."""
        if not self._has_warned and (ignored := parameters.keys() - USED_PARAMETERS):
            self._has_warned = True
            known = ", ".join(sorted(ignored & TRITON_PARAMETERS)) or "unknown name"
            remedy = "To read parameters, add a RequestContext to predict()"
            logger.warning(
                "Ignored request parameter (%s). Further ones are not logged. %s", known, remedy
            )

    def timeout_of(self, request: InferenceRequest) -> float | None:
        """Return the time limit in seconds: the lower of REQUEST_TIMEOUT_SECONDS and the parameter `timeout`, or None.

        The parameter is in microseconds, as in tritonclient. Raise InvalidInput if it is not valid.
        """
        own = request.parameters.get("timeout", 0)
        if type(own) is not int or own < 0:
            raise parameter_error("timeout", own, "an integer of microseconds")
        limit = own / 1e6
        return (
            min(limit, self._timeout) if limit and self._timeout else limit or self._timeout or None
        )


def import_owner_file(name: str) -> Any:
    """Import and return app/predict.py or app/custom.py. Raise ConfigurationError with the reason if this fails."""
    try:
        import_module("app.custom")  # before predict.py, because it can register codecs
        return import_module(f"app.{name}")  # by name, because these files import this package
    except BaseException as error:  # includes SystemExit
        raise ConfigurationError(describe_error(error)) from (
            None if isinstance(error, ConfigurationError) else error
        )
