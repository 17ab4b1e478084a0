"""The objects of one service, and their order of creation. Each of them has one role."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from app.config.settings import Settings
from app.inference.call import INFER
from app.inference.model_info import ModelInfo
from app.inference.model_runner import ModelRunner
from app.inference.pipeline import InferencePipeline
from app.inference.predict_adapter import ModelAdapter
from app.observability.metrics import Metrics
from app.observability.observer_queue import Observer, ObserverQueue
from app.observability.shared_read import ReaderLimit
from app.observability.statistics import Statistics
from app.observability.tracing import make_spans
from app.protocol.messages import InferenceRequest, InferenceResponse

if TYPE_CHECKING:
    from grpc_service.server import Server

# Takes the environ of WSGI without a body. Returns False if the request will be rejected.
HeadCheck = Callable[[dict[str, Any]], bool]

logger = logging.getLogger(__name__)


class Service:
    """One model and everything that serves it, in one process. Both transports share it.

    `module` is app/predict.py or similar. Raise ConfigurationError if it is invalid.

    info: what clients can read about the model.
    model: load(), predict(), unload(), and the model's state.
    pipeline: the steps from a decoded request to its response.
    observer_queue: completed calls, on their way to logs, metrics, statistics and spans.
    """

    def __init__(self, settings: Settings, module: Any, *, with_tracing: bool = True):
        adapter = ModelAdapter(module)
        self.settings = settings
        self.info = ModelInfo(adapter.metadata, settings, example=adapter.module.EXAMPLE)
        self.model = ModelRunner(adapter)
        self._spans = make_spans(self.info.metadata) if with_tracing else None
        self.pipeline = InferencePipeline(
            adapter, self.model, self.info, settings=settings, spans=self._spans
        )
        self._head_checks: list[HeadCheck] = []
        self.observer_queue = ObserverQueue()
        reader_limit = ReaderLimit()
        self.statistics = Statistics(self.info.metadata, self.observer_queue, reader_limit)
        self.metrics = Metrics(
            self.info.metadata,
            self.model,
            self.pipeline.scheduler,
            self.observer_queue,
            reader_limit,
            use_internals=settings.is_enabled("metric_compaction"),
        )
        if self._spans is not None:
            self.observer_queue.add_observer(self._spans.observe)
        self.observer_queue.add_observer(self.statistics.observe)
        self.observer_queue.add_observer(self.metrics.observe)

    @property
    def is_ready(self) -> bool:
        """True if clients should send requests to this process."""
        return self.model.is_ready

    def load(self) -> None:
        """Load the model and warm it up. Exceptions of predict.py propagate."""
        self.model.load()
        self.model.warm_up()

    def add_head_check(self, check: HeadCheck) -> None:
        """Add a check that finds out from its head whether middleware will reject a request.

        The body of such a request is not received. Otherwise, clients without valid credentials
        could occupy memory. The middleware is called without the body, and rejects the request.
        """
        self._head_checks.append(check)

    def accepts_head(self, environ: dict[str, Any]) -> bool:
        """Return False if a request with this head will be rejected."""
        try:
            return all(check(environ) for check in self._head_checks)
        except Exception:
            logger.exception("A check of the head of a request failed")
            return True  # the middleware decides

    def infer(self, inference_request: InferenceRequest) -> InferenceResponse:
        """Run the model in a route of app/custom.py.

        Flask's error handlers handle InferenceError.
        """
        from flask import request  # a process without REST does not need these

        from app.rest.middleware import CALL_KEY
        from app.rest.rest_call import route_pattern

        call = request.environ[CALL_KEY]
        call.match(INFER, route_pattern(request.url_rule))
        return self.pipeline.infer(inference_request, call)

    def start_health_check(self, report: Callable[[bool], None]) -> None:
        """Call is_healthy() regularly, if it is defined. After each change, report `is_ready`."""
        self.model.start_health_check(self.settings.health_check_interval_seconds, report)

    def make_grpc_server(self, *, reuse_port: bool = True) -> Server:
        """Return a gRPC server for this service. grpcio supports no forks: call this after them."""
        from grpc_service.server import Server

        return Server(self, reuse_port=reuse_port)

    def start_observers(self, *observers: Observer) -> None:
        """Pass completed calls to metrics, statistics and `observers`, in a thread of their own.

        Call this after the fork.
        """
        self.metrics.start()
        self.statistics.start()
        for observer in observers:
            self.observer_queue.add_observer(observer)
        self.observer_queue.start()

    def close(self) -> None:
        """Unload the model, unless requests still use it.

        Write the last metrics, logs and spans.
        """
        self.model.close(is_in_use=self.pipeline.has_running_calls)
        self.observer_queue.flush()
        if self._spans is not None:
            self._spans.close()
