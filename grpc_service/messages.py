"""Messages and service of protos/open_inference_grpc.proto, in a separate descriptor pool.

The default pool rejects duplicate names, and tritonclient, KServe and others also define
`inference.*`. A model that uses one of these clients loads both definitions into its process.

protobuf creates the classes of the messages from the descriptors. They are attributes of this
module, so `from grpc_service.messages import ModelInferRequest` works without generated code.
"""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SERVICE_NAME = "inference.GRPCInferenceService"
DESCRIPTOR = Path(__file__).with_name("open_inference_grpc.binpb")


def _load_pool() -> DescriptorPool:
    """Return the pool with the compiled proto, which the build of the package creates."""
    if not DESCRIPTOR.exists():
        raise ImportError(
            f"{DESCRIPTOR.name}: file not found. Run pip install -e . in the root of the project."
        )
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR.read_bytes()).file:
        pool.Add(file)
    return pool


POOL = _load_pool()
SERVICE = POOL.FindServiceByName(SERVICE_NAME)


def message(name: str) -> Any:
    """Return the class of the message `name`. Raise KeyError if it is not in the proto."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))


def field_number(message_class: Any, field: str) -> int:
    """Return the number of a field."""
    number: int = message_class.DESCRIPTOR.fields_by_name[field].number
    return number


def __getattr__(name: str) -> Any:
    """Return the class of the message `name`, as an attribute of this module."""
    try:
        return message(name)
    except KeyError:
        raise AttributeError(name) from None
