"""Methods of GRPCInferenceService (G1, T1 to T3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from app.inference.call import Call
from app.inference.memory_budget import RequestMemory
from grpc_service import converters, messages
from grpc_service.compression import decompress_message

if TYPE_CHECKING:
    from app.service import Service


class InferenceServicer:
    """The methods of the service, with the protocol's names. They raise InferenceError.

    ModelInfer takes and returns serialized messages.
    """

    def __init__(self, service: Service):
        self._service = service
        self._info = service.info
        self._without_copies = service.settings.is_enabled("raw_tensors")

    def ServerLive(self, request: Message) -> Message:  # noqa: N802 - methods have the protocol's names
        return messages.ServerLiveResponse(live=True)

    def ServerReady(self, request: Message) -> Message:  # noqa: N802
        return messages.ServerReadyResponse(ready=self._service.is_ready)

    def ModelReady(self, request: Any) -> Message:  # noqa: N802
        self._info.find(request.name, request.version)
        return messages.ModelReadyResponse(ready=self._service.is_ready)

    def ServerMetadata(self, request: Message) -> Message:  # noqa: N802
        return messages.ServerMetadataResponse(**self._info.server_metadata())

    def ModelMetadata(self, request: Any) -> Message:  # noqa: N802
        model = self._info.model_metadata(request.name, request.version)
        model.pop("parameters", None)  # the request-level content type has no field
        parameters = [
            tensor.pop("parameters", {}) for tensor in (*model["inputs"], *model["outputs"])
        ]
        response = messages.ModelMetadataResponse(**model)
        for tensor, values in zip((*response.inputs, *response.outputs), parameters, strict=True):
            converters.write_parameters(tensor.parameters, values)
        return response

    def ModelInfer(self, body: bytes, call: Call) -> bytes:  # noqa: N802
        pipeline = self._service.pipeline
        with RequestMemory(pipeline.memory) as memory:
            limit = self._service.settings.max_request_bytes
            body = decompress_message(body, limit, memory.add_bytes)
            call.outcome.set_request_bytes(len(body))
            message, raw_contents = converters.parse_request(
                body, self._without_copies, memory.count_message
            )
            pipeline.admit(message.model_name, message.model_version)
            request = converters.read_request(message, raw_contents)
            is_raw = bool(raw_contents) or not message.inputs
            del body, message, raw_contents  # release a large request before predict() runs
            memory.count_inputs(request)
            response = pipeline.infer(request, call)
            memory.count_outputs(request, response, binary=is_raw)
            return converters.write_response(response, is_raw, self._without_copies)

    def ModelConfig(self, request: Any) -> Message:  # noqa: N802
        config = self._info.model_config(request.name, request.version)
        return messages.ModelConfigResponse(config=config)

    def RepositoryIndex(self, request: Any) -> Message:  # noqa: N802
        models = self._info.repository_index(
            is_ready=self._service.is_ready, ready_only=request.ready
        )
        return messages.RepositoryIndexResponse(models=models)

    def ModelStatistics(self, request: Any) -> Message:  # noqa: N802
        self._info.find(request.name or None, request.version)
        return messages.ModelStatisticsResponse(**self._service.statistics.read())
