"""Check over gRPC that the model at ADDRESS is ready, for `helm test`. SERVER_NAME enables TLS."""

import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

address = os.environ["ADDRESS"]
channel = grpc.insecure_channel(address)
if name := os.environ.get("SERVER_NAME"):
    files = sorted(Path(os.environ["CERTIFICATES"]).glob("*.crt"))
    credentials = grpc.ssl_channel_credentials(b"\n".join(file.read_bytes() for file in files))
    channel = grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", name)])
response = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
serving = response.status == health_pb2.HealthCheckResponse.SERVING
sys.exit(None if serving else f"grpc.health.v1: model not ready. Expected SERVING, got {response}")
