"""Read the model's metadata from a running service."""

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
    """Return the service's model, read over the protocol of the requests. Raise Failure if that is not possible.

    Metadata has no content types over gRPC.
    """
    name = service.model_name()
    found, config = _read_grpc(service, name) if service.grpc else _read_rest(service, name)
    try:
        inputs, outputs = ([_read_tensor(each) for each in found[member]] for member in ("inputs", "outputs"))
    except (KeyError, TypeError, AttributeError, SetupError):
        raise Failure(f'Model "{name}": invalid metadata') from None
    if not inputs:
        raise Failure(f'Model "{name}": no inputs')
    optional = frozenset(each["name"] for each in config.get("input", ()) if each.get("optional"))
    return Model(name, (found.get("versions") or [""])[-1], inputs, outputs, optional)


def _read_tensor(head: dict[str, Any]) -> MetadataTensor:
    shape = [int(size) for size in head.get("shape", ())]
    return MetadataTensor(head["name"], head["datatype"], shape, (head.get("parameters") or {}).get("content_type"))


def _read_rest(service: Service, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata, and the configuration, which lists optional inputs. Other servers may not have one."""
    path = service.model_path(name)
    answer = service.ask("GET", f"{path}/config")
    config = service.get(f"{path}/config") if answer.status == 200 else {}
    return service.get(path), config


def _read_grpc(service: Service, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    import grpc
    from google.protobuf.json_format import MessageToDict

    from grpc_service import messages

    def call(method: str, response: Any) -> dict[str, Any]:
        body = messages.ModelMetadataRequest(name=name).SerializeToString()
        send = channel.unary_unary(f"/{messages.SERVICE_NAME}/{method}")
        answer = send(body, timeout=PATIENCE_SECONDS, metadata=[*service.headers.items()])
        return MessageToDict(response.FromString(answer), preserving_proto_field_name=True)

    with service.channel() as channel:
        try:
            metadata = call("ModelMetadata", messages.ModelMetadataResponse)
        except grpc.RpcError as error:
            raise refused(error, service.grpc) from None
        try:
            config = call("ModelConfig", messages.ModelConfigResponse).get("config", {})
        except grpc.RpcError:
            config = {}
    return metadata, config
