"""Messages and service of open_inference_grpc.proto, in a separate descriptor pool.

The default pool rejects duplicate names. The tests of a server can import the server's messages,
which have the same names, into the same process.
"""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SERVICE_NAME = "inference.GRPCInferenceService"
DESCRIPTOR = Path(__file__).with_name("open_inference_grpc.binpb")


def load_pool() -> DescriptorPool:
    """Return a pool with the files of the descriptor, which the installation compiles."""
    pool = DescriptorPool()
    descriptor = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTOR.read_bytes())
    for file in descriptor.file:
        pool.Add(file)
    return pool


POOL = load_pool()
SERVICE = POOL.FindServiceByName(SERVICE_NAME)


def message(name: str) -> Any:
    """Return the class of the message `name`. Raise KeyError if it is not in the proto."""
    return GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))


def __getattr__(name: str) -> Any:
    """Return the class of a message, so that messages are attributes of this module."""
    try:
        return message(name)
    except KeyError:
        raise AttributeError(name) from None
