"""The steps from a decoded request to its response, for both transports."""

import logging
import math
from contextlib import nullcontext
from dataclasses import replace
from random import random
from typing import Any

from app.config.settings import Settings
from app.inference.batching import Result, check_batchable
from app.inference.call import Call
from app.inference.memory_budget import MemoryBudget
from app.inference.model_info import ModelInfo
from app.inference.model_runner import ModelRunner
from app.inference.outputs import requested_outputs
from app.inference.predict_adapter import ModelAdapter
from app.inference.scheduler import NO_BATCHES, BatchLimits, Scheduler
from app.inference.time_limit import TimeLimit
from app.protocol.envelope import JsonObject, parameter_error
from app.protocol.errors import Unavailable
from app.protocol.messages import InferenceRequest, InferenceResponse
from app.protocol.metadata import ModelMetadata
from app.protocol.tensors import RequestInput

# Request parameters that the service itself uses.
USED_PARAMETERS = {"binary_data_output", "content_type", "timeout"}
# Request parameters that Triton defines. Other names are text of the client, and not logged.
TRITON_PARAMETERS = {"sequence_id", "sequence_start", "sequence_end", "priority"}

logger = logging.getLogger(__name__)


class InferencePipeline:
    """Runs the model for requests. `spans` is Spans of app.observability, or None without tracing.

    scheduler: decides when a request runs
    memory: decides whether there is enough memory for a request

    Raise ConfigurationError if MAX_BATCH_SIZE does not fit the model.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        runner: ModelRunner,
        info: ModelInfo,
        settings: Settings,
        spans: Any = None,
    ):
        self._adapter = adapter
        self._runner = runner
        self._info = info
        self._settings = settings
        self._spans = spans
        self._time_limit: TimeLimit | None = None
        if settings.predict_timeout_seconds:
            self._time_limit = TimeLimit(settings.predict_timeout_seconds)
        self.scheduler = Scheduler(
            settings.max_concurrency, settings.max_queue_size, self._batch_limits()
        )
        self.memory = MemoryBudget()
        self._has_warned_of_parameters = False

    def _batch_limits(self) -> BatchLimits:
        max_rows = self._settings.max_batch_size
        if max_rows <= 1:
            return NO_BATCHES
        self._adapter.check_batching()
        check_batchable(self._adapter.metadata, max_rows)
        return BatchLimits(max_rows, self._settings.max_batch_delay_ms / 1000)

    @property
    def has_stuck_call(self) -> bool:
        """True if a call of predict() took longer than PREDICT_TIMEOUT_SECONDS."""
        return self._time_limit is not None and self._time_limit.has_stuck_call

    def has_running_calls(self) -> bool:
        """Return True if a request waits, or if predict() runs."""
        return self.scheduler.in_flight > 0 or self.has_stuck_call

    def admit(self, model_name: str, model_version: str | None) -> ModelMetadata:
        """Return the metadata of the requested model, if the service can take a request for it.

        A transport calls this before it decodes a request, so that a rejection is cheap. Raise
        NotFound if the model has another name or version (R3), then Overloaded.
        """
        metadata = self._info.find(model_name, model_version)
        self.scheduler.reject_if_full()
        return metadata

    def infer(self, request: InferenceRequest, call: Call) -> InferenceResponse:
        """Run the model and return its response. Raise InferenceError or one of its subclasses.

        Routes of app/custom.py do not call admit(), so this checks the model's name again. The
        sample comes before the other checks, so that capture also shows rejected requests.
        """
        call.timings.end_decoding()
        metadata = self._info.find(request.model_name, request.model_version)
        if self._settings.capture_dir:
            self._sample(request, call, metadata)

        if not self._runner.accepts_requests:
            raise Unavailable("not ready", subject=f'model "{metadata.name}"', remedy="retry later")
        output_names = []
        if request.outputs:
            output_names = requested_outputs(request, self._adapter.outputs)
        deadline = self._deadline_of(request, call)
        if deadline < math.inf:
            call.set_deadline(deadline)
        if request.parameters:
            self._warn_of_ignored_parameters(request.parameters)
        if self._settings.max_batch_size > 1:
            # The errors of one request must not affect others of its batch.
            self._adapter.match_inputs(request)

        outputs, parameters = self.scheduler.run(request, call, self._predict)

        if call.additions.parameters:
            parameters = {**parameters, **call.additions.parameters}
        if output_names:
            tensors = [outputs[name] for name in output_names]
        else:
            tensors = list(outputs.values())
        response = InferenceResponse(
            tensors, metadata.name, metadata.version, request.id, parameters
        )
        if call.sample is not None:
            call.sample.complete(response)
        return response

    def _predict(self, request: InferenceRequest, calls: tuple[Call, ...]) -> Result:
        """Call predict() in a span, if tracing is on, and within the time limit, if there is one.

        The scheduler calls this in the thread of the group's leader, which need not be the first of
        `calls`.
        """
        if self._spans is None and self._time_limit is None:  # as in most services
            return self._adapter.predict(self._runner.model, request, calls)

        span = nullcontext() if self._spans is None else self._spans.predict_span(calls)
        with span:
            if self._time_limit is None:
                return self._adapter.predict(self._runner.model, request, calls)
            result: Result = self._time_limit.run(
                self._adapter.predict, self._runner.model, request, calls
            )
            return result

    def _sample(self, request: InferenceRequest, call: Call, metadata: ModelMetadata) -> None:
        """Keep a copy of CAPTURE_SAMPLE_RATE of the requests, because predict() may change data."""
        if random() >= self._settings.capture_sample_rate:  # noqa: S311 # nosec B311
            return
        inputs = []
        for tensor in request.inputs:
            data = tensor.data.copy()
            inputs.append(RequestInput.of(tensor.name, tensor.datatype, data, tensor.parameters))
        call.keep_sample(replace(request, inputs=inputs, model_version=metadata.version))

    def _deadline_of(self, request: InferenceRequest, call: Call) -> float:
        """Return the earliest of the client's deadline and the two time limits, or math.inf.

        The limits are REQUEST_TIMEOUT_SECONDS and the parameter `timeout`, in microseconds as in
        tritonclient. Both begin with the call. Raise InvalidInput if the parameter is not valid.
        """
        deadline = call.client_deadline()
        begun = call.timings.begun
        if self._settings.request_timeout_seconds:
            deadline = min(deadline, begun + self._settings.request_timeout_seconds)
        microseconds = request.parameters.get("timeout", 0)
        if type(microseconds) is not int or microseconds < 0:
            raise parameter_error("timeout", microseconds, "an integer of microseconds")
        if microseconds:
            deadline = min(deadline, begun + microseconds / 1e6)
        return deadline

    def _warn_of_ignored_parameters(self, parameters: JsonObject) -> None:
        """Log one warning for parameters that neither the service nor predict() reads."""
        if self._adapter.reads_parameters or self._has_warned_of_parameters:
            return
        ignored = parameters.keys() - USED_PARAMETERS
        if not ignored:
            return
        self._has_warned_of_parameters = True
        # Unknown names are text of the client, which the log must not contain.
        names = ", ".join(sorted(ignored & TRITON_PARAMETERS)) or "unknown name"
        remedy = "To read parameters, add a RequestContext to predict()"
        logger.warning(
            "Ignored request parameter (%s). Further ones are not logged. %s", names, remedy
        )
