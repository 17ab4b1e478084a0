"""What a running service says of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.cli.common import Failure
from app.cli.service import PATIENCE_SECONDS, Service, refused
from app.errors import SetupError
from app.types import MetadataTensor


@dataclass(frozen=True)
class Model:
    name: str
    version: str
    inputs: list[MetadataTensor]
    outputs: list[MetadataTensor]
    optional: frozenset[str]


def read_model(service: Service) -> Model:
    """The service's model, over the protocol that it is asked by; over gRPC no tensor has a content type."""
    name = service.model_name()
    found, config = by_grpc(service, name) if service.grpc else by_rest(service, name)
    try:
        inputs, outputs = ([read_tensor(each) for each in found[member]] for member in ("inputs", "outputs"))
    except (KeyError, TypeError, AttributeError, SetupError):
        raise Failure(f'the service describes the model "{name}" in a way that this command does not know') from None
    if not inputs:
        raise Failure(f'the model "{name}" takes no inputs')
    optional = frozenset(each["name"] for each in config.get("input", ()) if each.get("optional"))
    return Model(name, (found.get("versions") or [""])[-1], inputs, outputs, optional)


def read_tensor(head: dict[str, Any]) -> MetadataTensor:
    shape = [int(size) for size in head.get("shape", ())]
    return MetadataTensor(head["name"], head["datatype"], shape, (head.get("parameters") or {}).get("content_type"))


def by_rest(service: Service, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """METADATA, and the configuration, which says what is optional; other services may have none."""
    path = service.model_path(name)
    answer = service.ask("GET", f"{path}/config")
    config = service.get(f"{path}/config") if answer.status == 200 else {}
    return service.get(path), config


def by_grpc(service: Service, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import grpc
    from google.protobuf.json_format import MessageToDict

    from grpc_service import messages

    def ask(method: str, request: Any, response: Any) -> dict[str, Any]:
        call = channel.unary_unary(f"/{messages.SERVICE_NAME}/{method}")
        answer = call(request.SerializeToString(), timeout=PATIENCE_SECONDS, metadata=[*service.headers.items()])
        return MessageToDict(response.FromString(answer), preserving_proto_field_name=True)

    with service.channel() as channel:
        try:
            found = ask("ModelMetadata", messages.ModelMetadataRequest(name=name), messages.ModelMetadataResponse)
            for each in [*found.get("inputs", ()), *found.get("outputs", ())]:
                each.setdefault("shape", [])
        except grpc.RpcError as error:
            raise refused(error, service.grpc) from None
        try:
            config = ask("ModelConfig", messages.ModelMetadataRequest(name=name), messages.ModelConfigResponse)
        except grpc.RpcError:
            config = {}
    return found, config.get("config", {})
