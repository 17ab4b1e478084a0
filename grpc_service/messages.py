"""The messages and the service of protos/open_inference_grpc.proto, in a descriptor pool of their own.

The default pool takes each name once, and tritonclient, KServe and others bring `inference.*` of their own. A model
that calls another server through one of them has both in its process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SERVICE_NAME = "inference.GRPCInferenceService"
DESCRIPTOR = Path(__file__).with_name("open_inference_grpc.binpb")


def load_pool() -> DescriptorPool:
    if not DESCRIPTOR.exists():
        raise ImportError(f"{DESCRIPTOR.name}: file not found. Run pip install -e . in the root of the project.")
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR.read_bytes()).file:
        pool.Add(file)
    return pool


POOL = load_pool()
SERVICE = POOL.FindServiceByName(SERVICE_NAME)


def message(name: str) -> Any:
    """Return the class of the message with this name in the proto."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))


def field_number(message_class: Any, field: str) -> int:
    """Return the number of a message's field."""
    number: int = message_class.DESCRIPTOR.fields_by_name[field].number
    return number


def __getattr__(name: str) -> Any:
    """Make each message of the proto an attribute of this module."""
    try:
        return message(name)
    except KeyError:
        raise AttributeError(name) from None
